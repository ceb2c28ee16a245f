// gcomp eval: the record of PyTorch through compiled programs, and what training says of the model that it writes.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gcomp/arrays.h"
#include "ir/base/error.h"
#include "tests/drive/command.h"
#include "tests/temporary_directory.h"

namespace gcomp {
namespace {

using test::run_gcomp;

std::string evaluation_fixture(const std::string& name) { return concat(GCOMP_SOURCE_DIR, "/tests/fixtures/training/", name); }
std::string digits(const std::string& name) { return concat(GCOMP_SOURCE_DIR, "/examples/digits/", name); }

nlohmann::json results_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "-q"});
  const auto result = run_gcomp(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return nlohmann::json::parse(result.output);
}

/// 300 rows in runs of 256, or of seven: the last is filled up, and what fills it counts for nothing.
TEST(EvalCommand, LossesAreThoseOfAllRowsAtOnce) {
  const std::vector<NamedTensor> record = read_npz(evaluation_fixture("losses.npz"));
  const auto array = [&](const std::string& name) -> const Tensor& {
    return std::ranges::find(record, name, &NamedTensor::first)->second;
  };
  const Tensor& bytes = array("texts");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
  const Tensor& wanted = array("evaluated_mlp");
  std::int64_t i = 0;
  for (std::string text; std::getline(lines, text); ++i) {
    const bool is_mean = text.find("sum)") == text.npos && text.find("dice") == text.npos && text.find("total") == text.npos;
    if (!is_mean || i % 4 != 0) continue;  // others are averaged over runs; each kind is in tests/passes/test_losses.cpp
    std::vector<std::string> arguments{
        "eval", evaluation_fixture("heads_mlp.onnx"), "--data", evaluation_fixture("heads_mlp.npz"), "--loss", text, "--precision",
        "f64"};
    if (i % 8 == 0) arguments.insert(arguments.end(), {"--batch", "7"});
    const nlohmann::json json = results_of(arguments);
    EXPECT_NEAR(json["loss"].get<double>() / wanted.at(i), 1, 1e-11) << text;
    EXPECT_EQ(json["rows"], 300);
  }
}

TEST(EvalCommand, SaysOfAModelWhatItsTrainingDid) {
  const test::TemporaryDirectory folder;
  const std::vector<std::string> train{"train",       digits("digits.onnx"),
                                       "--data",      digits("train.npz"),
                                       "--loss",      "cross_entropy",
                                       "--eval-data", digits("test.npz"),
                                       "--batch",     "64",
                                       "--steps",     "40",
                                       "--metric",    "accuracy",
                                       "--metric",    "f1",
                                       "--metric",    "confusion"};
  for (const char* name : {"m.onnx", "m.gcx"}) {
    const std::string model = (folder.path() / name).string();
    std::vector<std::string> arguments = train;
    arguments.insert(arguments.end(), {"--out", model});
    const nlohmann::json trained = results_of(arguments)["eval"];
    std::vector<std::string> evaluate{"eval", model, "--data", digits("test.npz")};
    if (std::string(name) == "m.onnx")
      evaluate.insert(evaluate.end(),
                      {"--loss", "cross_entropy", "--metric", "accuracy", "--metric", "f1", "--metric", "confusion"});
    const nlohmann::json evaluated = results_of(evaluate);
    EXPECT_EQ(evaluated["rows"], 360);
    for (const char* metric : {"accuracy", "f1", "confusion"})
      EXPECT_EQ(evaluated[metric], trained[metric]) << name << " " << metric;
    EXPECT_NEAR(evaluated["loss"].get<double>(), trained["loss"].get<double>(), 1e-6) << name;
  }
}

TEST(EvalCommand, WrongNamesAreRefused) {
  const auto refused = [](std::vector<std::string> more, const std::string& part) {
    std::vector<std::string> arguments{"eval", digits("digits.onnx"), "--data", digits("test.npz")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 2) << part;
    EXPECT_NE(result.errors.find(part), std::string::npos) << result.errors;
  };
  refused({}, "--loss is missing");
  refused({"--loss", "cross_entropy(logit, label)"}, "'logit' is no output of");
  refused({"--loss", "cross_entropy(logit, label)"}, "did you mean 'logits'?");
  refused({"--loss", "cross_entropy", "--metric", "f2"}, "did you mean 'f1'?");
  refused({"--loss", "cross_entropy", "--metric", "top_k(k=0)"}, "wanted a whole number of at least 1");
}

}  // namespace
}  // namespace gcomp
