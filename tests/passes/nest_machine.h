// Runs a loop nest element by element on shared memory, as harshly as ir/memory_plan.h lets a code generator do: points of the
// unreduced axes in random order; phases one after another; in a phase one pass for each set of points, in random order;
// statements computed anew from memory wherever they are used; stores at the end of each point of their own phase.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "ir/nest/term.h"
#include "ir/op.h"

namespace gcomp::passes {

class NestMachine {
 public:
  struct Array {
    TensorType type;
    std::byte* bytes = nullptr;
  };

  NestMachine(const ir::LoopNest& nest, std::vector<Array> operands, std::vector<Array> results, unsigned seed)
      : nest_(nest),
        operands_(std::move(operands)),
        results_(std::move(results)),
        random_(seed),
        point_(nest.extents.size()),
        totals_(nest.statements.size()) {
    for (const ir::Statement& s : nest.statements) {
      int level = 0;
      ir::for_each_term(s.value, [&](const ir::TermPtr& t) {
        if (t->kind != ir::Term::Kind::local) return;
        const auto l = static_cast<std::size_t>(t->slot);
        level = std::max(level, levels_[l] + (nest.statements[l].kind == ir::Statement::Kind::map ? 0 : 1));
      });
      levels_.push_back(level);
      if (s.kind == ir::Statement::Kind::reduce) inner_.insert(inner_.end(), s.over.begin(), s.over.end());
    }
  }

  void run() {
    std::vector<int> outer;
    for (int a = 0; a < static_cast<int>(nest_.extents.size()); ++a)
      if (std::find(inner_.begin(), inner_.end(), a) == inner_.end()) outer.push_back(a);
    const int last = levels_.empty() ? 0 : *std::max_element(levels_.begin(), levels_.end());
    for_each_point(outer, true, [&] {
      for (int level = 0; level <= last; ++level) run_phase(level, outer);
    });
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  template <class F>
  void for_each_point(const std::vector<int>& axes, bool shuffled, const F& visit) {
    std::vector<std::vector<std::int64_t>> points(1, point_);
    for (int a : axes) {
      std::vector<std::vector<std::int64_t>> wider;
      for (const auto& p : points)
        for (std::int64_t i = 0; i < nest_.extents[at(a)]; ++i) wider.push_back(p), wider.back()[at(a)] = i;
      points = std::move(wider);
    }
    if (shuffled) std::shuffle(points.begin(), points.end(), random_);
    const std::vector<std::int64_t> before = point_;
    for (const auto& p : points) {
      point_ = p;
      visit();
    }
    point_ = before;
  }

  void run_phase(int level, const std::vector<int>& outer) {
    std::map<std::vector<int>, std::vector<int>> passes;
    for (int s = 0; s < static_cast<int>(nest_.statements.size()); ++s) {
      if (levels_[at(s)] != level) continue;
      std::vector<int> points = nest_.statements[at(s)].axes;
      if (nest_.statements[at(s)].kind == ir::Statement::Kind::reduce)
        points.insert(points.end(), nest_.statements[at(s)].over.begin(), nest_.statements[at(s)].over.end());
      std::sort(points.begin(), points.end());
      std::erase_if(points, [&](int a) { return std::find(outer.begin(), outer.end(), a) != outer.end(); });
      passes[points].push_back(s);
    }
    std::vector<std::vector<int>> order;
    for (const auto& [points, statements] : passes) order.push_back(points);
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::vector<int>& points : order) run_pass(points, passes[points]);
  }

  void run_pass(const std::vector<int>& points, const std::vector<int>& statements) {
    for (int s : statements)
      if (nest_.statements[at(s)].kind == ir::Statement::Kind::reduce)
        totals_[at(s)] = ir::identity_of(nest_.statements[at(s)].combine->reduction.of, nest_.statements[at(s)].dtype);
    for_each_point(points, false, [&] {
      std::vector<double> values;
      for (int s : statements) values.push_back(evaluate(*nest_.statements[at(s)].value));
      for (std::size_t i = 0; i < statements.size(); ++i) {
        const ir::Statement& s = nest_.statements[at(statements[i])];
        if (s.kind == ir::Statement::Kind::reduce)
          totals_[at(statements[i])] = ir::combine(s.combine->reduction.of, totals_[at(statements[i])], values[i]);
        else store(statements[i], values[i]);
      }
    });
    for (int s : statements)
      if (nest_.statements[at(s)].kind == ir::Statement::Kind::reduce) store(s, totals_[at(s)]);
  }

  void store(int statement, double value) {
    for (std::size_t o = 0; o < nest_.outputs.size(); ++o)
      if (nest_.outputs[o].statement == statement)
        store_from_double(results_[o].type.dtype, results_[o].bytes, position(nest_.outputs[o].index, results_[o].type), value);
  }

  std::int64_t position(const std::vector<ir::Index>& indices, const TensorType& type) {
    std::int64_t position = 0;
    for (std::size_t d = 0; d < indices.size(); ++d) position = position * type.shape[d] + evaluate(indices[d]);
    return position;
  }

  std::int64_t evaluate(const ir::Index& index) {
    std::int64_t value = index.constant();
    for (const auto& part : index.parts()) {
      std::int64_t atom = 0;
      switch (part.atom.kind) {
        case ir::IndexAtom::Kind::axis: atom = point_[at(part.atom.axis)]; break;
        case ir::IndexAtom::Kind::quotient: atom = evaluate(*part.atom.inner) / part.atom.divisor; break;
        case ir::IndexAtom::Kind::remainder: atom = evaluate(*part.atom.inner) % part.atom.divisor; break;
        case ir::IndexAtom::Kind::loaded: atom = static_cast<std::int64_t>(evaluate(*part.atom.value)); break;
      }
      value += part.coefficient * atom;
    }
    return value;
  }

  double evaluate(const ir::Term& term) {
    switch (term.kind) {
      case ir::Term::Kind::literal: return term.number;
      case ir::Term::Kind::index: return static_cast<double>(evaluate(term.indices[0]));
      case ir::Term::Kind::read: {
        const Array& array = operands_[at(term.slot)];
        return load_as_double(array.type.dtype, array.bytes, position(term.indices, array.type));
      }
      case ir::Term::Kind::local: {
        const ir::Statement& s = nest_.statements[at(term.slot)];
        return s.kind == ir::Statement::Kind::map ? evaluate(*s.value) : totals_[at(term.slot)];
      }
      case ir::Term::Kind::call: {
        std::vector<double> arguments;
        for (const ir::TermPtr& argument : term.arguments) arguments.push_back(evaluate(*argument));
        return term.op->scalar.reference(arguments);
      }
      case ir::Term::Kind::guard: {
        const bool inside = std::all_of(term.conditions.begin(), term.conditions.end(), [&](const ir::Condition& c) {
          const std::int64_t i = evaluate(c.index);
          return i >= c.low && i < c.high;
        });
        return evaluate(*term.arguments[inside ? 0 : 1]);
      }
    }
    return 0;
  }

  const ir::LoopNest& nest_;
  std::vector<Array> operands_, results_;
  std::mt19937 random_;
  std::vector<std::int64_t> point_;
  std::vector<double> totals_;  ///< of reductions, for the current point of the unreduced axes
  std::vector<int> levels_;
  std::vector<int> inner_;
};

}  // namespace gcomp::passes
