// What a row of the import tables sees of one ONNX node: its operands as values or constants, its attributes, a builder.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frontend/onnx/constant_folding.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/parameters.h"
#include "frontend/onnx/source.h"
#include "ir/builder.h"

namespace gcomp::frontend {

using ir::Builder;
using ir::Var;
using Integers = std::vector<std::int64_t>;

/// An ONNX value during import: something in the graph, a tensor known at import, or a sequence of values. A known tensor
/// enters the graph only when a row asks for it as a Var.
struct Item {
  Var var;
  std::shared_ptr<const Tensor> known;
  std::shared_ptr<const std::vector<Item>> sequence;
  bool missing = false;  ///< made by a node that could not be lowered; whoever reads it is only looked up
  bool single = false;   ///< known, and made of integers: f32 in PyTorch's code, whatever type the model has there and here

  explicit operator bool() const { return var || known || sequence || missing; }
  const TensorType& type() const { return known ? known->type() : var.type(); }
};

/// What a row returns: one item for each output, in order; outputs that it leaves out count as absent.
struct Items : std::vector<Item> {
  using std::vector<Item>::vector;
  Items(Var var) { push_back({var, nullptr, nullptr}); }  // NOLINT: rows return values
  Items(Tensor tensor) { push_back({{}, std::make_shared<const Tensor>(std::move(tensor)), nullptr}); }  // NOLINT
  Items(Item item) { push_back(std::move(item)); }                                                       // NOLINT
  static Items of(const std::vector<Var>& vars) {
    Items items;
    for (Var var : vars) items.push_back({var, nullptr, nullptr});
    return items;
  }
};

/// Whether `full`, which stores a double, gives every element of it.
bool is_uniform(const Tensor& tensor);

/// Tensors known at import as values of one graph, each made once. Uniform tensors become `full`.
class ConstantPool {
 public:
  explicit ConstantPool(Builder& builder) : builder_(builder) {}
  Var at(const std::shared_ptr<const Tensor>& tensor);

 private:
  Builder& builder_;
  std::unordered_map<const Tensor*, Var> made_;
  std::vector<std::shared_ptr<const Tensor>> kept_;
};

/// What all nodes of one import share.
struct ImportState {
  const ImportOptions& options;
  const Source& source;
  std::vector<std::string>& repairs;
  FormCounts& forms;
  /// Initializers and symbolic shapes that rows ask about.
  std::function<bool(const std::string& value, std::int64_t axis)> is_symbolic;
  /// Lowers a subgraph in place, its inputs bound to `inputs`.
  std::function<std::vector<Item>(const ::onnx::GraphProto&, const std::vector<Item>& inputs)> lower_graph;
  /// Throws UserError where so many rounds of a body would take the model above its limit of nodes.
  std::function<void(const ::onnx::NodeProto&, const ::onnx::GraphProto& body, std::int64_t rounds)> check_rounds;
  /// Numbers in [0, 1), f32, from the graph's random states; each call is another stream.
  std::function<Var(const Shape&)> draw_uniform;
  /// A batch that the file fixes, and the one that it is bound to instead.
  std::optional<std::pair<std::int64_t, std::int64_t>> rebatched;
  FoldBudget fold_budget{options.limits.folded_bytes};
  /// Batch norms that normalise by their running statistics even where the others train.
  std::unordered_set<const ::onnx::NodeProto*> frozen_norms = {};
  /// What this import makes of running statistics, each updated once when all nodes are lowered.
  struct MovedStatistic {
    ir::Value* state;
    Var next;
    std::string origin;
  };
  std::vector<MovedStatistic> statistics = {};
  /// An empty Var where nothing has moved it yet.
  Var moved_statistic(const ir::Value* state) const {
    const auto moved = std::find_if(statistics.begin(), statistics.end(), [&](const auto& s) { return s.state == state; });
    return moved == statistics.end() ? Var() : moved->next;
  }
  void move_statistic(ir::Value* state, Var next, const std::string& origin) {
    const auto moved = std::find_if(statistics.begin(), statistics.end(), [&](const auto& s) { return s.state == state; });
    if (moved == statistics.end()) statistics.push_back({state, next, origin});
    else *moved = {state, next, origin};
  }
  std::set<std::string> looked_up = {};  ///< states, see Parameter::looked_up
  /// Embeddings with a padding row: its index.
  std::unordered_map<const ::onnx::NodeProto*, std::int64_t> padding_indices = {};
  std::unordered_map<const ::onnx::NodeProto*, Kink> kinks = {};
  std::unordered_map<const ::onnx::NodeProto*, double> label_smoothing = {};
};

class NodeContext {
 public:
  NodeContext(const ::onnx::NodeProto& node, std::int64_t opset, std::vector<Item> inputs, Builder& builder,
              ConstantPool& constants, ConstantFolder& folder, ImportState& state)
      : node_(node),
        opset_(opset),
        inputs_(std::move(inputs)),
        builder_(builder),
        constants_(constants),
        folder_(folder),
        state_(state) {}

  Builder& b() { return builder_; }
  ImportState& state() { return state_; }
  const ImportOptions& options() const { return state_.options; }
  std::int64_t opset() const { return opset_; }
  const std::string& op() const { return node_.op_type(); }
  std::string name() const { return describe(node_); }
  const ::onnx::NodeProto& node() const { return node_; }
  void check_rounds(const ::onnx::GraphProto& body, std::int64_t rounds) const { state_.check_rounds(node_, body, rounds); }
  const std::string& input_name(std::size_t i) const { return node_.input(static_cast<int>(i)); }

  // Operands. One that could not be computed is an error as soon as a row looks at it, which the importer expects: whatever the row
  // refuses before that is wrong with the node itself.
  std::size_t inputs() const { return inputs_.size(); }
  bool has(std::size_t i) const { return i < inputs_.size() && static_cast<bool>(inputs_[i]); }
  const Item& item(std::size_t i) const;
  /// The same without the check that it is a tensor; an absent operand gives an empty item.
  Item any(std::size_t i) const { return has(i) ? present(i) : Item(); }
  Var var(std::size_t i);
  Var var(const Item& item);
  /// All operands in order.
  std::vector<Var> vars();
  const TensorType& type(std::size_t i) const { return item(i).type(); }
  const Shape& shape(std::size_t i) const { return type(i).shape; }
  std::int64_t rank(std::size_t i) const { return type(i).rank(); }
  /// The tensor where it is known at import, else null.
  const Tensor* known(std::size_t i) const { return has(i) ? present(i).known.get() : nullptr; }
  /// The tensor that must be known at import; `what` names it in the error, which says where it is constant but above a limit.
  const Tensor& known(std::size_t i, std::string_view what) const;
  /// What a row found not to be known, though it must be.
  [[noreturn]] void refuse_unknown(const Item& item, std::string_view what) const;
  /// The tensor where the value depends on no input and is small enough to fold, else null.
  std::shared_ptr<const Tensor> folded(Var var) { return folder_.value_of(var.value); }
  /// Elements of an operand that must be known at import; `what` names it in the error.
  Integers integers(std::size_t i, std::string_view what) const;
  double number(std::size_t i, std::string_view what) const;

  // Attributes. A wrong type is an error.
  bool has_attribute(std::string_view name) const { return find(name) != nullptr; }
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  bool flag(std::string_view name, bool otherwise = false) const { return integer(name, otherwise ? 1 : 0) != 0; }
  double real(std::string_view name, double otherwise) const;
  std::string text(std::string_view name, std::string_view otherwise) const;
  Integers integers(std::string_view name, Integers otherwise = {}) const;
  std::vector<double> reals(std::string_view name) const;
  Tensor tensor(std::string_view name) const;
  const ::onnx::GraphProto& graph(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;

  // Outputs.
  std::size_t outputs() const { return static_cast<std::size_t>(node_.output_size()); }
  bool has_frozen_statistics() const { return state_.frozen_norms.contains(&node_); }
  /// Of an embedding: the row that gets no gradient from it.
  std::optional<std::int64_t> padding_index() const {
    const auto found = state_.padding_indices.find(&node_);
    return found == state_.padding_indices.end() ? std::nullopt : std::optional(found->second);
  }
  /// Of a cross-entropy, in training form.
  double label_smoothing() const {
    const auto found = state_.label_smoothing.find(&node_);
    return found == state_.label_smoothing.end() ? 0 : found->second;
  }
  bool has_kink(Kink kink) const {
    const auto found = state_.kinks.find(&node_);
    return found != state_.kinks.end() && found->second == kink;
  }
  bool wants(std::size_t i) const { return i < outputs() && !node_.output(static_cast<int>(i)).empty(); }

  /// gcomp's type for an ONNX type number, after the options' float type.
  DType dtype_of(std::int64_t onnx_type) const;
  /// A tensor with floats converted to the options' float type.
  Tensor converted(Tensor tensor) const;
  /// `axis` in [0, rank), negative counting from the end.
  std::int64_t axis(std::int64_t axis, std::int64_t rank) const;
  /// The same for a list, sorted; a repeated axis is an error.
  Integers axes(Integers axes, std::int64_t rank) const;

  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    throw_user({op(), " '", name(), "': ", MessagePart(args)...});
  }
  template <class... Args>
  void require(bool condition, const Args&... args) const {
    if (!condition) fail(args...);
  }
  /// The node means something that gcomp cannot do: collected with all others of the file.
  template <class... Args>
  [[noreturn]] void unsupported(const Args&... args) const {
    throw_user({MessagePart(args)...}, ExitCode::unsupported);
  }
  /// Whether BatchNormalization or Dropout shall be in training form here; `form`: whether the file has it so.
  bool trains(bool form) const { return options().training || options().training_form || (options().as_written && form); }
  void repair(std::string line) { state_.repairs.push_back(std::move(line)); }

 private:
  const Item& present(std::size_t i) const {
    require(!inputs_[i].missing, "input ", i, " cannot be computed");
    return inputs_[i];
  }
  const ::onnx::AttributeProto* find(std::string_view name) const;
  const ::onnx::AttributeProto* find(std::string_view name, ::onnx::AttributeProto::AttributeType type) const;

  const ::onnx::NodeProto& node_;
  std::int64_t opset_;
  std::vector<Item> inputs_;
  Builder& builder_;
  ConstantPool& constants_;
  ConstantFolder& folder_;
  ImportState& state_;
};

/// The float type that an import gives to `dtype`: the options' one for any float.
DType import_dtype(const ImportOptions& options, DType dtype);
/// A tensor of the file in the import's float type. A float32 scalar that becomes f64 is read as the number that its author
/// most likely wrote (0.1, 1/sqrt(2), sqrt(48)), not as that number's float32 rounding.
Tensor import_tensor(const ImportOptions& options, Tensor tensor);
/// The shortest decimal, or the root or well-known constant, whose float32 rounding is `value`.
double intended_number(float value);

/// NumPy's broadcasting; a uniform constant stays a uniform constant.
Var broadcast_to(Var x, const Shape& shape);
Shape broadcast_shape(const NodeContext& n, const std::vector<Shape>& shapes);
std::vector<Var> broadcast_together(NodeContext& n, std::vector<Var> operands);
/// The root of a sum of squares: 0 where that is 0, and its gradient too, where that of sqrt is infinite.
Var root_of_squares(Var sum);
/// The number that every element equals, where x is `full`.
std::optional<double> uniform_value(Var x);

}  // namespace gcomp::frontend
