// A training that is killed at random moments, each of its steps a checkpoint, and goes on each time, ends with the bytes of the
// one that was not. GCOMP_KILLS=200 kills it so often.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <random>
#include <set>

#include "tests/checkpoint/training_course.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

constexpr int kKillsInTheSuite = 20;
constexpr std::int64_t kStepsOfTheCourse = 200;

int wanted_kills() {
  const char* text = std::getenv("GCOMP_KILLS");
  return text ? std::atoi(text) : kKillsInTheSuite;
}

class Killed : public testing::Test {
 protected:
  Killed() { write_course_model(options_.model); }

  /// What a process of its own does: goes on from the latest checkpoint, each step another, until all are done.
  int train(const fs::path& out, int started) const {
    try {
      Course course(options_);
      if (const auto found = driver::find_latest(checkpoints_)) course.restore(*found);
      driver::CheckpointWriter writer({.folder = checkpoints_, .keep = 2});
      if (started >= 0 && ::write(started, "s", 1) != 1) return 3;
      while (!course.ended()) {
        course.step();
        writer.write(course.trainer(), course.state(),
                     course.done() % 5 == 0 ? driver::Standing::best : driver::Standing::ordinary);
      }
      writer.finish();
      if (!writer.failures().empty()) return 2;
      course.trainer().save(out);
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
  }
  /// `reached_steps`: returns once its steps begin.
  pid_t start(const fs::path& out, bool reached_steps) const {
    int ends[2] = {-1, -1};
    if (reached_steps && pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const pid_t child = fork();
    if (child == 0) _exit(train(out, ends[1]));
    if (!reached_steps) return child;
    close(ends[1]);
    char byte = 0;
    static_cast<void>(!read(ends[0], &byte, 1));
    close(ends[0]);
    return child;
  }
  static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::int64_t newest_step() const {
    const auto found = driver::find_latest(checkpoints_);  // throws where there are some and none is whole
    return found ? found->manifest.run.step : 0;
  }

  TemporaryDirectory folder_;
  const fs::path checkpoints_ = folder_ / "checkpoints", out_ = folder_ / "last.onnx", whole_ = folder_ / "whole.onnx";
  CourseOptions options_{.model = folder_ / "m.onnx", .steps = kStepsOfTheCourse};
};

/// Nothing of the course runs in this process: a child must not inherit its threads' locks.
TEST_F(Killed, AtRandomMomentsItLosesNothing) {
  ASSERT_EQ(wait_for(start(whole_, false)), 0);
  const std::string whole = contents(whole_);
  const int wanted = wanted_kills();
  std::mt19937 random(2026);
  int kills = 0, in_steps = 0, ends = 0;
  std::int64_t before = 0;
  fs::remove_all(checkpoints_);
  while (kills < wanted) {
    const bool in_training = kills % 5 != 0;  // the others may come before it has read its checkpoint
    const pid_t child = start(out_, in_training);
    usleep(static_cast<useconds_t>(random() % 200'000));
    kill(child, SIGKILL);
    const int code = wait_for(child);
    if (code == 128 + SIGKILL) {
      ++kills;
      const std::int64_t now = newest_step();
      ASSERT_GE(now, before) << "after kill " << kills;
      in_steps += now > before;
      before = now;
      continue;
    }
    ASSERT_EQ(code, 0);
    ++ends;
    ASSERT_TRUE(contents(out_) == whole) << "after " << kills << " kills";
    fs::remove_all(checkpoints_);
    before = 0;
  }
  ASSERT_EQ(wait_for(start(out_, false)), 0);
  EXPECT_TRUE(contents(out_) == whole);
  EXPECT_GT(in_steps, 0) << "no kill came after a step: the test shows nothing";
  std::printf("%d kills, %d of them after new steps, %d ends between them\n", kills, in_steps, ends);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoints_)) names.insert(entry.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{"best", "latest", driver::checkpoint_name(kStepsOfTheCourse - 1),
                                          driver::checkpoint_name(kStepsOfTheCourse)}));
}

}  // namespace
}  // namespace gcomp::test
