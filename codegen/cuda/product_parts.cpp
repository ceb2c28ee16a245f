#include "codegen/cuda/product_parts.h"

#include <algorithm>

#include "codegen/cuda/target.h"
#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "ir/product.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

std::size_t result_for_sums(const Node& product, const std::optional<LibraryEpilogue>& library) {
  if (library) return static_cast<std::size_t>(library->result);
  const DType dtype = product.operands[0]->type.dtype;
  std::optional<std::size_t> found;
  for (std::size_t o = 0; o < product.results.size(); ++o) {
    if (product.results[o]->type.dtype != dtype) continue;
    if (stored_statement(*product.nest, o) == 0) return o;
    if (!found) found = o;
  }
  check_internal(found.has_value(), "no result of a product has its dtype");
  return *found;
}

/// The product is its first result; `after` sums the operand.
void take_sum(const Node& product, int summed, ProductParts& parts) {
  const Value* operand = product.operands[static_cast<std::size_t>(summed)];
  const TensorType types[] = {operand->type, product.results[1]->type};
  const Index& first = product.nest->statements[1].value->indices[0];
  const std::int64_t along_k = first == product.nest->axis(2) ? 0 : 1;
  parts.sums = product.results[0];
  parts.after = loops_of(ops::kReduceSum, {&types[0], 1}, {&types[1], 1}, {{"axes", std::vector{along_k}}});
  parts.operands = {operand};
  parts.results = {product.results[1]};
}

}  // namespace

bool fits_product_kernel(const ProductParts& parts) {
  if (parts.whole.statements.empty()) return false;
  // What crowds out registers is how many values there are, not what each costs.
  constexpr int kMostCalls = 16;  // GELU with a bias has 11, its gradient twice as many
  int calls = 0;
  for (const Statement& statement : parts.whole.statements)
    for_each_term(statement.value, [&](const TermPtr& term) { calls += term->kind == Term::Kind::call; });
  return calls <= kMostCalls;
}

ProductParts take_apart(const Node& product, const runtime::Target& target) {
  const LoopNest& nest = *product.nest;
  ProductParts parts;
  parts.library = library_epilogue(nest, types_of(product.operands), types_of(product.results));
  if (parts.library && is_gelu(parts.library->kind) && !library_has_gelu(target)) parts.library.reset();
  if (const auto summed = summed_operand(nest)) {
    take_sum(product, *summed, parts);
    return parts;
  }
  const std::size_t sums = result_for_sums(product, parts.library);
  parts.sums = product.results[sums];
  parts.operands.assign(product.operands.begin() + 1, product.operands.end());
  parts.operands[0] = parts.sums;
  const TensorType& type = parts.sums->type;
  parts.after.extents = type.shape;
  TermRewriter renumber;
  renumber.leaf = [](const TermPtr& t) {
    return t->kind == Term::Kind::read ? read(t->dtype, t->slot - 1, t->indices) : TermPtr();
  };
  for (const Statement& statement : nest.statements) {
    Statement moved = statement;
    if (parts.after.statements.empty()) {
      moved = Statement();
      moved.dtype = statement.dtype;
      moved.axes = statement.axes;
      moved.value = read(type.dtype, 0, axes_of_shape(type.shape));
    } else {
      moved.value = renumber(statement.value);
    }
    parts.after.statements.push_back(std::move(moved));
  }
  parts.whole = parts.after;
  parts.whole.outputs = nest.outputs;
  for (std::size_t o = 0; o < nest.outputs.size(); ++o) {
    if (o == sums && stored_statement(nest, o) == 0) continue;
    parts.after.outputs.push_back(nest.outputs[o]);
    parts.results.push_back(product.results[o]);
  }
  return parts;
}

runtime::LibraryEpilogue over_buffers(const LibraryEpilogue& epilogue, const Node& product, const BufferOf& buffer_of) {
  using runtime::EpilogueKind;
  const auto buffer = [&](const std::vector<Value*>& values, const std::optional<int>& at) {
    return at ? std::optional(buffer_of(values[static_cast<std::size_t>(*at)])) : std::nullopt;
  };
  const std::vector<Value*>& biases = runtime::is_bias_gradient(epilogue.kind) ? product.results : product.operands;
  const std::vector<Value*>& aux = epilogue.kind == EpilogueKind::gelu ? product.results : product.operands;
  return {epilogue.kind, buffer(biases, epilogue.bias), buffer(aux, epilogue.aux)};
}

}  // namespace gcomp::codegen::cuda
