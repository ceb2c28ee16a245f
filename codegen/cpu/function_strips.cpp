#include "codegen/cpu/function_strips.h"

#include <algorithm>

#include "codegen/schedule.h"
#include "ir/base/integers.h"
#include "ir/op.h"

namespace gcomp::codegen::cpu {

using namespace gcomp::ir;

namespace {

constexpr int kFunctionCost = 6;     // OpDef::cost of an elementary function
constexpr int kLeastBesideCost = 2;  // of what goes in, and of what is made of it: less hides behind the function
constexpr std::size_t kMostStrips = 3;
constexpr std::int64_t kFewestPositions = 64;

bool is_function(const FlatNest& nest, const TermPtr& t, int axis) {
  if (t->kind != Term::Kind::call || t->arguments.size() != 1 || t->op->cost < kFunctionCost) return false;
  if ((t->dtype != DType::f32 && t->dtype != DType::f64) || t->arguments[0]->dtype != t->dtype) return false;
  return contains(axes_of(nest, t), axis);
}

bool looks_up(const TermPtr& term) {
  bool found = false;
  for_each_index(term, [&](const Index& index) { found = found || index.has_loaded(); });
  return found;
}

/// Of the evaluated statements, each function once, none that is part of another's argument.
std::vector<TermPtr> functions_of(const FlatNest& nest, int axis, const std::vector<bool>& evaluated) {
  std::vector<TermPtr> found;
  int cost = 0;
  for (std::size_t s = 0; s < evaluated.size(); ++s) {
    if (!evaluated[s]) continue;
    cost += cost_of(nest.statements[s].value);
    for_each_unconditional(nest.statements[s].value, [&](const TermPtr& t) {
      if (is_function(nest, t, axis) && std::ranges::none_of(found, [&](const TermPtr& f) { return compare(f, t) == 0; }))
        found.push_back(t);
    });
  }
  std::vector<TermPtr> apart;
  for (const TermPtr& f : found) {
    bool inner = false;
    for_each_term(f->arguments[0], [&](const TermPtr& t) { inner = inner || is_function(nest, t, axis); });
    const int before = cost_of(f->arguments[0]), behind = cost - cost_of(f);
    if (!inner && before >= kLeastBesideCost && behind >= kLeastBesideCost && !looks_up(f)) apart.push_back(f);
  }
  if (apart.size() > kMostStrips) apart.clear();
  return apart;
}

}  // namespace

bool has_functions(const FlatNest& nest, int axis) {
  return axis >= 0 && !functions_of(nest, axis, std::vector<bool>(nest.statements.size(), true)).empty();
}

std::vector<FunctionStrip> extract_functions(FlatNest& nest, int axis, const std::vector<bool>& evaluated, std::int64_t positions) {
  std::vector<FunctionStrip> strips;
  if (positions < kFewestPositions) return strips;
  for (const TermPtr& f : functions_of(nest, axis, evaluated)) {
    const int first = static_cast<int>(nest.statements.size());
    Statement argument;
    argument.dtype = f->arguments[0]->dtype;
    argument.axes = axes_of(nest, f);
    argument.value = f->arguments[0];
    Statement value = argument;
    value.dtype = f->dtype;
    value.value = call(f->dtype, *f->op, {local(argument.dtype, first)});
    nest.statements.push_back(std::move(argument));
    nest.statements.push_back(std::move(value));
    strips.push_back({first, first + 1, f});
  }
  if (strips.empty()) return strips;
  for (std::size_t s = 0; s < evaluated.size(); ++s)
    nest.statements[s].value = edited(nest.statements[s].value, [&](const TermPtr& t) {
      for (const FunctionStrip& strip : strips)
        if (t->kind == Term::Kind::call && compare(t, strip.call) == 0) return local(t->dtype, strip.value);
      return TermPtr();
    });
  return strips;
}

void write_functions(KernelWriter& writer, const std::vector<FunctionStrip>& strips, const LoopRange& range,
                     const Index& position) {
  for (const FunctionStrip& strip : strips) {
    const std::string array = writer.fresh("s");
    writer.line(concat("alignas(64) ", compute_type_text(strip.call->dtype), " ", array, "[", range.most, "];"));
    const auto write = [&](const TermPtr& term) {
      const std::string x = writer.fresh("x");
      writer.open_simd(concat("for (long ", x, " = 0; ", x, " < ", range.count, "; ++", x, ")"));
      std::string at = x;
      if (range.begin != "0") {
        at = writer.fresh("i");
        writer.line(concat("const long ", at, " = ", range.begin, " + ", x, ";"));
      }
      writer.bind_axis(range.axis, at);
      if (range.lane_axis >= 0) writer.bind_axis(range.lane_axis, x);
      const std::string value = writer.value(term);
      writer.line(concat(array, "[", x, "] = ", value, ";"));
      writer.close();
    };
    write(strip.call->arguments[0]);
    writer.bind_array(strip.argument, array, position);
    write(call(strip.call->dtype, *strip.call->op, {local(strip.call->dtype, strip.argument)}));
    writer.bind_array(strip.value, array, position);
  }
}

}  // namespace gcomp::codegen::cpu
