// The loss and accuracy of a model's outputs, summed on the host in double over batches of any size.
#pragma once

#include <cstdint>

#include "gcomp/evaluation.h"
#include "ir/base/tensor.h"
#include "passes/training/training.h"

namespace gcomp::driver {

class EvaluationSum {
 public:
  /// `axis` is the class axis of cross_entropy.
  EvaluationSum(passes::LossKind loss, std::int64_t axis) : loss_(loss), axis_(axis) {}

  /// Adds the first `rows` rows of an output and its labels. For LossKind::output, `output` is the loss over these rows and `label`
  /// is not looked at.
  void add(const Tensor& output, const Tensor* label, std::int64_t rows);
  Evaluation result() const;

 private:
  void add_cross_entropy(const Tensor& output, const Tensor& label, std::int64_t rows);
  void add_elementwise(const Tensor& output, const Tensor& label, std::int64_t rows);

  passes::LossKind loss_;
  std::int64_t axis_;
  double sum_ = 0;
  std::int64_t terms_ = 0, right_ = 0, decided_ = 0, rows_ = 0;
};

}  // namespace gcomp::driver
