#include "runtime/collective.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace {

// How a rank's frame begins: a text, or its failure. One kind for all that is gathered, since a rank that fails early takes part in
// whatever the others gather next, and both see that.
constexpr char kText = '=', kOwn = '!', kOfAnother = '?';

struct Failure {
  int code = 0;
  std::string host, message;
};

Failure parse_failure(const std::string& frame) {
  const std::size_t host = frame.find('\n') + 1, message = frame.find('\n', host) + 1;
  return {std::stoi(frame.substr(1)), frame.substr(host, message - 1 - host), frame.substr(message)};
}

std::vector<std::string> gather_frames(Communicator& ranks, const std::string& frame) {
  const auto count = static_cast<std::size_t>(ranks.size());
  const std::uint64_t length = frame.size();
  std::vector<std::uint64_t> lengths(count);
  ranks.all_gather(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)));
  const std::size_t longest = *std::ranges::max_element(lengths);
  std::string own = frame, all(longest * count, '\0');
  own.resize(longest);
  if (longest > 0) ranks.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  std::vector<std::string> frames;
  for (std::size_t r = 0; r < count; ++r) frames.push_back(all.substr(r * longest, lengths[r]));
  return frames;
}

/// The first that is the rank's own fault, else the first.
void throw_first_failure(const std::vector<std::string>& frames) {
  const auto is_failure = [](const std::string& frame) { return !frame.empty() && frame[0] != kText; };
  auto first = std::ranges::find_if(frames, [](const std::string& frame) { return !frame.empty() && frame[0] == kOwn; });
  if (first == frames.end()) first = std::ranges::find_if(frames, is_failure);
  if (first == frames.end()) return;
  const Failure failure = parse_failure(*first);
  const bool by_all = std::ranges::all_of(
      frames, [&](const std::string& frame) { return is_failure(frame) && parse_failure(frame).message == failure.message; });
  const std::string where = concat("rank ", first - frames.begin(), " of ", frames.size(), " (", failure.host, "): ");
  throw AgreedFailure(static_cast<ExitCode>(failure.code), (by_all ? "" : where) + failure.message, by_all);
}

}  // namespace

void require_ranks(const Communicator* communicator, const CollectiveCall& call, const std::string& program) {
  check_user(communicator, "program '", program, "' is one of ", call.ranks, " ranks, and this process runs alone");
  check_user(communicator->size() == call.ranks, "program '", program, "' is one of ", call.ranks, " ranks, and ",
             communicator->size(), " run");
}

std::vector<std::string> gather_texts(Communicator& ranks, const std::string& text) {
  std::vector<std::string> frames = gather_frames(ranks, kText + text);
  throw_first_failure(frames);
  for (std::string& frame : frames) frame.erase(0, 1);
  return frames;
}

void agree(Communicator& ranks, const std::function<void()>& work) {
  std::string frame;  // of no bytes where nothing is wrong: that is asked for in every step
  try {
    work();
  } catch (const AgreedFailure&) { throw; } catch (const Error& error) {
    const bool of_another = dynamic_cast<const OtherRankFailed*>(&error) != nullptr;
    frame = concat(of_another ? kOfAnother : kOwn, static_cast<int>(error.code()), "\n", ranks.host(), "\n", error.what());
  }
  throw_first_failure(gather_frames(ranks, frame));
}

}  // namespace gcomp::runtime
