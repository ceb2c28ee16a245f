// Training from other weights: what is taken, what is refused, and that nothing of the model's own is left.
#include <gtest/gtest.h>

#include "frontend/onnx/import.h"
#include "gcomp/initialize.h"
#include "runtime/files/safetensors.h"
#include "tests/checkpoint/training_course.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using runtime::test::user_error;
using Tensors = std::map<std::string, Tensor>;

const std::vector<std::string> kWeights{"fc1.weight",      "fc1.bias",       "bn.weight",  "bn.bias",
                                        "bn.running_mean", "bn.running_var", "fc2.weight", "fc2.bias"};

class Initializing : public testing::Test {
 protected:
  Initializing() {
    write_course_model(options_.model);
    write_course_model(other_, 8, 4);
  }

  Tensors tensors_of(const fs::path& model) const { return frontend::float_initializers(frontend::open_onnx(model).source); }
  void expect_parts(const std::string& text, const std::vector<std::string>& parts) const {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }
  /// That initialize() refuses the file and changes nothing.
  std::string refused(const fs::path& file, const InitOptions& options = {}) const {
    Course course(options_);
    const std::vector<NamedTensor> before = states_of(course.trainer());
    const std::string error = user_error([&] { initialize(course.trainer(), file, options); });
    EXPECT_TRUE(states_of(course.trainer()) == before);
    return error;
  }

  TemporaryDirectory folder_;
  const fs::path other_ = folder_ / "other.onnx", file_ = folder_ / "w.safetensors";
  CourseOptions options_{.model = folder_ / "m.onnx"};
};

/// A training from weights of a file is the training of the model that has them.
TEST_F(Initializing, EveryKindOfFileGivesTheTrainingOfTheModelThatHasItsWeights) {
  CourseOptions other = options_;
  other.model = other_;
  Course wanted(other);
  const driver::Snapshot start = driver::snapshot(wanted.trainer(), wanted.state());
  driver::write_checkpoint(folder_ / "checkpoints" / driver::checkpoint_name(0), [&] {
    fs::create_directories(folder_ / "checkpoints");
    return start;
  }());
  wanted.trainer().save(folder_ / "other.gcx");
  runtime::write_safetensors(file_, {tensors_of(other_), {}});
  while (!wanted.ended()) wanted.step();
  for (const fs::path& file : {fs::path(other_), file_, folder_ / "checkpoints", folder_ / "checkpoints" / "step-00000000",
                               folder_ / "other.gcx", folder_.path()}) {
    Course course(options_);
    const InitReport report = initialize(course.trainer(), file);
    EXPECT_EQ(report.taken, kWeights) << file;
    EXPECT_TRUE(report.differences.empty());
    while (!course.ended()) course.step();
    EXPECT_TRUE(states_of(course.trainer()) == states_of(wanted.trainer())) << file;
  }
}

TEST_F(Initializing, HalfPrecisionIsConverted) {
  Tensors tensors = tensors_of(other_);
  for (auto& [name, tensor] : tensors) tensor = tensor.cast(DType::f16);
  runtime::write_safetensors(file_, {tensors, {}});
  Course course(options_);
  initialize(course.trainer(), file_);
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(course.trainer().read(name) == tensor.cast(DType::f32)) << name;
}

TEST_F(Initializing, DifferencesAreListedWithTheirCount) {
  Tensors tensors = tensors_of(other_);
  tensors.erase("bn.weight");
  tensors["fc2.weight"] = Tensor(DType::f32, {8, 5});
  tensors["fc2.bias"] = Tensor(DType::f32, {5});
  tensors["head.weight"] = Tensor(DType::f32, {5});
  tensors["num_batches_tracked"] = Tensor(DType::i64, {});  // PyTorch's, which is no weight
  runtime::write_safetensors(file_, {tensors, {}});
  expect_parts(refused(file_), {file_.string(), "4 weights differ", "'bn.weight' is not there",
                                "'fc2.weight' is f32[8,5] there, wanted f32[8,3]", "and 1 other", "--partial"});
  Course course(options_);
  const Tensor head = course.trainer().read("fc2.weight");
  const InitReport report = initialize(course.trainer(), file_, {.partial = true});
  EXPECT_EQ(report.taken.size(), 5U);
  EXPECT_EQ(report.differences.size(), 4U);
  EXPECT_TRUE(course.trainer().read("fc2.weight") == head);
  EXPECT_TRUE(course.trainer().read("fc1.weight") == tensors.at("fc1.weight"));
  expect_parts(to_string(report), {"5 weights are taken", "4 differ", "'fc2.weight' is f32[8,5]"});
}

TEST_F(Initializing, WhatHasNothingThatFitsIsRefusedInPartToo) {
  runtime::write_safetensors(file_, {{{"other", Tensor(DType::f32, {2})}}, {}});
  expect_parts(refused(file_, {.partial = true}), {"nothing that fits"});
  expect_parts(refused(folder_ / "none.safetensors"), {"no such file"});
  put(folder_ / "w.bin", "x");
  expect_parts(refused(folder_ / "w.bin"), {".safetensors, .onnx or .gcx"});
  fs::create_directories(folder_ / "empty");
  expect_parts(refused(folder_ / "empty"), {"holds no checkpoint"});
}

/// A frozen weight is a constant to what is compiled, here in -fc2.weight.
TEST_F(Initializing, WhatIsFrozenIsReplacedBeforeTheModelIsCompiled) {
  for (const CourseForm form : {CourseForm::plain, CourseForm::negated_head}) {
    write_course_model(options_.model, 8, 1, form);
    write_course_model(other_, 8, 4, form);
    options_.weights.clear();
    options_.freeze = {"fc2.weight", "bn.bias"};
    expect_parts(refused(other_), {"1 weight differs", "'fc2.weight'", "(with_weights)"});
    CourseOptions other = options_;
    other.model = other_;
    options_.weights = other_;
    Course wanted(other), course(options_);
    EXPECT_TRUE(initialize(course.trainer(), other_).differences.empty());
    while (!course.ended()) course.step(), wanted.step();
    EXPECT_TRUE(states_of(course.trainer()) == states_of(wanted.trainer()));
    course.trainer().save(folder_ / "course.onnx");
    wanted.trainer().save(folder_ / "wanted.onnx");
    EXPECT_TRUE(tensors_of(folder_ / "course.onnx") == tensors_of(folder_ / "wanted.onnx"));
    // So does an artifact, which then holds the model that has them.
    course.trainer().save(folder_ / "course.gcx");
    Trainer::load(folder_ / "course.gcx").save(folder_ / "course.onnx");
    EXPECT_TRUE(tensors_of(folder_ / "course.onnx") == tensors_of(folder_ / "wanted.onnx"));
  }
}

/// The states of the one fit the other, but not its constants.
TEST_F(Initializing, ACheckpointIsOfTheModelWithItsInitialWeights) {
  options_.freeze = {"fc2.weight"};
  CourseOptions initialized = options_;
  initialized.weights = other_;
  Course course(initialized);
  driver::write_checkpoint(folder_ / "c", driver::snapshot(course.trainer(), course.state()));
  Course again(initialized), plain(options_);
  again.restore(driver::open_checkpoint(folder_ / "c"));
  expect_parts(user_error([&] { plain.restore(driver::open_checkpoint(folder_ / "c")); }), {"another model", "SHA-256"});
}

}  // namespace
}  // namespace gcomp::test
