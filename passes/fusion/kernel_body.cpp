#include "passes/fusion/kernel_body.h"

#include <algorithm>

#include "ir/ops/table.h"

namespace gcomp::passes {

using namespace ir;

namespace {

bool reads_slot(const LoopNest& nest, int slot) {
  bool found = false;
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) { found = found || (t->kind == Term::Kind::read && t->slot == slot); });
  return found;
}

std::optional<int> slot_of(const Node& node, const Value* value) {
  const auto found = std::find(node.operands.begin(), node.operands.end(), value);
  if (found == node.operands.end()) return std::nullopt;
  return static_cast<int>(found - node.operands.begin());
}

}  // namespace

bool looks_up(const LoopNest& nest) {
  bool found = false;
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& term) {
      for (const Index& index : term->indices) found = found || index.has_loaded();
      for (const Condition& c : term->conditions) found = found || c.index.has_loaded();
    });
  for (const LoopOutput& output : nest.outputs) {
    found = found || output.accumulate;
    for (const Index& index : output.index) found = found || index.has_loaded();
  }
  return found;
}

void Body::prune() {
  std::vector<bool> needed(nest.statements.size());
  for (const LoopOutput& output : nest.outputs) needed[static_cast<std::size_t>(output.statement)] = true;
  for (std::size_t s = nest.statements.size(); s-- > 0;)
    if (needed[s])
      for_each_term(nest.statements[s].value, [&](const TermPtr& t) {
        if (t->kind == Term::Kind::local) needed[static_cast<std::size_t>(t->slot)] = true;
      });
  std::vector<int> statement(nest.statements.size(), -1), slot(operands.size(), -1);
  std::vector<Statement> kept;
  std::vector<Value*> read_operands;
  TermRewriter renumber;
  renumber.leaf = [&](const TermPtr& t) {
    const auto at = static_cast<std::size_t>(t->slot);
    if (t->kind == Term::Kind::local) return local(t->dtype, statement[at]);
    if (slot[at] < 0) {
      slot[at] = static_cast<int>(read_operands.size());
      read_operands.push_back(operands[at]);
    }
    return read(t->dtype, slot[at], t->indices);
  };
  for (std::size_t s = 0; s < nest.statements.size(); ++s) {
    if (!needed[s]) continue;
    statement[s] = static_cast<int>(kept.size());
    kept.push_back(nest.statements[s]);
    kept.back().value = renumber(kept.back().value);
  }
  for (LoopOutput& output : nest.outputs) output.statement = statement[static_cast<std::size_t>(output.statement)];
  nest.statements = std::move(kept);
  operands = std::move(read_operands);
}

std::optional<Body> with_preactivation(const Node& kernel, const Value* sum, const Value* bias) {
  Body body{*kernel.nest, kernel.operands};
  const auto sum_slot = slot_of(kernel, sum), bias_slot = slot_of(kernel, bias);
  if (!sum_slot || !bias_slot) return std::nullopt;
  const int made = static_cast<int>(body.operands.size());
  body.operands.push_back(nullptr);
  TermRewriter rewriter;
  rewriter.rebuilt = [&](const TermPtr& t) {
    if (t->op != &ops::kAdd) return TermPtr();
    for (int i : {0, 1}) {
      const Term &a = *t->arguments[static_cast<std::size_t>(i)], &b = *t->arguments[static_cast<std::size_t>(1 - i)];
      if (a.kind == Term::Kind::read && b.kind == Term::Kind::read && a.slot == *sum_slot && b.slot == *bias_slot &&
          linear_index(b.indices, bias->type.shape) == a.indices.back())
        return read(a.dtype, made, a.indices);
    }
    return TermPtr();
  };
  for (Statement& s : body.nest.statements) s.value = rewriter(s.value);
  if (looks_up(body.nest) || reads_slot(body.nest, *sum_slot)) return std::nullopt;
  return body;
}

}  // namespace gcomp::passes
