#include "ir/product.h"

#include <algorithm>

#include "ir/nest/loops.h"
#include "ir/ops/table.h"

namespace gcomp::ir {
namespace {

std::vector<std::string> bias_gradient_violations(const Node& product, int summed) {
  if (product.operands.size() != 2) return {"a product that sums an operand has no others"};
  try {
    const LoopNest wanted = bias_gradient_nest(product.operands[0]->type, product.operands[1]->type, product.attributes, summed);
    const std::vector<std::int64_t>& extents = wanted.extents;
    if (*product.nest == wanted && product.results[0]->type.shape == Shape{extents[0], extents[1]} &&
        product.results[1]->type.shape == Shape{extents[static_cast<std::size_t>(summed)]})
      return {};
  } catch (const UserError& error) { return {error.what()}; }
  return {concat("it is not the product that sums operand ", summed, " over k")};
}

}  // namespace

LoopNest product_nest(const TensorType& a, const TensorType& b, const Attributes& attributes) {
  const TensorType operands[] = {a, b};
  std::vector<TensorType> results = infer_types(ops::kMatmul, operands, attributes);
  LoopNest nest = loops_of(ops::kMatmul, operands, results, attributes);
  nest.statements[0].dtype = compute_type(results[0].dtype);
  nest.outputs.clear();
  return nest;
}

LoopNest bias_gradient_nest(const TensorType& a, const TensorType& b, const Attributes& attributes, int summed) {
  LoopNest nest = product_nest(a, b, attributes);
  if (nest.extents.size() != 3) throw UserError("a bias gradient is taken of matrices, not of a batch of them");
  const Statement product = nest.statements[0];
  Statement sum = product;
  sum.dtype = a.dtype;
  sum.axes = {summed};
  sum.value = product.value->arguments[static_cast<std::size_t>(summed)];
  nest.statements.push_back(std::move(sum));
  if (product.dtype != a.dtype) {
    Statement rounded;
    rounded.dtype = a.dtype;
    rounded.axes = product.axes;
    rounded.value = local(product.dtype, 0);
    nest.statements.push_back(std::move(rounded));
  }
  nest.outputs = {{product.dtype != a.dtype ? 2 : 0, {nest.axis(0), nest.axis(1)}}, {1, {nest.axis(summed)}}};
  return nest;
}

std::optional<int> summed_operand(const LoopNest& nest) {
  if (nest.statements.size() < 2) return std::nullopt;
  const Statement& sum = nest.statements[1];
  const bool found = sum.kind == Statement::Kind::reduce && sum.value->kind == Term::Kind::read && sum.value->slot < 2;
  return found ? std::optional(sum.value->slot) : std::nullopt;
}

std::vector<std::string> product_violations(const Node& product) {
  std::vector<std::string> found;
  if (product.operands.size() < 2 || product.results.empty()) return {"a product has two operands and a result at least"};
  const LoopNest& nest = *product.nest;
  LoopNest wanted, sum = nest;
  try {
    wanted = product_nest(product.operands[0]->type, product.operands[1]->type, product.attributes);
  } catch (const UserError& error) { return {error.what()}; }
  sum.statements.resize(std::min<std::size_t>(1, sum.statements.size()));
  sum.outputs.clear();
  if (!(sum == wanted)) return {"statement 0 is not the sum of products of the first two operands"};
  if (const auto summed = summed_operand(nest)) return bias_gradient_violations(product, *summed);
  const Shape shape(wanted.extents.begin(), wanted.extents.end() - 1);
  for (std::size_t s = 1; s < nest.statements.size(); ++s)
    if (nest.statements[s].kind != Statement::Kind::map || nest.statements[s].axes != wanted.statements[0].axes)
      found.push_back(concat("t", s, " is no map over the product's elements"));
  for (std::size_t o = 0; o < nest.outputs.size(); ++o)
    if (product.results[o]->type.shape != shape || !(nest.outputs[o].index == axes_of_shape(shape)) || nest.outputs[o].accumulate)
      found.push_back(concat("result ", o, " is not stored element by element"));
  return found;
}

int stored_statement(const LoopNest& nest, std::size_t output) {
  int number = nest.outputs[output].statement;
  while (number > 0 && nest.statements[static_cast<std::size_t>(number)].value->kind == Term::Kind::local)
    number = nest.statements[static_cast<std::size_t>(number)].value->slot;
  return number;
}

bool keeps_sums(const Node& product) {
  for (std::size_t o = 0; o < product.results.size(); ++o)
    if (product.results[o]->type.dtype == product.operands[0]->type.dtype && stored_statement(*product.nest, o) == 0) return true;
  return false;
}

}  // namespace gcomp::ir
