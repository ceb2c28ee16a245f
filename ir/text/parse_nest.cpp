#include "ir/text/parse_nest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "ir/base/nearest.h"
#include "ir/ops/table.h"
#include "ir/text/spelling.h"

namespace gcomp::ir {
namespace {

constexpr int kDeepest = 300;          ///< nesting of terms and indices; the printer stays far below
constexpr std::size_t kMostAxes = 64;  ///< a term keeps its axes as bits
constexpr double kLargestIndex = 0x1p62;

/// A term, or a literal that has no dtype until its neighbour or its statement gives one.
struct Parsed {
  TermPtr term;
  double number = 0;
  std::size_t at = 0;
};

/// An upper bound of |index|, so that hostile text cannot overflow the arithmetic of indices.
double magnitude(const Index& index) {
  double bound = std::fabs(static_cast<double>(index.constant()));
  for (const auto& part : index.parts()) {
    const double largest = part.atom.inner ? magnitude(*part.atom.inner) : static_cast<double>(part.atom.extent);
    bound += std::fabs(static_cast<double>(part.coefficient)) * std::max(largest, static_cast<double>(part.atom.divisor));
  }
  return bound;
}

class NestParser {
 public:
  NestParser(Scanner& scanner, const NestScope& scope) : in_(scanner), scope_(scope) {}

  LoopNest run() {
    outputs_.resize(scope_.results.size());
    if (in_.accept_word("axes")) axes();
    while (!in_.accept("}")) line();
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      if (!outputs_[o]) in_.fail(in_.next(), "the kernel writes no ", result_text(o));
    for (auto& output : outputs_) nest_.outputs.push_back(std::move(*output));
    return std::move(nest_);
  }

 private:
  // ---- lines ----

  void axes() {
    do {
      const std::size_t at = in_.next();
      const std::string name(in_.word("the name of an axis"));
      if (nest_.extents.size() == kMostAxes) in_.fail(at, "a kernel has at most ", kMostAxes, " axes");
      if (!axes_.emplace(name, static_cast<int>(nest_.extents.size())).second) in_.fail(at, "axis '", name, "' is declared twice");
      in_.expect(":", "and an extent after the axis");
      const std::size_t extent_at = in_.next();
      nest_.extents.push_back(in_.integer("the extent of the axis"));
      if (nest_.extents.back() < 0) in_.fail(extent_at, "extent ", nest_.extents.back(), " is negative");
    } while (in_.accept(","));
  }

  void line() {
    const std::size_t at = in_.next();
    if (in_.looking_at("%") || slot_of("result")) return output(at);
    const std::string name(in_.word("a statement, an output or '}'"));
    if (name == "let") return let();
    statement(name, at);
  }

  void let() {
    const std::size_t at = in_.next();
    const std::string name(in_.word("the name of a subterm"));
    in_.expect("=", "after the name of the subterm");
    const Parsed value = term();
    declare(name, at);
    lets_.emplace(name, typed(value, std::nullopt));
  }

  void declare(const std::string& name, std::size_t at) {
    if (locals_.count(name) || lets_.count(name)) in_.fail(at, "'", name, "' is defined twice");
  }

  void statement(const std::string& name, std::size_t at) {
    declare(name, at);
    Statement s;
    s.axes = axis_list();
    if (!std::is_sorted(s.axes.begin(), s.axes.end())) in_.fail(at, "the axes of '", name, "' are not in their declared order");
    in_.expect(":", concat("and a dtype after statement '", name, "'"));
    s.dtype = in_.dtype("the dtype of the statement");
    in_.expect("=", concat("and a term after statement '", name, "'"));
    if (in_.accept_word("scan")) s.kind = Statement::Kind::scan;
    const OpDef* op = find_op(in_.peek_word());
    if (op && op->kind == Kind::reduce && !locals_.count(std::string(in_.peek_word()))) {
      if (s.kind == Statement::Kind::map) s.kind = Statement::Kind::reduce;
      s.combine = op;
      in_.accept_word(op->name);
      if (!in_.looking_at("[")) in_.fail(in_.next(), "found ", in_.found(), ", wanted '[' with the axes of ", op->name);
      s.over = axis_list();
    } else if (s.kind == Statement::Kind::scan) {
      in_.fail(in_.next(), "found ", in_.found(), ", wanted a reduction after 'scan'");
    }
    s.exclusive = s.kind == Statement::Kind::scan && in_.accept_word("exclusive");
    s.reverse = s.kind == Statement::Kind::scan && in_.accept_word("reverse");
    s.value = typed(term(), s.dtype);
    locals_.emplace(name, static_cast<int>(nest_.statements.size()));
    nest_.statements.push_back(std::move(s));
  }

  void output(std::size_t at) {
    std::size_t number = 0;
    if (auto slot = slot_of("result")) {
      in_.word("");
      number = *slot;
    } else {
      const std::string name = in_.name('%', "a result");
      number = static_cast<std::size_t>(std::find(scope_.result_names.begin(), scope_.result_names.end(), name) -
                                        scope_.result_names.begin());
      if (number == scope_.result_names.size())
        in_.fail(at, "%", name, " is no result of this kernel", did_you_mean(name, scope_.result_names));
    }
    if (number >= outputs_.size()) in_.fail(at, "the kernel has ", outputs_.size(), " results");
    if (outputs_[number]) in_.fail(at, result_text(number), " is written twice");
    LoopOutput output;
    output.index = indices(scope_.flat ? 1 : scope_.results[number].shape.size(), at);
    output.accumulate = in_.accept("+=");
    if (!output.accumulate) in_.expect("=", "or '+=' after the output");
    const std::size_t statement_at = in_.next();
    const std::string name(in_.word("the name of a statement"));
    auto found = locals_.find(name);
    if (found == locals_.end()) in_.fail(statement_at, "an output stores a statement; '", name, "' is none");
    output.statement = found->second;
    outputs_[number] = std::move(output);
  }

  // ---- pieces ----

  std::string result_text(std::size_t number) const {
    return number < scope_.result_names.size() ? spelled('%', scope_.result_names[number]) : concat("result", number);
  }

  std::size_t rank_of_operand(const TensorType& type) const { return scope_.flat && type.rank() > 0 ? 1 : type.shape.size(); }

  /// The number in "operand3" or "result0", where that stands next.
  std::optional<std::size_t> slot_of(std::string_view stem) {
    const std::string_view word = in_.peek_word();
    if (word.size() <= stem.size() || word.size() > stem.size() + 6 || word.substr(0, stem.size()) != stem) return std::nullopt;
    std::size_t number = 0;
    for (char c : word.substr(stem.size())) {
      if (c < '0' || c > '9') return std::nullopt;
      number = number * 10 + static_cast<std::size_t>(c - '0');
    }
    return number;
  }

  std::vector<int> axis_list() {
    std::vector<int> list;
    if (!in_.accept("[")) return list;
    while (!in_.accept("]")) {
      if (!list.empty()) in_.expect(",", "between axes");
      const std::size_t at = in_.next();
      const std::string name(in_.word("an axis"));
      auto found = axes_.find(name);
      if (found == axes_.end()) in_.fail(at, "unknown axis '", name, "'");
      list.push_back(found->second);
    }
    return list;
  }

  std::optional<DType> annotation() {
    if (!in_.accept("<")) return std::nullopt;
    const DType dtype = in_.dtype("a dtype");
    in_.expect(">", "after the dtype");
    return dtype;
  }

  // ---- indices ----

  std::vector<Index> indices(std::size_t rank, std::size_t at) {
    std::vector<Index> list;
    if (in_.accept("["))
      while (!in_.accept("]")) {
        if (!list.empty()) in_.expect(",", "between indices");
        list.push_back(index());
      }
    if (list.size() != rank) in_.fail(at, "found ", list.size(), list.size() == 1 ? " index" : " indices", ", wanted ", rank);
    return list;
  }

  Index bounded(Index index, std::size_t at) {
    if (!(magnitude(index) < kLargestIndex)) in_.fail(at, "the index leaves the range of 62 bits");
    return index;
  }

  Index index() {
    const Depth depth(*this);
    const std::size_t at = in_.next();
    const bool negative = in_.looking_at("-") && !is_number_next();
    if (negative) in_.accept("-");
    Index sum = product() * (negative ? -1 : 1);
    for (;;) {
      if (in_.accept("+")) sum = bounded(sum + product(), at);
      else if (in_.accept("-")) sum = bounded(sum - product(), at);
      else return sum;
    }
  }

  bool is_number_next() {
    const std::size_t at = in_.next();
    const bool number = !in_.accept_number().empty();
    in_.seek(at);
    return number;
  }

  Index product() {
    Index left = factor();
    for (;;) {
      const std::size_t at = in_.next();
      const bool times = in_.accept("*"), over = !times && in_.accept("/"), modulo = !times && !over && in_.accept("%");
      if (!times && !over && !modulo) return left;
      const std::size_t right_at = in_.next();
      const Index right = factor();
      if (times && left.as_constant() && !right.as_constant()) {
        left = scaled(right, *left.as_constant(), at);
        continue;
      }
      const auto number = right.as_constant();
      if (!number) in_.fail(right_at, "an index is multiplied and divided by integers only");
      if (!times && *number <= 0) in_.fail(right_at, "an index is divided by ", *number, ", wanted a positive integer");
      left = times ? scaled(left, *number, at) : over ? left.quotient(*number) : left.remainder(*number);
    }
  }

  Index scaled(const Index& index, std::int64_t by, std::size_t at) {
    if (!(magnitude(index) * std::fabs(static_cast<double>(by)) < kLargestIndex))
      in_.fail(at, "the index leaves the range of 62 bits");
    return index * by;
  }

  Index factor() {
    const std::size_t at = in_.next();
    if (in_.accept("(")) {
      Index inner = index();
      in_.expect(")", "after the index");
      return inner;
    }
    if (in_.accept("<")) {
      const Depth depth(*this);
      TermPtr value = typed(term(), std::nullopt);
      in_.expect(":", "and an extent after the looked-up index");
      const std::int64_t extent = in_.integer("the extent of the looked-up axis");
      if (extent < 0) in_.fail(at, "extent ", extent, " is negative");
      in_.expect(">", "after the looked-up index");
      return Index::loaded(std::move(value), extent);
    }
    const std::string_view word = in_.peek_word();
    if (word.empty()) return bounded(Index(in_.integer("an index")), at);
    auto found = axes_.find(std::string(word));
    if (found == axes_.end()) in_.fail(at, "unknown axis '", word, "'");
    in_.word("");
    return nest_.axis(found->second);
  }

  // ---- terms ----

  struct Depth {
    explicit Depth(NestParser& parser) : parser(parser) {
      if (++parser.depth_ > kDeepest) parser.in_.fail(parser.in_.next(), "terms are nested more than ", kDeepest, " deep");
    }
    ~Depth() { --parser.depth_; }
    NestParser& parser;
  };

  /// A bare literal takes `dtype`.
  TermPtr typed(const Parsed& parsed, std::optional<DType> dtype) {
    if (parsed.term) return parsed.term;
    if (!dtype) in_.fail(parsed.at, "nothing here tells the dtype of this literal; write it as in f32(1)");
    return literal(*dtype, parsed.number);
  }

  /// Terms that share one dtype: a bare literal takes it from the first that has one.
  void unify(std::span<Parsed> group, std::optional<DType> otherwise) {
    for (const Parsed& member : group)
      if (member.term) {
        otherwise = member.term->dtype;
        break;
      }
    for (Parsed& member : group) member.term = typed(member, otherwise);
  }

  Parsed term() {
    const Depth depth(*this);
    const std::size_t at = in_.next();
    if (in_.accept("(")) return {parenthesis(), 0, at};
    if (in_.looking_at("%") || slot_of("operand")) return {operand(at), 0, at};
    if (const std::string_view number = in_.accept_number(); !number.empty()) {
      const auto value = parse_number(number);
      if (!value) in_.fail(at, "the number ", number, " does not fit a double");
      return {number == "true" || number == "false" ? literal(DType::boolean, *value) : nullptr, *value, at};
    }
    const std::string word(in_.word("a term"));
    if (auto found = lets_.find(word); found != lets_.end()) return {found->second, 0, at};
    if (auto found = locals_.find(word); found != locals_.end()) {
      const auto dtype = annotation();
      return {local(dtype.value_or(nest_.statements[static_cast<std::size_t>(found->second)].dtype), found->second), 0, at};
    }
    if (auto dtype = parse_dtype(word)) return {conversion(*dtype), 0, at};
    return {call(word, at), 0, at};
  }

  /// After "(": a guard, an infix call, or a term in needless parentheses.
  TermPtr parenthesis() {
    const std::size_t start = in_.next();
    if (is_number_next()) {
      in_.accept_number();
      const bool guarded = in_.looking_at("<=");
      in_.seek(start);
      if (guarded) return guard_term();
    }
    Parsed arguments[2] = {term(), {}};
    const std::size_t at = in_.next();
    if (in_.accept(")")) return typed(arguments[0], std::nullopt);
    static constexpr std::pair<std::string_view, const OpDef*> kInfix[] = {
        {"+", &ops::kAdd}, {"-", &ops::kSub}, {"*", &ops::kMul}, {"/", &ops::kDiv}};
    for (const auto& [symbol, op] : kInfix) {
      if (!in_.accept(symbol)) continue;
      arguments[1] = term();
      in_.expect(")", "after the term");
      unify(arguments, std::nullopt);
      return ir::call(arguments[0].term->dtype, *op, {arguments[0].term, arguments[1].term});
    }
    in_.fail(at, "found ", in_.found(), ", wanted '+', '-', '*', '/' or ')'");
  }

  TermPtr guard_term() {
    std::vector<Condition> conditions;
    do {
      const std::int64_t low = in_.integer("the lower bound of an index");
      in_.expect("<=", "after the lower bound");
      Index index = this->index();
      in_.expect("<", "after the guarded index");
      conditions.push_back({std::move(index), low, in_.integer("the upper bound of an index")});
    } while (in_.accept("&&"));
    in_.expect("?", "or '&&' after the conditions");
    Parsed branches[2] = {term(), {}};
    in_.expect(":", "between the branches");
    branches[1] = term();
    in_.expect(")", "after the branches");
    unify(branches, std::nullopt);
    return guard(std::move(conditions), branches[0].term, branches[1].term);
  }

  TermPtr operand(std::size_t at) {
    std::size_t slot = 0;
    if (auto number = slot_of("operand")) {
      in_.word("");
      slot = *number;
    } else {
      const std::string name = in_.name('%', "an operand");
      slot = static_cast<std::size_t>(std::find(scope_.operand_names.begin(), scope_.operand_names.end(), name) -
                                      scope_.operand_names.begin());
      if (slot == scope_.operand_names.size())
        in_.fail(at, "%", name, " is no operand of this kernel", did_you_mean(name, scope_.operand_names));
    }
    if (slot >= scope_.operands.size()) in_.fail(at, "the kernel has ", scope_.operands.size(), " operands");
    const auto dtype = annotation();
    return read(dtype.value_or(scope_.operands[slot].dtype), static_cast<int>(slot),
                indices(rank_of_operand(scope_.operands[slot]), at));
  }

  /// After a dtype: "(0.5)" is a literal, "(i + 1)" an index as a value.
  TermPtr conversion(DType dtype) {
    in_.expect("(", "after a dtype");
    const std::size_t at = in_.next();
    const std::string_view number = in_.accept_number();
    if (!number.empty() && in_.looking_at(")")) {
      in_.accept(")");
      const auto value = parse_number(number);
      if (!value) in_.fail(at, "the number ", number, " does not fit a double");
      return literal(dtype, *value);
    }
    in_.seek(at);
    Index value = index();
    in_.expect(")", "after the index");
    return index_value(dtype, std::move(value));
  }

  TermPtr call(const std::string& name, std::size_t at) {
    const OpDef* op = find_op(name);
    if (!op || op->kind != Kind::pointwise) {
      std::vector<std::string> known;
      for (const OpDef* candidate : ops::kTable)
        if (candidate->kind == Kind::pointwise) known.emplace_back(candidate->name);
      for (const auto& [local, number] : locals_) known.push_back(local);
      in_.fail(at, "'", name, "' is neither a statement above nor a pointwise op", did_you_mean(name, known));
    }
    const auto dtype = annotation();
    if (op->typing == PointwiseTyping::cast && !dtype)
      in_.fail(in_.next(), "found ", in_.found(), ", wanted the dtype of the cast, as in cast<f32>(x)");
    in_.expect("(", concat("after ", name));
    std::vector<Parsed> arguments;
    while (!in_.accept(")")) {
      if (!arguments.empty()) in_.expect(",", "between arguments");
      arguments.push_back(term());
    }
    if (static_cast<int>(arguments.size()) != op->operands)
      in_.fail(at, name, " takes ", op->operands, " arguments, found ", arguments.size());
    const bool select = op->typing == PointwiseTyping::select;
    if (select) arguments[0].term = typed(arguments[0], DType::boolean);
    unify(std::span(arguments).subspan(select ? 1 : 0), std::nullopt);
    std::vector<TermPtr> terms;
    for (const Parsed& argument : arguments) terms.push_back(argument.term);
    const bool boolean = op->typing == PointwiseTyping::predicate || op->typing == PointwiseTyping::logical;
    const DType inferred = boolean ? DType::boolean : terms[select ? 1 : 0]->dtype;
    return ir::call(dtype.value_or(inferred), *op, std::move(terms));
  }

  Scanner& in_;
  const NestScope& scope_;
  LoopNest nest_;
  std::map<std::string, int> axes_, locals_;
  std::map<std::string, TermPtr> lets_;
  std::vector<std::optional<LoopOutput>> outputs_;
  int depth_ = 0;
};

}  // namespace

LoopNest parse_nest(Scanner& scanner, const NestScope& scope) { return NestParser(scanner, scope).run(); }

}  // namespace gcomp::ir
