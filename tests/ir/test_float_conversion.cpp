// Conversions between float types, by their definitions: every number of 16 bits, and every place between two of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/tensor.h"

namespace gcomp {
namespace {

constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

struct Format {
  const char* name;
  int mantissa, least_exponent;  // stored bits; of the smallest normal number
  float (*read)(std::uint16_t);
  std::uint16_t (*write)(double);

  int infinity() const { return 0x7fff >> mantissa << mantissa; }
  /// IEEE 754, 3.4: what the bits of a number from 0 on stand for.
  double value(int bits) const {
    const int exponent = bits >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    if (exponent == 0) return std::ldexp(fraction, least_exponent - mantissa);
    return std::ldexp(fraction + (1 << mantissa), exponent - 1 + least_exponent - mantissa);
  }
};
const Format kFormats[] = {{"f16", 10, -14, f16_to_float, double_to_f16}, {"bf16", 7, -126, bf16_to_float, double_to_bf16}};

TEST(FloatConversion, ReadsEveryNumberOfSixteenBits) {
  for (const Format& format : kFormats) {
    for (int bits = 0; bits < format.infinity(); ++bits) {
      ASSERT_EQ(format.read(static_cast<std::uint16_t>(bits)), format.value(bits)) << format.name << " " << bits;
      const float negative = format.read(static_cast<std::uint16_t>(bits | 0x8000));
      ASSERT_EQ(negative, -format.value(bits)) << format.name << " " << bits;
      ASSERT_TRUE(std::signbit(negative));
    }
    EXPECT_EQ(format.read(static_cast<std::uint16_t>(format.infinity())), std::numeric_limits<float>::infinity());
    EXPECT_EQ(format.read(static_cast<std::uint16_t>(format.infinity() | 0x8000)), -std::numeric_limits<float>::infinity());
    for (int bits = format.infinity() + 1; bits <= 0x7fff; ++bits)
      EXPECT_TRUE(std::isnan(format.read(static_cast<std::uint16_t>(bits)))) << format.name << " " << bits;
  }
}

// Behind the last number is infinity, which is nearer from halfway to the next power of two on.
TEST(FloatConversion, RoundsToNearestEven) {
  for (const Format& format : kFormats)
    for (int low = 0; low < format.infinity(); ++low) {
      const double a = format.value(low), middle = (a + format.value(low + 1)) / 2;
      const int even = low % 2 == 0 ? low : low + 1;
      ASSERT_EQ(format.write(a), low) << format.name;
      ASSERT_EQ(format.write(std::nextafter(middle, 0.0)), low) << format.name;
      ASSERT_EQ(format.write(middle), even) << format.name << " " << low;
      ASSERT_EQ(format.write(std::nextafter(middle, 1e300)), low + 1) << format.name << " " << low;
      ASSERT_EQ(format.write(-middle), even | 0x8000) << format.name << " " << low;
    }
}

TEST(FloatConversion, KeepsWhatIsNoNumber) {
  for (const Format& format : kFormats) {
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(format.write(infinity), format.infinity());
    EXPECT_EQ(format.write(-infinity), format.infinity() | 0x8000);
    EXPECT_EQ(format.write(std::numeric_limits<double>::max()), format.infinity());
    EXPECT_EQ(format.write(std::numeric_limits<double>::denorm_min()), 0);
    EXPECT_EQ(format.write(-0.0), 0x8000);
    EXPECT_EQ(format.write(std::numeric_limits<double>::quiet_NaN()), format.infinity() | 1 << (format.mantissa - 1));
  }
}

// Whole arrays become what their elements become, one by one.
TEST(FloatConversion, OfArraysIsThatOfTheirElements) {
  std::vector<double> numbers = {0.0, -0.0, 1e-320, -3e-45, 6e-8, 65519.99, 65520.0, -1e39, 1e300, INFINITY, -INFINITY, NAN};
  for (int i = 0; i < 5000; ++i) numbers.push_back(std::ldexp(std::sin(i * 0.7) + 1e-9 * i, i % 300 - 150));
  for (const DType from : kFloats)
    for (const DType to : kFloats) {
      const Tensor source = Tensor::of(from, {static_cast<std::int64_t>(numbers.size())}, numbers);
      Tensor wanted(to, source.shape());
      for (std::int64_t i = 0; i < source.elements(); ++i) wanted.set(i, source.at(i));
      if (from != to) { EXPECT_EQ(source.cast(to), wanted) << name_of(from) << " as " << name_of(to); }
      Tensor made(to, source.shape());
      convert_floats(from, source.data(), to, made.data(), source.elements());
      EXPECT_EQ(made, wanted) << name_of(from) << " as " << name_of(to);
    }
}

}  // namespace
}  // namespace gcomp
