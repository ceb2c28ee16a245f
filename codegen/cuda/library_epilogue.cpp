#include "codegen/cuda/library_epilogue.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "ir/product.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;
using runtime::EpilogueKind;

namespace {

/// What a term gives for given values of the operands at one point; nothing where it is made of other than smooth operations. Casts
/// to the product's dtype and wider ones lose no more than storing the result does, and count as exact.
class PointEvaluator {
 public:
  PointEvaluator(const LoopNest& nest, double sum) : nest_(nest), sum_(sum) {}
  void set(int operand, double value) { operands_[operand] = value; }

  std::optional<double> statement(int number) {
    if (number == 0) return sum_;
    return value(nest_.statements[static_cast<std::size_t>(number)].value);
  }

 private:
  static bool is_smooth(const OpDef* op) {
    const OpDef* const smooth[] = {&ops::kAdd, &ops::kSub,  &ops::kMul, &ops::kDiv,
                                   &ops::kNeg, &ops::kTanh, &ops::kExp, &ops::kSigmoid};
    return std::find(std::begin(smooth), std::end(smooth), op) != std::end(smooth);
  }

  bool keeps_precision(const Term& cast) const {
    const DType product = nest_.statements[0].value->arguments[0]->dtype, from = cast.arguments[0]->dtype;
    return is_float(from) && (cast.dtype == product || (is_float(cast.dtype) && size_of(cast.dtype) > size_of(product)));
  }

  std::optional<double> value(const TermPtr& term) {
    if (const auto known = known_.find(term.get()); known != known_.end()) return known->second;
    return known_[term.get()] = compute(*term);
  }

  std::optional<double> compute(const Term& term) {
    if (term.kind == Term::Kind::literal) return term.number;
    if (term.kind == Term::Kind::local) return statement(term.slot);
    if (term.kind == Term::Kind::read) {
      const auto found = operands_.find(term.slot);
      return found == operands_.end() ? std::nullopt : std::optional(found->second);
    }
    if (term.kind != Term::Kind::call) return std::nullopt;
    if (term.op == &ops::kCast) return keeps_precision(term) ? value(term.arguments[0]) : std::nullopt;
    if (!is_smooth(term.op)) return std::nullopt;
    std::vector<double> arguments;
    for (const TermPtr& argument : term.arguments) {
      const auto found = value(argument);
      if (!found) return std::nullopt;
      arguments.push_back(*found);
    }
    return term.op->scalar.reference(arguments);
  }

  const LoopNest& nest_;
  double sum_;
  std::unordered_map<int, double> operands_;
  std::unordered_map<const Term*, std::optional<double>> known_;
};

constexpr double kRoot = 0.7978845608028654, kCube = 0.044715;  // of GELU's tanh form; the first is sqrt(2 / pi)

double gelu(double x) { return 0.5 * x * (1 + std::tanh(kRoot * (x + kCube * x * x * x))); }
double gelu_derivative(double x) {
  const double t = std::tanh(kRoot * (x + kCube * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot * (1 + 3 * kCube * x * x);
}

/// A quarter of the distance between neighbours at 1; constants in the graph are rounded to the dtype.
double resolution(DType dtype) {
  switch (dtype) {
    case DType::f16: return std::ldexp(1.0, -12);
    case DType::bf16: return std::ldexp(1.0, -9);
    default: return 1e-6;
  }
}

class Recognition {
 public:
  Recognition(const LoopNest& nest, const std::vector<TensorType>& operands, const std::vector<TensorType>& results)
      : nest_(nest), operands_(operands), results_(results), rank_(results[0].shape.size()) {}

  std::optional<LibraryEpilogue> run() {
    const DType dtype = operands_[0].dtype;
    if (dtype == DType::f64 || !is_float(dtype) || results_.size() > 2) return std::nullopt;
    for (const auto* list : {&operands_, &results_})
      for (const TensorType& type : *list)
        if (type.dtype != dtype) return std::nullopt;
    if (const auto summed = summed_operand(nest_)) return bias_gradient(*summed);
    if (!find_operands()) return std::nullopt;
    if (results_.size() == 1 && !matrix_) {
      if (bias_ && is_preactivation(statement_of(0))) return LibraryEpilogue{EpilogueKind::bias, 0, bias_, {}};
      if (computes_gelu(statement_of(0))) return LibraryEpilogue{EpilogueKind::gelu, 0, bias_, {}};
    }
    if (results_.size() == 2 && !matrix_)
      for (int result : {0, 1})
        if (is_preactivation(statement_of(1 - result)) && computes_gelu(statement_of(result)))
          return LibraryEpilogue{EpilogueKind::gelu, result, bias_, 1 - result};
    if (results_.size() == 1 && matrix_ && !bias_ && computes_gradient(statement_of(0)))
      return LibraryEpilogue{EpilogueKind::gelu_gradient, 0, {}, matrix_};
    return std::nullopt;
  }

 private:
  /// cuBLASLt adds up what lies side by side for each k. CUDA 11.6 was seen to write beside a sum of one element (apex issue 1392).
  std::optional<LibraryEpilogue> bias_gradient(int summed) const {
    const std::vector<Index>& at = nest_.statements[1].value->indices;
    if (!(at[0] == nest_.axis(2)) || results_[1].elements() < 2) return std::nullopt;
    return LibraryEpilogue{summed == 0 ? EpilogueKind::bias_gradient_a : EpilogueKind::bias_gradient_b, 0, 1, {}};
  }

  int statement_of(int result) const { return stored_statement(nest_, static_cast<std::size_t>(result)); }

  /// At most one operand along n and one matrix that lies as the result does, and nothing else.
  bool find_operands() {
    const Shape& shape = results_[0].shape;
    const Index along_n = Index::axis(static_cast<int>(rank_) - 1, shape.back());
    const Index own = linear_index(axes_of_shape(shape), shape);
    bool fits = true;
    for (std::size_t s = 1; s < nest_.statements.size(); ++s)
      for_each_term(nest_.statements[s].value, [&](const TermPtr& term) {
        if (term->kind != Term::Kind::read) return;
        const TensorType& type = operands_[static_cast<std::size_t>(term->slot)];
        const Index at = linear_index(term->indices, type.shape);
        std::optional<int>* role = nullptr;
        const bool vector = at == along_n && type.elements() == shape.back();
        if (vector && type.rank() == 1) role = &bias_;
        else if (at == own && type.elements() == element_count(shape)) role = &matrix_;
        else if (vector) role = &bias_;
        fits = fits && role && term->slot >= 2 && (!*role || **role == term->slot);
        if (fits) *role = term->slot;
      });
    return fits;
  }

  /// The sum itself, or with the bias added.
  bool is_preactivation(int statement) const {
    if (statement == 0) return !bias_;
    const Term& term = *nest_.statements[static_cast<std::size_t>(statement)].value;
    if (term.kind != Term::Kind::call || term.op != &ops::kAdd || !bias_) return false;
    const auto is_sum = [](const Term& t) { return t.kind == Term::Kind::local && t.slot == 0; };
    const auto is_bias = [&](const Term& t) { return t.kind == Term::Kind::read && t.slot == *bias_; };
    const Term &first = *term.arguments[0], &second = *term.arguments[1];
    return (is_sum(first) && is_bias(second)) || (is_bias(first) && is_sum(second));
  }

  static constexpr double kPoints[] = {0,    0.001, -0.001, 0.1,  -0.1, 0.37, -0.37, 0.5,  -0.5, 0.83, -0.83, 1,  -1,  1.4, -1.4,
                                       1.75, -1.75, 2.1,    -2.1, 2.6,  -2.6, 3.3,   -3.3, 4.2,  -4.2, 5,     -5, 6.5, -6.5};

  bool close(std::optional<double> found, double wanted, double scale) const {
    return found && std::fabs(*found - wanted) <= resolution(operands_[0].dtype) * (1 + std::fabs(scale));
  }

  bool computes_gelu(int statement) const {
    for (double sum : kPoints)
      for (double bias : {0.0, 0.3, -1.1}) {
        PointEvaluator at(nest_, sum);
        if (bias_) at.set(*bias_, bias);
        const double x = bias_ ? sum + bias : sum;
        if (!close(at.statement(statement), gelu(x), x)) return false;
      }
    return true;
  }

  bool computes_gradient(int statement) const {
    for (double x : kPoints)
      for (double sum : {0.0, 1.0, -0.7, 2.3}) {
        PointEvaluator at(nest_, sum);
        at.set(*matrix_, x);
        if (!close(at.statement(statement), sum * gelu_derivative(x), 4 * sum)) return false;
      }
    return true;
  }

  const LoopNest& nest_;
  const std::vector<TensorType>&operands_, &results_;
  const std::size_t rank_;
  std::optional<int> bias_, matrix_;  // operands
};

}  // namespace

std::optional<LibraryEpilogue> library_epilogue(const LoopNest& nest, const std::vector<TensorType>& operands,
                                                const std::vector<TensorType>& results) {
  return Recognition(nest, operands, results).run();
}

}  // namespace gcomp::codegen::cuda
