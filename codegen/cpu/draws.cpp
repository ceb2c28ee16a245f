#include "codegen/cpu/draws.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/ops/table.h"

namespace gcomp::codegen::cpu {

using namespace gcomp::ir;

namespace {

/// Operands of philox_uniform, by position.
enum Operand : std::size_t { kSeed, kStep, kOp, kSample, kElement };

constexpr std::int64_t kMostStride = 8;  // bits of a byte

bool is_draw(const TermPtr& t, int axis) {
  if (t->kind != Term::Kind::call || t->op != &ops::kPhiloxUniform || t->dtype != DType::f32) return false;
  const TermPtr& element = t->arguments[kElement];
  if (element->kind != Term::Kind::index || element->indices[0].uses_nonlinearly(axis)) return false;
  const std::int64_t stride = element->indices[0].coefficient_of(axis);
  if (stride < 1 || stride > kMostStride) return false;
  return std::none_of(t->arguments.begin(), t->arguments.begin() + kElement,
                      [&](const TermPtr& a) { return a->kind == Term::Kind::local || uses_axis(a, axis); });
}

const Index& element_of(const Draw& draw) { return draw.term->arguments[kElement]->indices[0]; }

/// Whether `a` and `b` draw for the same numbers of elements, the first of which lie side by side.
bool share_an_array(const Draw& a, const Draw& b) {
  if (a.stride != b.stride || !(element_of(a) - a.offset == element_of(b) - b.offset)) return false;
  return std::equal(a.term->arguments.begin(), a.term->arguments.begin() + kElement, b.term->arguments.begin(),
                    [](const TermPtr& x, const TermPtr& y) { return compare(x, y) == 0; });
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
  for (std::size_t i = 0; i < draws.size(); ++i) {
    Draw& draw = draws[i];
    draw.stride = element_of(draw).coefficient_of(axis);
    draw.offset = Index(element_of(draw).constant()).remainder(draw.stride).constant();
    draw.array = static_cast<std::size_t>(std::find_if(draws.begin(), draws.begin() + static_cast<std::ptrdiff_t>(i),
                                                       [&](const Draw& earlier) { return share_an_array(earlier, draw); }) -
                                          draws.begin());
    Statement made;
    made.dtype = draw.term->dtype;
    made.axes = axes_of(nest, draw.term);
    made.value = draw.term;
    nest.statements.push_back(std::move(made));
  }
  return draws;
}

void write_draws(KernelWriter& writer, const std::vector<Draw>& draws, const LoopRange& range, const Index& position) {
  std::vector<std::string> arrays;
  for (const Draw& draw : draws) {
    if (draw.array < arrays.size()) {
      arrays.push_back(arrays[draw.array]);
    } else {
      const std::string array = writer.fresh("s"), drawn = writer.fresh("d");
      writer.line(concat("alignas(64) float ", array, "[", range.most * draw.stride, " + gc_draw_slack];"));
      writer.line(concat("const float* ", drawn, ";"));
      writer.open_sealed();
      writer.bind_axis(range.axis, range.begin);
      std::string arguments;
      for (std::size_t i = 0; i < kElement; ++i) arguments += ", " + writer.value(draw.term->arguments[i]);
      arguments += ", " + writer.value(index_value(draw.term->arguments[kElement]->dtype, element_of(draw) - draw.offset));
      const std::string count = draw.stride == 1 ? range.count : concat("(", range.count, ") * ", draw.stride);
      writer.line(concat(drawn, " = gc_draw(", array, ", ", count, arguments, ");"));
      writer.close();
      arrays.push_back(drawn);
    }
    writer.bind_array(draw.statement, arrays.back(), position * draw.stride + draw.offset);
  }
}

}  // namespace gcomp::codegen::cpu
