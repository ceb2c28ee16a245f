// Figures for people: the unit follows the number, and nothing that is there is shown as nothing.
#include <gtest/gtest.h>

#include "ir/base/units.h"

namespace gcomp {
namespace {

TEST(Units, TimesFromNanosecondsToSeconds) {
  EXPECT_EQ(time_text(0), "0 ns");
  EXPECT_EQ(time_text(2e-12), "<1 ns");
  EXPECT_EQ(time_text(64e-9), "64 ns");
  EXPECT_EQ(time_text(3.1e-6), "3.10 us");
  EXPECT_EQ(time_text(0.0125), "12.50 ms");
  EXPECT_EQ(time_text(75.3), "75.3 s");
  EXPECT_EQ(time_unit(3.1e-6).name, "us");
  EXPECT_EQ(time_unit(3.1e-6).seconds, 1e-6);
}

TEST(Units, RatesBelowATeraAreInGiga) {
  EXPECT_EQ(rate_text(1.25e12, "FLOP/s"), "1.2 TFLOP/s");
  EXPECT_EQ(rate_text(0.999e12, "FLOP/s"), "999.0 GFLOP/s");
  EXPECT_EQ(rate_text(0.3e9, "FLOP/s"), "0.3 GFLOP/s");
  EXPECT_EQ(rate_text(0.02e9, "FLOP/s"), "20.0 MFLOP/s");
  EXPECT_EQ(rate_text(5e3, "B/s"), "5.0 kB/s");
  EXPECT_EQ(rate_text(0, "FLOP/s"), "0.0 FLOP/s");
}

TEST(Units, SizesAndCounts) {
  EXPECT_EQ(size_text(std::int64_t{640}), "640 B");
  EXPECT_EQ(size_text(1.5 * 1024 * 1024), "1.50 MiB");
  EXPECT_EQ(flops_text(137.4e9), "137.40 GFLOP");
  EXPECT_EQ(rows_rate_text(6538.2), "6538 rows/s");
  EXPECT_EQ(rows_rate_text(0.0412), "0.0412 rows/s");
}

TEST(Units, SharesThatAreSmallButThere) {
  EXPECT_EQ(percent_text(0.563), "56.3 %");
  EXPECT_EQ(percent_text(0.0001), "<0.1 %");
  EXPECT_EQ(percent_text(0), "0.0 %");
}

TEST(Units, SizesAreReadInPowersOfTwoAndTen) {
  EXPECT_EQ(parse_size("640"), 640);
  EXPECT_EQ(parse_size("640 B"), 640);
  EXPECT_EQ(parse_size("6GiB"), std::int64_t{6} << 30);
  EXPECT_EQ(parse_size("1.5 MiB"), 3 << 19);
  EXPECT_EQ(parse_size("1.5GB"), 1500000000);
  EXPECT_EQ(parse_size("2kB"), 2000);
  EXPECT_EQ(parse_size(size_text(std::int64_t{3} << 40)), std::int64_t{3} << 40);
  for (const char* none : {"", "GiB", "0", "-1GiB", "0.2", "1e30TiB", "nan", "inf", "6 gib", "6GiB ", "1,5GiB", "6 G"})
    EXPECT_FALSE(parse_size(none)) << none;
}

}  // namespace
}  // namespace gcomp
