// Whole graphs, fused and not, through generate() and the CPU runtime against the interpreter.
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/training/differentiate.h"
#include "tests/codegen/graph_check.h"
#include "tests/onnx/expect_error.h"

namespace gcomp::tests {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;

TEST(Generate, TrainingStepOfAnMlp) {
  check_both(
      [] {
        Graph graph("step");
        Builder b(graph);
        Var x = b.input({DType::f32, {32, 20}}, "x"), y = b.input({DType::f32, {32, 3}}, "y");
        Var w1 = b.wrap(graph.add_state({DType::f32, {20, 64}}, "w1", StateRole::parameter));
        Var b1 = b.wrap(graph.add_state({DType::f32, {64}}, "b1", StateRole::parameter));
        Var w2 = b.wrap(graph.add_state({DType::f32, {64, 3}}, "w2", StateRole::parameter));
        Var h = b.apply(ops::kRelu, {b.matmul(x, w1) + b.broadcast(b1, {32, 64})});
        Var error = b.matmul(h, w2) - y;
        Var loss = b.mean(error * error, {0, 1});
        const auto gradients = passes::differentiate(graph, loss.value, {w1.value, b1.value, w2.value});
        for (std::size_t i = 0; i < 3; ++i) {
          Var state = std::vector<Var>{w1, b1, w2}[i];
          b.update(state.value, state - b.wrap(gradients[i]) * 0.1);
        }
        graph.outputs() = {loss.value};
        return graph;
      },
      1e-5);
}

TEST(Generate, RowsForwardAndBackward) {
  check_both(
      [] {
        Graph graph("rows");
        Builder b(graph);
        Var x = b.input({DType::f64, {4, 30, 50}}, "x"), scale = b.input({DType::f64, {50}}, "scale"),
            bias = b.input({DType::f64, {50}}, "bias");
        Var normal = b.apply(ops::kLayerNorm, {x, scale, bias}, {{"axis", std::int64_t{2}}});
        Var weight = b.apply(ops::kSoftmax, {normal}, {{"axis", std::int64_t{2}}});
        Var along = b.apply(ops::kLogSoftmax, {weight}, {{"axis", std::int64_t{1}}});
        Var loss = b.sum(along * x, {0, 1, 2});
        std::vector<Value*> outputs = passes::differentiate(graph, loss.value, {x.value, scale.value, bias.value});
        outputs.push_back(weight.value);
        outputs.push_back(along.value);
        outputs.push_back(loss.value);
        graph.outputs() = outputs;
        return graph;
      },
      1e-9);
}

TEST(Generate, ConvolutionsAndPooling) {
  check_both(
      [] {
        Graph graph("images");
        Builder b(graph);
        Var x = b.input({DType::f64, {2, 3, 12, 12}}, "x"), w = b.input({DType::f64, {4, 3, 3, 3}}, "w"),
            scale = b.input({DType::f64, {4}}, "scale"), bias = b.input({DType::f64, {4}}, "bias");
        Var y = b.apply(
            ops::kConvolution, {x, w},
            {{"strides", Integers{1, 1}}, {"low", Integers{1, 1}}, {"high", Integers{1, 1}}, {"dilations", Integers{1, 1}}});
        Var n = b.apply_many(ops::kBatchNorm, {y, scale, bias})[0];
        Var p = b.apply(ops::kMaxPool, {ops::kRelu(n)},
                        {{"kernel", Integers{2, 2}},
                         {"strides", Integers{2, 2}},
                         {"low", Integers{0, 0}},
                         {"high", Integers{0, 0}},
                         {"dilations", Integers{1, 1}}});
        Var loss = b.sum(p * p, {0, 1, 2, 3});
        std::vector<Value*> outputs = passes::differentiate(graph, loss.value, {x.value, w.value, scale.value, bias.value});
        outputs.push_back(loss.value);
        graph.outputs() = outputs;
        return graph;
      },
      1e-8);
}

TEST(Generate, OutputsThatAreInputsStatesConstantsOrTwins) {
  check_both(
      [] {
        Graph graph("twins");
        Builder b(graph);
        Var x = b.input({DType::f32, {5}}, "x");
        Var s = b.wrap(graph.add_state({DType::f32, {5}}, "s", StateRole::parameter));
        Var c = b.constant(Tensor::of(DType::f32, {5}, {1, 2, 3, 4, 5}));
        Var y = x + s, flat = b.reshape(y, {5, 1});
        b.update(s.value, y * 2.0);
        graph.outputs() = {x.value, s.value, c.value, y.value, y.value, flat.value};
        return graph;
      },
      1e-6);
}

TEST(Generate, AnIndexOutOfRangeIsAnErrorThatNamesTheNode) {
  Graph graph("lookup");
  Builder b(graph);
  Var table = b.input({DType::f32, {10, 64}}, "table"), indices = b.input({DType::i64, {3}}, "indices");
  b.set_origin("embedding");
  graph.outputs() = {b.gather(table, indices, 0).value};
  const runtime::Program program = codegen::generate(graph, passes::plan_memory(graph), {});
  auto device = runtime::open_device(runtime::TargetKind::cpu, test::device_options());
  auto executable = device->load(program, device->allocate_states());
  executable->set_input("indices", Tensor::of(DType::i64, {3}, {0, -10, 9}));
  executable->run();
  executable->set_input("indices", Tensor::of(DType::i64, {3}, {0, 10, 9}));
  try {
    executable->run();
    FAIL() << "index 10 of 10 was accepted";
  } catch (const UserError& error) { EXPECT_NE(std::string(error.what()).find("embedding"), std::string::npos) << error.what(); }
}

TEST(Generate, KernelsAreBoundedBeforeAnyIsCompiled) {
  Graph graph("three");
  Builder b(graph);
  Var x = b.input({DType::f32, {8}}, "x");
  for (const OpDef* op : {&ops::kExp, &ops::kTanh, &ops::kSqrt}) {
    b.set_origin(concat("layer_", op->name));
    graph.outputs().push_back(b.apply(*op, {x}).value);
  }
  const ir::MemoryPlan plan = passes::plan_memory(graph);
  const runtime::Program program = codegen::generate(graph, plan, {}, {.kernels = 3});
  ASSERT_EQ(program.kernels.size(), 3U);
  std::int64_t bytes = 0;
  for (const runtime::Kernel& kernel : program.kernels) bytes += static_cast<std::int64_t>(kernel.text.size());
  EXPECT_EQ(codegen::generate(graph, plan, {}, {.kernel_bytes = bytes}).kernels.size(), 3U);
  expect_error([&] { codegen::generate(graph, plan, {}, {.kernels = 2}); },
               {"node 'layer_sqrt'", "3 different kernels, more than 2;", "--max-kernels N"});
  expect_error([&] { codegen::generate(graph, plan, {}, {.kernel_bytes = bytes - 1}); },
               {"node 'layer_sqrt'", concat(bytes, " bytes, more than ", bytes - 1, ";"), "--max-kernel-bytes N"});
}

}  // namespace
}  // namespace gcomp::tests
