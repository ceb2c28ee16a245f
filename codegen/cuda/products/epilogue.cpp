#include "codegen/cuda/products/epilogue.h"

#include "codegen/cuda/device_kernel.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

/// The nest over two axes, rows and columns, with linear reads and stores.
FlatNest over_rows(const LoopNest& after, std::span<const TensorType> operands, std::span<const TensorType> results) {
  const Shape& shape = operands[0].shape;
  const Shape strides = row_major_strides(shape);
  const int last = static_cast<int>(shape.size()) - 1;
  const std::int64_t columns = shape.back(), rows = element_count(shape) / columns;
  FlatNest nest;
  nest.extents = {rows, columns};
  TermRewriter rewriter;
  rewriter.axis = [&](int a, std::int64_t extent) {
    if (a == last) return Index::axis(1, columns);
    return Index::axis(0, rows).quotient(strides[static_cast<std::size_t>(a)] / columns).remainder(extent);
  };
  rewriter.leaf = [&](const TermPtr& t) {
    if (t->kind != Term::Kind::read) return TermPtr();
    return read(t->dtype, t->slot, {linear_index(t->indices, operands[static_cast<std::size_t>(t->slot)].shape)});
  };
  for (const Statement& statement : after.statements) {
    Statement moved = statement;
    moved.axes = {0, 1};
    moved.value = rewriter(statement.value);
    nest.statements.push_back(std::move(moved));
  }
  for (std::size_t o = 0; o < after.outputs.size(); ++o) {
    std::vector<Index> at;
    for (const Index& index : after.outputs[o].index)
      at.push_back(index.substitute(rewriter.axis, [](const TermPtr& t) { return t; }));
    nest.stores.push_back({after.outputs[o].statement, static_cast<int>(o), linear_index(at, results[o].shape), false});
  }
  for (const TensorType& type : operands) nest.operands.push_back(type.dtype);
  for (const TensorType& type : results) {
    nest.results.push_back(type.dtype);
    nest.result_elements.push_back(type.elements());
  }
  return nest;
}

}  // namespace

EpilogueText epilogue_text(const LoopNest& after, std::span<const TensorType> operands, std::span<const TensorType> results) {
  const FlatNest nest = over_rows(after, operands, results);
  EpilogueText text;
  text.columns = nest.extents[1];
  for (std::size_t i = 1; i < operands.size(); ++i)
    text.parameters += concat(", const ", storage_type_text(operands[i].dtype), "* p", i);
  for (std::size_t i = 0; i < results.size(); ++i)
    text.parameters += concat(", ", storage_type_text(results[i].dtype), "* p", operands.size() + i);
  KernelWriter writer(nest, "gc_index");
  writer.bind_axis(0, "row");
  writer.bind_axis(1, "column");
  writer.bind_local(0, "sum");
  std::vector<std::string> stores;
  for (const Store& store : nest.stores) stores.push_back(writer.store(store, writer.statement(store.statement)));
  for (const std::string& store : stores) writer.line(store);
  text.lambda = concat("typedef ", needs_wide_indices(nest) ? "long long" : "int", " gc_index;\n",
                       "const auto epilogue = [=](gc_index row, gc_index column, ", compute_type_text(operands[0].dtype),
                       " sum) {\n", writer.finish(), "};\n");
  return text;
}

}  // namespace gcomp::codegen::cuda
