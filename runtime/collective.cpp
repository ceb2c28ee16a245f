#include "runtime/collective.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace {

constexpr char kOfAnother[] = " of another";

}  // namespace

void require_ranks(const Communicator* communicator, const CollectiveCall& call, const std::string& program) {
  check_user(communicator, "program '", program, "' is one of ", call.ranks, " ranks, and this process runs alone");
  check_user(communicator->size() == call.ranks, "program '", program, "' is one of ", call.ranks, " ranks, and ",
             communicator->size(), " run");
}

std::vector<std::string> gather_texts(Communicator& ranks, const std::string& text) {
  const auto count = static_cast<std::size_t>(ranks.size());
  const std::uint64_t length = text.size();
  std::vector<std::uint64_t> lengths(count);
  ranks.all_gather(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)));
  const std::size_t longest = *std::ranges::max_element(lengths);
  std::string own = text, all(longest * count, '\0');
  own.resize(longest);
  if (longest > 0) ranks.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < count; ++r) texts.push_back(all.substr(r * longest, lengths[r]));
  return texts;
}

void agree(Communicator& ranks, const std::function<void()>& work) {
  std::string message, code;
  try {
    work();
  } catch (const Error& error) {
    message = error.what();
    code = concat(static_cast<int>(error.code()), dynamic_cast<const OtherRankFailed*>(&error) ? kOfAnother : "");
  }
  const std::vector<std::string> codes = gather_texts(ranks, code);
  auto first = std::ranges::find_if(codes, [](const std::string& text) { return !text.empty() && !text.ends_with(kOfAnother); });
  if (first == codes.end()) first = std::ranges::find_if(codes, [](const std::string& text) { return !text.empty(); });
  if (first == codes.end()) return;
  const std::vector<std::string> messages = gather_texts(ranks, message), hosts = gather_texts(ranks, ranks.host());
  const auto rank = static_cast<std::size_t>(first - codes.begin());
  const bool all = std::ranges::all_of(messages, [&](const std::string& text) { return text == messages[rank]; });
  throw DeviceError(all ? message : concat("rank ", rank, " of ", ranks.size(), " (", hosts[rank], "): ", messages[rank]),
                    static_cast<ExitCode>(std::stoi(*first)));
}

}  // namespace gcomp::runtime
