// Data that do not fit the model, or numbers that come to nothing: one message that says what and where, the right exit code, and
// an untouched output file.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ir/base/error.h"
#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/errors/bad_files.h"
#include "tests/errors/bad_input.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::NamedTensor;
using runtime::test::contents;
using runtime::test::put;

// ---- the data ----

TEST_F(BadInput, MissingData) {
  std::filesystem::remove(data_);
  expect_refused(train(), ExitCode::invalid, {"data.npz", "does not exist"});
}

TEST_F(BadInput, DataThatIsNoNpz) {
  put(data_, "x,y\n1,2\n");
  expect_refused(train(), ExitCode::invalid, {"data.npz"});
}

TEST_F(BadInput, TruncatedData) {
  const std::string whole = contents(data_);
  put(data_, whole.substr(0, whole.size() - 40));
  expect_refused(train(), ExitCode::invalid, {"data.npz"});
}

TEST_F(BadInput, MissingArrayNamesTheNearest) {
  write_data({{"X1", Tensor(DType::f32, {8, 3})}, {"lable", Tensor(DType::i64, {8})}});
  expect_refused(train(), ExitCode::invalid, {"data.npz", "no array 'x'", "'X1'"});
  write_data({{"x", Tensor(DType::f32, {8, 3})}, {"lable", Tensor(DType::i64, {8})}});
  expect_refused(train(), ExitCode::invalid, {"no array 'label'", "did you mean 'lable'?"});
}

TEST_F(BadInput, WrongShape) {
  write_data({{"x", Tensor(DType::f32, {8, 4})}, {"label", Tensor(DType::i64, {8})}});
  expect_refused(train(), ExitCode::invalid, {"input x: f32[batch,3]", "data.npz", "4"});
  write_data({{"x", Tensor(DType::f32, {8})}, {"label", Tensor(DType::i64, {8})}});
  expect_refused(train(), ExitCode::invalid, {"input x: f32[batch,3] has 2 dimensions", "data.npz"});
}

TEST_F(BadInput, WrongDtype) {
  write_data({{"x", Tensor(DType::i64, {8, 3})}, {"label", Tensor(DType::i64, {8})}});
  expect_refused(train(), ExitCode::invalid, {"data.npz", "'x'", "i64", "f32"});
  write_data({{"x", Tensor(DType::f32, {8, 3})}, {"label", Tensor(DType::f32, {8})}});
  expect_refused(train(), ExitCode::invalid, {"data.npz", "cross_entropy: label is f32[4], the output f32[4,2]; wanted i64[4]"});
}

TEST_F(BadInput, ArraysOfDifferentRows) {
  write_data({{"x", Tensor(DType::f32, {8, 3})}, {"label", Tensor(DType::i64, {7})}});
  expect_refused(train(), ExitCode::invalid, {"data.npz", "8 rows", "7"});
}

/// A training step takes rows; gcomp grad takes one batch as it is, a scalar among its arrays.
TEST_F(BadInput, GradTakesArraysWithoutRowsInCommon) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    onnx::GraphProto& graph = *model.mutable_graph();
    onnx::ValueInfoProto& factor = *graph.add_input();
    factor.set_name("factor");
    factor.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
    factor.mutable_type()->mutable_tensor_type()->mutable_shape();
    append_node(model, "Mul");
    graph.mutable_node(1)->add_input("factor");
  });
  write_data({{"x", Tensor::of(DType::f32, {1, 3}, {1, 2, 3})},
              {"factor", Tensor::of(DType::f32, {}, {0.5})},
              {"label", Tensor::of(DType::f32, {1, 2}, {0, 1})}});
  const CommandResult result =
      run_gcomp({"grad", model_, "--inputs", data_, "--loss", "mse", "--precision", "f64", "--outputs", folder_ / "g.npz"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const std::map<std::string, Tensor> arrays = load_arrays(folder_ / "g.npz");
  // y = x w + b = [-0.8, 2.5], z = y / 2, loss = (0.4^2 + 0.25^2) / 2
  EXPECT_NEAR(arrays.at("loss").at(0), 0.11125, 1e-7);
  EXPECT_NEAR(arrays.at("b").at(0), -0.2, 1e-7);
  EXPECT_NEAR(arrays.at("b").at(1), 0.125, 1e-7);
}

TEST_F(BadInput, LabelShapeThatFitsNothing) {
  write_data({{"x", Tensor(DType::f32, {8, 3})}, {"label", Tensor(DType::i64, {8, 5})}});
  expect_refused(train(), ExitCode::invalid, {"label", "[4"});
  expect_refused(train({"--loss", "mse"}), ExitCode::invalid, {"label", "f32[4,2]"});
}

TEST_F(BadInput, LabelOutOfRangeNamesRowAndLimit) {
  Tensor label(DType::i64, {8});
  label.set(6, 2);
  write_data({{"x", Tensor(DType::f32, {8, 3})}, {"label", label}});
  expect_refused(train(), ExitCode::invalid, {"data.npz", "'label'", "row 6", "label 2", "0 to 1"});
}

TEST_F(BadInput, IndexOutOfRangeNamesRowAndLimit) {
  const RecordedModel gpt = recorded_model("gpt_tiny");
  std::map<std::string, Tensor> arrays = load_arrays(gpt.data());
  Tensor& ids = arrays.at("ids");
  ids.set(11 * ids.shape()[1] + 3, 65);
  std::vector<NamedTensor> list(arrays.begin(), arrays.end());
  runtime::write_npz(folder_ / "ids.npz", list);
  const CommandResult result = run_gcomp({"train", gpt.model(), "--data", folder_ / "ids.npz", "--loss", "cross_entropy", "--batch",
                                          "8", "--steps", "3", "--no-shuffle", "--out", out_});
  expect_refused(result, ExitCode::invalid, {"ids.npz", "'ids'", "row 11", "index 65", "64"});
}

TEST_F(BadInput, DataWithoutRows) {
  const std::string good = contents(data_);
  write_data({{"x", Tensor(DType::f32, {0, 3})}, {"label", Tensor(DType::i64, {0})}});
  expect_refused(train(), ExitCode::invalid, {"data.npz", "no rows"});
  std::filesystem::rename(data_, folder_ / "empty.npz");
  put(data_, good);
  expect_refused(train({"--eval-data", folder_ / "empty.npz"}), ExitCode::invalid, {"empty.npz", "no rows"});
}

TEST_F(BadInput, BatchLargerThanTheData) {
  expect_refused(
      run_gcomp({"train", model_, "--data", data_, "--loss", "cross_entropy", "--batch", "9", "--steps", "1", "--out", out_}),
      ExitCode::invalid, {"batch of 9", "8"});
}

TEST_F(BadInput, EvaluationDataIsReadBeforeTraining) {
  expect_refused(train({"--eval-data", folder_ / "none.npz"}), ExitCode::invalid, {"none.npz"});
}

// ---- numbers ----

TEST_F(BadInput, LossThatBecomesNaN) {
  Tensor x(DType::f32, {8, 3});
  for (std::int64_t i = 12; i < 24; ++i) x.set(i, std::numeric_limits<double>::quiet_NaN());
  write_data({{"x", x}, {"label", Tensor(DType::i64, {8})}});
  expect_refused(train({"--no-shuffle"}), ExitCode::numeric, {"step 2", "nan", "trained.onnx", "array 'x', row 4 holds nan"});
}

/// JSON has no such number: a reader gets null, and beside it which one it is, as in metrics.jsonl.
TEST_F(BadInput, ALossThatIsNoNumberIsSpelledAlikeEverywhere) {
  for (const auto& [value, text] : {std::pair(-std::nan(""), "nan"), std::pair(HUGE_VAL, "inf")}) {
    Tensor x(DType::f32, {8, 3}), target(DType::f32, {8, 2});
    target.set(5, value);
    write_data({{"x", x}, {"label", target}});
    const std::vector<std::string> evaluate{"eval", model_, "--data", data_, "--loss", "mse"};
    std::vector<std::string> as_json = evaluate;
    as_json.emplace_back("--json");
    const CommandResult said = run_gcomp(evaluate), json = run_gcomp(as_json);
    EXPECT_EQ(said.output.substr(0, said.output.find('\n')), concat("loss ", text)) << said.errors;
    EXPECT_NE(json.output.find(concat(R"("loss":null,"loss_text":")", text, "\"")), std::string::npos) << json.output;
    const CommandResult gradients =
        run_gcomp({"grad", model_, "--inputs", data_, "--loss", "mse", "--outputs", folder_ / "g.npz", "--json"});
    EXPECT_NE(gradients.output.find(concat(R"("loss":null,"loss_text":")", text, "\"")), std::string::npos) << gradients.output;
  }
}

TEST_F(BadInput, ParameterThatBecomesNaN) {
  // The loss before the only step is finite; its gradient overflows the update.
  Tensor x(DType::f32, {8, 3});
  for (std::int64_t i = 0; i < 24; ++i) x.set(i, 1e30);
  write_data({{"x", x}, {"label", Tensor(DType::f32, {8, 2})}});
  expect_refused(run_gcomp({"train", model_, "--data", data_, "--loss", "l1", "--optimizer", "sgd", "--lr", "1e30", "--batch", "4",
                            "--steps", "1", "--out", out_}),
                 ExitCode::numeric, {"parameter 'w'", "step 1", "trained.onnx"});
}

/// In the file already, of what takes no part in finite losses: no step is taken for nothing.
TEST_F(BadInput, AParameterThatIsInfiniteFromTheStart) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    const float values[] = {0.5f, -std::numeric_limits<float>::infinity()};
    model.mutable_graph()->mutable_initializer(1)->set_raw_data(values, sizeof values);
  });
  const CommandResult frozen = train();
  EXPECT_EQ(frozen.errors.find("before the first step"), std::string::npos) << frozen.errors;
  EXPECT_NE(frozen.errors.find("it holds infinity"), std::string::npos) << frozen.errors;
  runtime::test::put(out_, "old contents");
  expect_refused(train({"--thaw", "b"}), ExitCode::numeric,
                 {"before the first step: parameter 'b' is not finite: 1 of 2 elements", "the first is -inf", "--freeze"});
}

/// A weight whose input is always 0 has no gradient, which Adam without eps divides by its own size.
TEST_F(BadInput, ADivisionByZeroThatEpsAllowsIsNotBlamedOnTheRate) {
  Tensor x(DType::f32, {8, 3});
  for (std::int64_t i = 0; i < 24; ++i) x.set(i, i % 3 ? 1 + i : 0);
  write_data({{"x", x}, {"label", Tensor(DType::i64, {8})}});
  const CommandResult result = train({"--optimizer", "adam", "--eps", "0"});
  expect_refused(result, ExitCode::numeric, {"step 2", "nan", "--eps 0", "divided by zero"});
  EXPECT_EQ(result.errors.find("--lr"), std::string::npos) << result.errors;
}

}  // namespace
}  // namespace gcomp::test
