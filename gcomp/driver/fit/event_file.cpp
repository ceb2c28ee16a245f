#include "gcomp/driver/fit/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <system_error>

#include "gcomp/driver/fit/event_file.pb.h"
#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

constexpr std::array<std::uint32_t, 256> kCrcOfByte = [] {
  constexpr std::uint32_t kReversedPolynomial = 0x82f63b78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ kReversedPolynomial : crc >> 1;
    table[byte] = crc;
  }
  return table;
}();

void append_little_endian(std::string& text, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
}

void append_masked_crc(std::string& text, std::string_view of) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(of)));
  append_little_endian(text, static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

double seconds_since_1970() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

[[noreturn]] void fail_to_write(const std::string& path) {
  throw UserError(concat("cannot write '", path, "': ", std::generic_category().message(errno)));
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0u;
  for (const std::byte byte : bytes) crc = crc >> 8 ^ kCrcOfByte[(crc ^ static_cast<std::uint32_t>(byte)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step) {
  const std::string name =
      (folder / concat("events.out.tfevents.", static_cast<std::int64_t>(seconds_since_1970()), ".gcomp")).string();
  for (int number = 0; !descriptor_; ++number) {
    path_ = number == 0 ? name : concat(name, ".", number);
    descriptor_ = runtime::Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (!descriptor_ && errno != EEXIST) fail_to_write(path_);
  }
  events::Event version, start;
  version.set_wall_time(seconds_since_1970());
  version.set_file_version("brain.Event:2");
  write_record(version.SerializeAsString());
  start.set_wall_time(seconds_since_1970());
  start.set_step(first_step);
  start.mutable_session_log()->set_status(1);
  write_record(start.SerializeAsString());
}

void EventFile::write(std::int64_t step, std::span<const Scalar> scalars) {
  events::Event event;
  event.set_wall_time(seconds_since_1970());
  event.set_step(step);
  for (const auto& [tag, value] : scalars) {
    events::Value& added = *event.mutable_summary()->add_value();
    added.set_tag(std::string(tag));
    added.set_simple_value(static_cast<float>(value));
  }
  write_record(event.SerializeAsString());
}

void EventFile::write_record(const std::string& event) {
  std::string record;
  append_little_endian(record, event.size(), 8);
  append_masked_crc(record, std::string_view(record).substr(0, 8));
  record += event;
  append_masked_crc(record, event);
  for (std::string_view rest = record; !rest.empty();) {
    const ssize_t written = ::write(descriptor_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write(path_);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace gcomp::driver
