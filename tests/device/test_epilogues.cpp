// Matrix products with what follows them, on a CUDA device against the interpreter, in each of the ways in which they are computed:
// by cuBLASLt with its epilogue, in f32 also rounded to TF32, where GELU may be one, by cuBLASLt's plain product with a kernel
// after it, and by generated kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>

#include "codegen/cuda/target.h"
#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "passes/training/differentiate.h"
#include "runtime/validate.h"
#include "tests/device/device_under_test.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using ir::Builder;
using ir::Var;
using runtime::EpilogueKind;
using runtime::MatmulPrecision;

struct Sizes {
  std::int64_t batch = 0;  ///< 0 for none
  std::int64_t m = 0, n = 0, k = 0;

  Shape shape(std::int64_t rows, std::int64_t columns) const { return batch ? Shape{batch, rows, columns} : Shape{rows, columns}; }
};

/// What a pattern is written over: the product s of x and w, z = s + v with v along n, and r of the shape of s.
struct Terms {
  Builder& b;
  Var s, z, r;
};

struct Pattern {
  std::string name;
  std::function<std::vector<Var>(Terms)> results;
  std::optional<EpilogueKind> known;  ///< to the library, in other dtypes than f64
};

Var gelu(Var x) {
  constexpr double kRoot = 0.7978845608028654;
  return 0.5 * x * (ir::ops::kTanh(kRoot * (x + 0.044715 * x * x * x)) + 1.0);
}
Var gelu_derivative(Var x) {
  constexpr double kRoot = 0.7978845608028654;
  const Var t = ir::ops::kTanh(kRoot * (x + 0.044715 * x * x * x));
  return 0.5 * (t + 1.0) + 0.5 * x * (1.0 - t * t) * kRoot * (3 * 0.044715 * x * x + 1.0);
}
Var relu(Var x) { return ir::ops::kRelu(x); }
Var sum_of_rows(Builder& b, Var x) {
  std::vector<std::int64_t> axes;
  for (std::int64_t a = 0; a + 1 < x.rank(); ++a) axes.push_back(a);
  return b.sum(x, axes);
}

std::vector<Pattern> patterns() {
  return {{"bias", [](Terms t) { return std::vector{t.z}; }, EpilogueKind::bias},
          {"relu of the sum and a bias", [](Terms t) { return std::vector{relu(t.z)}; }, {}},
          {"relu, and the sum for others",
           [](Terms t) {
             return std::vector{relu(t.s), t.s};
           },
           {}},
          {"gelu", [](Terms t) { return std::vector{gelu(t.s)}; }, EpilogueKind::gelu},
          {"gelu of the sum and a bias", [](Terms t) { return std::vector{gelu(t.z)}; }, EpilogueKind::gelu},
          {"gelu, and its operand for others",
           [](Terms t) {
             return std::vector{gelu(t.z), sum_of_rows(t.b, ir::ops::kCos(t.z))};
           },
           EpilogueKind::gelu},
          {"gradient of gelu, and its sum over the rows",
           [](Terms t) {
             const Var d = t.s * gelu_derivative(t.r);
             return std::vector{d, sum_of_rows(t.b, d)};
           },
           EpilogueKind::gelu_gradient},
          {"residual", [](Terms t) { return std::vector{t.z + t.r}; }, {}},
          {"several results",
           [](Terms t) {
             const Var p = relu(t.z * ir::ops::kExp(t.r));
             return std::vector{p, p - t.z, t.s};
           },
           {}}};
}

ir::Graph graph_of(const Pattern& pattern, const Sizes& s, DType dtype) {
  ir::Graph graph("g");
  Builder b(graph);
  const Var x = b.input({dtype, s.shape(s.m, s.k)}, "x"), w = b.input({dtype, s.shape(s.k, s.n)}, "w");
  const Var v = b.input({dtype, {s.n}}, "v"), r = b.input({dtype, s.shape(s.m, s.n)}, "r");
  const Var sum = b.matmul(x, w);
  for (Var result : pattern.results({b, sum, sum + b.broadcast(v, sum.shape()), r})) graph.outputs().push_back(result.value);
  return graph;
}

double epilogue_tolerance(DType dtype, MatmulPrecision precision) {
  if (dtype == DType::f32 && precision == MatmulPrecision::tf32) return 2e-3;
  switch (dtype) {
    case DType::f64: return 1e-12;
    case DType::f32: return 2e-6;
    case DType::f16: return 4e-3;
    default: return 3e-2;
  }
}

std::string epilogue_difference(const Tensor& found, const Tensor& expected, MatmulPrecision precision) {
  if (!(found.type() == expected.type())) return concat("is ", to_string(found.type()), ", wanted ", to_string(expected.type()));
  double scale = 1;
  for (std::int64_t i = 0; i < expected.elements(); ++i) scale = std::max(scale, std::abs(expected.at(i)));
  for (std::int64_t i = 0; i < expected.elements(); ++i)
    if (!(std::abs(found.at(i) - expected.at(i)) <= epilogue_tolerance(expected.dtype(), precision) * scale))
      return concat("element ", i, " is ", found.at(i), ", wanted ", expected.at(i));
  return "";
}

/// One way of computing products, for as long as it lives.
class Way {
 public:
  Way(std::string name, bool cublaslt, bool epilogues, MatmulPrecision precision = MatmulPrecision::strict)
      : name_(std::move(name)), precision_(precision), device_(open_device_under_test(cublaslt, precision)) {
    if (!epilogues) setenv("GCOMP_EMULATED_CUBLASLT_EPILOGUES", "0", 1);
  }
  ~Way() { unsetenv("GCOMP_EMULATED_CUBLASLT_EPILOGUES"); }
  const std::string& name() const { return name_; }
  MatmulPrecision precision() const { return precision_; }
  runtime::Device& device() const { return *device_; }

 private:
  std::string name_;
  MatmulPrecision precision_;
  std::unique_ptr<runtime::Device> device_;
};

struct Lowered {
  runtime::Program program;
  std::map<std::string, Tensor> values;
  std::vector<Tensor> expected;
  std::string label;
};

Lowered lowered(const ir::Graph& original, const runtime::Target& target, std::string label) {
  Lowered made{.program = {}, .values = {}, .expected = {}, .label = std::move(label)};
  std::mt19937 random(11);
  for (const ir::Value* input : original.inputs()) {
    // Sums of any length are of the size of one.
    const double most = input->name == "w" ? std::sqrt(3.0 / static_cast<double>(input->type.shape.end()[-2])) : 1;
    made.values.emplace(input->name, random_tensor(input->type, -most, most, random));
  }
  made.expected = ir::interpret(original, made.values).outputs;
  ir::Graph graph = clone(original);
  passes::PipelineOptions options;
  options.target = codegen::target_info(target);
  const ir::MemoryPlan plan = passes::lower(graph, options);
  made.program = codegen::generate(graph, plan, target);
  runtime::validate(made.program);
  return made;
}

void expect_results(const Way& way, const Lowered& made) {
  const auto executable = way.device().load(made.program, way.device().allocate_states());
  std::vector<Tensor> first;
  for (int round = 0; round < 3; ++round) {  // both slots, and the first once more
    for (const auto& [name, value] : made.values) executable->set_input(name, value);
    executable->run();
    for (std::size_t i = 0; i < made.expected.size(); ++i) {
      const Tensor found = executable->output(i);
      EXPECT_EQ(epilogue_difference(found, made.expected[i], way.precision()), "")
          << made.label << ", " << way.name() << ", output " << i;
      if (round == 0) first.push_back(found);
      else EXPECT_TRUE(found == first[i]) << made.label << ", " << way.name() << ": run " << round + 1 << " gives other bits";
    }
  }
}

std::vector<const runtime::MatmulCall*> products_of(const runtime::Program& program) {
  std::vector<const runtime::MatmulCall*> found;
  for (const runtime::Step& step : program.steps)
    if (const auto* call = std::get_if<runtime::MatmulCall>(&step)) found.push_back(call);
  return found;
}

class Epilogues : public testing::TestWithParam<DType> {
 protected:
  void expect_each_way(const std::vector<Lowered>& cases) {
    const auto run = [&](const Way& way) {
      for (const Lowered& made : cases) expect_results(way, made);
    };
    run(Way("cuBLASLt", true, true));
    if (GetParam() == DType::f32) run(Way("cuBLASLt in TF32", true, true, MatmulPrecision::tf32));
    if (!on_real_gpu()) run(Way("cuBLASLt without epilogues", true, false));
    run(Way("generated", false, true));
  }
  static runtime::Target target() { return device_under_test().target(); }
  /// The library's epilogue for the pattern, in this dtype on this GPU.
  static std::optional<EpilogueKind> known_here(const Pattern& pattern) {
    const bool gelu = pattern.known == EpilogueKind::gelu || pattern.known == EpilogueKind::gelu_gradient;
    return GetParam() == DType::f64 || (gelu && !codegen::cuda::library_has_gelu(target())) ? std::nullopt : pattern.known;
  }
};

// Whole tiles, ragged ones, a batch, and a sum that is split.
TEST_P(Epilogues, EachPatternIsWhatTheInterpreterSays) {
  const Sizes sizes[] = {{0, 24, 32, 16}, {0, 37, 19, 21}, {3, 10, 16, 9}, {0, 8, 8, 1030}};
  std::vector<Lowered> cases;
  for (const Pattern& pattern : patterns())
    for (const Sizes& s : sizes) {
      if (&s == &sizes[3] && pattern.name != "gelu, and its operand for others") continue;
      Lowered made = lowered(graph_of(pattern, s, GetParam()), target(), concat(pattern.name, " ", s.m, "x", s.n, "x", s.k));
      const std::vector<const runtime::MatmulCall*> products = products_of(made.program);
      ASSERT_EQ(products.size(), 1u) << made.label;
      const auto known = known_here(pattern);
      // A kernel that also reduces is parted only for what the library knows.
      ASSERT_EQ(products[0]->epilogue.has_value(), known || pattern.known != EpilogueKind::gelu_gradient) << made.label;
      const auto library = products[0]->epilogue ? products[0]->epilogue->library : std::nullopt;
      EXPECT_EQ(library ? std::optional(library->kind) : std::nullopt, known) << made.label;
      // The gradient of GELU is too long for the end of a product's kernel.
      if (products[0]->epilogue) {
        EXPECT_EQ(products[0]->epilogue->generated, known != EpilogueKind::gelu_gradient) << made.label;
      }
      cases.push_back(std::move(made));
    }
  expect_each_way(cases);
}

/// Three products: of heads that lie between the rows of a wider value, with GELU of the sum and a bias; one whose result the third
/// reads with its first two dimensions swapped.
ir::Graph products_of_views(DType dtype) {
  ir::Graph graph("g");
  Builder b(graph);
  const Var x = b.input({dtype, {10, 3, 32}}, "x"), w = b.input({dtype, {3, 16, 24}}, "w"), v = b.input({dtype, {24}}, "v");
  const Var heads = b.transpose(b.slice_axis(x, 2, 16, 16), {1, 0, 2});
  const Var s = b.matmul(heads, w);
  const Var q = b.input({dtype, {3, 10, 16}}, "q"), u = b.input({dtype, {72, 8}}, "u");
  const Var rows = b.reshape(b.transpose(b.matmul(q, w), {1, 0, 2}), {10, 72});
  graph.outputs() = {gelu(s + b.broadcast(v, s.shape())).value, relu(b.matmul(rows, u)).value};
  return graph;
}

TEST_P(Epilogues, FollowProductsThatReadAndWriteViews) {
  Lowered made = lowered(products_of_views(GetParam()), target(), "views");
  const std::vector<const runtime::MatmulCall*> products = products_of(made.program);
  ASSERT_EQ(products.size(), 3u);
  const auto reads_heads = [](const runtime::MatmulCall* call) { return call->a.offset == 16 && call->a.row_stride == 96; };
  const auto writes_rows = [](const runtime::MatmulCall* call) { return call->c.row_stride == 72; };
  EXPECT_EQ(std::count_if(products.begin(), products.end(), reads_heads), 1);
  EXPECT_EQ(std::count_if(products.begin(), products.end(), writes_rows), 1);
  EXPECT_EQ(made.program.steps.size(), 3u) << "a copy";
  expect_each_way({made});
}

/// The gradients of a layer by its weight and bias, x being [k, m] and dy [k, n]; the weight is stored [m, n], or [n, m].
ir::Graph weight_and_bias_gradients(std::int64_t m, std::int64_t n, std::int64_t k, bool transposed, DType dtype) {
  ir::Graph graph("g");
  Builder b(graph);
  const Var x = b.input({dtype, {k, m}}, "x"), dy = b.input({dtype, {2, k / 2, n}}, "dy");
  const Var rows = b.reshape(dy, {k, n});
  graph.outputs() = {(transposed ? b.matmul(rows, x, true) : b.matmul(x, rows, true)).value, sum_of_rows(b, dy).value};
  return graph;
}

// Whole tiles, ragged ones, a vector, a long sum; of either operand.
TEST_P(Epilogues, AWeightGradientGivesTheBiasGradient) {
  const bool known = GetParam() != DType::f64;
  std::vector<Lowered> cases;
  for (const auto [m, n, k] : {std::array<std::int64_t, 3>{16, 32, 24}, {19, 37, 22}, {1, 2, 6}, {8, 40, 1030}})
    for (const bool transposed : {false, true}) {
      const ir::Graph graph = weight_and_bias_gradients(m, n, k, transposed, GetParam());
      Lowered made = lowered(graph, target(), concat(m, "x", n, "x", k, transposed ? " transposed" : ""));
      const std::vector<const runtime::MatmulCall*> products = products_of(made.program);
      ASSERT_EQ(products.size(), 1u) << made.label;
      EXPECT_EQ(made.program.steps.size(), known ? 1u : 2u) << made.label;
      ASSERT_EQ(products[0]->epilogue.has_value(), known) << made.label;
      if (known) {
        ASSERT_TRUE(products[0]->epilogue->library) << made.label;
        EXPECT_EQ(products[0]->epilogue->library->kind, transposed ? EpilogueKind::bias_gradient_a : EpilogueKind::bias_gradient_b);
        EXPECT_FALSE(products[0]->epilogue->generated) << "no tile sees all of an operand";
      }
      cases.push_back(std::move(made));
    }
  expect_each_way(cases);
}

// Two layers and their gradients by autodiff: GELU keeps its operand, which its gradient reads, and the sum of that over the rows
// is made with the weight gradient.
TEST_P(Epilogues, AMlpAndItsGradients) {
  ir::Graph graph("mlp");
  Builder b(graph);
  const DType dtype = GetParam();
  const Var x = b.input({dtype, {2, 12, 8}}, "x"), w1 = b.input({dtype, {8, 16}}, "w1"), b1 = b.input({dtype, {16}}, "b1"),
            w2 = b.input({dtype, {16, 8}}, "w2");
  const Var z = b.reshape(b.matmul(b.reshape(x, {24, 8}), w1), {2, 12, 16});
  const Var h = gelu(z + b.broadcast(b1, z.shape()));
  const Var y = b.matmul(b.reshape(h, {24, 16}), w2);
  graph.outputs() = {b.sum(y * y, {0, 1}).value};
  const std::vector<ir::Value*> gradients =
      passes::differentiate(graph, graph.outputs()[0], {w1.value, b1.value, w2.value, x.value});
  graph.outputs().insert(graph.outputs().end(), gradients.begin(), gradients.end());
  const Lowered made = lowered(graph, target(), "mlp");
  int forward = 0, backward = 0, sums = 0;
  for (const runtime::MatmulCall* call : products_of(made.program)) {
    if (!call->epilogue || !call->epilogue->library) continue;
    forward += call->epilogue->library->kind == EpilogueKind::gelu && call->epilogue->library->aux;
    backward += call->epilogue->library->kind == EpilogueKind::gelu_gradient;
    sums += is_bias_gradient(call->epilogue->library->kind);
  }
  const int gelu = dtype != DType::f64 && codegen::cuda::library_has_gelu(target()) ? 1 : 0;
  EXPECT_EQ(forward, gelu);
  EXPECT_EQ(backward, gelu);
  EXPECT_EQ(sums, dtype == DType::f64 ? 0 : 1);
  expect_each_way({made});
}

// Two convolutions whose windows are single pixels, with their gradients by autodiff: products all of them, the first with GELU,
// its bias's gradient made with the weight's.
TEST_P(Epilogues, ConvolutionsOfSinglePixelsAndTheirGradients) {
  ir::Graph graph("pixels");
  Builder b(graph);
  const DType dtype = GetParam();
  const Var x = b.input({dtype, {2, 8, 3, 5}}, "x"), w1 = b.input({dtype, {16, 8, 1, 1}}, "w1"), b1 = b.input({dtype, {16}}, "b1"),
            w2 = b.input({dtype, {8, 16, 1, 1}}, "w2");
  const auto convolution = [&](Var image, Var weight) {
    return b.apply(ir::ops::kConvolution, {image, weight},
                   {{"strides", Shape{1, 1}}, {"low", Shape{0, 0}}, {"high", Shape{0, 0}}, {"dilations", Shape{1, 1}}});
  };
  const Var z = convolution(x, w1);
  const Var y = convolution(gelu(z + b.broadcast(b1, z.shape(), {1})), w2);
  graph.outputs() = {b.sum(y * y, {0, 1, 2, 3}).value};
  const std::vector<ir::Value*> gradients =
      passes::differentiate(graph, graph.outputs()[0], {w1.value, b1.value, w2.value, x.value});
  graph.outputs().insert(graph.outputs().end(), gradients.begin(), gradients.end());
  const Lowered made = lowered(graph, target(), "pixels");
  int sums = 0;
  for (const runtime::MatmulCall* call : products_of(made.program))
    sums += call->epilogue && call->epilogue->library && is_bias_gradient(call->epilogue->library->kind);
  EXPECT_EQ(products_of(made.program).size(), 6u);
  EXPECT_EQ(sums, dtype == DType::f64 ? 0 : 1);
  for (const runtime::Step& step : made.program.steps) EXPECT_FALSE(std::holds_alternative<runtime::ConvolutionCall>(step));
  expect_each_way({made});
}

INSTANTIATE_TEST_SUITE_P(Floats, Epilogues, testing::Values(DType::f32, DType::f64, DType::f16, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// The library's RELU gives 0 for NaN, so that none of its epilogues is used for one.
TEST(Epilogues, ReluOfNanIsNan) {
  const Pattern pattern = patterns()[1];
  for (const bool cublaslt : {true, false}) {
    const Way way(cublaslt ? "cuBLASLt" : "generated", cublaslt, true);
    Lowered made = lowered(graph_of(pattern, {0, 4, 8, 3}, DType::f32), way.device().target(), pattern.name);
    made.values.at("x").set(0, std::nan(""));
    const auto executable = way.device().load(made.program, way.device().allocate_states());
    for (const auto& [name, value] : made.values) executable->set_input(name, value);
    executable->run();
    EXPECT_TRUE(std::isnan(executable->output(0).at(0))) << way.name();
    EXPECT_FALSE(std::isnan(executable->output(0).at(8))) << way.name();
  }
}

}  // namespace
}  // namespace gcomp::tests
