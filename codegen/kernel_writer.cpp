#include "codegen/kernel_writer.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/ops/table.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

/// A conversion of a value in `from`'s compute type by the cast rules.
std::string convert_text(const std::string& text, DType from, DType to) {
  if (is_narrow_float(to))
    return concat(to == DType::f16 ? "gc_round_f16(" : "gc_round_bf16(",
                  from == DType::f32 || is_narrow_float(from) ? "" : "(float)", text, ")");
  const DType source = compute_type(from);
  if (source == to) return text;
  if (to == DType::boolean) return concat("(", text, " != 0)");
  if (is_integer(to) && is_float(from)) return concat("gc_to_", gcomp::name_of(to), "(", text, ")");
  return concat("(", compute_type_text(to), ")", text);
}

std::string load_text(DType dtype, const std::string& place) {
  return is_narrow_float(dtype) ? concat("gc_load(", place, ")") : place;
}

/// "+ 3 * a" or "a": one summand of an index.
void append_summand(std::string& text, std::int64_t coefficient, const std::string& atom) {
  const std::int64_t size = coefficient < 0 ? -coefficient : coefficient;
  if (text.empty()) text = coefficient < 0 ? "-" : "";
  else text += coefficient < 0 ? " - " : " + ";
  text += atom;
  if (size != 1) text += concat(" * ", size);
}

void append_constant(std::string& text, std::int64_t constant) {
  if (text.empty()) text = std::to_string(constant);
  else if (constant != 0) text += constant < 0 ? concat(" - ", -constant) : concat(" + ", constant);
}

bool is_plain(const std::string& text) { return text.find(' ') == text.npos; }

}  // namespace

std::string_view compute_type_text(DType dtype) {
  switch (dtype) {
    case DType::f64: return "double";
    case DType::f32:
    case DType::f16:
    case DType::bf16: return "float";
    case DType::i8: return "signed char";
    case DType::i16: return "short";
    case DType::i32: return "int";
    case DType::i64: return "long long";
    case DType::u8: return "unsigned char";
    case DType::u16: return "unsigned short";
    case DType::u32: return "unsigned int";
    case DType::u64: return "unsigned long long";
    case DType::boolean: return "bool";
  }
  return "?";
}

std::string_view storage_type_text(DType dtype) {
  if (dtype == DType::f16) return "gc_f16";
  if (dtype == DType::bf16) return "gc_bf16";
  return compute_type_text(dtype);
}

std::string indented(const std::string& text) {
  std::string result;
  std::size_t level = 0, begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    if (line[0] == '}') --level;
    result += (line[0] == '#' ? "" : std::string(2 * level, ' ')) + line + "\n";
    if (line.back() == '{') ++level;
    begin = end + 1;
  }
  return result;
}

KernelWriter::KernelWriter(const FlatNest& nest, std::string_view index_type, Contraction contraction)
    : nest_(&nest), index_type_(index_type), contraction_(contraction) {
  scopes_.emplace_back();
}

void KernelWriter::open(std::string header, std::string pragma) {
  Scope scope;
  scope.header = std::move(header);
  scope.pragma = std::move(pragma);
  scopes_.push_back(std::move(scope));
  depths_.clear();
}

void KernelWriter::open_simd(std::string header, std::string clauses) {
  open(std::move(header));
  scopes_.back().simd = true;
  scopes_.back().clauses = std::move(clauses);
}

void KernelWriter::close() {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (auto it = scope.locals_before.rbegin(); it != scope.locals_before.rend(); ++it) {
    if (it->second) locals_[it->first] = *it->second;
    else locals_.erase(it->first);
  }
  for (auto it = scope.axes_before.rbegin(); it != scope.axes_before.rend(); ++it) {
    if (it->second) axes_[it->first] = *it->second;
    else axes_.erase(it->first);
  }
  depths_.clear();
  std::string& out = scopes_.back().text;
  if (!scope.pragma.empty()) out += scope.pragma + "\n";
  if (scope.simd) out += concat("#pragma omp simd", scope.clauses, scope.faults ? " reduction(| : bad)" : "", "\n");
  out += scope.header + (scope.header.empty() ? "{\n" : " {\n") + scope.text + "}\n";
}

void KernelWriter::bind_axis(int axis, std::string name) {
  auto it = axes_.find(axis);
  scopes_.back().axes_before.emplace_back(axis, it == axes_.end() ? std::nullopt : std::optional(it->second));
  axes_[axis] = {std::move(name), depth()};
  depths_.clear();
}

void KernelWriter::bind(int statement, Binding binding) {
  auto it = locals_.find(statement);
  scopes_.back().locals_before.emplace_back(statement, it == locals_.end() ? std::nullopt : std::optional(it->second));
  locals_[statement] = std::move(binding);
  depths_.clear();
}

int KernelWriter::floor() const {
  int d = depth();
  while (d > 0 && !scopes_[static_cast<std::size_t>(d)].sealed) --d;
  return d;
}

int KernelWriter::read_floor() const {
  int d = depth();
  while (d > 0 && !scopes_[static_cast<std::size_t>(d)].sealed && !scopes_[static_cast<std::size_t>(d)].branch) --d;
  return d;
}

int KernelWriter::depth_of(const Index& index) {
  int deepest = 0;
  for (const auto& part : index.parts()) {
    const IndexAtom& atom = part.atom;
    switch (atom.kind) {
      case IndexAtom::Kind::axis: {
        auto it = axes_.find(atom.axis);
        check_internal(it != axes_.end(), "axis ", atom.axis, " is used outside its loop");
        deepest = std::max(deepest, it->second.depth);
        break;
      }
      case IndexAtom::Kind::quotient:
      case IndexAtom::Kind::remainder: deepest = std::max(deepest, depth_of(*atom.inner)); break;
      case IndexAtom::Kind::loaded: deepest = std::max(deepest, depth_of(atom.value)); break;
    }
  }
  return deepest;
}

int KernelWriter::depth_of(const TermPtr& term) {
  if (auto it = depths_.find(term.get()); it != depths_.end()) return it->second;
  int deepest = 0;
  if (term->kind == Term::Kind::local) {
    auto it = locals_.find(term->slot);
    if (it == locals_.end()) deepest = depth_of(nest_->statements[static_cast<std::size_t>(term->slot)].value);
    else deepest = std::max(it->second.depth, it->second.position ? depth_of(*it->second.position) : 0);
  }
  for (const Index& index : term->indices) deepest = std::max(deepest, depth_of(index));
  for (const Condition& c : term->conditions) deepest = std::max(deepest, depth_of(c.index));
  for (const TermPtr& argument : term->arguments) deepest = std::max(deepest, depth_of(argument));
  depths_.emplace(term.get(), deepest);
  return deepest;
}

KernelWriter::Placed KernelWriter::define(std::string_view type, const std::string& expression, int depth) {
  auto [it, is_new] = scope_at(depth).expressions.try_emplace(expression);
  if (is_new) {
    it->second = fresh("v");
    scope_at(depth).text += concat("const ", type, " ", it->second, " = ", expression, ";\n");
  }
  return {it->second, depth};
}

KernelWriter::Placed KernelWriter::place_loaded(const IndexAtom& atom) {
  const Placed position = place(converted(atom.value, DType::i64));
  const int at = std::max(position.depth, read_floor());
  const std::string clamped = concat("gc_clamped(", position.text, ", ", atom.extent, ")");
  if (!scope_at(at).expressions.count(clamped)) {
    may_fault_ = true;
    for (int d = 0; d <= at; ++d) scope_at(d).faults = true;
    scope_at(at).text += concat("bad |= gc_outside(", position.text, ", ", atom.extent, ");\n");
  }
  return define(index_type_, clamped, at);
}

KernelWriter::Placed KernelWriter::place(const IndexAtom& atom) {
  switch (atom.kind) {
    case IndexAtom::Kind::axis: {
      auto it = axes_.find(atom.axis);
      check_internal(it != axes_.end(), "axis ", atom.axis, " is used outside its loop");
      return it->second;
    }
    case IndexAtom::Kind::loaded: return place_loaded(atom);
    case IndexAtom::Kind::quotient:
    case IndexAtom::Kind::remainder: break;
  }
  const Placed inner = place(*atom.inner);
  const bool quotient = atom.kind == IndexAtom::Kind::quotient;
  if (atom.inner->range().low < 0)
    return {concat(quotient ? "gc_floor_quotient(" : "gc_floor_remainder(", inner.text, ", ", atom.divisor, ")"), inner.depth};
  return {concat("(", is_plain(inner.text) ? inner.text : "(" + inner.text + ")", quotient ? " / " : " % ", atom.divisor, ")"),
          inner.depth};
}

KernelWriter::Placed KernelWriter::place(const Index& index) {
  std::map<int, std::vector<std::pair<std::int64_t, std::string>>> by_depth;
  for (const auto& part : index.parts()) {
    const Placed atom = place(part.atom);
    by_depth[atom.depth].emplace_back(part.coefficient, atom.text);
  }
  std::string text;
  int deepest = 0;
  for (auto it = by_depth.begin(); it != by_depth.end(); ++it) {
    deepest = it->first;
    for (const auto& [coefficient, atom] : it->second) append_summand(text, coefficient, atom);
    const bool last = std::next(it) == by_depth.end();
    if (last) append_constant(text, index.constant());
    if (!is_plain(text) && !(last && deepest == depth())) text = define(index_type_, text, deepest).text;
  }
  if (by_depth.empty()) append_constant(text, index.constant());
  return {text, deepest};
}

std::string KernelWriter::conditions(const std::vector<Condition>& conditions) {
  std::string all;
  for (const Condition& c : conditions) {
    const Placed index = place(c.index);
    const IndexRange range = c.index.range();
    const std::string operand = is_plain(index.text) ? index.text : "(" + index.text + ")";
    std::string test;
    if (range.low < c.low && range.high >= c.high && c.high == c.low + 1) test = concat(operand, " == ", c.low);
    else if (range.low >= c.low && c.high == c.low + 1) test = concat(operand, " == ", c.low);
    else {
      if (range.low < c.low) test = concat(operand, " >= ", c.low);
      if (range.high >= c.high) test += concat(test.empty() ? "" : " & ", operand, " < ", c.high);
    }
    if (test.empty()) continue;
    test = "(" + test + ")";
    if (index.depth < depth()) test = define("bool", test, index.depth).text;
    all += (all.empty() ? "" : " & ") + test;
  }
  return all.empty() ? "true" : all;
}

KernelWriter::Placed KernelWriter::place_guard(const TermPtr& term) {
  const int at = std::max(depth_of(term), read_floor());
  // Write into the scope where all parts are known, as if the deeper ones were not open yet.
  std::vector<Scope> deeper;
  while (depth() > at) {
    deeper.push_back(std::move(scopes_.back()));
    scopes_.pop_back();
  }
  const std::string condition = conditions(term->conditions), result = fresh("v");
  std::string branches[2];
  for (int i = 0; i < 2; ++i) {
    open(i == 0 ? concat("if (", condition, ")") : "else");
    scopes_.back().branch = true;
    const TermPtr& taken = term->arguments[static_cast<std::size_t>(i)];
    const std::string text = place(converted(taken, term->dtype)).text;
    line(concat(result, " = ", text, ";"));
    Scope branch = std::move(scopes_.back());
    scopes_.pop_back();
    branches[i] = branch.header + " {\n" + branch.text + "}\n";
  }
  scopes_.back().text += concat(compute_type_text(term->dtype), " ", result, ";\n", branches[0], branches[1]);
  while (!deeper.empty()) {
    scopes_.push_back(std::move(deeper.back()));
    deeper.pop_back();
  }
  depths_.clear();
  return {result, at};
}

TermPtr KernelWriter::product_of(TermPtr term) const {
  while (term->kind == Term::Kind::local && !locals_.count(term->slot)) {
    const Statement& s = nest_->statements[static_cast<std::size_t>(term->slot)];
    if (s.kind != Statement::Kind::map) return nullptr;
    term = value_of(s);
  }
  const bool exact = term->dtype == DType::f32 || term->dtype == DType::f64;
  return exact && term->kind == Term::Kind::call && term->op == &ops::kMul ? term : nullptr;
}

std::optional<KernelWriter::Placed> KernelWriter::place_contracted(const Term& term) {
  if (contraction_ != Contraction::by_text || (term.op != &ops::kAdd && term.op != &ops::kSub)) return std::nullopt;
  const bool subtracts = term.op == &ops::kSub;
  const TermPtr &left = term.arguments[0], &right = term.arguments[1];
  const TermPtr first = product_of(left), product = first ? first : product_of(right);
  if (!product || product->dtype != term.dtype) return std::nullopt;
  const Placed a = place(product->arguments[0]), b = place(product->arguments[1]), c = place(first ? right : left);
  const std::string text =
      concat("gc_fma(", subtracts && !first ? "-" : "", a.text, ", ", b.text, ", ", subtracts && first ? "-" : "", c.text, ")");
  return define(compute_type_text(term.dtype), text, std::max({a.depth, b.depth, c.depth, floor()}));
}

std::string KernelWriter::unrounded(int number) {
  const Statement& s = nest_->statements[static_cast<std::size_t>(number)];
  if (!is_narrow_float(s.dtype) || s.kind != Statement::Kind::map || locals_.count(number)) return statement(number);
  const TermPtr rounded = value_of(s);
  const bool rounds = rounded->kind == Term::Kind::call && is_cast(*rounded->op) && rounded->arguments[0]->dtype == DType::f32;
  return rounds ? value(rounded->arguments[0]) : statement(number);
}

std::string KernelWriter::added(const std::string& total, const TermPtr& term) {
  const TermPtr product = contraction_ == Contraction::by_text ? product_of(term) : nullptr;
  if (!product) return concat(total, " + ", value(term));
  const std::string a = value(product->arguments[0]), b = value(product->arguments[1]);
  return concat("gc_fma(", a, ", ", b, ", ", total, ")");
}

KernelWriter::Placed KernelWriter::place_call(const Term& term) {
  if (std::optional<Placed> contracted = place_contracted(term)) return *contracted;
  std::vector<Expression> arguments;
  int deepest = 0;
  for (const TermPtr& argument : term.arguments) {
    const Placed placed = place(argument);
    deepest = std::max(deepest, placed.depth);
    arguments.push_back({placed.text, argument->dtype});
  }
  std::string text;
  if (is_cast(*term.op)) {
    text = convert_text(arguments[0].text, term.arguments[0]->dtype, term.dtype);
  } else {
    text = term.op->scalar.text(arguments).text;
  }
  if (is_plain(text) && text.find('(') == text.npos) return {text, deepest};
  return define(compute_type_text(term.dtype), text, std::max(deepest, floor()));
}

KernelWriter::Placed KernelWriter::place_local(const TermPtr& term) {
  if (auto it = locals_.find(term->slot); it != locals_.end()) {
    const Binding& binding = it->second;
    if (!binding.position) return {binding.name, binding.depth};
    const Placed position = place(*binding.position);
    return define(compute_type_text(term->dtype), concat(binding.name, "[", position.text, "]"),
                  std::max({binding.depth, position.depth, floor()}));
  }
  const Statement& s = nest_->statements[static_cast<std::size_t>(term->slot)];
  check_internal(s.kind == Statement::Kind::map, "statement ", term->slot, " is used before it is reduced");
  return place(value_of(s));
}

KernelWriter::Placed KernelWriter::place(const TermPtr& term) {
  if (term->kind == Term::Kind::literal) return {literal_text(term->dtype, term->number), 0};
  for (int d = depth(); d >= 0; --d)
    if (auto it = scope_at(d).terms.find(term); it != scope_at(d).terms.end()) return {it->second, d};
  Placed placed;
  switch (term->kind) {
    case Term::Kind::literal: break;
    case Term::Kind::index: {
      placed = place(term->indices[0]);
      placed = define(compute_type_text(term->dtype), concat("(", compute_type_text(term->dtype), ")(", placed.text, ")"),
                      std::max(placed.depth, floor()));
      break;
    }
    case Term::Kind::read: {
      const Placed position = place(term->indices[0]);
      const int at = std::max(position.depth, read_floor());
      placed = define(compute_type_text(term->dtype), load_text(term->dtype, concat("p", term->slot, "[", position.text, "]")), at);
      break;
    }
    case Term::Kind::local:
      placed = place_local(term);
      // What an unbound local stands for depends on the nest in use; its value is remembered under the value's own term.
      if (!locals_.count(term->slot)) return placed;
      break;
    case Term::Kind::call: placed = place_call(*term); break;
    case Term::Kind::guard: placed = place_guard(term); break;
  }
  // A value may be known further out than here; remembering it where it is known serves every scope below.
  scope_at(std::max(placed.depth, floor())).terms.emplace(term, placed.text);
  return placed;
}

std::string KernelWriter::store(const Store& store, const std::string& value) {
  const DType to = nest_->results[static_cast<std::size_t>(store.result)];
  const std::size_t parameter = nest_->operands.size() + static_cast<std::size_t>(store.result);
  const Placed position = place(store.at);
  const std::string stored =
      is_narrow_float(to) ? concat(to == DType::f16 ? "gc_store_f16(" : "gc_store_bf16(", value, ")") : value;
  return concat("p", parameter, "[", position.text, store.accumulate ? "] += " : "] = ", stored, ";");
}

std::string KernelWriter::finish() {
  check_internal(scopes_.size() == 1, "a scope of a kernel is left open");
  return std::move(scopes_[0].text);
}

}  // namespace gcomp::codegen
