// A small training with all that a checkpoint has to carry: dropout, running statistics, moments, an average, a schedule, shuffled
// rows, and in f16 a loss scale. Written on the library, so that it can stop and go on at any step.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/driver/checkpoint.h"
#include "gcomp/driver/schedule.h"
#include "gcomp/trainer.h"
#include "runtime/batch_plan.h"

namespace gcomp::test {

/// y = Gemm(Dropout(Relu(BatchNormalization(Gemm(x))))) of x f32[batch, 6], with `features` hidden and 3 outputs; weights from a
/// formula with this seed.
enum class CourseForm { plain, negated_head };  ///< negated_head: the last Gemm reads Neg(fc2.weight)
void write_course_model(const std::filesystem::path& path, int features = 8, int seed = 1, CourseForm form = CourseForm::plain);
/// x and label, as the course trains on them.
void write_course_data(const std::filesystem::path& path);

struct CourseOptions {
  std::filesystem::path model;
  DType precision = DType::f32;
  std::string optimizer = "adamw(lr=0.01)";
  std::int64_t steps = 30;
  std::string schedule = "cosine";
  std::vector<std::string> freeze = {};
  std::filesystem::path weights = {};  ///< the model is compiled with them
};

class Course {
 public:
  explicit Course(const CourseOptions& options);

  Trainer& trainer() { return trainer_; }
  std::int64_t done() const { return done_; }
  bool ended() const { return done_ == options_.steps; }
  void step();
  /// What a checkpoint is to keep of the loop.
  driver::RunState state() const;
  void restore(const driver::FoundCheckpoint& found);

 private:
  CourseOptions options_;
  Trainer trainer_;
  runtime::BatchPlan plan_;
  driver::Schedule schedule_;
  Tensor x_, label_;
  std::int64_t done_ = 0;
};

/// Every state of a trainer, as bytes.
std::vector<NamedTensor> states_of(const Trainer& trainer);

}  // namespace gcomp::test
