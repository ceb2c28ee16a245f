#include "ir/nest_evaluator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <span>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "ir/nest/scalar_value.h"
#include "ir/op.h"

namespace gcomp::ir {
namespace {

constexpr std::size_t kMostArguments = 8;  // of a pointwise op
constexpr std::int64_t kMostLine = 128;    // points of a line

class NestEvaluator {
 public:
  NestEvaluator(const LoopNest& nest, std::vector<const Tensor*> operands) : nest_(nest), operands_(std::move(operands)) {
    point_.resize(nest.extents.size());
    values_.resize(nest.statements.size());
    strides_.resize(nest.statements.size());
  }

  std::vector<Tensor> run(std::span<const TensorType> types) {
    for (std::size_t s = 0; s < nest_.statements.size(); ++s) run_statement(s);
    std::vector<Tensor> results;
    for (std::size_t o = 0; o < nest_.outputs.size(); ++o) results.push_back(store(nest_.outputs[o], types[o]));
    return results;
  }

 private:
  /// An index or term made ready for many points: what the nest decides is looked up once.
  struct ReadyTerm;
  struct ReadyAtom;
  struct ReadyIndex {
    std::int64_t constant = 0;
    struct Step {
      std::size_t axis;
      std::int64_t coefficient;
    };
    std::vector<Step> axes;
    std::vector<ReadyAtom> others;
  };
  struct ReadyAtom {
    IndexAtom::Kind kind;
    std::int64_t coefficient, extent, divisor;
    ReadyIndex inner;               ///< quotient, remainder
    std::vector<ReadyTerm> loaded;  ///< one
  };
  struct ReadyCondition {
    ReadyIndex index;
    std::int64_t low, high;
  };
  struct ReadyTerm {
    const Term* term;
    const Tensor* tensor = nullptr;  ///< that is read
    bool inside = false;             ///< at every point, so that `indices` is the position alone
    std::vector<ReadyIndex> indices;
    std::vector<ReadyTerm> arguments;
    std::vector<ReadyCondition> conditions;
  };

  ReadyIndex ready(const Index& index) const {
    ReadyIndex made{index.constant(), {}, {}};
    for (const auto& [atom, coefficient] : index.parts()) {
      if (atom.kind == IndexAtom::Kind::axis) {
        made.axes.push_back({static_cast<std::size_t>(atom.axis), coefficient});
        continue;
      }
      ReadyAtom other{atom.kind, coefficient, atom.extent, atom.divisor, {}, {}};
      if (atom.kind == IndexAtom::Kind::loaded) other.loaded.push_back(ready(*atom.value));
      else other.inner = ready(*atom.inner);
      made.others.push_back(std::move(other));
    }
    return made;
  }

  ReadyTerm ready(const Term& term) const {
    ReadyTerm made{&term, nullptr, false, {}, {}, {}};
    for (const Index& index : term.indices) made.indices.push_back(ready(index));
    for (const TermPtr& argument : term.arguments) made.arguments.push_back(ready(*argument));
    for (const Condition& c : term.conditions) made.conditions.push_back({ready(c.index), c.low, c.high});
    if (term.kind == Term::Kind::read) {
      made.tensor = operands_[static_cast<std::size_t>(term.slot)];
      make_position(made);
    }
    if (term.kind == Term::Kind::local) made.indices.push_back(position_of(static_cast<std::size_t>(term.slot)));
    check_internal(term.kind != Term::Kind::call || term.arguments.size() <= kMostArguments, term.op ? term.op->name : "", " has ",
                   term.arguments.size(), " arguments");
    return made;
  }

  /// One index for all of a tensor's, where these are sums of axes that never leave their dimensions.
  void make_position(ReadyTerm& read) const {
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      const ReadyIndex& index = read.indices[d];
      if (!index.others.empty()) return;
      std::int64_t low = index.constant, high = index.constant;
      for (const auto& [axis, coefficient] : index.axes)
        (coefficient < 0 ? low : high) += coefficient * std::max<std::int64_t>(nest_.extents[axis] - 1, 0);
      if (low < 0 || high >= read.tensor->shape()[d]) return;
    }
    read.inside = true;
    read.indices = {row_major_position(read.indices, read.tensor->shape())};
  }

  /// Of indices that are sums of axes.
  static ReadyIndex row_major_position(const std::vector<ReadyIndex>& indices, const Shape& shape) {
    ReadyIndex position;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      position.constant = position.constant * shape[d] + indices[d].constant;
      for (auto& step : position.axes) step.coefficient *= shape[d];
      position.axes.insert(position.axes.end(), indices[d].axes.begin(), indices[d].axes.end());
    }
    return position;
  }

  /// Of a statement's value at the current point.
  ReadyIndex position_of(std::size_t statement) const {
    const std::vector<int>& axes = nest_.statements[statement].axes;
    ReadyIndex position;
    for (std::size_t i = 0; i < axes.size(); ++i)
      position.axes.push_back({static_cast<std::size_t>(axes[i]), strides_[statement][i]});
    return position;
  }

  std::int64_t evaluate(const ReadyIndex& index) const {
    std::int64_t value = index.constant;
    for (const auto& [axis, coefficient] : index.axes) value += coefficient * point_[axis];
    for (const ReadyAtom& atom : index.others) value += atom.coefficient * evaluate(atom);
    return value;
  }

  std::int64_t evaluate(const ReadyAtom& atom) const {
    if (atom.kind == IndexAtom::Kind::loaded) {
      const auto value = static_cast<std::int64_t>(evaluate(atom.loaded[0]));
      check_user(value >= 0 && value < atom.extent, "index ", value, " is out of range: the axis has ", atom.extent, " elements");
      return value;
    }
    const std::int64_t inner = evaluate(atom.inner);
    const std::int64_t quotient = inner / atom.divisor - (inner % atom.divisor < 0);
    return atom.kind == IndexAtom::Kind::quotient ? quotient : inner - quotient * atom.divisor;
  }

  bool holds(const std::vector<ReadyCondition>& conditions) const {
    for (const ReadyCondition& c : conditions) {
      const std::int64_t value = evaluate(c.index);
      if (value < c.low || value >= c.high) return false;
    }
    return true;
  }

  double evaluate(const ReadyTerm& ready) const {
    const Term& term = *ready.term;
    switch (term.kind) {
      case Term::Kind::literal: return term.number;
      case Term::Kind::index: return wrapped(term.dtype, static_cast<double>(evaluate(ready.indices[0])));
      case Term::Kind::read: return ready.tensor->at(ready.inside ? evaluate(ready.indices[0]) : checked_position(ready));
      case Term::Kind::local:
        return values_[static_cast<std::size_t>(term.slot)][static_cast<std::size_t>(evaluate(ready.indices[0]))];
      case Term::Kind::call: {
        std::array<double, kMostArguments> arguments;
        for (std::size_t i = 0; i < ready.arguments.size(); ++i) arguments[i] = evaluate(ready.arguments[i]);
        return result_of_call(term, {arguments.data(), ready.arguments.size()});
      }
      case Term::Kind::guard: return evaluate(ready.arguments[holds(ready.conditions) ? 0 : 1]);
    }
    return 0;
  }

  static bool depends(const ReadyIndex& index, std::size_t axis) {
    return !index.others.empty() ||
           std::any_of(index.axes.begin(), index.axes.end(), [axis](const ReadyIndex::Step& step) { return step.axis == axis; });
  }

  /// A term at points [first, first + count) of an axis, kMostLine at most: a node of the term is visited once for all of them.
  void evaluate_line(const ReadyTerm& ready, std::size_t axis, std::int64_t first, std::int64_t count, double* out) {
    const Term& term = *ready.term;
    point_[axis] = first;
    switch (term.kind) {
      case Term::Kind::literal: std::fill_n(out, count, term.number); return;
      case Term::Kind::read:
        if (ready.inside)
          return read_line(*ready.tensor, evaluate(ready.indices[0]), step_along(ready.indices[0], axis), count, out);
        if (read_within(ready, axis, count, out)) return;
        break;
      case Term::Kind::local: {
        const double* from = values_[static_cast<std::size_t>(term.slot)].data() + evaluate(ready.indices[0]);
        const std::int64_t step = step_along(ready.indices[0], axis);
        for (std::int64_t i = 0; i < count; ++i) out[i] = from[i * step];
        return;
      }
      case Term::Kind::call: call_line(ready, axis, first, count, out); return;
      case Term::Kind::guard:
        if (std::any_of(ready.conditions.begin(), ready.conditions.end(),
                        [axis](const ReadyCondition& c) { return depends(c.index, axis); }))
          return guard_line(ready, axis, first, count, out);
        evaluate_line(ready.arguments[holds(ready.conditions) ? 0 : 1], axis, first, count, out);
        return;
      case Term::Kind::index: break;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      point_[axis] = first + i;
      out[i] = evaluate(ready);
    }
  }

  /// A read whose line stays in the tensor, by indices that are sums of axes; false where it is none.
  bool read_within(const ReadyTerm& read, std::size_t axis, std::int64_t count, double* out) const {
    std::int64_t position = 0, step = 0;
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      const ReadyIndex& index = read.indices[d];
      if (!index.others.empty()) return false;
      const std::int64_t begin = evaluate(index), along = step_along(index, axis), end = begin + (count - 1) * along,
                         size = read.tensor->shape()[d];
      if (std::min(begin, end) < 0 || std::max(begin, end) >= size) return false;
      position = position * size + begin;
      step = step * size + along;
    }
    read_line(*read.tensor, position, step, count, out);
    return true;
  }

  /// Stretches where the conditions hold, and others.
  void guard_line(const ReadyTerm& guard, std::size_t axis, std::int64_t first, std::int64_t count, double* out) {
    std::array<bool, kMostLine> holding;
    std::fill_n(holding.begin(), count, true);
    for (const ReadyCondition& c : guard.conditions) {
      point_[axis] = first;
      const bool is_sum = c.index.others.empty();
      std::int64_t value = is_sum ? evaluate(c.index) : 0;
      const std::int64_t step = step_along(c.index, axis);
      for (std::int64_t i = 0; i < count; ++i, value += step) {
        bool& holds = holding[static_cast<std::size_t>(i)];
        if (!is_sum && holds) {
          point_[axis] = first + i;
          value = evaluate(c.index);
        }
        holds = holds && value >= c.low && value < c.high;
      }
    }
    for (std::int64_t begin = 0, end; begin < count; begin = end) {
      const bool holds = holding[static_cast<std::size_t>(begin)];
      for (end = begin + 1; end < count && holding[static_cast<std::size_t>(end)] == holds;) ++end;
      evaluate_line(guard.arguments[holds ? 0 : 1], axis, first + begin, end - begin, out + begin);
    }
  }

  void call_line(const ReadyTerm& ready, std::size_t axis, std::int64_t first, std::int64_t count, double* out) {
    const Term& term = *ready.term;
    const std::size_t arguments = ready.arguments.size();
    std::array<const double*, kMostArguments> lines;
    for (std::size_t a = 0; a < arguments; ++a) {
      if (lines_in_use_ == lines_.size()) lines_.emplace_back();
      double* line = lines_[lines_in_use_++].data();
      evaluate_line(ready.arguments[a], axis, first, count, line);
      lines[a] = line;
    }
    lines_in_use_ -= arguments;
    for (std::int64_t i = 0; i < count; ++i) {
      std::array<double, kMostArguments> values;
      for (std::size_t a = 0; a < arguments; ++a) values[a] = lines[a][i];
      out[i] = result_of_call(term, {values.data(), arguments});
    }
  }

  static std::int64_t step_along(const ReadyIndex& index, std::size_t axis) {
    std::int64_t step = 0;
    for (const auto& part : index.axes)
      if (part.axis == axis) step += part.coefficient;
    return step;
  }

  static void read_line(const Tensor& tensor, std::int64_t position, std::int64_t step, std::int64_t count, double* out) {
    const std::byte* data = tensor.data();
    if (tensor.dtype() == DType::f32) {
      for (std::int64_t i = 0; i < count; ++i) {
        float value;
        std::memcpy(&value, data + (position + i * step) * 4, sizeof(value));
        out[i] = value;
      }
      return;
    }
    if (tensor.dtype() == DType::f64) {
      for (std::int64_t i = 0; i < count; ++i) std::memcpy(&out[i], data + (position + i * step) * 8, sizeof(double));
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) out[i] = tensor.at(position + i * step);
  }

  std::int64_t checked_position(const ReadyTerm& read) const {
    std::int64_t position = 0;
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      const std::int64_t i = evaluate(read.indices[d]), size = read.tensor->shape()[d];
      if (i < 0 || i >= size)
        throw InternalError(concat("loop nest reads index ", i, " of dimension ", d, " of ", to_string(read.tensor->type())));
      position = position * size + i;
    }
    return position;
  }

  static double result_of_call(const Term& term, std::span<const double> arguments) {
    return value_of_call(term.dtype, *term.op, term.arguments.empty() ? term.dtype : term.arguments[0]->dtype, arguments);
  }

  Shape extents_of(const std::vector<int>& axes) const {
    Shape shape;
    for (int a : axes) shape.push_back(nest_.extents[static_cast<std::size_t>(a)]);
    return shape;
  }

  /// In order, the last axis fastest.
  template <class F>
  void for_each_point(std::span<const int> axes, const F& visit) {
    const auto extent = [&](int axis) { return nest_.extents[static_cast<std::size_t>(axis)]; };
    if (std::any_of(axes.begin(), axes.end(), [&](int axis) { return extent(axis) == 0; })) return;
    for (std::size_t moved = 1; moved > 0;) {
      visit();
      for (moved = axes.size(); moved > 0; --moved) {
        std::int64_t& at = point_[static_cast<std::size_t>(axes[moved - 1])];
        if (++at < extent(axes[moved - 1])) break;
        at = 0;
      }
    }
  }

  /// Calls visit(values of the term, how many) for stretches of the last of some axes, at the first point of each, in order.
  template <class F>
  void for_each_line(std::span<const int> axes, const ReadyTerm& term, const F& visit) {
    std::array<double, kMostLine> line;
    if (axes.empty()) {
      line[0] = evaluate(term);
      return visit(line.data(), 1);
    }
    const auto inner = static_cast<std::size_t>(axes.back());
    const std::int64_t extent = nest_.extents[inner];
    for_each_point(axes.first(axes.size() - 1), [&] {
      for (std::int64_t first = 0; first < extent; first += kMostLine) {
        const std::int64_t count = std::min(extent - first, kMostLine);
        evaluate_line(term, inner, first, count, line.data());
        point_[inner] = first;
        visit(line.data(), count);
      }
      point_[inner] = 0;
    });
  }

  void run_statement(std::size_t number) {
    const Statement& s = nest_.statements[number];
    strides_[number] = row_major_strides(extents_of(s.axes));
    values_[number].resize(static_cast<std::size_t>(element_count(extents_of(s.axes))));
    const ReadyTerm value = ready(*s.value);
    const ReadyIndex position = position_of(number);
    const auto result = [&]() -> double& { return values_[number][static_cast<std::size_t>(evaluate(position))]; };
    switch (s.kind) {
      case Statement::Kind::map: {
        const std::int64_t step = s.axes.empty() ? 0 : step_along(position, static_cast<std::size_t>(s.axes.back()));
        for_each_line(s.axes, value, [&](const double* line, std::int64_t count) {
          double* to = &result();
          for (std::int64_t i = 0; i < count; ++i) to[i * step] = round_to(s.dtype, line[i]);
        });
        break;
      }
      case Statement::Kind::reduce:
        if (has_longer_lines_beside(s)) reduce_beside(s, value, position);
        else run_reduce(s, value, result);
        break;
      case Statement::Kind::scan: run_scan(s, value, result); break;
    }
  }

  static bool is_position(Reduction::Of of) { return of == Reduction::Of::first_maximum || of == Reduction::Of::first_minimum; }

  /// Whether a line of results is longer than one of what is added up to one of them.
  bool has_longer_lines_beside(const Statement& s) const {
    if (is_position(s.combine->reduction.of) || s.axes.empty() || s.over.empty()) return false;
    const auto extent = [&](int axis) { return nest_.extents[static_cast<std::size_t>(axis)]; };
    return extent(s.axes.back()) > extent(s.over.back());
  }

  /// Results of a line at once, each of them in its order.
  void reduce_beside(const Statement& s, const ReadyTerm& term, const ReadyIndex& position) {
    const Reduction::Of of = s.combine->reduction.of;
    const auto number = static_cast<std::size_t>(&s - nest_.statements.data()), inner = static_cast<std::size_t>(s.axes.back());
    const std::int64_t extent = nest_.extents[inner], step = step_along(position, inner);
    std::array<double, kMostLine> totals, line;
    for_each_point(std::span(s.axes).first(s.axes.size() - 1), [&] {
      for (std::int64_t first = 0; first < extent; first += kMostLine) {
        const std::int64_t count = std::min(extent - first, kMostLine);
        std::fill_n(totals.begin(), count, identity_of(of, s.value->dtype));
        for_each_point(s.over, [&] {
          evaluate_line(term, inner, first, count, line.data());
          for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) totals[i] = combined(of, s.dtype, totals[i], line[i]);
        });
        point_[inner] = first;
        double* to = values_[number].data() + evaluate(position);
        for (std::int64_t i = 0; i < count; ++i) to[i * step] = wrapped(s.dtype, totals[static_cast<std::size_t>(i)]);
      }
      point_[inner] = 0;
    });
  }

  template <class Result>
  void run_reduce(const Statement& s, const ReadyTerm& term, const Result& result) {
    const Reduction::Of of = s.combine->reduction.of;
    const bool position = is_position(of);
    for_each_point(s.axes, [&] {
      double total = identity_of(of, s.value->dtype), first = 0;
      bool any = false;
      std::int64_t counter = 0;
      for_each_line(s.over, term, [&](const double* line, std::int64_t count) {
        if (!position) {
          for (std::int64_t i = 0; i < count; ++i) total = combined(of, s.dtype, total, line[i]);
          return;
        }
        for (const double* at = line; at < line + count; ++at, ++counter) {
          const double value = *at;
          const bool better = of == Reduction::Of::first_maximum ? value > total : value < total;
          if (!any || (better && total == total) || (value != value && total == total)) {
            total = value;
            first = static_cast<double>(counter);
          }
          any = true;
        }
      });
      result() = position ? first : wrapped(s.dtype, total);
    });
  }

  template <class Result>
  void run_scan(const Statement& s, const ReadyTerm& term, const Result& result) {
    const int axis = s.over[0];
    std::vector<int> others;
    for (int a : s.axes)
      if (a != axis) others.push_back(a);
    const std::int64_t extent = nest_.extents[static_cast<std::size_t>(axis)];
    for_each_point(others, [&] {
      double total = identity_of(s.combine->reduction.of, s.dtype);
      for (std::int64_t i = 0; i < extent; ++i) {
        point_[static_cast<std::size_t>(axis)] = s.reverse ? extent - 1 - i : i;
        const double next = combined(s.combine->reduction.of, s.dtype, total, evaluate(term));
        result() = wrapped(s.dtype, s.exclusive ? total : next);
        total = next;
      }
      point_[static_cast<std::size_t>(axis)] = 0;
    });
  }

  Tensor store(const LoopOutput& output, const TensorType& type) {
    Tensor tensor(type);
    const auto number = static_cast<std::size_t>(output.statement);
    const std::vector<int>& axes = nest_.statements[number].axes;
    const ReadyIndex from = position_of(number);
    std::vector<ReadyIndex> indices;
    for (const Index& index : output.index) indices.push_back(ready(index));
    const auto put = [&](std::int64_t position, double value) {
      tensor.set(position, output.accumulate ? wrapped(type.dtype, tensor.at(position) + value) : value);
    };
    if (!axes.empty() && std::ranges::all_of(indices, [](const ReadyIndex& index) { return index.others.empty(); })) {
      const ReadyIndex to = row_major_position(indices, type.shape);
      const auto inner = static_cast<std::size_t>(axes.back());
      const std::int64_t step_to = step_along(to, inner), step_from = step_along(from, inner);
      for_each_point(std::span(axes).first(axes.size() - 1), [&] {
        const std::int64_t position = evaluate(to);
        const double* value = values_[number].data() + evaluate(from);
        for (std::int64_t i = 0; i < nest_.extents[inner]; ++i) put(position + i * step_to, value[i * step_from]);
      });
      return tensor;
    }
    for_each_point(axes, [&] {
      std::int64_t position = 0;
      for (std::size_t d = 0; d < indices.size(); ++d) position = position * type.shape[d] + evaluate(indices[d]);
      put(position, values_[number][static_cast<std::size_t>(evaluate(from))]);
    });
    return tensor;
  }

  const LoopNest& nest_;
  std::vector<const Tensor*> operands_;
  std::vector<std::int64_t> point_;
  std::vector<std::vector<double>> values_;
  std::vector<Shape> strides_;
  std::deque<std::array<double, kMostLine>> lines_;  ///< of arguments; a deque, as these stay where they are
  std::size_t lines_in_use_ = 0;
};

}  // namespace

std::vector<Tensor> evaluate_nest(const LoopNest& nest, const std::vector<const Tensor*>& operands,
                                  std::span<const TensorType> types) {
  return NestEvaluator(nest, operands).run(types);
}

}  // namespace gcomp::ir
