// What a test sets an emulated library up with: environment variables GCOMP_EMULATED_...; tests/cuda/README.md lists them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gcomp::emulated {

/// The value of GCOMP_EMULATED_<name>, or `otherwise` where it is unset or empty.
std::string setting(const char* name, std::string_view otherwise = "");

std::int64_t integer_setting(const char* name, std::int64_t otherwise);

/// "12.4" as 12 and 4.
struct Version {
  int major = 0, minor = 0;
};
Version version_setting(const char* name, std::string_view otherwise);

/// "64MiB", "2GiB" or bytes.
std::uint64_t bytes_setting(const char* name, std::uint64_t otherwise);

}  // namespace gcomp::emulated
