// The --metrics file: one JSON object a line, readable while the run goes on.
//   {"step":1,"epoch":1,"loss":0.6931471824645996}
//   {"eval":"test.npz","loss":0.1234,"accuracy":0.97}
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "ir/base/tensor.h"

namespace gcomp::runtime {

/// A tensor's elements become nested lists.
using MetricValue = std::variant<std::int64_t, double, std::string_view, std::span<const double>, const Tensor*>;
using Metric = std::pair<std::string_view, MetricValue>;

/// "nan", "inf" or "-inf": how a number that is not finite is spelled where JSON has null.
std::string_view text_of_not_finite(double value);

/// Appends the object {"name": value, ...} to `text`. A double is written with the fewest digits that read back as the same
/// double, always with a "." or an exponent; NaN and infinities, which JSON lacks, become null and a second field
/// "NAME_text" of "nan", "inf" or "-inf"; in a list they become null alone. Text that is not UTF-8 is written with replacement
/// characters.
void append_json(std::string& text, std::span<const Metric> metrics);

class MetricsWriter {
 public:
  enum class Opening : std::uint8_t {
    replace,  ///< what the file held stays until the first write()
    append,   ///< it stays
  };
  /// Throws UserError with the system's reason; so does write().
  explicit MetricsWriter(const std::filesystem::path& path, Opening opening = Opening::replace);
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  ~MetricsWriter();

  /// One line, handed to the system before this returns, whole or not at all: what of it was written before the disk was full is
  /// taken back where the file has a length. Allocates nothing once lines have reached their longest.
  void write(std::span<const Metric> metrics);
  void write(std::initializer_list<Metric> metrics) { write(std::span<const Metric>(metrics.begin(), metrics.size())); }

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  int descriptor_;
  std::string line_;
  std::int64_t whole_ = 0;  // bytes of the lines before
  bool started_ = false;
};

}  // namespace gcomp::runtime
