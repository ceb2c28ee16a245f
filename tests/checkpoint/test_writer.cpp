// What stands in the folder of checkpoints at any time, and how errors of the thread that writes reach the training.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "tests/checkpoint/training_course.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using driver::checkpoint_name;
using driver::CheckpointEvent;
using driver::CheckpointWriter;
using driver::Standing;
using runtime::test::user_error;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

class Writing : public testing::Test {
 protected:
  Writing() { write_course_model(options_.model); }

  void write(CheckpointWriter& writer, std::int64_t step, Standing standing = Standing::ordinary) {
    driver::RunState run = course().state();
    run.step = step;
    writer.write(course().trainer(), run, standing);
  }
  Course& course() {
    if (!course_) course_.emplace(options_);
    return *course_;
  }

  TemporaryDirectory folder_;
  const fs::path checkpoints_ = folder_ / "checkpoints";
  CourseOptions options_{.model = folder_ / "m.onnx"};
  std::optional<Course> course_;
};

TEST_F(Writing, TheLastStayAndTheBestApart) {
  CheckpointWriter writer({.folder = checkpoints_, .keep = 2});
  write(writer, 1);
  write(writer, 2, Standing::best);
  for (const std::int64_t step : {3, 4, 5}) write(writer, step);
  for (const CheckpointEvent& event : writer.finish()) EXPECT_EQ(event.failure + event.note, "") << event.step;
  EXPECT_EQ(names_in(checkpoints_), (std::set<std::string>{"best", "latest", "step-00000002", "step-00000004", "step-00000005"}));
  EXPECT_EQ(contents(checkpoints_ / "latest"), "step-00000005\n");
  EXPECT_EQ(contents(checkpoints_ / "best"), "step-00000002\n");
  EXPECT_EQ(writer.latest(), checkpoints_ / "step-00000005");
  write(writer, 6, Standing::best);
  writer.finish();
  EXPECT_EQ(names_in(checkpoints_), (std::set<std::string>{"best", "latest", "step-00000005", "step-00000006"}));
}

TEST_F(Writing, EachEventIsToldOnceInOrder) {
  CheckpointWriter writer({.folder = checkpoints_, .keep = 0});
  std::vector<CheckpointEvent> events;
  for (std::int64_t step = 0; step < 6; ++step) {
    write(writer, step);
    for (CheckpointEvent& event : writer.poll()) events.push_back(std::move(event));
  }
  for (CheckpointEvent& event : writer.finish()) events.push_back(std::move(event));
  ASSERT_EQ(events.size(), 6U);
  for (std::int64_t step = 0; step < 6; ++step) EXPECT_EQ(events[static_cast<std::size_t>(step)].step, step);
  EXPECT_TRUE(writer.finish().empty());
  EXPECT_TRUE(writer.poll().empty());
  EXPECT_EQ(writer.failures(), "");
}

/// A snapshot is of its moment, however late it is written.
TEST_F(Writing, WhatIsWrittenIsTheTrainingAsItWas) {
  CheckpointWriter writer({.folder = checkpoints_, .keep = 0});
  std::vector<std::vector<NamedTensor>> states;
  while (course().done() < 8) {
    writer.write(course().trainer(), course().state());
    states.push_back(states_of(course().trainer()));
    course().step();
  }
  writer.finish();
  for (std::size_t step = 0; step < states.size(); ++step) {
    const driver::FoundCheckpoint found = driver::open_checkpoint(checkpoints_ / checkpoint_name(static_cast<std::int64_t>(step)));
    const std::map<std::string, Tensor> tensors = driver::read_tensors(found.path, found.manifest);
    EXPECT_TRUE(tensors == (std::map<std::string, Tensor>(states[step].begin(), states[step].end()))) << step;
    EXPECT_EQ(found.manifest.run.step, static_cast<std::int64_t>(step));
  }
}

/// As a full disk is: the writer's files may no longer grow. Earlier checkpoints stay, and what was begun is gone.
TEST_F(Writing, AnErrorReachesTheNextCallOnceAndIsSaidAgainInTheEnd) {
  CheckpointWriter writer({.folder = checkpoints_, .keep = 1});
  write(writer, 1);
  EXPECT_EQ(writer.finish().size(), 1U);
  const std::set<std::string> before = names_in(checkpoints_);
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{.rlim_cur = 200, .rlim_max = unlimited.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  write(writer, 2);
  const std::vector<CheckpointEvent> events = writer.finish();
  setrlimit(RLIMIT_FSIZE, &unlimited);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_NE(events[0].failure.find("cannot write '" + (checkpoints_ / "step-00000002").string() + "': File too large"),
            std::string::npos)
      << events[0].failure;
  EXPECT_EQ(names_in(checkpoints_), before);
  EXPECT_TRUE(writer.finish().empty());
  write(writer, 3);
  EXPECT_EQ(writer.finish()[0].failure, "");
  EXPECT_EQ(names_in(checkpoints_), (std::set<std::string>{"latest", "step-00000003"}));
  EXPECT_NE(writer.failures().find("1 of 3 checkpoints could not be written"), std::string::npos) << writer.failures();
  EXPECT_NE(writer.failures().find("File too large"), std::string::npos) << writer.failures();
}

TEST_F(Writing, AFolderThatCannotBeMadeIsSaidAtOnce) {
  put(checkpoints_, "a file");
  EXPECT_NE(user_error([&] { CheckpointWriter({.folder = checkpoints_}); }).find(checkpoints_.string()), std::string::npos);
  EXPECT_EQ(contents(checkpoints_), "a file");
  EXPECT_NE(user_error([&] { CheckpointWriter({.folder = folder_ / "c", .keep = -1}); }).find("wanted 0 or more"),
            std::string::npos);
}

TEST_F(Writing, AFolderThatVanishesLosesNoStep) {
  CheckpointWriter writer({.folder = checkpoints_});
  fs::remove_all(checkpoints_);
  put(checkpoints_, "a file");
  write(writer, 1);
  const std::vector<CheckpointEvent> events = writer.finish();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_NE(events[0].failure.find("Not a directory"), std::string::npos) << events[0].failure;
  course().step();
}

/// A run that went back behind a damaged checkpoint goes its own way: what lies ahead is neither taken nor removed.
TEST_F(Writing, LaterCheckpointsOfAnotherCourseArePutAside) {
  CheckpointWriter writer({.folder = checkpoints_, .keep = 1});
  write(writer, 9);
  writer.finish();
  const std::string digest = contents(checkpoints_ / "step-00000009" / "manifest.json");
  write(writer, 5);
  const std::vector<CheckpointEvent> events = writer.finish();
  EXPECT_NE(events.at(0).note.find("aside-step-00000009"), std::string::npos) << events[0].note;
  EXPECT_EQ(names_in(checkpoints_), (std::set<std::string>{"aside-step-00000009", "latest", "step-00000005"}));
  EXPECT_EQ(contents(checkpoints_ / "aside-step-00000009" / "manifest.json"), digest);
  EXPECT_EQ(driver::find_latest(checkpoints_)->path, checkpoints_ / "step-00000005");
}

/// A step that is written again, as after a damaged one, replaces it in one move.
TEST_F(Writing, TheSameStepAgainReplacesIt) {
  CheckpointWriter writer({.folder = checkpoints_});
  write(writer, 4);
  writer.finish();
  put(checkpoints_ / "step-00000004" / "counters.safetensors", "damaged");
  write(writer, 4);
  EXPECT_EQ(writer.finish().at(0).failure, "");
  EXPECT_EQ(driver::find_latest(checkpoints_)->passed_over, "");
  EXPECT_EQ(names_in(checkpoints_), (std::set<std::string>{"latest", "step-00000004"}));
}

TEST_F(Writing, WhatKilledProcessesLeftGoes) {
  fs::create_directories(checkpoints_ / ".gcomp-2147480000-0.tmp" / "more");
  fs::create_directories(checkpoints_ / ".gcomp-1-0.tmp");  // of a process that lives
  CheckpointWriter writer({.folder = checkpoints_});
  EXPECT_EQ(names_in(checkpoints_), (std::set<std::string>{".gcomp-1-0.tmp"}));
}

}  // namespace
}  // namespace gcomp::test
