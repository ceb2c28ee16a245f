// Scalars as TensorBoard reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/files/descriptor.h"

namespace gcomp::driver {

/// CRC-32C (Castagnoli; RFC 3720, B.4).
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// A file of TFRecords: each is its length (8 bytes, little-endian), the masked CRC-32C of that, an Event, and the masked CRC-32C
/// of it; masked is ((crc >> 15 | crc << 17) + 0xa282ead8).
class EventFile {
 public:
  /// A new file "events.out.tfevents.SECONDS.gcomp" in `folder`, with a number behind it where there is one. Steps from
  /// `first_step` on that earlier files of the folder hold are void. Throws UserError with the system's reason; so do the others.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);

  using Scalar = std::pair<std::string_view, double>;
  /// One event, handed to the system before this returns.
  void write(std::int64_t step, std::span<const Scalar> scalars);
  const std::string& path() const { return path_; }

 private:
  void write_record(const std::string& event);

  std::string path_;
  runtime::Descriptor descriptor_;
};

}  // namespace gcomp::driver
