// Accuracy of the CPU prelude's functions: f32 against the C library in double, over dense samples and the corners.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>

#include "ir/builder.h"
#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "passes/fusion/fuse.h"
#include "tests/codegen/compiled_kernels.h"

namespace gcomp::tests {
namespace {

using namespace ir;

const float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

/// About a million floats: every exponent with both signs, and a dense grid near 0, with corners in front.
std::vector<float> samples(float low, float high) {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               kInfinity,
                               -kInfinity,
                               kNan,
                               1.0f,
                               -1.0f,
                               std::numeric_limits<float>::denorm_min(),
                               -std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::lowest(),
                               88.72283f,
                               88.72284f,
                               -87.33654f,
                               -103.27893f,
                               -103.97209f,
                               0x1.fffffep-1f,
                               0x1.000002p+0f};
  for (std::uint32_t bits = 0; bits < 0x7f800000u; bits += 8191) {
    float value;
    std::memcpy(&value, &bits, 4);
    values.push_back(value);
    values.push_back(-value);
  }
  for (int i = 0; i < 400000; ++i) values.push_back(low + (high - low) * static_cast<float>(i) / 400000);
  return values;
}

/// The distance in units of the last place of the exact result; corners must agree in kind.
double ulps(float actual, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(rounded)) return std::isnan(actual) ? 0 : 1e30;
  if (actual == rounded) return std::signbit(actual) == std::signbit(rounded) ? 0 : 1e30;
  if (std::isinf(rounded) || std::isinf(actual) || std::isnan(actual)) {
    // The largest finite number is one unit from infinity.
    return std::abs(exact) > 3.4028e38 && std::abs(static_cast<double>(actual)) > 3.4028e38 ? 1 : 1e30;
  }
  const double size = std::max(std::abs(exact), static_cast<double>(std::numeric_limits<float>::min()));
  const double unit = std::ldexp(1.0, std::ilogb(size) - 23);
  return std::abs(static_cast<double>(actual) - exact) / unit;
}

struct FunctionCase {
  const OpDef* op;
  double (*exact)(double);
  float low, high;
  double limit;  ///< units in the last place
};

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double softplus(double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(x))) + (x != x ? x : 0); }

TEST(CpuFunctions, AreAccurateToAFewUnits) {
  const FunctionCase cases[] = {
      {&ops::kExp, std::exp, -104, 89, 2},      {&ops::kExpm1, std::expm1, -20, 20, 3},   {&ops::kLog, std::log, 0.25f, 4, 2},
      {&ops::kLog1p, std::log1p, -0.99f, 4, 3}, {&ops::kTanh, std::tanh, -10, 10, 4},     {&ops::kErf, std::erf, -4.5f, 4.5f, 4},
      {&ops::kSigmoid, sigmoid, -104, 90, 4},   {&ops::kSoftplus, softplus, -104, 20, 4}, {&ops::kSin, std::sin, -30, 30, 2},
      {&ops::kCos, std::cos, -30, 30, 2},       {&ops::kSqrt, std::sqrt, 0, 10, 1},
  };
  CompiledKernels kernels;
  std::vector<std::vector<float>> inputs;
  std::vector<std::size_t> numbers;
  for (const FunctionCase& c : cases) {
    inputs.push_back(samples(c.low, c.high));
    const TensorType type{DType::f32, {static_cast<std::int64_t>(inputs.back().size())}};
    const std::vector<TensorType> types{type};
    numbers.push_back(kernels.add({loops_of(*c.op, types, types, {}), types, types}));
  }
  kernels.compile();
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    Tensor operand(DType::f32, {static_cast<std::int64_t>(inputs[i].size())});
    std::copy(inputs[i].begin(), inputs[i].end(), operand.as<float>().begin());
    const Tensor result = kernels.run(numbers[i], {operand}, TaskOrder::together)[0];
    double worst = 0;
    float where = 0;
    for (std::size_t k = 0; k < inputs[i].size(); ++k) {
      const double distance = ulps(result.as<float>()[k], cases[i].exact(inputs[i][k]));
      if (distance > worst) {
        worst = distance;
        where = inputs[i][k];
      }
    }
    EXPECT_LE(worst, cases[i].limit) << cases[i].op->name << " at " << where;
  }
}

/// Binary operations over all pairs of a list, exactly, or where `nearly` in f64 to the last place.
void check_pairs(const OpDef& op, DType dtype, const std::vector<double>& values,
                 const std::function<double(double, double)>& exact, bool nearly = false) {
  const std::int64_t count = static_cast<std::int64_t>(values.size() * values.size());
  Tensor x(dtype, {count}), y(dtype, {count});
  for (std::int64_t i = 0; i < count; ++i) {
    x.set(i, values[static_cast<std::size_t>(i) / values.size()]);
    y.set(i, values[static_cast<std::size_t>(i) % values.size()]);
  }
  const std::vector<TensorType> operands{x.type(), x.type()}, results = infer_types(op, operands, {});
  CompiledKernels kernels;
  const std::size_t kernel = kernels.add({loops_of(op, operands, results, {}), operands, results});
  kernels.compile();
  const Tensor result = kernels.run(kernel, {x, y}, TaskOrder::together)[0];
  for (std::int64_t i = 0; i < count; ++i) {
    const double wanted = exact(x.at(i), y.at(i)), found = result.at(i);
    const bool near = nearly && std::abs(found - wanted) <= std::abs(wanted) * 0x1p-52;
    EXPECT_TRUE(found == wanted || (found != found && wanted != wanted) || near)
        << op.name << "(" << x.at(i) << ", " << y.at(i) << ") is " << found << ", wanted " << wanted;
  }
}

TEST(CpuFunctions, IntegersDivideByZeroAndWrap) {
  const std::vector<double> values = {0, 1, -1, 2, -2, 7, -7, 2147483647.0, -2147483648.0};
  const auto wrap = [](double x) { return static_cast<double>(static_cast<std::int32_t>(static_cast<std::int64_t>(x))); };
  check_pairs(ops::kDiv, DType::i32, values, [&](double x, double y) { return y == 0 ? 0 : wrap(std::trunc(x / y)); });
  check_pairs(ops::kTruncatedRemainder, DType::i32, values, [](double x, double y) { return y == 0 ? 0 : std::fmod(x, y) + 0.0; });
  check_pairs(ops::kFlooredRemainder, DType::i32, values,
              [](double x, double y) { return y == 0 ? 0 : x - y * std::floor(x / y); });
}

TEST(CpuFunctions, ShiftsOfTheWidthAndMoreGiveZero) {
  const std::vector<double> values = {0, 1, 3, 7, 8, 9, 200, 255};
  check_pairs(ops::kShiftLeft, DType::u8, values, [](double x, double y) {
    return y >= 8 ? 0 : static_cast<std::uint8_t>(static_cast<unsigned>(x) << static_cast<unsigned>(y));
  });
  check_pairs(ops::kShiftRight, DType::u8, values,
              [](double x, double y) { return y >= 8 ? 0 : static_cast<unsigned>(x) >> static_cast<unsigned>(y); });
}

TEST(CpuFunctions, NanWinsInMaximumAndMinimum) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> values = {nan, infinity, -infinity, 0, 1, -1};
    check_pairs(ops::kMaximum, dtype, values, [](double x, double y) { return x != x || y != y ? x + y : std::max(x, y); });
    check_pairs(ops::kMinimum, dtype, values, [](double x, double y) { return x != x || y != y ? x + y : std::min(x, y); });
  }
}

/// Distance of a double from an exact result, in units of its last place; corners must agree in kind.
double units64(double actual, long double exact) {
  const double rounded = static_cast<double>(exact);
  if (std::isnan(rounded)) return std::isnan(actual) ? 0 : 1e30;
  if (actual == rounded) return std::signbit(actual) == std::signbit(rounded) ? 0 : 1e30;
  if (std::isinf(rounded) || !std::isfinite(actual)) return 1e30;
  const double size = std::max(std::abs(rounded), std::numeric_limits<double>::min());
  return static_cast<double>(std::abs(static_cast<long double>(actual) - exact)) / std::ldexp(1.0, std::ilogb(size) - 52);
}

/// Every exponent with both signs, and a dense grid near 0, with corners in front.
std::vector<double> samples64(double low, double high) {
  std::vector<double> values = {0.0,    -0.0,    HUGE_VAL, -HUGE_VAL, std::nan(""), 1,      -1,
                                5e-324, -5e-324, 709.78,   709.79,    -745.13,      -745.14};
  std::mt19937_64 random(3);
  for (int exponent = -1074; exponent < 1024; ++exponent)
    for (int i = 0; i < 20; ++i) {
      values.push_back(std::ldexp(1 + static_cast<double>(random() >> 12) * 0x1p-52, exponent));
      values.push_back(-values.back());
    }
  for (int i = 0; i < 200000; ++i) values.push_back(low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53);
  return values;
}

long double sigmoid64(long double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
long double softplus64(long double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(x))) + (x != x ? x : 0); }

TEST(CpuFunctions, OfF64AreAccurateToAFewUnits) {
  struct Case {
    const OpDef* op;
    long double (*exact)(long double);
    double low, high, limit;
  };
  const Case cases[] = {{&ops::kExp, std::exp, -745, 710, 1},     {&ops::kExpm1, std::expm1, -5, 5, 2},
                        {&ops::kLog, std::log, 0.25, 4, 0.75},    {&ops::kLog1p, std::log1p, -0.99, 4, 1},
                        {&ops::kTanh, std::tanh, -20, 20, 3},     {&ops::kSigmoid, sigmoid64, -40, 40, 3},
                        {&ops::kSoftplus, softplus64, -40, 40, 3}};
  CompiledKernels kernels;
  std::vector<std::vector<double>> inputs;
  std::vector<std::size_t> numbers;
  for (const Case& c : cases) {
    inputs.push_back(samples64(c.low, c.high));
    const std::vector<TensorType> types{{DType::f64, {static_cast<std::int64_t>(inputs.back().size())}}};
    numbers.push_back(kernels.add({loops_of(*c.op, types, types, {}), types, types}));
  }
  kernels.compile();
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    Tensor operand(DType::f64, {static_cast<std::int64_t>(inputs[i].size())});
    std::copy(inputs[i].begin(), inputs[i].end(), operand.as<double>().begin());
    const Tensor result = kernels.run(numbers[i], {operand}, TaskOrder::together)[0];
    double worst = 0, where = 0;
    for (std::size_t k = 0; k < inputs[i].size(); ++k) {
      const double distance = units64(result.as<double>()[k], cases[i].exact(inputs[i][k]));
      if (distance > worst) {
        worst = distance;
        where = inputs[i][k];
      }
    }
    EXPECT_LE(worst, cases[i].limit) << cases[i].op->name << " at " << where;
  }
}

TEST(CpuFunctions, PowersAreTheLibrarys) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {nan, infinity, -infinity, 0,  -0.0, 1,     -1,    0.5, -0.5,
                                      2,   -2,       3,         -3, 1e30, -1e30, 1e-30, 2.5, 17};
  check_pairs(
      ops::kPow, DType::f64, values, [](double x, double y) { return std::pow(x, y); }, true);
  std::vector<double> few = {nan, infinity, -infinity, 0, -0.0, 1, -1, 0.5, 2, -2, 4, 1e30, -1e30};
  check_pairs(ops::kPow, DType::f32, few,
              [](double x, double y) { return static_cast<float>(std::pow(static_cast<float>(x), static_cast<float>(y))); });
}

/// Every half precision number through the kernel's conversions, and doubles around every rounding boundary.
TEST(CpuFunctions, HalfPrecisionConvertsAsTheRuntimeDoes) {
  CompiledKernels kernels;
  const TensorType f16{DType::f16, {65536}}, bf16{DType::bf16, {65536}}, f32{DType::f32, {65536}};
  std::vector<std::size_t> numbers;
  const std::pair<TensorType, TensorType> conversions[] = {{f16, f32}, {bf16, f32}, {f32, f16}, {f32, bf16}};
  for (const auto& [from, to] : conversions) {
    const std::vector<TensorType> operands{from}, results{to};
    numbers.push_back(kernels.add({loops_of(ops::kCast, operands, results, {{"to", to.dtype}}), operands, results}));
  }
  kernels.compile();
  for (std::size_t c = 0; c < std::size(conversions); ++c) {
    Tensor operand(conversions[c].first);
    for (std::int64_t i = 0; i < 65536; ++i) {
      if (conversions[c].first.dtype == DType::f32) {
        const std::uint32_t bits = static_cast<std::uint32_t>(i * 65537);
        std::memcpy(operand.data() + i * 4, &bits, 4);
      } else {
        const auto bits = static_cast<std::uint16_t>(i);
        std::memcpy(operand.data() + i * 2, &bits, 2);
      }
    }
    const Tensor result = kernels.run(numbers[c], {operand}, TaskOrder::together)[0],
                 expected = operand.cast(conversions[c].second.dtype);
    for (std::int64_t i = 0; i < 65536; ++i) {
      const double wanted = expected.at(i), found = result.at(i);
      ASSERT_TRUE(found == wanted || (found != found && wanted != wanted))
          << "element " << i << " of " << to_string(conversions[c].first) << ": " << found << ", wanted " << wanted;
    }
  }
}

/// The one kernel that casts f32 to `half` and back without a trip through memory.
std::size_t add_rounding(CompiledKernels& kernels, DType half, std::int64_t elements) {
  Graph graph;
  Builder b(graph);
  graph.outputs() = {b.cast(b.cast(b.input({DType::f32, {elements}}, "x"), half), DType::f32).value};
  passes::fuse(graph);
  check_internal(graph.nodes().size() == 1, "two casts are not one kernel");
  const Node& node = *graph.nodes()[0];
  const std::vector<TensorType> operands = types_of(node.operands), results = types_of(node.results);
  return kernels.add({*node.nest, operands, results});
}

/// Every half precision number, and the floats at, below and above the middle between it and the next.
TEST(CpuFunctions, RoundingToHalfPrecisionIsThereAndBack) {
  for (const DType half : {DType::f16, DType::bf16}) {
    Tensor numbers(half, {65536});
    for (std::int64_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      std::memcpy(numbers.data() + i * 2, &bits, 2);
    }
    std::vector<float> values;
    for (std::int64_t i = 0; i < 65536; ++i) {
      const auto value = static_cast<float>(numbers.at(i)), next = static_cast<float>(numbers.at(i == 65535 ? 0 : i + 1));
      const float middle = value / 2 + next / 2;
      values.insert(values.end(), {value, middle, std::nextafter(middle, -kInfinity), std::nextafter(middle, kInfinity)});
    }
    for (const float value : {65519.9f, 65520.0f, 65535.9f, 65536.0f, std::numeric_limits<float>::max()})
      values.insert(values.end(), {value, -value});
    Tensor operand(DType::f32, {static_cast<std::int64_t>(values.size())});
    std::memcpy(operand.data(), values.data(), values.size() * sizeof(float));
    CompiledKernels kernels;
    const std::size_t rounding = add_rounding(kernels, half, operand.elements());
    kernels.compile();
    const Tensor result = kernels.run(rounding, {operand}, TaskOrder::together)[0], expected = operand.cast(half).cast(DType::f32);
    for (std::int64_t i = 0; i < operand.elements(); ++i) {
      const double wanted = expected.at(i), found = result.at(i);
      ASSERT_TRUE((found == wanted && std::signbit(found) == std::signbit(wanted)) || (found != found && wanted != wanted))
          << name_of(half) << " of " << values[static_cast<std::size_t>(i)] << ": " << found << ", wanted " << wanted;
    }
  }
}

}  // namespace
}  // namespace gcomp::tests
