// The laws of loop nests; ir/verify.h lists them.
#include <algorithm>

#include "ir/text/print_nest.h"
#include "ir/verify.h"

namespace gcomp::ir {
namespace {

class NestVerifier {
 public:
  NestVerifier(const LoopNest& nest, const std::vector<TensorType>& operands, const std::vector<TensorType>& results)
      : nest_(nest), operands_(operands), results_(results) {}

  std::vector<std::string> run() {
    if (nest_.extents.size() > 64) report("has ", nest_.extents.size(), " axes, at most 64 are possible");
    for (std::int64_t extent : nest_.extents)
      if (extent < 0) report("extent ", extent, " is negative");
    if (!found_.empty()) return std::move(found_);
    for (std::size_t s = 0; s < nest_.statements.size(); ++s) check_statement(nest_.statements[s], static_cast<int>(s));
    if (nest_.outputs.size() != results_.size())
      report("the nest has ", nest_.outputs.size(), " outputs, the node ", results_.size(), " results");
    else if (found_.empty())
      for (std::size_t o = 0; o < results_.size(); ++o) check_output(nest_.outputs[o], o);
    return std::move(found_);
  }

 private:
  template <class... Args>
  void report(const Args&... args) {
    found_.push_back(concat(where_, args...));
  }

  static std::uint64_t bits_of(const std::vector<int>& axes) {
    std::uint64_t bits = 0;
    for (int a : axes) bits |= std::uint64_t{1} << a;
    return bits;
  }

  bool in_range(const std::vector<int>& axes) const {
    return std::all_of(axes.begin(), axes.end(), [&](int a) { return a >= 0 && a < static_cast<int>(nest_.extents.size()); });
  }

  void check_statement(const Statement& s, int number) {
    where_ = concat("t", number, ": ");
    if (!in_range(s.axes) || !in_range(s.over)) return report("uses an axis that the nest lacks");
    const std::uint64_t own = bits_of(s.axes), over = bits_of(s.over);
    if (!std::is_sorted(s.axes.begin(), s.axes.end()) || std::adjacent_find(s.axes.begin(), s.axes.end()) != s.axes.end())
      report("its axes do not ascend");
    switch (s.kind) {
      case Statement::Kind::map:
        if (s.combine || !s.over.empty()) report("a map combines nothing");
        break;
      case Statement::Kind::reduce:
        if (own & over || bits_count(over) != s.over.size()) report("reduces over an axis twice, or over one that it keeps");
        check_order(s, number);
        break;
      case Statement::Kind::scan:
        if (s.over.size() != 1 || (own & over) != over) report("a scan runs along one of its own axes");
        break;
    }
    if (s.kind != Statement::Kind::map && (!s.combine || s.combine->kind != Kind::reduce)) report("combines by no reduction");
    if (s.kind != Statement::Kind::scan && (s.exclusive || s.reverse)) report("only a scan is exclusive or reversed");
    if (!s.value) return report("has no term");
    statement_ = number;
    available_ = own | over;
    check_terms(s.value);
  }

  /// One pass over the axes serves every reduction.
  void check_order(const Statement& s, int number) {
    for (int other = 0; other < number; ++other) {
      const Statement& o = nest_.statements[static_cast<std::size_t>(other)];
      if (o.kind == Statement::Kind::reduce && o.over != s.over && bits_of(o.over) == bits_of(s.over))
        return report("goes through the axes that t", other, " reduces over in another order");
    }
  }

  static std::size_t bits_count(std::uint64_t bits) {
    std::size_t count = 0;
    for (; bits; bits &= bits - 1) ++count;
    return count;
  }

  void check_terms(const TermPtr& root) {
    for_each_term(root, [&](const TermPtr& term) {
      if (term->axes & ~available_) report("'", print(term), "' uses an axis that the statement does not loop over");
      check_term(*term, term);
      for (const Index& index : term->indices) check_index(index);
      for (const Condition& condition : term->conditions) check_index(condition.index);
    });
  }

  void check_term(const Term& t, const TermPtr& term) {
    switch (t.kind) {
      case Term::Kind::literal:
      case Term::Kind::index: break;
      case Term::Kind::read: {
        if (t.slot < 0 || t.slot >= static_cast<int>(operands_.size()))
          return report("reads operand ", t.slot, " of ", operands_.size());
        const TensorType& type = operands_[static_cast<std::size_t>(t.slot)];
        if (t.indices.size() != type.shape.size() || t.dtype != type.dtype)
          report("reads '", print(term), "' as ", name_of(t.dtype), " from an operand of type ", to_string(type));
        break;
      }
      case Term::Kind::local: {
        if (t.slot < 0 || t.slot >= statement_) return report("refers to statement t", t.slot, ", which is not above");
        const Statement& other = nest_.statements[static_cast<std::size_t>(t.slot)];
        if (bits_of(other.axes) & ~available_)
          report("refers to t", t.slot, ", which varies over an axis that this statement does not loop over");
        if (other.dtype != t.dtype) report("refers to t", t.slot, " as ", name_of(t.dtype), ", it is ", name_of(other.dtype));
        break;
      }
      case Term::Kind::call: check_call(t, term); break;
      case Term::Kind::guard:
        if (t.conditions.empty() || t.arguments.size() != 2) report("a guard needs conditions and two branches");
        else if (t.arguments[0]->dtype != t.dtype || t.arguments[1]->dtype != t.dtype)
          report("the branches of '", print(term), "' have different dtypes");
        break;
    }
  }

  void check_call(const Term& t, const TermPtr& term) {
    if (!t.op || t.op->kind != Kind::pointwise)
      return report("calls ", t.op ? t.op->name : "nothing", ", which is no pointwise op");
    if (static_cast<int>(t.arguments.size()) != t.op->operands)
      return report(t.op->name, " takes ", t.op->operands, " arguments, found ", t.arguments.size());
    const std::size_t first = t.op->typing == PointwiseTyping::select ? 1 : 0;
    const DType shared = compute_type(t.arguments[first]->dtype);
    bool fits = first == 0 || t.arguments[0]->dtype == DType::boolean;
    for (std::size_t i = first; i < t.arguments.size(); ++i) fits = fits && compute_type(t.arguments[i]->dtype) == shared;
    switch (t.op->typing) {
      case PointwiseTyping::same:
      case PointwiseTyping::select: fits = fits && compute_type(t.dtype) == shared; break;
      case PointwiseTyping::floating: fits = fits && compute_type(t.dtype) == shared && is_float(shared); break;
      case PointwiseTyping::predicate: fits = fits && t.dtype == DType::boolean; break;
      case PointwiseTyping::logical: fits = fits && t.dtype == DType::boolean && shared == DType::boolean; break;
      case PointwiseTyping::cast: break;
    }
    if (!fits) report("the dtypes of '", print(term), "' do not fit ", t.op->name);
  }

  void check_index(const Index& index) {
    for (const auto& part : index.parts()) {
      const IndexAtom& atom = part.atom;
      if (atom.kind == IndexAtom::Kind::axis && (atom.axis < 0 || atom.axis >= static_cast<int>(nest_.extents.size())))
        report("an index uses an axis that the nest lacks");
      if (atom.inner) check_index(*atom.inner);
      if (atom.value && !is_integer(atom.value->dtype))
        report("an index is looked up as ", name_of(atom.value->dtype), ", wanted an integer");
    }
  }

  void check_output(const LoopOutput& output, std::size_t number) {
    where_ = concat("output ", number, ": ");
    if (output.statement < 0 || output.statement >= static_cast<int>(nest_.statements.size()))
      return report("stores statement t", output.statement, ", which does not exist");
    const Statement& s = nest_.statements[static_cast<std::size_t>(output.statement)];
    const TensorType& type = results_[number];
    if (s.dtype != type.dtype) report("stores ", name_of(s.dtype), " in ", to_string(type));
    if (output.index.size() != type.shape.size()) return report("has ", output.index.size(), " indices for ", to_string(type));
    statement_ = static_cast<int>(nest_.statements.size());
    available_ = bits_of(s.axes);
    for (std::size_t d = 0; d < output.index.size(); ++d) {
      const Index& index = output.index[d];
      check_index(index);
      for (int a = 0; a < static_cast<int>(nest_.extents.size()); ++a)
        if (index.uses(a) && !(available_ >> a & 1))
          report("index '", print(index), "' uses an axis that t", output.statement, " does not loop over");
      check_loaded(index);
      const bool affine = std::all_of(index.parts().begin(), index.parts().end(),
                                      [](const Index::Part& p) { return p.atom.kind == IndexAtom::Kind::axis; });
      const bool runs =
          std::all_of(s.axes.begin(), s.axes.end(), [&](int a) { return nest_.extents[static_cast<std::size_t>(a)] > 0; });
      const IndexRange range = index.range();
      if (affine && runs && (range.low < 0 || range.high >= type.shape[d]))
        report("index '", print(index), "' leaves dimension ", d, " of ", to_string(type));
    }
  }

  void check_loaded(const Index& index) {
    for (const auto& part : index.parts()) {
      if (part.atom.value) check_terms(part.atom.value);
      if (part.atom.inner) check_loaded(*part.atom.inner);
    }
  }

  const LoopNest& nest_;
  const std::vector<TensorType>&operands_, &results_;
  std::vector<std::string> found_;
  std::string where_;
  int statement_ = 0;            ///< statements before this one may be referred to
  std::uint64_t available_ = 0;  ///< axes that may be used
};

}  // namespace

std::vector<std::string> find_violations(const LoopNest& nest, const std::vector<TensorType>& operands,
                                         const std::vector<TensorType>& results) {
  return NestVerifier(nest, operands, results).run();
}

}  // namespace gcomp::ir
