// Models whose rows depend on how many there are, or on each other: how `gcomp run` cuts them into batches must not show, and what
// --micro-batches changes is said.
#include "gcomp/arrays.h"
#include "tests/errors/bad_input.h"
#include "tests/onnx/model_builder.h"

namespace gcomp::test {
namespace {

class RowNumbers : public BadInput {
 protected:
  /// y times or over the number of rows of x, as PyTorch exports x.shape[0].
  void write_counting(const char* op) {
    write_linear_model(model_, [&](onnx::ModelProto& model) {
      const auto node = [&](const char* type, std::vector<std::string> inputs, const char* output) {
        onnx::NodeProto& made = *model.mutable_graph()->add_node();
        made.set_op_type(type);
        made.set_name(std::string("node_") + output);
        for (const std::string& input : inputs) made.add_input(input);
        made.add_output(output);
        return &made;
      };
      onnx::TensorProto& zero = *model.mutable_graph()->add_initializer();
      zero.set_name("zero");
      zero.set_data_type(onnx::TensorProto::INT64);
      zero.add_int64_data(0);
      node("Shape", {"x"}, "shape");
      node("Gather", {"shape", "zero"}, "rows");
      onnx::AttributeProto& to = *node("Cast", {"rows"}, "count")->add_attribute();
      to.set_name("to");
      to.set_type(onnx::AttributeProto::INT);
      to.set_i(onnx::TensorProto::FLOAT);
      node(op, {"y", "count"}, "z");
      model.mutable_graph()->mutable_output(0)->set_name("z");
    });
  }
  /// x - the mean over rows, as y.
  void write_centred() {
    write_linear_model(model_, [](onnx::ModelProto& model) {
      append_node(model, "ReduceMean");
      onnx::AttributeProto& axes = *model.mutable_graph()->mutable_node(1)->add_attribute();
      axes.set_name("axes");
      axes.set_type(onnx::AttributeProto::INTS);
      axes.add_ints(0);
      onnx::NodeProto& centred = *model.mutable_graph()->add_node();
      centred.set_op_type("Sub");
      centred.set_name("centred");
      for (const char* input : {"y", "z"}) centred.add_input(input);
      centred.add_output("c");
      model.mutable_graph()->mutable_output(0)->set_name("c");
    });
  }
  Tensor inputs() {
    std::vector<double> x(37 * 3);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 11) - 5;
    Tensor rows = Tensor::of(DType::f32, {37, 3}, x);
    write_data({{"x", rows}});
    return rows;
  }
  CommandResult run(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
  double output(std::int64_t element) { return read_npz(folder_ / "y.npz")[0].second.at(element); }
};

TEST_F(RowNumbers, TheirNumberIsThatOfTheRowsThatThereAre) {
  const Tensor x = inputs();
  const double y = 0.1 * x.at(0) + 0.3 * x.at(1) - 0.5 * x.at(2);
  for (const auto& [op, wanted] : {std::pair{"Div", y / 37}, std::pair{"Mul", y * 37}}) {
    write_counting(op);
    const CommandResult result = run();
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NEAR(output(0), wanted, 1e-5) << result.errors;
    for (const char* batch : {"1", "8"}) {
      const CommandResult refused = run({"--batch", batch});
      EXPECT_EQ(refused.exit_code, 3) << refused.errors;
      EXPECT_NE(refused.errors.find("makes a row depend on others or on its number"), std::string::npos) << refused.errors;
    }
  }
}

TEST_F(RowNumbers, OneRowAtATimeIsRefusedWhereOthersAreRead) {
  inputs();
  write_centred();
  for (const char* batch : {"1", "8"}) {
    const CommandResult refused = run({"--batch", batch});
    EXPECT_EQ(refused.exit_code, 3) << refused.errors;
    EXPECT_NE(refused.errors.find("makes a row depend on others"), std::string::npos) << refused.errors;
  }
  write_linear_model(model_);
  EXPECT_EQ(run({"--batch", "1"}).exit_code, 0);
  const CommandResult compiled =
      run_gcomp({"compile", model_, "--dim", "batch=1", "--device", "cpu", "--out", folder_ / "one.gcx"});
  EXPECT_EQ(compiled.exit_code, 0) << compiled.errors;
  EXPECT_EQ(run_gcomp({"run", folder_ / "one.gcx", "--inputs", data_, "--outputs", folder_ / "y.npz"}).exit_code, 0);
}

/// What three rows cannot show: rows that are grouped by their number, and outputs of three rows whatever the inputs have.
TEST_F(RowNumbers, AllRowsRunAtOnceWhereFewLookApart) {
  const Tensor x = inputs();
  tests::ModelBuilder grouped;
  grouped.input("x", {"batch", "3"}).integers("dims", {2}, {-1, 1}).output("y");
  grouped.node("Shape", {"x"}, {"rows"}, {{"start", 0}, {"end", 1}}).node("Concat", {"dims", "rows"}, {"to"}, {{"axis", 0}});
  grouped.node("Reshape", {"x", "to"}, {"r"}).node("CumSum", {"r", "axis"}, {"s"}).integers("axis", {}, {2});
  grouped.node("Shape", {"x"}, {"shape"}).node("Reshape", {"s", "shape"}, {"y"});
  runtime::test::put(model_, grouped.bytes());
  const CommandResult result = run();
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  double sum = 0;  // over as many elements as there are rows
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    sum = i % 37 == 0 ? x.at(i) : sum + x.at(i);
    ASSERT_NEAR(output(i), sum, 1e-4) << "element " << i;
  }
  for (const char* told : {static_cast<const char*>(nullptr), "Min(3, batch)"}) {
    tests::ModelBuilder first;
    first.input("x", {"batch", "3"}).integers("from", {1}, {0}).integers("end", {1}, {3}).integers("along", {1}, {0});
    first.node("Slice", {"x", "from", "end", "along"}, {"y"}).output("y");
    const auto shape = [&first] {
      return first.model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    };
    if (told != nullptr) shape()->add_dim()->set_dim_param(told), shape()->add_dim()->set_dim_value(3);
    runtime::test::put(model_, first.bytes());
    const CommandResult three = run();
    ASSERT_EQ(three.exit_code, 0) << three.errors;
    const Tensor y = read_npz(folder_ / "y.npz")[0].second;
    ASSERT_EQ(y.shape(), (Shape{3, 3}));
    for (std::int64_t i = 0; i < 9; ++i) EXPECT_EQ(y.at(i), x.at(i));
  }
}

/// As of nn.GRU with batch_first=False, whose five steps pass for a batch of five rows.
TEST_F(RowNumbers, ABatchThatIsNotInFrontIsTold) {
  tests::ModelBuilder steps;
  steps.input("x", {"5", "batch", "3"}).integers("axes", {1}, {0}).floats("w", {3, 2}, {0.1f, 0.2f, -0.3f, 0.4f, 0.5f, -0.6f});
  steps.node("ReduceMean", {"x", "axes"}, {"m"}, {{"keepdims", 0}}).node("MatMul", {"m", "w"}, {"y"}).output("y");
  auto* shape = steps.model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  shape->add_dim()->set_dim_param("batch"), shape->add_dim()->set_dim_value(2);
  runtime::test::put(model_, steps.bytes());
  write_data({{"x", Tensor(DType::f32, {5, 5, 3})}, {"label", Tensor(DType::i64, {5})}});
  const char* note = "'x' has its rows along axis 0, which the file fixes at 5, but 'batch', the rows of output 'y', along axis 1";
  const CommandResult result =
      run_gcomp({"train", model_, "--data", data_, "--loss", "cross_entropy", "--batch", "5", "--steps", "1", "--out", out_});
  EXPECT_NE(result.errors.find(note), std::string::npos) << result.errors;
  write_linear_model(model_);
  write_linear_data(data_);
  EXPECT_EQ(train().errors.find("has its rows along axis 0"), std::string::npos);
}

TEST_F(RowNumbers, MicroBatchesThatSeeOtherRowsAreTold) {
  const char* note = "may make a row depend on others or on its number: with --micro-batches 2";
  const std::vector<std::string> parts{"--micro-batches", "2"};
  const CommandResult apart = train(parts);
  EXPECT_EQ(apart.exit_code, 0) << apart.errors;
  EXPECT_EQ(apart.errors.find(note), std::string::npos) << apart.errors;
  write_centred();
  const CommandResult centred = train(parts);
  EXPECT_NE(centred.errors.find(note), std::string::npos) << centred.errors;
  EXPECT_EQ(train().errors.find("may make a row"), std::string::npos);
  write_counting("Mul");
  const CommandResult counting = train(parts);
  EXPECT_NE(counting.errors.find(note), std::string::npos) << counting.errors;
}

}  // namespace
}  // namespace gcomp::test
