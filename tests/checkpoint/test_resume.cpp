// A training that goes on from a checkpoint is one long training, to the bit.
#include <gtest/gtest.h>

#include "tests/checkpoint/training_course.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

class Resuming : public testing::TestWithParam<DType> {
 protected:
  Resuming() { write_course_model(options_.model); }

  TemporaryDirectory folder_;
  CourseOptions options_{.model = folder_ / "m.onnx", .precision = GetParam()};
};

/// Each step is written; then the training goes on from each, in a trainer that has other values.
TEST_P(Resuming, AtEveryStepItEndsWithTheBytesOfTheOneThatWasNotStopped) {
  Course whole(options_);
  {
    driver::CheckpointWriter writer({.folder = folder_ / "checkpoints", .keep = 0});
    while (!whole.ended()) {
      writer.write(whole.trainer(), whole.state());
      whole.step();
    }
    for (const driver::CheckpointEvent& event : writer.finish()) EXPECT_EQ(event.failure + event.note, "");
  }
  whole.trainer().save(folder_ / "whole.onnx");
  const std::vector<NamedTensor> states = states_of(whole.trainer());
  const std::string bytes = contents(folder_ / "whole.onnx");
  Course part(options_);
  for (std::int64_t step = 0; step < options_.steps; ++step) {
    part.restore(driver::open_checkpoint(folder_ / "checkpoints" / driver::checkpoint_name(step)));
    ASSERT_EQ(part.done(), step);
    EXPECT_EQ(part.trainer().data_position().steps, step);
    while (!part.ended()) part.step();
    EXPECT_TRUE(states_of(part.trainer()) == states) << "from step " << step;
    part.trainer().save(folder_ / "part.onnx");
    EXPECT_TRUE(contents(folder_ / "part.onnx") == bytes) << "from step " << step;
  }
}

/// What is under test has to matter: without it the bytes are others.
TEST_P(Resuming, EachKindOfStateChangesTheRest) {
  Course whole(options_);
  for (int i = 0; i < 7; ++i) whole.step();
  driver::write_checkpoint(folder_ / "c", driver::snapshot(whole.trainer(), whole.state()));
  const driver::FoundCheckpoint found = driver::open_checkpoint(folder_ / "c");
  while (!whole.ended()) whole.step();
  const std::vector<NamedTensor> states = states_of(whole.trainer());
  std::vector<std::string> kinds{"fc1.weight", "bn.running_mean", "fc1.weight.exp_avg", "fc1.weight.ema", "step", "random_step"};
  if (GetParam() == DType::f16) kinds.emplace_back("loss_scale");
  for (const std::string& name : kinds) {
    Course part(options_);
    const Tensor fresh = part.trainer().read(name);
    part.restore(found);
    part.trainer().write(name, fresh);
    while (!part.ended()) part.step();
    EXPECT_FALSE(states_of(part.trainer()) == states) << name;
  }
}

TEST_P(Resuming, AnArtifactGoesOnFromTheCheckpointOfItsModel) {
  Course whole(options_);
  whole.trainer().save(folder_ / "m.gcx");
  for (int i = 0; i < 5; ++i) whole.step();
  driver::write_checkpoint(folder_ / "c", driver::snapshot(whole.trainer(), whole.state()));
  Trainer loaded = Trainer::load(folder_ / "m.gcx");
  driver::restore(loaded, driver::open_checkpoint(folder_ / "c"));
  for (const auto& [name, value] : states_of(whole.trainer())) EXPECT_TRUE(loaded.read(name) == value) << name;
}

INSTANTIATE_TEST_SUITE_P(Precisions, Resuming, testing::Values(DType::f32, DType::f16, DType::f64),
                         [](const auto& precision) { return std::string(name_of(precision.param)); });

}  // namespace
}  // namespace gcomp::test
