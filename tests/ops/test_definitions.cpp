// What must hold for every op of the table: inference accepts its samples and refuses what does not fit, its loop nest is
// sound in every float dtype, and the interpreter gives what inference promised.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "ir/expand.h"
#include "ir/interpret.h"
#include "ir/verify.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;

class Definition : public testing::TestWithParam<SharedCase> {};

/// The case with f64 replaced by `dtype`, in operands and attributes.
OpCase in_dtype(OpCase c, DType dtype) {
  for (TensorType& type : c.operands)
    if (type.dtype == DType::f64) type.dtype = dtype;
  for (auto name : {"dtype", "to"})
    if (const Attribute* a = c.attributes.find(name); a && std::get<DType>(*a) == DType::f64) c.attributes.set(name, dtype);
  return c;
}

TEST_P(Definition, gives_sound_graphs_and_loop_nests_in_every_float_dtype) {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    Graph graph = graph_of(in_dtype(*GetParam(), dtype));
    EXPECT_EQ(find_violations(graph), std::vector<std::string>());
    const Node& node = *graph.nodes()[0];
    if (node.op->results >= 0) { EXPECT_EQ(static_cast<int>(node.results.size()), node.op->results); }
    if (node.op->kind == Kind::composite) {
      ASSERT_TRUE(expand(graph));
      EXPECT_EQ(find_violations(graph), std::vector<std::string>());
      continue;
    }
    if (node.op->kind == Kind::collective || node.op->kind == Kind::barrier) continue;  // moves bytes, or nothing
    const auto operands = types_of(node.operands), results = types_of(node.results);
    EXPECT_EQ(find_violations(loops_of(*node.op, operands, results, node.attributes), operands, results),
              std::vector<std::string>());
  }
}

TEST_P(Definition, runs_on_the_interpreter) {
  std::mt19937 random(1);
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const OpCase c = in_dtype(*GetParam(), dtype);
    const Graph graph = graph_of(c);
    std::map<std::string, Tensor> values;
    for (const Value* input : graph.inputs()) values.emplace(input->name, random_tensor(input->type, c.low, c.high, random));
    const InterpretResult result = interpret(graph, values);
    for (std::size_t i = 0; i < result.outputs.size(); ++i) {
      EXPECT_EQ(result.outputs[i].type(), graph.outputs()[i]->type);
      for (double x : result.outputs[i].to_doubles()) EXPECT_FALSE(std::isnan(x)) << "in " << name_of(dtype);
    }
  }
}

TEST_P(Definition, refuses_a_wrong_number_of_operands) {
  OpCase c = *GetParam();
  if (c.op->operands < 0) c.operands.clear();
  else c.operands.push_back({DType::f64, {2, 3}});
  try {
    graph_of(c);
    FAIL() << "accepted " << c.operands.size() << " operands";
  } catch (const UserError& error) { EXPECT_NE(std::string(error.what()).find(c.op->name), std::string::npos) << error.what(); }
}

TEST_P(Definition, refuses_unknown_attributes) {
  OpCase c = *GetParam();
  c.attributes.set("no_such_attribute", true);
  EXPECT_THROW(graph_of(c), UserError);
}

TEST_P(Definition, refuses_missing_attributes) {
  for (const AttributeSpec& spec : GetParam()->op->attributes) {
    if (!spec.required) continue;
    OpCase c = *GetParam();
    c.attributes.erase(spec.name);
    EXPECT_THROW(graph_of(c), UserError) << spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Definition, testing::ValuesIn(shared_cases(op_cases())),
                         [](const auto& info) { return info.param->label; });

TEST(Table, names_are_unique_words) {
  std::set<std::string_view> names;
  for (const OpDef* op : ops::kTable) {
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
    for (char c : op->name) EXPECT_TRUE((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_') << op->name;
    EXPECT_EQ(find_op(op->name), op);
  }
  EXPECT_EQ(find_op("no_such_op"), nullptr);
}

/// Functions of the kernels' prelude that are one instruction, or two, of a vector unit; all others are many.
bool is_short(const std::string& text) {
  for (std::string_view name : {"gc_neg(", "gc_abs(", "gc_sign(", "gc_maximum(", "gc_minimum(", "gc_is_nan(", "gc_is_inf("})
    if (text.starts_with(name)) return true;
  return !text.starts_with("gc_");
}

TEST(Table, costs_are_those_of_what_the_bodies_print) {
  for (const OpDef* op : ops::kTable) {
    if (!op->scalar.text) {
      EXPECT_EQ(op->cost, 0) << op->name;
      continue;
    }
    const std::vector<Expression> operands(static_cast<std::size_t>(op->scalar.arity), Expression{"x", DType::f32});
    EXPECT_EQ(op->cost == 1, is_short(op->scalar.text(operands).text)) << op->name;
  }
}

/// Values on which facts of a pointwise op can fail: signs, zeros, what is not finite; truth values and integers where it takes
/// those.
std::vector<double> trial_values(const OpDef& op) {
  const DType dtype = pointwise_case(op).operands.back().dtype;
  if (dtype == DType::boolean) return {0, 1};
  if (is_integer(dtype)) return {-7, -1, 0, 1, 2, 5};
  const double infinity = std::numeric_limits<double>::infinity();
  return {-infinity, -2, -0.5, -0.0, 0, 0.5, 1, 3, infinity, std::numeric_limits<double>::quiet_NaN()};
}
bool same_bits(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

TEST(Table, ops_are_commutative_or_their_own_inverse_where_they_say_so) {
  for (const OpDef* op : ops::kTable) {
    const auto f = op->scalar.reference;
    if (!f || is_cast(*op) || op == &ops::kDetach) continue;  // twice it is no value as it was: no gradient goes through
    const std::vector<double> values = trial_values(*op);
    bool commutes = op->operands == 2, inverts = op->operands == 1;
    for (double x : values) {
      inverts = inverts && same_bits(f(std::vector{f(std::vector{x})}), x);
      for (double y : values) commutes = commutes && same_bits(f(std::vector{x, y}), f(std::vector{y, x}));
    }
    EXPECT_EQ(op->commutative, commutes) << op->name;
    EXPECT_EQ(op->involution, inverts) << op->name;
  }
}

TEST(Table, equality_is_what_one_bit_decides) {
  for (const OpDef* op : ops::kTable) {
    if (op->operands != 2 || op->typing != PointwiseTyping::predicate) continue;
    const auto f = op->scalar.reference;
    const bool decides = f(std::vector{1.0, 1.0}) != 0 && f(std::vector{1.0, std::nextafter(1.0, 2.0)}) == 0 &&
                         f(std::vector{1.0, std::nextafter(1.0, 0.0)}) == 0;
    EXPECT_EQ(op->equality, decides) << op->name;
  }
}

TEST(Table, identities_change_no_bit) {
  for (const OpDef* op : ops::kTable) {
    if (!op->identity) continue;
    ASSERT_EQ(op->operands, 2) << op->name;
    for (double x : trial_values(*op)) {
      EXPECT_TRUE(same_bits(op->scalar.reference(std::vector{x, *op->identity}), x)) << op->name << " of " << x;
      if (op->commutative) { EXPECT_TRUE(same_bits(op->scalar.reference(std::vector{*op->identity, x}), x)) << op->name; }
    }
  }
}

/// What a view shows of operands that count up from 1 through its samples.
TEST(Table, views_fill_or_are_aliases_where_they_say_so) {
  std::map<const OpDef*, bool> fills, alias;
  for (const OpCase& c : op_cases()) {
    if (c.op->kind != Kind::view) continue;
    std::map<std::string, Tensor> values;
    double next = 1;
    for (std::size_t i = 0; i < c.operands.size(); ++i) {
      Tensor tensor(c.operands[i]);
      for (std::int64_t e = 0; e < tensor.elements(); ++e) tensor.set(e, next++);
      values.emplace(concat("x", i), std::move(tensor));
    }
    const std::vector<double> shown = interpret(graph_of(c), values).outputs[0].to_doubles();
    for (double x : shown) fills[c.op] = fills[c.op] || x < 1 || x != std::floor(x);
    const bool all_in_order = c.operands.size() == 1 && shown == values.at("x0").to_doubles();
    alias[c.op] = alias.try_emplace(c.op, true).first->second && all_in_order;
  }
  for (const OpDef* op : ops::kTable) {
    EXPECT_EQ(op->fills, fills[op]) << op->name;
    EXPECT_EQ(op->alias, alias[op]) << op->name;
  }
}

/// The table of passes/README.md, by kind; what kinds say too little of is named.
Precision expected_precision(const OpDef& op) {
  static const std::map<const OpDef*, Precision> kNamed = {
      {&ops::kTanh, Precision::promoted},      {&ops::kSigmoid, Precision::promoted},   {&ops::kPow, Precision::wide},
      {&ops::kReduceMax, Precision::promoted}, {&ops::kReduceMin, Precision::promoted}, {&ops::kArgMax, Precision::promoted},
      {&ops::kArgMin, Precision::promoted},    {&ops::kGather, Precision::promoted},    {&ops::kMaxPool, Precision::promoted},
      {&ops::kAttention, Precision::low},      {&ops::kBatchNorm, Precision::rounded}};
  if (const auto named = kNamed.find(&op); named != kNamed.end()) return named->second;
  if (op.kind == Kind::contract) return Precision::low;
  const bool moves = op.kind == Kind::view || (op.kind == Kind::pointwise && op.typing != PointwiseTyping::floating);
  return moves ? Precision::promoted : Precision::wide;
}

TEST(Table, precisions_are_those_that_the_documents_promise) {
  for (const OpDef* op : ops::kTable) EXPECT_EQ(op->precision, expected_precision(*op)) << op->name;
}

TEST(Table, mismatched_operands_are_named_with_their_types) {
  Graph graph;
  Value *x = graph.add_input({DType::f32, {64, 784}}, "x"), *w = graph.add_input({DType::f32, {128, 784}}, "w");
  try {
    graph.append(ops::kMatmul, {x, w}, {}, "fc1");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "node 'fc1': matmul: inner dimensions differ: lhs is f32[64,784], rhs is f32[128,784] (operands %x: f32[64,784], "
                 "%w: f32[128,784])");
  }
}

}  // namespace
}  // namespace gcomp::tests
