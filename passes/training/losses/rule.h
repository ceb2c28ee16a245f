// What the rules of losses and metrics are written with.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/definition.h"
#include "ir/builder.h"
#include "ir/ops/table.h"

namespace gcomp::passes {

/// The types of a call's operands as they are settled, one after the other. Operands are the definition's arguments, and after them
/// the arrays that options name.
class LossTypes {
 public:
  virtual ~LossTypes() = default;
  virtual const Options& options() const = 0;
  /// Of the arguments.
  virtual std::size_t count() const = 0;
  /// The model's value; for an array of the data or a number, what want() gave it. Null before that.
  virtual const TensorType* known(std::size_t i) const = 0;
  /// The array that the operand is, as the data or what read it before has it; none for no array, and without either.
  virtual std::optional<TensorType> found(std::size_t i) const = 0;
  /// An array takes this type; throws UserError where the model's value, or what was found, has another shape.
  virtual void want(std::size_t i, const TensorType& type) = 0;
  /// An array's integers are class numbers.
  virtual void want_classes(std::size_t i, std::int64_t classes, std::optional<std::int64_t> ignored) = 0;
  [[noreturn]] virtual void fail(std::string_view message) const = 0;

  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) fail(concat(parts...));
  }
};

/// One call while it is built; operands have the types that were settled.
struct LossCall {
  ir::Builder& b;
  const Options& o;
  std::vector<ir::Var> operands;
  std::vector<std::pair<std::string_view, ir::Var>> named = {};  ///< options that name an array, and the array

  ir::Var x() const { return operands[0]; }
  ir::Var t() const { return operands[1]; }
  /// A list option's numbers along one axis of `like`, one number for all, or an array with a number for each row or element.
  /// Throws UserError where there are too many or too few.
  ir::Var along(std::string_view option, ir::Var like, std::int64_t axis) const;
};

/// A loss before its mean is taken: the sum of `values` over the sum of `weights`, or over their number where there are none.
/// Axis 0 of both counts the rows of the batch.
struct LossSum {
  ir::Var values, weights = {};
};

/// How something is called with outputs of the model and arrays of the data.
struct CallRule {
  const Definition* definition = nullptr;
  std::size_t arguments = 2;
  /// Settles the types of all operands.
  void (*types)(LossTypes&) = nullptr;
};

struct LossRule {
  Definition definition;
  std::size_t arguments = 2;
  void (*types)(LossTypes&) = nullptr;
  /// One of the two.
  LossSum (*sum)(const LossCall&) = nullptr;
  ir::Var (*value)(const LossCall&) = nullptr;
  /// The same as the mean of `sum`, in one op that is faster; null, or gives nothing where it does not apply.
  ir::Var (*mean)(const LossCall&) = nullptr;
  /// It decides between classes, or yes and no of each element; of scores, whose yes is above 0 and not above one half.
  bool of_classes = false, of_decisions = false, takes_scores = false;

  CallRule call() const { return {&definition, arguments, types}; }
};

/// All operands have the type of the first that the model gives.
void same_types(LossTypes& types);
/// Operand 1 is class numbers, in the shape of operand 0 without the axis of its classes. Looks at the options `axis` and
/// `ignore_index`.
void class_number_types(LossTypes& types);
/// The axis that holds the classes of operand 0: the option `axis`; the last where the labels that were found have the shape of the
/// rest, else axis 1.
std::int64_t class_axis(const LossTypes& types);
/// The same once the types are settled: the one that the targets lack; of probabilities axis 1, PyTorch's.
std::int64_t settled_axis(const LossCall& call);
Shape without_axis(Shape shape, std::int64_t axis);
std::vector<std::int64_t> all_but(std::int64_t rank, std::int64_t axis);

ir::Var sum_of_all(ir::Var x);
ir::Var mean_of_all(ir::Var x);

constexpr OptionDef reduction_option() { return OptionDef::word("reduction", "mean", "mean|sum").says("over all that counts"); }
constexpr OptionDef class_axis_option() {
  return OptionDef::integer("axis", "none")
      .or_none()
      .says("that holds the classes (default: the last, or 1 where the labels fit that)");
}
/// Of losses that have no other.
inline constexpr OptionDef kReduced[] = {reduction_option()};
constexpr OptionDef ignore_index_option() {
  return OptionDef::integer("ignore_index", "-100").says("a class number that counts for nothing");
}
constexpr OptionDef margin_option(std::string_view fallback) {
  return OptionDef::number("margin", fallback).says("how far apart is far enough");
}

// classification.cpp
extern const LossRule kCrossEntropy, kNll, kMultiMargin, kMultilabelMargin;
// binary.cpp
extern const LossRule kBce, kBceWithLogits, kFocal, kSoftMargin, kMultilabelSoftMargin, kHingeEmbedding, kDice;
// regression.cpp
extern const LossRule kMse, kL1, kSmoothL1, kHuber, kPoissonNll, kGaussianNll, kKlDiv;
// similarity.cpp
extern const LossRule kCosineEmbedding, kMarginRanking, kTripletMargin;

}  // namespace gcomp::passes
