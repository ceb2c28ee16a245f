#include "ir/matrices.h"

#include <algorithm>

#include "ir/nest/loops.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"

namespace gcomp::ir {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The result that holds a matrix or, from there on, what is no matrix.
std::size_t value_of(const OpDef& op, std::size_t made, const Attributes& attributes) {
  const Attribute* results = attributes.find(kResults);
  if (op.matrices.results == 0 || !results) return made;
  const auto& numbers = std::get<std::vector<std::int64_t>>(*results);
  if (numbers.empty()) return made;
  if (made < numbers.size()) return at(numbers[made]);
  return made - numbers.size() + at(*std::max_element(numbers.begin(), numbers.end())) + 1;
}

void check_results(const OpDef& op, const Attributes& attributes) {
  const Attribute* results = attributes.find(kResults);
  if (op.matrices.results == 0 || !results) return;
  const auto& numbers = std::get<std::vector<std::int64_t>>(*results);
  if (numbers.empty()) return;
  std::int64_t next = 0;
  bool ordered = numbers.size() == at(op.matrices.results);
  for (const std::int64_t number : numbers) {
    ordered = ordered && number >= 0 && number <= next;
    next += number == next;
  }
  check_user(ordered, op.name, ": results are [", ops::shown(numbers), "], wanted a number for each of ", op.matrices.results,
             " matrices, as they first occur");
}

void check_count(const OpDef& op, const Views& views, int most, std::string_view what) {
  check_user(views.size() <= at(most), op.name, ": ", views.size(), " views of ", what, "s, wanted at most ", most);
}

/// Of the matrices that one result holds. Each element must be written once.
TensorType stored_type(const OpDef& op, std::size_t value, DType dtype, const std::vector<std::optional<StridedView>>& parts,
                       const std::vector<Shape>& shapes) {
  std::int64_t elements = 0;
  for (const Shape& shape : shapes) elements += element_count(shape);
  std::vector<StridedView> views;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_user(parts[i].has_value(), op.name, ": result ", value, " holds more than one matrix, and one of them is no view");
    check_user(parts[i]->shape == shapes[i], op.name, ": view ", to_string(*parts[i]), " of result ", value, ", wanted the shape [",
               ops::shown(shapes[i]), "]");
    const std::string wrong = find_violation(*parts[i], elements);
    check_user(wrong.empty(), op.name, ": view ", to_string(*parts[i]), " of result ", value, " ", wrong);
    views.push_back(*parts[i]);
  }
  check_user(fill_once(views, elements), op.name, ": ", views.size() > 1 ? "the views of result " : "the view of result ", value,
             views.size() > 1 ? " do" : " does", " not write each of ", elements, " elements once");
  return {dtype, {elements}};
}

std::vector<Index> position_in(const StridedView& view, const std::vector<Index>& at, const Shape& shape) {
  return split_index(view.position(at), shape);
}

}  // namespace

bool has_views(const Attributes& attributes) {
  return attributes.find(kOperandViews) || attributes.find(kResultViews) || attributes.find(kResults);
}

Attributes without_views(Attributes attributes) {
  for (const std::string_view name : {kOperandViews, kResultViews, kResults}) attributes.erase(name);
  return attributes;
}

Matrices matrices_of(const Node& node) {
  const Views &operands = node.attributes.views(kOperandViews), &results = node.attributes.views(kResultViews);
  const auto matrix = [](const Views& views, std::size_t i, const Value& value, std::size_t held_in) {
    const StridedView* view = view_at(views, i);
    return Matrix{view ? view->shape : value.type.shape, held_in, view ? std::optional(*view) : std::nullopt};
  };
  Matrices made;
  for (std::size_t i = 0; i < at(node.op->matrices.operands); ++i)
    made.operands.push_back(matrix(operands, i, *node.operands[i], i));
  for (std::size_t i = 0; i < at(node.op->matrices.results); ++i) {
    const std::size_t value = value_of(*node.op, i, node.attributes);
    made.results.push_back(matrix(results, i, *node.results[value], value));
  }
  return made;
}

std::vector<TensorType> seen_types(const OpDef& op, std::span<const TensorType> operands, const Attributes& attributes) {
  std::vector<TensorType> seen(operands.begin(), operands.end());
  const Views& views = attributes.views(kOperandViews);
  check_count(op, views, op.matrices.operands, "operand");
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!views[i]) continue;
    const std::string wrong = find_violation(*views[i], operands[i].elements());
    check_user(wrong.empty(), op.name, ": view ", to_string(*views[i]), " of operand ", i, ", which is ", ops::shown(operands[i]),
               ", ", wrong);
    seen[i].shape = views[i]->shape;
  }
  return seen;
}

std::vector<TensorType> stored_types(const OpDef& op, const std::vector<TensorType>& seen, const Attributes& attributes) {
  const Views& views = attributes.views(kResultViews);
  check_count(op, views, op.matrices.results, "result");
  check_results(op, attributes);
  std::vector<TensorType> types;
  for (std::size_t first = 0; first < seen.size(); ++first) {
    const std::size_t value = value_of(op, first, attributes);
    if (value < types.size()) continue;  // with a matrix before
    std::vector<std::optional<StridedView>> parts;
    std::vector<Shape> shapes;
    for (std::size_t i = first; i < seen.size(); ++i) {
      if (value_of(op, i, attributes) != value) continue;
      const StridedView* view = view_at(views, i);
      parts.push_back(view ? std::optional(*view) : std::nullopt);
      shapes.push_back(seen[i].shape);
    }
    const bool dense = parts.size() == 1 && !parts[0];
    types.push_back(dense ? seen[first] : stored_type(op, value, seen[first].dtype, parts, shapes));
  }
  return types;
}

LoopNest through_views(LoopNest nest, std::span<const TensorType> operands, std::span<const TensorType> results,
                       const Attributes& attributes) {
  const Views &operand_views = attributes.views(kOperandViews), &result_views = attributes.views(kResultViews);
  TermRewriter rewriter;
  rewriter.leaf = [&](const TermPtr& leaf) {
    const StridedView* view = leaf->kind == Term::Kind::read ? view_at(operand_views, at(leaf->slot)) : nullptr;
    return view ? read(leaf->dtype, leaf->slot, position_in(*view, leaf->indices, operands[at(leaf->slot)].shape)) : TermPtr();
  };
  for (Statement& statement : nest.statements) statement.value = rewriter(statement.value);
  for (std::size_t o = 0; o < nest.outputs.size(); ++o)
    if (const StridedView* view = view_at(result_views, o))
      nest.outputs[o].index = position_in(*view, nest.outputs[o].index, results[o].shape);
  return nest;
}

Var dense(Builder& b, Var value, const StridedView* view) {
  return view ? b.gather(b.reshape(value, {value.type().elements()}), b.constant(view->positions()), 0) : value;
}

Var scattered(Builder& b, Var matrix, const StridedView* view, const TensorType& value) {
  if (!view) return matrix;
  Var flat =
      b.apply(ops::kScatterAdd, {b.constant(view->positions()), matrix}, {{"axis", std::int64_t{0}}, {"size", value.elements()}});
  return b.reshape(flat, value.shape);
}

std::vector<Value*> stored(Builder& b, const Node& node, const std::vector<Value*>& made) {
  if (!node.attributes.find(kResultViews)) return made;
  const Views& views = node.attributes.views(kResultViews);
  std::vector<Value*> values;
  for (std::size_t value = 0; value < node.results.size(); ++value) {
    std::vector<Var> parts;
    std::vector<std::int64_t> positions;
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (value_of(*node.op, i, node.attributes) != value) continue;
      const StridedView* view = view_at(views, i);
      Var part = b.wrap(made[i]);
      parts.push_back(view ? b.reshape(part, {part.type().elements()}) : part);
      if (!view) continue;
      const std::vector<std::int64_t> more = view->positions().to_integers();
      positions.insert(positions.end(), more.begin(), more.end());
    }
    if (positions.empty()) {
      values.push_back(parts[0].value);
      continue;
    }
    std::vector<std::int64_t> sources(positions.size());
    for (std::size_t i = 0; i < positions.size(); ++i) sources[at(positions[i])] = static_cast<std::int64_t>(i);
    Var together = parts.size() == 1 ? parts[0] : b.concat(parts, 0);
    values.push_back(b.gather(together, b.constant(Tensor::of_integers(sources)), 0).value);
  }
  return values;
}

}  // namespace gcomp::ir
