#include "runtime/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace {

/// Bytes of the UTF-8 sequence at the start of `text`, 0 where it is invalid (RFC 3629).
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  const auto continues = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i)
      if ((byte(i) & 0xc0) != 0x80) return false;
    return true;
  };
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1, 2) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool overlong = first == 0xe0 && second < 0xa0, surrogate = first == 0xed && second > 0x9f;
    return continues(1, 3) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool overlong = first == 0xf0 && second < 0x90, beyond = first == 0xf4 && second > 0x8f;
    return continues(1, 4) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

void append_string(std::string& text, std::string_view value) {
  constexpr char kDigits[] = "0123456789abcdef";
  text += '"';
  while (!value.empty()) {
    const std::size_t length = sequence_length(value);
    const auto first = static_cast<unsigned char>(value[0]);
    if (length == 0) text += "\xef\xbf\xbd";
    else if (first == '"' || first == '\\') text.append({'\\', value[0]});
    else if (first < 0x20 || first == 0x7f) text.append("\\u00").append({kDigits[first >> 4], kDigits[first & 15]});
    else text += value.substr(0, length);
    value.remove_prefix(std::max<std::size_t>(length, 1));
  }
  text += '"';
}

void append_value(std::string& text, std::int64_t value) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

void append_value(std::string& text, double value) {
  if (!std::isfinite(value)) {
    text += "null";
    return;
  }
  char digits[32];
  const std::string_view written(digits,
                                 static_cast<std::size_t>(std::to_chars(digits, digits + sizeof(digits), value).ptr - digits));
  text += written;
  if (written.find_first_of(".e") == written.npos) text += ".0";
}

void append_value(std::string& text, std::string_view value) { append_string(text, value); }

void append_value(std::string& text, std::span<const double> values) {
  text += '[';
  for (const double value : values) {
    if (text.back() != '[') text += ',';
    append_value(text, value);
  }
  text += ']';
}

/// Elements from `at` on, along `axis` and those behind it.
void append_elements(std::string& text, const Tensor& value, std::size_t axis, std::int64_t& at) {
  if (axis == value.shape().size()) return append_value(text, value.at(at++));
  text += '[';
  for (std::int64_t i = 0; i < value.shape()[axis]; ++i) {
    if (i > 0) text += ',';
    append_elements(text, value, axis + 1, at);
  }
  text += ']';
}

void append_value(std::string& text, const Tensor* value) {
  std::int64_t at = 0;
  append_elements(text, *value, 0, at);
}

void append_field(std::string& text, std::string_view name) {
  if (text.back() != '{') text += ',';
  append_string(text, name);
  text += ':';
}

}  // namespace

std::string_view text_of_not_finite(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

void append_json(std::string& text, std::span<const Metric> metrics) {
  text += '{';
  for (const auto& [name, value] : metrics) {
    append_field(text, name);
    std::visit([&](auto v) { append_value(text, v); }, value);
    const double* number = std::get_if<double>(&value);
    if (number == nullptr || std::isfinite(*number)) continue;
    append_field(text, name);
    text.replace(text.size() - 2, 2, "_text\":");
    append_string(text, text_of_not_finite(*number));
  }
  text += '}';
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, Opening opening)
    : path_(path.string()), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail();
  if (opening == Opening::replace) return;
  started_ = true;
  whole_ = std::max<std::int64_t>(::lseek(descriptor_, 0, SEEK_END), 0);  // pipes have no length
}

MetricsWriter::~MetricsWriter() { ::close(descriptor_); }

void MetricsWriter::fail() const {
  throw UserError(concat("cannot write '", path_, "': ", std::generic_category().message(errno)));
}

void MetricsWriter::write(std::span<const Metric> metrics) {
  if (!std::exchange(started_, true) && ::ftruncate(descriptor_, 0) != 0 && errno != EINVAL) fail();  // pipes have no length
  line_.clear();
  append_json(line_, metrics);
  line_ += '\n';
  for (std::string_view rest = line_; !rest.empty();) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int why = errno;
      [[maybe_unused]] const int cut = ::ftruncate(descriptor_, whole_);  // in vain for a pipe
      errno = why;
      fail();
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  whole_ += static_cast<std::int64_t>(line_.size());
}

}  // namespace gcomp::runtime
