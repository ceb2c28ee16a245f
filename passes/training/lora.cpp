#include "passes/training/lora.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;

std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The same elements under another shape; nothing where no strides give that.
std::optional<StridedView> reshaped(const StridedView& view, const Shape& shape) {
  StridedView from, made{shape, Integers(shape.size(), 0)};
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) continue;
    from.shape.push_back(view.shape[i]);
    from.strides.push_back(view.strides[i]);
  }
  for (std::size_t begin = 0, to = 0; begin < from.shape.size();) {
    if (shape[to] == 1) {
      ++to;
      continue;
    }
    // The fewest dimensions of both that have as many elements.
    std::size_t end = begin + 1, to_end = to + 1;
    for (std::int64_t have = from.shape[begin], want = shape[to]; have != want;)
      if (have < want) have *= from.shape[end++];
      else want *= shape[to_end++];
    for (std::size_t i = begin; i + 1 < end; ++i)
      if (from.strides[i] != from.strides[i + 1] * from.shape[i + 1]) return std::nullopt;
    std::int64_t stride = from.strides[end - 1];
    for (std::size_t i = to_end; i-- > to; stride *= shape[i]) made.strides[i] = shape[i] == 1 ? 0 : stride;
    begin = end;
    to = to_end;
  }
  return made;
}

StridedView transposed(const StridedView& view, const Integers& permutation) {
  StridedView made;
  for (const std::int64_t axis : permutation) {
    made.shape.push_back(view.shape[place(axis)]);
    made.strides.push_back(view.strides[place(axis)]);
  }
  return made;
}

StridedView broadcast(const StridedView& view, const Integers& axes, const Shape& shape) {
  StridedView made{shape, Integers(shape.size(), 0)};
  for (std::size_t i = 0; i < axes.size(); ++i) made.strides[place(axes[i])] = view.shape[i] == 1 ? 0 : view.strides[i];
  return made;
}

/// What a node that only moves or converts a parameter's elements makes of a view of it.
std::optional<StridedView> seen_through(const Node& node, const StridedView& view) {
  if (is_cast(*node.op)) return view;
  if (node.op == &ops::kReshape) return reshaped(view, node.result()->type.shape);
  if (node.op == &ops::kTranspose) return transposed(view, node.attributes.integers("permutation"));
  if (node.op == &ops::kBroadcast) return broadcast(view, node.attributes.integers("axes"), node.result()->type.shape);
  return std::nullopt;
}

/// The weight of a product with a matrix: which operand it is decides whether rows or columns are outputs.
std::optional<MapWeight> weight_of_matmul(const Node& node, std::size_t operand, const StridedView& view) {
  const bool swapped = with_defaults(*node.op, node.attributes).flag(operand == 0 ? "transpose_a" : "transpose_b");
  std::size_t output = view.shape.size() - (operand == 0 ? 2 : 1), input = view.shape.size() - (operand == 0 ? 1 : 2);
  if (swapped) std::swap(output, input);
  for (std::size_t i = 0; i + 2 < view.shape.size(); ++i)
    if (view.strides[i] != 0 && view.shape[i] != 1) return std::nullopt;  // a matrix for each of a batch
  return MapWeight{{view.shape[output], view.shape[input]}, {view.strides[output], view.strides[input]}};
}

/// Whether the weight has each of the parameter's elements once.
bool covers(const MapWeight& weight, const Value* parameter) {
  if (element_count(weight.shape) != parameter->type.elements()) return false;
  for (std::size_t i = 0; i < weight.shape.size(); ++i)
    if (weight.shape[i] > 1 && weight.strides[i] == 0) return false;
  return true;
}

/// A parameter's elements as a value shows them.
struct Shown {
  std::size_t parameter = 0;
  StridedView view;
};

/// Follows parameters through the nodes of a graph to the products that read them.
class AdapterSearch {
 public:
  AdapterSearch(const Graph& graph, std::span<Value* const> parameters) : parameters_(parameters), found_(parameters.size()) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      StridedView dense = StridedView::dense(parameters[i]->type.shape);
      for (std::size_t d = 0; d < dense.shape.size(); ++d)
        if (dense.shape[d] == 1) dense.strides[d] = 0;
      shown_[parameters[i]] = {i, std::move(dense)};
      if (parameters[i]->type.elements() == 0) found_[i].obstacle = "it has no elements";
    }
    for (const auto& node : graph.nodes()) visit(*node);
    for (const Value* output : graph.outputs())
      if (const Shown* shown = shown_at(output)) refuse(*shown, "it is an output of the model");
    for (std::size_t i = 0; i < found_.size(); ++i) {
      if (!found_[i].weight && found_[i].obstacle.empty()) found_[i].obstacle = "nothing reads it";
      if (!found_[i].obstacle.empty()) found_[i].weight.reset();
    }
  }

  std::vector<Adaptability> take() { return std::move(found_); }
  const Shown* shown_at(const Value* value) const {
    const auto found = shown_.find(value);
    return found == shown_.end() ? nullptr : &found->second;
  }

 private:
  void refuse(const Shown& shown, std::string reason) {
    if (found_[shown.parameter].obstacle.empty()) found_[shown.parameter].obstacle = std::move(reason);
  }

  void visit(const Node& node) {
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const Shown* shown = shown_at(node.operands[i]);
      if (!shown) continue;
      if (node.op->kind == Kind::contract) note_product(node, i, *shown);
      else if (auto view = seen_through(node, shown->view)) shown_[node.result()] = {shown->parameter, std::move(*view)};
      else refuse(*shown, obstacle_of(node));
    }
  }

  static std::string obstacle_of(const Node& node) {
    if (node.op->looks_up) return concat("it is looked up (", node.op->name, ")");
    if (node.op == &ops::kLayerNorm || node.op == &ops::kBatchNorm) return concat("it belongs to a norm (", node.op->name, ")");
    return concat("it is read by ", node.op->name, ", not by a matrix product or convolution alone");
  }

  void note_product(const Node& node, std::size_t operand, const Shown& shown) {
    if (node.op == &ops::kMatmul) {
      if (shown_at(node.operands[1 - operand])) return refuse(shown, "it is multiplied with another parameter");
      return note_weight(shown, weight_of_matmul(node, operand, shown.view));
    }
    if (node.op != &ops::kConvolution || operand != 1)
      return refuse(shown,
                    node.op == &ops::kConvolution ? "it is the image of a convolution" : "it is of a transposed convolution");
    const Attributes attributes = with_defaults(*node.op, node.attributes);
    if (attributes.integer("groups") != 1)
      return refuse(shown, concat("it is of a convolution in ", attributes.integer("groups"),
                                  " groups, into whose weight an adapter could not be merged"));
    note_weight(shown, shown.view);
  }

  void note_weight(const Shown& shown, const std::optional<MapWeight>& weight) {
    std::optional<MapWeight>& known = found_[shown.parameter].weight;
    if (!weight) return refuse(shown, "it is a matrix for each of a batch");
    if (!covers(*weight, parameters_[shown.parameter])) return refuse(shown, "a product reads a part of it");
    found_[shown.parameter].some_use = true;
    if (known && *known != *weight) return refuse(shown, "two products read it in different ways");
    known = weight;
  }

  std::span<Value* const> parameters_;
  std::vector<Adaptability> found_;
  std::unordered_map<const Value*, Shown> shown_;
};

/// What an adapter adds to one product.
class Branch {
 public:
  Branch(Builder& builder, const Node& node, std::size_t operand, const Adapter& adapter)
      : builder_(builder),
        node_(node),
        operand_(operand),
        adapter_(adapter),
        attributes_(with_defaults(*node.op, node.attributes)) {}

  Var operator()() { return (node_.op == &ops::kConvolution ? of_convolution() : of_matmul()) * adapter_.scale; }

 private:
  Var factor(Value* state) { return builder_.cast(builder_.wrap(state), node_.result()->type.dtype); }

  /// The matrix for each of the product's batch.
  Var spread(Value* state) {
    Var matrix = factor(state);
    Shape shape(node_.result()->type.shape.begin(), node_.result()->type.shape.end() - 2);
    if (shape.empty()) return matrix;
    shape.insert(shape.end(), matrix.shape().begin(), matrix.shape().end());
    return builder_.broadcast(matrix, shape);
  }

  Var of_matmul() {
    Var x = builder_.wrap(node_.operands[1 - operand_]);
    if (operand_ == 1) {
      Var low = builder_.matmul(x, spread(adapter_.a), attributes_.flag("transpose_a"), true);
      return builder_.matmul(low, spread(adapter_.b), false, true);
    }
    Var low = builder_.matmul(spread(adapter_.a), x, false, attributes_.flag("transpose_b"));
    return builder_.matmul(spread(adapter_.b), low);
  }

  Var of_convolution() {
    Var low = builder_.apply(ops::kConvolution, {builder_.wrap(node_.operands[0]), factor(adapter_.a)}, node_.attributes);
    const std::size_t axes = node_.result()->type.shape.size() - 2;
    const Integers ones(axes, 1), zeros(axes, 0);
    return builder_.apply(ops::kConvolution, {low, factor(adapter_.b)},
                          {{"strides", ones}, {"low", zeros}, {"high", zeros}, {"dilations", ones}});
  }

  Builder& builder_;
  const Node& node_;
  std::size_t operand_;
  const Adapter& adapter_;
  Attributes attributes_;
};

}  // namespace

std::vector<Adaptability> adaptability(const Graph& forward, std::span<Value* const> parameters) {
  return AdapterSearch(forward, parameters).take();
}

Shape shape_of_a(const MapWeight& weight, std::int64_t rank) {
  Shape shape = weight.shape;
  shape[0] = rank;
  return shape;
}

Shape shape_of_b(const MapWeight& weight, std::int64_t rank) {
  Shape shape(weight.shape.size(), 1);
  shape[0] = weight.shape[0];
  shape[1] = rank;
  return shape;
}

void attach_adapters(Graph& forward, std::span<const Adapter> adapters) {
  std::vector<Value*> parameters;
  for (const Adapter& adapter : adapters) parameters.push_back(adapter.parameter);
  const AdapterSearch search(forward, parameters);
  rewrite(forward, [&](Node& node, Builder& builder) -> std::optional<std::vector<Value*>> {
    if (node.op->kind != Kind::contract) return std::nullopt;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const Shown* shown = search.shown_at(node.operands[i]);
      if (!shown) continue;
      const Var base = builder.wrap(forward.append(*node.op, node.operands, node.attributes, node.origin)->result());
      return std::vector<Value*>{(base + Branch(builder, node, i, adapters[shown->parameter])()).value};
    }
    return std::nullopt;
  });
}

}  // namespace gcomp::passes
