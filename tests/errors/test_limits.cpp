// Limits on what a model declares, from the command line: the error names the node, the figure and the option, and the option
// raises the limit.
#include <gtest/gtest.h>

#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

void add_int64s(onnx::GraphProto& graph, const std::string& name, const std::vector<std::int64_t>& values, bool scalar) {
  onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::INT64);
  if (!scalar) tensor.add_dims(static_cast<std::int64_t>(values.size()));
  for (const std::int64_t value : values) tensor.add_int64_data(value);
}

void add_named_node(onnx::GraphProto& graph, const std::string& op, const std::vector<std::string>& inputs,
                    const std::string& output) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name("node_" + output);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
}

/// y once more, by a shape that is looked up among 256 integers: 2048 bytes to compute in advance.
void expand_by_looked_up_shape(onnx::ModelProto& model) {
  onnx::GraphProto& graph = *model.mutable_graph();
  add_int64s(graph, "zero", {0}, true);
  add_int64s(graph, "one", {1}, true);
  add_int64s(graph, "n", {256}, true);
  add_int64s(graph, "places", {1, 2}, false);
  add_named_node(graph, "Range", {"zero", "n", "one"}, "range");
  add_named_node(graph, "Gather", {"range", "places"}, "shape");
  add_named_node(graph, "Expand", {"y", "shape"}, "z");
  graph.mutable_output(0)->set_name("z");
}

class Limits : public BadInput {
 protected:
  void expect_trains(const std::vector<std::string>& options) {
    const CommandResult result = train(options);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    runtime::test::put(out_, "old contents");
  }
};

TEST_F(Limits, FoldedBytes) {
  write_linear_model(model_, expand_by_looked_up_shape);
  expect_trains({});
  expect_refused(train({"--max-folded-bytes", "4096"}), ExitCode::unsupported,
                 {"node_z", "more than is computed in advance", "--max-folded-bytes N above 4096"});
  expect_trains({"--max-folded-bytes", "65536"});
}

TEST_F(Limits, Kernels) {
  write_linear_model(model_, [](onnx::ModelProto& model) { append_node(model, "Softmax"); });
  expect_trains({});
  const CommandResult refused = train({"--max-kernels", "1"});
  expect_refused(refused, ExitCode::invalid, {"node '", "2 different kernels, more than 1", "--max-kernels N allows more"});
  expect_trains({"--max-kernels", "100"});
}

TEST_F(Limits, KernelBytes) {
  expect_refused(train({"--max-kernel-bytes", "100"}), ExitCode::invalid,
                 {"node '", " bytes, more than 100", "--max-kernel-bytes N allows more"});
  expect_trains({"--max-kernel-bytes", "1000000"});
}

TEST_F(Limits, OfNothing) {
  for (const char* option : {"--max-folded-bytes", "--max-kernels", "--max-kernel-bytes"})
    expect_refused(train({option, "-1"}), ExitCode::usage, {option});
}

}  // namespace
}  // namespace gcomp::test
