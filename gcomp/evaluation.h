// The loss and accuracy of a model's outputs, summed on the host in double over batches of any size.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/base/tensor.h"
#include "passes/training/training.h"

namespace gcomp {

struct Evaluation {
  double loss = 0;                 ///< mean over all elements of all rows (cross_entropy: over all labels that are not ignored)
  std::optional<double> accuracy;  ///< share of right decisions, where the loss decides between classes
  std::int64_t rows = 0;           ///< how many were evaluated
};

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

}  // namespace gcomp
