#include "tests/cuda/record/environment.h"

#include <cstdlib>

namespace gcomp::emulated {

std::string setting(const char* name, std::string_view otherwise) {
  const char* value = std::getenv((std::string("GCOMP_EMULATED_") + name).c_str());
  return value && *value ? std::string(value) : std::string(otherwise);
}

std::int64_t integer_setting(const char* name, std::int64_t otherwise) {
  const std::string text = setting(name);
  return text.empty() ? otherwise : std::atoll(text.c_str());
}

Version version_setting(const char* name, std::string_view otherwise) {
  const std::string text = setting(name, otherwise);
  const std::size_t point = text.find('.');
  return {std::atoi(text.c_str()), point == std::string::npos ? 0 : std::atoi(text.c_str() + point + 1)};
}

std::uint64_t bytes_setting(const char* name, std::uint64_t otherwise) {
  const std::string text = setting(name);
  if (text.empty()) return otherwise;
  char* unit = nullptr;
  const std::uint64_t count = std::strtoull(text.c_str(), &unit, 10);
  switch (*unit) {
    case 'K': return count << 10;
    case 'M': return count << 20;
    case 'G': return count << 30;
    default: return count;
  }
}

}  // namespace gcomp::emulated
