#include "ir/text/print_nest.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "ir/base/error.h"
#include "ir/op.h"
#include "ir/ops/table.h"
#include "ir/text/spelling.h"

namespace gcomp::ir {
namespace {

constexpr std::size_t kLetSize = 6;  ///< subterms of fewer nodes are repeated rather than named
constexpr int kLetDepth = 100;       ///< subterms nested deeper than this are named, so that no reader runs out of stack

std::string axis_name(int axis) { return axis < 6 ? std::string(1, "ijklmn"[axis]) : concat("a", axis); }

/// The sign of an infix op; "" for the others.
std::string_view infix_of(const OpDef& op) {
  if (&op == &ops::kAdd) return "+";
  if (&op == &ops::kSub) return "-";
  if (&op == &ops::kMul) return "*";
  if (&op == &ops::kDiv) return "/";
  return "";
}

void collect_loaded(const Index& index, std::vector<TermPtr>& out) {
  for (const auto& part : index.parts()) {
    if (part.atom.value) out.push_back(part.atom.value);
    if (part.atom.inner) collect_loaded(*part.atom.inner, out);
  }
}

std::vector<TermPtr> children_of(const Term& term) {
  std::vector<TermPtr> children = term.arguments;
  for (const Index& index : term.indices) collect_loaded(index, children);
  for (const Condition& condition : term.conditions) collect_loaded(condition.index, children);
  return children;
}

/// What one subterm is worth a name for.
struct Sharing {
  int uses = 0;
  std::size_t size = 1;  ///< nodes when written out
  int depth = 1;         ///< of nesting, up to the next subterm that is named for its depth
  std::string name;
};
using SharingMap = std::unordered_map<TermPtr, Sharing, TermHash, TermEqual>;

std::size_t count_uses(const TermPtr& term, SharingMap& map) {
  Sharing& own = map[term];
  if (++own.uses > 1) return own.size;
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 2;
  for (const TermPtr& child : children_of(*term)) {
    const std::size_t more = count_uses(child, map);
    own.size = more > kMost - own.size ? kMost : own.size + more;
    own.depth = std::max(own.depth, map[child].depth % kLetDepth + 1);
  }
  return own.size;
}

class NestPrinter {
 public:
  NestPrinter(const NestNames& names, std::vector<DType> locals, std::string indent)
      : names_(names), locals_(std::move(locals)), indent_(std::move(indent)) {}

  std::string print(const LoopNest& nest) {
    find_shared(nest);
    std::string text;
    if (!nest.extents.empty()) text += indent_ + "axes ";
    for (std::size_t a = 0; a < nest.extents.size(); ++a)
      text += concat(a ? ", " : "", axis_name(static_cast<int>(a)), ":", nest.extents[a]);
    if (!nest.extents.empty()) text += "\n";
    for (std::size_t s = 0; s < nest.statements.size(); ++s) text += statement(nest.statements[s], s);
    for (std::size_t o = 0; o < nest.outputs.size(); ++o) {
      const LoopOutput& output = nest.outputs[o];
      const std::string target = o < names_.results.size() ? names_.results[o] : concat("result", o);
      std::vector<TermPtr> loaded;
      for (const Index& i : output.index) collect_loaded(i, loaded);
      for (const TermPtr& root : loaded) text += lets_of(root);
      text +=
          indent_ + target + indices(output.index) + (output.accumulate ? " += " : " = ") + concat("t", output.statement) + "\n";
    }
    return text;
  }

  std::string term(const TermPtr& t) {
    auto found = shared_.find(t);
    return found == shared_.end() || found->second.name.empty() ? written(t) : found->second.name;
  }

  std::string index(const Index& index) {
    std::string text;
    for (const auto& part : index.parts()) {
      const bool negative = part.coefficient < 0;
      text += text.empty() ? (negative ? "-" : "") : negative ? " - " : " + ";
      text += atom(part.atom);
      if (part.coefficient != 1 && part.coefficient != -1) text += "*" + magnitude(part.coefficient);
    }
    if (text.empty()) return std::to_string(index.constant());
    if (index.constant() != 0) text += (index.constant() < 0 ? " - " : " + ") + magnitude(index.constant());
    return text;
  }

 private:
  static std::string magnitude(std::int64_t value) {
    return std::to_string(value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value));
  }

  void find_shared(const LoopNest& nest) {
    std::vector<TermPtr> roots;
    for (const Statement& s : nest.statements) roots.push_back(s.value);
    for (const LoopOutput& o : nest.outputs)
      for (const Index& i : o.index) collect_loaded(i, roots);
    for (const TermPtr& root : roots) count_uses(root, shared_);
  }

  /// Names the subterms of `root` that deserve it, the innermost first; gives their lines.
  std::string lets_of(const TermPtr& root) {
    std::string lines;
    for_each_term(root, [&](const TermPtr& t) {
      auto found = shared_.find(t);
      const bool repeated = found->second.uses > 1 && found->second.size >= kLetSize;
      if (!found->second.name.empty() || (!repeated && found->second.depth < kLetDepth)) return;
      const std::string body = written(t);
      found->second.name = concat("s", lets_made_++);
      lines += indent_ + "let " + found->second.name + " = " + body + "\n";
    });
    return lines;
  }

  std::string axis_list(const std::vector<int>& axes) {
    std::string text = "[";
    for (std::size_t i = 0; i < axes.size(); ++i) text += (i ? "," : "") + axis_name(axes[i]);
    return text + "]";
  }

  std::string indices(const std::vector<Index>& list) {
    if (list.empty()) return "";
    std::string text = "[";
    for (std::size_t i = 0; i < list.size(); ++i) text += (i ? "," : "") + index(list[i]);
    return text + "]";
  }

  std::string statement(const Statement& s, std::size_t number) {
    const std::string lets = lets_of(s.value);
    std::string line =
        indent_ + concat("t", number) + (s.axes.empty() ? "" : axis_list(s.axes)) + concat(": ", name_of(s.dtype), " = ");
    if (s.kind == Statement::Kind::scan) line += "scan ";
    if (s.kind != Statement::Kind::map) line += concat(s.combine->name, axis_list(s.over), " ");
    if (s.exclusive) line += "exclusive ";
    if (s.reverse) line += "reverse ";
    line += s.value->kind == Term::Kind::literal && s.value->dtype != s.dtype ? literal_text(*s.value) : term(s.value);
    return lets + line + "\n";
  }

  std::string atom(const IndexAtom& a) {
    switch (a.kind) {
      case IndexAtom::Kind::axis: return axis_name(a.axis);
      case IndexAtom::Kind::quotient:
      case IndexAtom::Kind::remainder: {
        const std::string inner = a.inner->as_axis() ? index(*a.inner) : "(" + index(*a.inner) + ")";
        return concat(inner, a.kind == IndexAtom::Kind::quotient ? " / " : " % ", a.divisor);
      }
      case IndexAtom::Kind::loaded: return concat("<", typed(a.value), " : ", a.extent, ">");
    }
    return "";
  }

  /// A literal that says its dtype.
  static std::string literal_text(const Term& t) {
    const std::string number = number_text(t.dtype, t.number);
    return t.dtype == DType::boolean ? number : concat(name_of(t.dtype), "(", number, ")");
  }
  std::string typed(const TermPtr& t) { return t->kind == Term::Kind::literal ? literal_text(*t) : term(t); }

  /// Terms that share one dtype: literals that have it need not say so, once one of the group shows it.
  std::vector<std::string> group(std::vector<TermPtr> members) {
    const TermPtr* shown = nullptr;
    for (const TermPtr& member : members)
      if (!shown && member->kind != Term::Kind::literal) shown = &member;
    std::vector<std::string> texts;
    for (const TermPtr& member : members) {
      const bool bare = member->kind == Term::Kind::literal && shown && (*shown)->dtype == member->dtype;
      texts.push_back(bare ? number_text(member->dtype, member->number) : typed(member));
      if (!shown) shown = &member;
    }
    return texts;
  }

  static std::string annotation(DType dtype) { return concat("<", name_of(dtype), ">"); }
  /// Nothing where the reader knows the dtype, or where no dtypes are known at all.
  static std::string annotation_unless(DType dtype, const std::vector<DType>& known, std::size_t slot) {
    return known.empty() || (slot < known.size() && known[slot] == dtype) ? "" : annotation(dtype);
  }

  std::string call(const Term& t) {
    std::vector<std::string> arguments;
    DType inferred = t.arguments[0]->dtype;
    if (t.op->typing == PointwiseTyping::predicate || t.op->typing == PointwiseTyping::logical) inferred = DType::boolean;
    if (t.op->typing == PointwiseTyping::select) {
      arguments = group({t.arguments[1], t.arguments[2]});
      arguments.insert(arguments.begin(), typed(t.arguments[0]));
      inferred = t.arguments[1]->dtype;
    } else {
      arguments = group(t.arguments);
    }
    const bool annotated = t.op->typing == PointwiseTyping::cast || inferred != t.dtype;
    const std::string_view infix = infix_of(*t.op);
    if (!infix.empty() && !annotated) return concat("(", arguments[0], " ", infix, " ", arguments[1], ")");
    std::string text = concat(t.op->name, annotated ? annotation(t.dtype) : "", "(");
    for (std::size_t i = 0; i < arguments.size(); ++i) text += (i ? ", " : "") + arguments[i];
    return text + ")";
  }

  std::string written(const TermPtr& t) {
    switch (t->kind) {
      case Term::Kind::literal: return number_text(t->dtype, t->number);
      case Term::Kind::index: return concat(name_of(t->dtype), "(", index(t->indices[0]), ")");
      case Term::Kind::read: {
        const auto slot = static_cast<std::size_t>(t->slot);
        const std::string name = slot < names_.operands.size() ? names_.operands[slot] : concat("operand", slot);
        return name + annotation_unless(t->dtype, names_.operand_dtypes, slot) + indices(t->indices);
      }
      case Term::Kind::local: {
        const auto slot = static_cast<std::size_t>(t->slot);
        return concat("t", slot, annotation_unless(t->dtype, locals_, slot));
      }
      case Term::Kind::call: return call(*t);
      case Term::Kind::guard: {
        std::string text = "(";
        for (std::size_t i = 0; i < t->conditions.size(); ++i) {
          const Condition& c = t->conditions[i];
          text += concat(i ? " && " : "", c.low, " <= ", index(c.index), " < ", c.high);
        }
        const std::vector<std::string> branches = group(t->arguments);
        return text + " ? " + branches[0] + " : " + branches[1] + ")";
      }
    }
    return "";
  }

  const NestNames& names_;
  std::vector<DType> locals_;
  std::string indent_;
  SharingMap shared_;
  int lets_made_ = 0;
};

}  // namespace

std::string print(const LoopNest& nest, const NestNames& names, const std::string& indent) {
  std::vector<DType> locals;
  for (const Statement& s : nest.statements) locals.push_back(s.dtype);
  return NestPrinter(names, std::move(locals), indent).print(nest);
}

std::string print(const LoopNest& nest) { return print(nest, NestNames{}, ""); }
std::string print(const Index& index) { return NestPrinter(NestNames{}, {}, "").index(index); }
std::string print(const TermPtr& term) { return NestPrinter(NestNames{}, {}, "").term(term); }

}  // namespace gcomp::ir
