#include "passes/products/epilogue_nest.h"

#include <algorithm>

#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "ir/product.h"
#include "passes/fusion/nest_domains.h"

namespace gcomp::passes {
namespace {

using namespace ir;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

Statement map_over(const std::vector<int>& axes, DType dtype, TermPtr value) {
  Statement statement;
  statement.dtype = dtype;
  statement.axes = axes;
  statement.value = std::move(value);
  return statement;
}

// Which results the product takes.

/// The row-major position at which a result is stored, where each axis of the nest is a digit of it.
struct Digits {
  Index position;
  std::vector<std::int64_t> weights;  ///< of the axes; 0 for axes of one step
};

std::optional<Digits> digits_of(const LoopNest& nest, const LoopOutput& output, const Shape& shape) {
  Digits digits{linear_index(output.index, shape), std::vector<std::int64_t>(nest.extents.size())};
  if (!mixed_radix(digits.position, element_count(shape))) return std::nullopt;
  for (const Index::Part& part : digits.position.parts()) digits.weights[at(part.atom.axis)] = part.coefficient;
  for (std::size_t a = 0; a < nest.extents.size(); ++a)
    if (nest.extents[a] > 1 && digits.weights[a] == 0) return std::nullopt;
  return digits;
}

/// For each statement, whether it is a map and stands on maps alone.
std::vector<bool> stand_on_maps(const LoopNest& nest) {
  std::vector<bool> maps;
  for (const Statement& s : nest.statements) {
    bool all = s.kind == Statement::Kind::map;
    for_each_term(s.value, [&](const TermPtr& t) {
      if (t->kind == Term::Kind::local) all = all && maps[at(t->slot)];
    });
    maps.push_back(all);
  }
  return maps;
}

struct ResultSplit {
  Digits digits;  ///< of all that are taken
  std::vector<std::size_t> taken, left;
};

/// What is left reads one taken result at most.
std::optional<ResultSplit> split_results(const Node& kernel, const LoopNest& nest, std::int64_t elements) {
  const std::vector<bool> on_maps = stand_on_maps(nest);
  std::optional<Digits> digits;
  std::vector<std::size_t> taken, left;
  for (std::size_t o = 0; o < nest.outputs.size(); ++o) {
    const TensorType& type = kernel.results[o]->type;
    const bool possible = type.elements() == elements && on_maps[at(nest.outputs[o].statement)];
    const std::optional<Digits> found = possible ? digits_of(nest, nest.outputs[o], type.shape) : std::nullopt;
    const bool takes = found && (!digits || digits->position == found->position);
    (takes ? taken : left).push_back(o);
    if (takes) digits = found;
  }
  if (!digits || (!left.empty() && taken.size() > 1)) return std::nullopt;
  return ResultSplit{*std::move(digits), std::move(taken), std::move(left)};
}

// The product: the sum, with a bias where that has a statement of its own, then the kernel's maps.

Body sum_of_products(const Node& matmul, const Value* bias) {
  const TensorType& type = matmul.result()->type;
  Body product{product_nest(matmul.operands[0]->type, matmul.operands[1]->type, matmul.attributes), matmul.operands};
  if (!bias) return product;
  product.operands.push_back(const_cast<Value*>(bias));
  const DType sum_type = compute_type(type.dtype);
  const Index n = Index::axis(static_cast<int>(type.rank()) - 1, type.shape.back());
  const TermPtr added = read(bias->type.dtype, 2, split_index(n, bias->type.shape));
  const std::vector<int> axes = product.nest.statements[0].axes;
  product.nest.statements.push_back(map_over(axes, type.dtype, call(sum_type, ops::kAdd, {local(sum_type, 0), added})));
  return product;
}

/// Of a row-major position in `shape` the digit of the given weight, from the one axis that it is part of where there is one.
Index digit_of(const Shape& shape, std::int64_t weight, std::int64_t extent) {
  const std::vector<Index> axes = axes_of_shape(shape);
  const Shape strides = row_major_strides(shape);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (weight % strides[d] == 0 && weight / strides[d] * extent <= shape[d])
      return axes[d].quotient(weight / strides[d]).remainder(extent);
  return linear_index(axes, shape).quotient(weight).remainder(extent);
}

/// The slot of an operand behind a and b.
int further_slot(Body& product, Value* operand) {
  const auto known = std::find(product.operands.begin() + 2, product.operands.end(), operand);
  const int slot = static_cast<int>(known - product.operands.begin());
  if (known == product.operands.end()) product.operands.push_back(operand);
  return slot;
}

/// Puts the kernel's statements behind those of the product, over its axes; what reduces becomes 0, and nothing that is taken reads
/// it. Whether all that reads the sum reads it at its own element.
bool append_maps(const TensorType& type, const Value* sum, const Body& body, const Digits& digits, Body& product) {
  const Index own = linear_index(axes_of_shape(type.shape), type.shape);
  const DType sum_type = compute_type(type.dtype);
  const std::vector<int> axes = product.nest.statements[0].axes;
  const int before = static_cast<int>(product.nest.statements.size());
  bool aligned = true;
  std::vector<int> slots(body.operands.size(), -1);
  TermRewriter rewriter;
  rewriter.axis = [&](int a, std::int64_t extent) {
    return digits.weights[at(a)] == 0 ? Index(0) : digit_of(type.shape, digits.weights[at(a)], extent);
  };
  rewriter.leaf = [&](const TermPtr& t) -> TermPtr {
    if (t->kind == Term::Kind::local) return local(t->dtype, t->slot + before);
    Value* operand = body.operands[at(t->slot)];
    if (!operand || operand == sum) {
      aligned = aligned && linear_index(t->indices, type.shape) == own;
      return operand ? local(sum_type, 0) : local(type.dtype, 1);
    }
    int& slot = slots[at(t->slot)];
    if (slot < 0) slot = further_slot(product, operand);
    return read(t->dtype, slot, t->indices);
  };
  for (const Statement& s : body.nest.statements) {
    const bool map = s.kind == Statement::Kind::map;
    product.nest.statements.push_back(map_over(axes, s.dtype, map ? rewriter(s.value) : literal(s.dtype, 0)));
  }
  return aligned;
}

// Its results.

void store(ProductAndRest& fused, int statement, const TensorType& type) {
  fused.product.nest.outputs.push_back({statement, axes_of_shape(type.shape)});
  fused.results.push_back(type);
}

/// What other readers get in place of the matmul: the sum rounded to its dtype, or the sum with the bias.
void store_sum(ProductAndRest& fused, const TensorType& type, bool with_bias) {
  std::vector<Statement>& statements = fused.product.nest.statements;
  int statement = with_bias ? 1 : 0;
  if (statements[at(statement)].dtype != type.dtype) {
    statements.push_back(map_over(std::vector(statements[0].axes), type.dtype, local(statements[0].dtype, 0)));
    statement = static_cast<int>(statements.size()) - 1;
  }
  store(fused, statement, type);
  fused.keeps_sum = true;
}

/// Statement 0 and the first two operands stay, whether anything reads them or not.
void prune_maps(Body& product) {
  const Value *a = product.operands[0], *b = product.operands[1];
  product.nest.outputs.insert(product.nest.outputs.begin(), {0, {}});
  product.prune();
  product.nest.outputs.erase(product.nest.outputs.begin());
  // One value may be both operands of a product.
  if (product.operands.size() < 2 || product.operands[0] != a || product.operands[1] != b)
    throw InternalError("a product lost its operands");
}

// What is left of the kernel.

/// Reads the taken result where it was computed; nothing where it needs the sum besides.
std::optional<Body> rest_of(const Node& kernel, const Body& body, const ResultSplit& split, const Value* sum) {
  const LoopOutput& output = body.nest.outputs[split.taken[0]];
  Body rest = body;
  const int slot = static_cast<int>(rest.operands.size());
  rest.operands.push_back(kernel.results[split.taken[0]]);
  TermRewriter stored;
  stored.leaf = [&](const TermPtr& t) {
    const bool is_it = t->kind == Term::Kind::local && t->slot == output.statement;
    return is_it ? read(t->dtype, slot, output.index) : TermPtr();
  };
  for (Statement& statement : rest.nest.statements) statement.value = stored(statement.value);
  rest.nest.outputs.clear();
  for (std::size_t o : split.left) rest.nest.outputs.push_back(body.nest.outputs[o]);
  rest.prune();
  const bool reads_sum = std::ranges::any_of(rest.operands, [&](const Value* operand) { return !operand || operand == sum; });
  return reads_sum ? std::nullopt : std::optional(std::move(rest));
}

}  // namespace

std::optional<ProductAndRest> fused_product(const Node& matmul, const Node& kernel, const Body& body, const SumReaders& sum) {
  const TensorType& type = matmul.result()->type;
  const std::optional<ResultSplit> split = split_results(kernel, body.nest, type.elements());
  if (!split) return std::nullopt;
  ProductAndRest fused{.product = sum_of_products(matmul, sum.bias), .results = {}, .taken = split->taken, .rest = {}};
  const int before = static_cast<int>(fused.product.nest.statements.size());
  if (!append_maps(type, matmul.result(), body, split->digits, fused.product)) return std::nullopt;
  for (std::size_t o : split->taken)
    store(fused, body.nest.outputs[o].statement + before, {kernel.results[o]->type.dtype, type.shape});
  if (sum.keeps_sum) store_sum(fused, type, sum.bias != nullptr);
  prune_maps(fused.product);
  if (split->left.empty()) return fused;
  fused.rest = rest_of(kernel, body, *split, matmul.result());
  return fused.rest ? std::optional(std::move(fused)) : std::nullopt;
}

}  // namespace gcomp::passes
