#include "passes/fusion/unit_nests.h"

#include "ir/base/hash.h"

namespace gcomp::passes {

using namespace ir;

namespace {

bool is_map(const LoopNest& nest) {
  return nest.statements.size() == 1 && nest.statements[0].kind == Statement::Kind::map && !nest.outputs[0].accumulate;
}

/// Removes axes of extent 1, which no index mentions. A reduction over nothing else becomes a map.
void drop_unit_axes(LoopNest& nest) {
  std::vector<int> number(nest.extents.size(), -1);
  std::vector<std::int64_t> extents;
  for (std::size_t a = 0; a < nest.extents.size(); ++a) {
    if (nest.extents[a] == 1) continue;
    number[a] = static_cast<int>(extents.size());
    extents.push_back(nest.extents[a]);
  }
  if (extents.size() == nest.extents.size()) return;
  auto renumber = [&](std::vector<int>& axes) {
    std::vector<int> kept;
    for (int a : axes)
      if (number[static_cast<std::size_t>(a)] >= 0) kept.push_back(number[static_cast<std::size_t>(a)]);
    axes = std::move(kept);
  };
  TermRewriter rewriter;
  rewriter.axis = [&](int a, std::int64_t extent) { return Index::axis(number[static_cast<std::size_t>(a)], extent); };
  for (Statement& s : nest.statements) {
    s.value = rewriter(s.value);
    renumber(s.axes);
    if (s.kind == Statement::Kind::map) continue;
    renumber(s.over);
    if (s.kind == Statement::Kind::scan || !s.over.empty()) continue;
    const bool position = s.combine->reduction.of >= Reduction::Of::first_maximum;
    s.kind = Statement::Kind::map;
    s.combine = nullptr;
    if (position) s.value = literal(s.dtype, 0);
  }
  for (LoopOutput& output : nest.outputs)
    for (Index& index : output.index) index = index.substitute(rewriter.axis, [&](const TermPtr& t) { return rewriter(t); });
  nest.extents = std::move(extents);
}

}  // namespace

TermPtr UnitNests::value_at(const Value* value, const std::vector<Index>& indices) {
  if (!inlined_[value]) return read(value->type.dtype, slot_of(value), indices);
  std::size_t key = std::hash<const Value*>{}(value);
  const TermPtr probe = read(value->type.dtype, 0, indices);
  key = hash_combine(key, probe->hash);
  for (auto [it, end] = memo_.equal_range(key); it != end; ++it)
    if (it->second.value == value && compare(it->second.probe, probe) == 0) return it->second.result;
  const Node& node = *value->producer;
  const std::vector<TensorType> operand_types = types_of(node.operands), result_types = types_of(node.results);
  const LoopNest nest = loops_of(*node.op, operand_types, result_types, node.attributes);
  TermPtr result = substitute(node, nest.statements[0].value, indices);
  memo_.emplace(key, Memo{value, probe, result});
  return result;
}

TermPtr UnitNests::substitute(const Node& node, const TermPtr& term, const std::vector<Index>& axes) {
  TermRewriter rewriter;
  if (!axes.empty()) rewriter.axis = [&axes](int a, std::int64_t) { return axes[static_cast<std::size_t>(a)]; };
  rewriter.leaf = [&](const TermPtr& leaf) {
    return leaf->kind == Term::Kind::read ? value_at(node.operands[static_cast<std::size_t>(leaf->slot)], leaf->indices)
                                          : TermPtr();
  };
  return rewriter(term);
}

int UnitNests::slot_of(const Value* value) {
  auto [it, added] = slots_.emplace(value, static_cast<int>(operands_.size()));
  if (added) operands_.push_back(const_cast<Value*>(value));
  return it->second;
}

FusionUnit UnitNests::unit_of(const Node& node) {
  slots_.clear();
  operands_.clear();
  memo_.clear();
  FusionUnit unit;
  const std::vector<TensorType> operand_types = types_of(node.operands), result_types = types_of(node.results);
  unit.nest = loops_of(*node.op, operand_types, result_types, node.attributes);
  for (Statement& s : unit.nest.statements) s.value = substitute(node, s.value, {});
  for (LoopOutput& output : unit.nest.outputs)
    for (Index& index : output.index)
      index = index.substitute([](int a, std::int64_t extent) { return Index::axis(a, extent); },
                               [&](const TermPtr& loaded) { return substitute(node, loaded, {}); });
  drop_unit_axes(unit.nest);
  unit.operands = operands_;
  unit.results = node.results;
  unit.origin = node.origin;
  unit.fixed = !is_map(unit.nest) && unit.nest.statements[0].kind != Statement::Kind::reduce;
  return unit;
}

}  // namespace gcomp::passes
