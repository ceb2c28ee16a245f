// Measured numbers with the unit in which they do not round to nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gcomp {

/// So many digits behind a point, whatever the application's locale.
std::string decimal_text(double number, int digits);

struct TimeUnit {
  double seconds;  ///< of one
  std::string_view name;
};
/// s, ms, us or ns: the largest of which the time is one or more.
TimeUnit time_unit(double seconds);

/// "189.58 us", "640 ns", "2.5 s"; "<1 ns" for what is shorter, "0 ns" for none.
std::string time_text(double seconds);
/// "1.50 MiB", "640 B".
std::string size_text(double bytes);
inline std::string size_text(std::int64_t bytes) { return size_text(static_cast<double>(bytes)); }
/// Bytes of "6GiB", "1.5 GB", "640": a number and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, the last four in powers of 1000;
/// nothing where the text is none, or below one byte or beyond 2^62.
std::optional<std::int64_t> parse_size(std::string_view text);
/// "1.50 GFLOP", "640 FLOP".
std::string flops_text(double flops);
/// "1.2 TFLOP/s", "143.0 GFLOP/s", "0.3 GFLOP/s", "20.0 MFLOP/s": giga down to a tenth, so that a column compares by eye.
/// `unit` is FLOP/s or B/s.
std::string rate_text(double per_second, std::string_view unit);
/// "6538 rows/s", "0.412 rows/s": three digits at least.
std::string rows_rate_text(double rows_per_second);
/// "56.3 %", "<0.1 %" for less than is shown. `share` is of 1.
std::string percent_text(double share);

}  // namespace gcomp
