// Training steps compiled for CUDA and run on the emulator: three steps of each follow the interpreter's, and two runs give the
// same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "passes/training/training.h"
#include "runtime/validate.h"
#include "tests/codegen/cuda_shim/program_runner.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::ir;

struct Model {
  Graph graph;
  std::map<std::string, Tensor> values;  ///< inputs and states
};

class ModelBuilder {
 public:
  explicit ModelBuilder(std::string name) : model_{Graph(std::move(name)), {}}, builder_(model_.graph) {}

  Builder& b() { return builder_; }
  Var input(DType dtype, Shape shape, const std::string& name, double low, double high) {
    return remember(b().input({dtype, shape}, name), low, high);
  }
  Var parameter(Shape shape, const std::string& name, double low, double high) {
    trained_.push_back(name);
    return remember(b().wrap(model_.graph.add_state({DType::f32, std::move(shape)}, name, StateRole::parameter)), low, high);
  }
  Var linear(Var x, std::int64_t to, const std::string& name) {
    const std::int64_t from = x.dim(-1);
    Shape shape = x.shape();
    shape.back() = to;
    Var rows = b().reshape(x, {x.type().elements() / from, from});
    Var y = b().matmul(rows, parameter({from, to}, name + ".weight", -0.4, 0.4)) +
            b().broadcast(parameter({to}, name + ".bias", -0.1, 0.1), {rows.dim(0), to});
    return b().reshape(y, shape);
  }
  Var layer_norm(Var x, const std::string& name) {
    return b().apply(ops::kLayerNorm,
                     {x, parameter({x.dim(-1)}, name + ".scale", 0.8, 1.2), parameter({x.dim(-1)}, name + ".bias", -0.1, 0.1)},
                     {{"axis", x.rank() - 1}});
  }

  Model finish(Var logits, int classes, const Shape& label_shape) {
    model_.graph.outputs() = {logits.value};
    const TensorType label{DType::i64, label_shape};
    passes::make_training_step(model_.graph, passes::parse_loss("cross_entropy"), {}, trained_, label);
    Tensor labels = random_tensor(label, 0, classes - 1, random_);
    model_.values.insert_or_assign("label", labels);
    model_.values.insert_or_assign("learning_rate", Tensor::scalar(DType::f64, 0.01));
    return std::move(model_);
  }

 private:
  Var remember(Var x, double low, double high) {
    model_.values.insert_or_assign(x.value->name, random_tensor(x.type(), low, high, random_));
    return x;
  }

  Model model_;
  Builder builder_;
  std::vector<std::string> trained_;
  std::mt19937 random_{1};
};

Model mlp() {
  ModelBuilder m("mlp");
  Var x = m.input(DType::f32, {16, 20}, "x", -1, 1);
  return m.finish(m.linear(ops::kRelu(m.linear(x, 37, "a")), 5, "b"), 5, {16});
}

Model transformer() {
  ModelBuilder m("transformer");
  Builder& b = m.b();
  Var ids = m.input(DType::i64, {2, 8}, "ids", 0, 18);
  Var x = b.gather(m.parameter({19, 24}, "embedding", -1, 1), ids, 0);
  Var h = m.layer_norm(x, "norm1");
  const auto heads = [&](const char* name) { return b.transpose(b.reshape(m.linear(h, 24, name), {2, 8, 3, 8}), {0, 2, 1, 3}); };
  Var q = heads("q"), k = heads("k"), v = heads("v");
  Var scores = b.apply(ops::kSoftmax, {b.matmul(q, k, false, true) * 0.35}, {{"axis", std::int64_t{3}}});
  x = x + m.linear(b.reshape(b.transpose(b.matmul(scores, v), {0, 2, 1, 3}), {2, 8, 24}), 24, "out");
  h = m.linear(m.layer_norm(x, "norm2"), 48, "up");
  h = h * 0.5 * (ops::kErf(h * 0.7071067811865476) + 1.0);
  x = x + m.linear(h, 24, "down");
  return m.finish(m.linear(x, 19, "head"), 19, {2, 8});
}

Model convolutional() {
  ModelBuilder m("convolutional");
  Builder& b = m.b();
  using Integers = std::vector<std::int64_t>;
  Var x = m.input(DType::f32, {3, 2, 8, 8}, "x", -1, 1);
  Var y = b.apply(ops::kConvolution, {x, m.parameter({4, 2, 3, 3}, "conv.weight", -0.4, 0.4)},
                  {{"strides", Integers{1, 1}}, {"low", Integers{1, 1}}, {"high", Integers{1, 1}}, {"dilations", Integers{1, 1}}});
  y = b.apply_many(ops::kBatchNorm, {y, m.parameter({4}, "norm.scale", 0.8, 1.2), m.parameter({4}, "norm.bias", -0.1, 0.1)}, {})[0];
  y = b.apply(ops::kMaxPool, {ops::kRelu(y)},
              {{"kernel", Integers{2, 2}},
               {"strides", Integers{2, 2}},
               {"low", Integers{0, 0}},
               {"high", Integers{0, 0}},
               {"dilations", Integers{1, 1}}});
  return m.finish(m.linear(b.reshape(y, {3, 64}), 5, "head"), 5, {3});
}

/// Rows enough for strips, whose columns are summed beside what is done to each row.
Model normalized() {
  ModelBuilder m("normalized");
  Var x = m.linear(m.input(DType::f32, {1024, 8}, "x", -1, 1), 128, "in");
  return m.finish(m.linear(m.layer_norm(ops::kTanh(x), "norm"), 5, "out"), 5, {1024});
}

runtime::Program compile(const Model& model, const char* architecture = "sm_90") {
  Graph graph = clone(model.graph);
  passes::PipelineOptions options;
  const runtime::Target target{runtime::TargetKind::cuda, architecture};
  options.target = codegen::target_info(target);
  const MemoryPlan plan = passes::lower(graph, options);
  runtime::Program program = codegen::generate(graph, plan, target);
  runtime::validate(program);
  return program;
}

void write_values(cuda_shim::ProgramRunner& runner, const Model& model) {
  for (const auto& [name, value] : model.values) runner.write(name, value);
}

void expect_close(const Tensor& found, const Tensor& wanted, const std::string& what) {
  for (std::int64_t i = 0; i < wanted.elements(); ++i)
    ASSERT_NEAR(found.at(i), wanted.at(i), 1e-4 * (1 + std::fabs(wanted.at(i)))) << what << " element " << i;
}

void train(const Model& model) {
  const runtime::Program program = compile(model);
  cuda_shim::ProgramRunner runner(program), again(program);
  write_values(runner, model);
  write_values(again, model);
  std::map<std::string, Tensor> values = model.values;
  for (int step = 0; step < 3; ++step) {
    const InterpretResult expected = interpret(model.graph, values);
    ASSERT_EQ(runner.step(), "");
    ASSERT_EQ(again.step(), "");
    for (std::size_t i = 0; i < expected.outputs.size(); ++i)
      expect_close(runner.read_output(i), expected.outputs[i], concat("step ", step, " output ", i));
    for (const auto& [name, value] : expected.states) {
      // Adam turns a gradient of rounding noise into a step of the whole learning rate; moments do not.
      if (value.dtype() == DType::i64 || name.find("exp_avg") != name.npos)
        expect_close(runner.read_state(name), value, concat("step ", step, " ", name));
      EXPECT_EQ(runner.read_state(name), again.read_state(name)) << name << " differs between two runs";
      values.insert_or_assign(name, value);
      runner.write(name, value);
      again.write(name, value);
    }
  }
  std::printf("%s: %zu kernels, %lld launches a step\n", model.graph.name().c_str(), program.kernels.size(),
              static_cast<long long>(runner.launches() / 3));
}

TEST(CudaProgram, TrainsAPerceptron) { train(mlp()); }
TEST(CudaProgram, TrainsATransformer) { train(transformer()); }
TEST(CudaProgram, TrainsAConvolutionalNetwork) { train(convolutional()); }

TEST(CudaProgram, SumsColumnsBesideTheirRows) {
  const Model model = normalized();
  const runtime::Program program = compile(model);
  EXPECT_EQ(1, std::ranges::count_if(program.kernels, [](const runtime::Kernel& kernel) {
              return kernel.text.find("for (unsigned above = 0;") != std::string::npos;
            }));
  train(model);
}

// Layers that drop alike share a kernel, which reads the number that it draws by.
TEST(CudaProgram, DrawsByAnyNumberWithOneKernel) {
  Graph graph("dropped");
  Builder b(graph);
  const Var seed = b.input({DType::i64, {}}, "seed"), step = b.input({DType::i64, {}}, "step");
  Var x = b.input({DType::f32, {40, 64}}, "x");
  for (const std::int64_t number : {3, 4, 5}) {
    const Var drawn = b.apply(ops::kRandomUniform, {seed, step}, {{"shape", std::vector<std::int64_t>{40, 64}}, {"op_id", number}});
    x = b.matmul(b.select(b.like(drawn, 0.3) <= drawn, x, b.like(x, 0)), b.input({DType::f32, {64, 64}}, concat("w", number)));
  }
  graph.outputs() = {x.value};
  Model model{std::move(graph), {}};
  std::mt19937 random(2);
  for (const Value* input : model.graph.inputs())
    model.values.emplace(input->name,
                         input->type.rank() == 0 ? Tensor::of(DType::i64, {}, {7}) : random_tensor(input->type, -1, 1, random));
  const Tensor expected = interpret(model.graph, model.values).outputs.at(0);
  const runtime::Program program = compile(model);
  std::set<int> kernels;
  for (const runtime::Step& made : program.steps)
    if (const auto* launch = std::get_if<runtime::KernelLaunch>(&made)) kernels.insert(launch->kernel);
  EXPECT_EQ(kernels.size(), 1u);
  cuda_shim::ProgramRunner runner(program);
  for (const auto& [name, value] : model.values) runner.write(name, value);
  ASSERT_EQ(runner.step(), "");
  EXPECT_EQ(cuda_shim::difference(runner.read_output(0), expected), "");
}

// Where a multiprocessor has room for two blocks of such rows.
TEST(CudaProgram, KeepsLongRowsInSharedMemory) {
  for (const auto& [architecture, bytes] : {std::pair{"sm_75", 0}, {"sm_80", 40000}, {"sm_86", 40000}, {"sm_90", 40000}}) {
    Graph graph("softmax");
    Builder b(graph);
    const Var x = b.cast(b.input({DType::bf16, {128, 20000}}, "x"), DType::f32);
    graph.outputs() = {b.apply(ops::kSoftmax, {x}, {{"axis", std::int64_t{1}}}).value};
    int most = 0;
    for (const runtime::Step& step : compile({std::move(graph), {}}, architecture).steps)
      if (const auto* launch = std::get_if<runtime::KernelLaunch>(&step)) most = std::max(most, launch->grid.shared_bytes);
    EXPECT_EQ(most, bytes) << architecture;
  }
}

TEST(CudaProgram, AnIndexOutOfRangeRaisesTheFault) {
  Graph graph("lookup");
  Builder b(graph);
  graph.outputs() = {b.gather(b.input({DType::f32, {5, 3}}, "table"), b.input({DType::i64, {4}}, "ids"), 0).value};
  Model model{std::move(graph), {}};
  cuda_shim::ProgramRunner runner(compile(model));
  runner.write("table", Tensor(DType::f32, {5, 3}));
  runner.write("ids", Tensor::of(DType::i64, {4}, {0, 4, -5, 2}));
  EXPECT_EQ(runner.step(), "");
  runner.write("ids", Tensor::of(DType::i64, {4}, {0, 5, 1, 2}));
  EXPECT_NE(runner.step().find("out of range"), std::string::npos);
}

TEST(CudaProgram, ItsTextIsAPureFunctionOfTheModel) {
  const runtime::Program a = compile(transformer()), b = compile(transformer());
  EXPECT_EQ(a, b);
  for (const runtime::Kernel& kernel : a.kernels) {
    EXPECT_EQ(kernel.text.find("embedding"), std::string::npos);
    EXPECT_EQ(kernel.text.find("atomic"), std::string::npos);
  }
}

// So that a cache serves it to all of them.
TEST(CudaProgram, AKernelHasOneNameInWhateverProgramItStands) {
  const auto kernels = [](bool more) {
    Graph graph("g");
    Builder b(graph);
    Var x = b.input({DType::f32, {64, 100}}, "x"), y = b.input({DType::f32, {100, 8}}, "y");
    Var product = b.matmul(x, y);
    if (more) graph.outputs() = {b.sum(x, {1}).value, ops::kTanh(x).value};
    graph.outputs().push_back(b.sum(product, {0}).value);
    return compile({std::move(graph), {}}).kernels;
  };
  const std::vector<runtime::Kernel> few = kernels(false), many = kernels(true);
  ASSERT_LT(few.size(), many.size());
  for (const runtime::Kernel& kernel : few) EXPECT_EQ(std::ranges::count(many, kernel), 1) << kernel.name;
}

}  // namespace
}  // namespace gcomp::tests
