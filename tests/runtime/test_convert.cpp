// A user's floats for a program that holds them more coarsely: refused is the first that would become infinite.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ir/base/error.h"
#include "runtime/convert.h"

namespace gcomp::runtime {
namespace {

std::string refusal(const Tensor& tensor, DType wanted) {
  try {
    check_convertible(tensor, wanted, "array 'x'", 10);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

// The last that rounds to the largest number of each type, and the first that rounds to infinity.
TEST(Convert, RefusesWhatWouldBecomeInfinite) {
  struct Case {
    DType from, to;
    double last, first;
  };
  const double f16_end = 65520, bf16_end = 0x1.ffp127, f32_end = 0x1.ffffffp127;
  const auto below = [](double x) { return std::nextafter(x, 0); };
  const auto float_below = [](double x) { return static_cast<double>(std::nextafterf(static_cast<float>(x), 0)); };
  const Case cases[] = {
      {DType::f64, DType::f16, below(f16_end), f16_end},    {DType::f32, DType::f16, float_below(f16_end), f16_end},
      {DType::f64, DType::bf16, below(bf16_end), bf16_end}, {DType::f32, DType::bf16, float_below(bf16_end), bf16_end},
      {DType::f64, DType::f32, below(f32_end), f32_end},    {DType::bf16, DType::f16, 0x1.fep15, 0x1p16}};
  for (const Case& c : cases) {
    const std::string name = concat(name_of(c.from), " as ", name_of(c.to));
    const Tensor fits = Tensor::of(c.from, {4, 1}, {c.last, -c.last, INFINITY, NAN});
    EXPECT_EQ(refusal(fits, c.to), "") << name;
    EXPECT_TRUE(std::isfinite(convert(fits, c.to, "").at(1))) << name;
    const std::string refused = refusal(Tensor::of(c.from, {3, 1}, {1, -c.first, c.first}), c.to);
    EXPECT_TRUE(refused.find("array 'x', row 11: the value -") == 0 && refused.find(name_of(c.to)) != refused.npos)
        << name << refused;
  }
}

}  // namespace
}  // namespace gcomp::runtime
