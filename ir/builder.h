// Builds graphs. A Var (gcomp/var.h) is a value with the graph it lives in, so that gradient rules and importers read as algebra:
//   g.add(0, g.dy() * kCos(g.operand(0)));
// Nothing broadcasts implicitly: operands of an arithmetic operator have equal types; numbers become constants of the type
// of the other operand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/var.h"
#include "ir/graph.h"

namespace gcomp::ir {

using gcomp::Var;

class Builder {
 public:
  /// `run`: of what the user wrote in C++ that makes Vars by this builder (ir/definition_run.h).
  explicit Builder(Graph& graph, SharedText origin = {}, std::uint64_t run = 0)
      : graph_(&graph), origin_(std::move(origin)), run_(run) {}

  Graph& graph() { return *graph_; }
  const std::string& origin() const { return origin_; }
  void set_origin(SharedText origin) { origin_ = std::move(origin); }

  Var wrap(Value* value) { return {value, {this, run_}}; }
  /// Throws UserError, beginning with `where`, for a Var of another model.
  void require_own(std::string_view where, Var value) const;
  Var input(TensorType type, std::string name, Role role = Role::array) {
    return wrap(graph_->add_input(std::move(type), std::move(name), role));
  }
  Var apply(const OpDef& op, std::vector<Var> operands, Attributes attributes = {}, std::string name = {});
  std::vector<Var> apply_many(const OpDef& op, std::vector<Var> operands, Attributes attributes = {});

  Var constant(Tensor tensor);
  /// Every element is `value`.
  Var full(TensorType type, double value);
  Var like(Var x, double value) { return full(x.type(), value); }

  // Views.
  /// Operand dimension d becomes dimension axes[d] of `shape`; the rest repeats. Sizes are equal or 1.
  Var broadcast(Var x, Shape shape, std::vector<std::int64_t> axes);
  /// NumPy's rule: trailing dimensions are aligned.
  Var broadcast(Var x, Shape shape);
  Var reshape(Var x, Shape shape);
  Var transpose(Var x, std::vector<std::int64_t> permutation);
  /// Swaps the last two axes.
  Var transpose_last(Var x);
  /// Element start + i * step along each axis; `sizes` is the result's shape. Steps may be negative.
  Var slice(Var x, std::vector<std::int64_t> starts, std::vector<std::int64_t> sizes, std::vector<std::int64_t> steps);
  /// One axis only, step 1.
  Var slice_axis(Var x, std::int64_t axis, std::int64_t start, std::int64_t size);
  Var pad(Var x, std::vector<std::int64_t> low, std::vector<std::int64_t> high, double value);
  Var concat(std::vector<Var> parts, std::int64_t axis);

  // Reductions drop their axes; keep_dims puts them back as 1.
  Var reduce(const OpDef& op, Var x, std::vector<std::int64_t> axes, bool keep_dims = false);
  Var sum(Var x, std::vector<std::int64_t> axes, bool keep_dims = false);
  Var max(Var x, std::vector<std::int64_t> axes, bool keep_dims = false);
  Var mean(Var x, std::vector<std::int64_t> axes, bool keep_dims = false);
  /// Repeats a reduced value over the axes it lost, back to `shape`.
  Var unreduce(Var x, const Shape& shape, const std::vector<std::int64_t>& axes);

  Var matmul(Var a, Var b, bool transpose_a = false, bool transpose_b = false);
  /// `padding_index`: the index that gives no gradient; -1 for none.
  Var gather(Var data, Var indices, std::int64_t axis, std::int64_t padding_index = -1);
  Var iota(TensorType type, std::int64_t axis);
  Var cast(Var x, DType to);
  Var select(Var condition, Var a, Var b);
  void update(Value* state, Var value);

 private:
  std::vector<Value*> values_of(const OpDef& op, const std::vector<Var>& operands) const;

  Graph* graph_;
  SharedText origin_;
  std::uint64_t run_;
};

/// What a gradient rule sees of one node.
class GradientContext {
 public:
  GradientContext(Builder& builder, Node& node, std::vector<Var> result_gradients)
      : builder_(builder), node_(node), result_gradients_(std::move(result_gradients)), gradients_(node.operands.size()) {}

  Builder& builder() { return builder_; }
  const Node& node() const { return node_; }
  const Attributes& attributes() const { return attributes_; }
  /// Operands, results and their gradients are dense: a rule knows nothing of views.
  Var operand(std::size_t i);
  Var result(std::size_t i = 0);
  /// Gradient of the loss with respect to result i; zeros where nothing depends on it.
  Var dy(std::size_t i = 0);
  bool has_dy(std::size_t i) const { return static_cast<bool>(result_gradients_[i]); }
  /// Whether anybody needs the gradient of operand i.
  bool wants(std::size_t i) const { return wanted_.empty() || wanted_[i]; }
  void set_wanted(std::vector<bool> wanted) { wanted_ = std::move(wanted); }
  void set_attributes(Attributes attributes);
  /// Contributes to the gradient of operand i.
  void add(std::size_t i, Var gradient);
  const std::vector<Var>& gradients() const { return gradients_; }

 private:
  Builder& builder_;
  Node& node_;
  Attributes attributes_;
  std::vector<Var> result_gradients_;
  std::vector<Var> gradients_;
  std::vector<bool> wanted_;
};

/// What an expansion sees of one composite node.
class ExpandContext {
 public:
  ExpandContext(Builder& builder, const Node& node, Attributes attributes);
  Builder& builder() { return builder_; }
  const Attributes& attributes() const { return attributes_; }
  /// Dense: an expansion knows nothing of views.
  Var operand(std::size_t i);
  bool has(std::size_t i) const { return i < node_.operands.size() && node_.operands[i]; }
  const TensorType& result_type(std::size_t i = 0) const { return node_.results[i]->type; }

 private:
  Builder& builder_;
  const Node& node_;
  Attributes attributes_;
};

namespace ops {

inline Var choose(Var condition, Var x, Var y) { return x.builder->select(condition, x, y); }
inline Var choose(Var condition, Var x, double y) { return choose(condition, x, x.builder->like(x, y)); }

/// 1 for each label, but 0 for those that are `ignored`.
inline Var kept_rows(Builder& b, Var labels, std::int64_t ignored, DType dtype) {
  return choose(labels == b.like(labels, static_cast<double>(ignored)), b.full({dtype, labels.shape()}, 0),
                b.full({dtype, labels.shape()}, 1));
}

/// The last `count` axes of a value of this rank.
std::vector<std::int64_t> last_axes(std::int64_t rank, std::size_t count);
/// The windows of max pooling, [..., positions..., kernel...]; padding never wins. Attributes as max_pool's.
Var pool_windows(Builder& b, Var x, const Attributes& attributes);

}  // namespace ops
}  // namespace gcomp::ir
