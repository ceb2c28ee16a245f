#include "codegen/cpu/draws.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/ops/table.h"

namespace gcomp::codegen::cpu {

using namespace gcomp::ir;

namespace {

/// Operands of philox_uniform, by position.
enum Operand : std::size_t { kSeed, kStep, kOp, kSample, kElement };

bool is_draw(const TermPtr& t, int axis) {
  if (t->kind != Term::Kind::call || t->op != &ops::kPhiloxUniform || t->dtype != DType::f32) return false;
  const TermPtr& element = t->arguments[kElement];
  if (element->kind != Term::Kind::index || element->indices[0].coefficient_of(axis) != 1 ||
      element->indices[0].uses_nonlinearly(axis))
    return false;
  return std::none_of(t->arguments.begin(), t->arguments.begin() + kElement,
                      [&](const TermPtr& a) { return a->kind == Term::Kind::local || uses_axis(a, axis); });
}

}  // namespace

bool has_draws(const FlatNest& nest, int axis) {
  bool found = false;
  for (const Statement& s : nest.statements) for_each_term(s.value, [&](const TermPtr& t) { found = found || is_draw(t, axis); });
  return found;
}

std::vector<Draw> extract_draws(FlatNest& nest, int axis, const std::vector<bool>& evaluated) {
  std::vector<Draw> draws;
  const auto known = [&](const TermPtr& t) {
    return std::find_if(draws.begin(), draws.end(), [&](const Draw& d) { return compare(d.term, t) == 0; });
  };
  const int first = static_cast<int>(nest.statements.size());
  for (std::size_t s = 0; s < evaluated.size(); ++s) {
    if (!evaluated[s]) continue;
    for_each_term(nest.statements[s].value, [&](const TermPtr& t) {
      if (is_draw(t, axis) && known(t) == draws.end()) draws.push_back({first + static_cast<int>(draws.size()), t});
    });
  }
  if (draws.empty()) return draws;
  for (Statement& s : nest.statements)
    s.value = edited(s.value, [&](const TermPtr& t) {
      const auto draw = t->kind == Term::Kind::call ? known(t) : draws.end();
      return draw == draws.end() ? TermPtr() : local(t->dtype, draw->statement);
    });
  for (const Draw& draw : draws) {
    Statement made;
    made.dtype = draw.term->dtype;
    made.axes = axes_of(nest, draw.term);
    made.value = draw.term;
    nest.statements.push_back(std::move(made));
  }
  return draws;
}

void write_draws(KernelWriter& writer, const std::vector<Draw>& draws, const DrawnRange& range, const Index& position) {
  for (const Draw& draw : draws) {
    const std::string array = writer.fresh("s"), drawn = writer.fresh("d");
    writer.line(concat("alignas(64) float ", array, "[", range.most, " + gc_draw_slack];"));
    writer.line(concat("const float* ", drawn, ";"));
    writer.open_sealed();
    writer.bind_axis(range.axis, range.begin);
    std::string arguments;
    for (const TermPtr& argument : draw.term->arguments) arguments += ", " + writer.value(argument);
    writer.line(concat(drawn, " = gc_draw(", array, ", ", range.count, arguments, ");"));
    writer.close();
    writer.bind_array(draw.statement, drawn, position);
  }
}

}  // namespace gcomp::codegen::cpu
