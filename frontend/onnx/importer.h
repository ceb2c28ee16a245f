// The lowering of one file to a graph: import.cpp binds inputs and outputs, import_states.cpp makes states of initializers,
// import_nodes.cpp walks the nodes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/formulas/random.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/node_context.h"
#include "frontend/onnx/parameters.h"
#include "frontend/onnx/rows.h"
#include "frontend/onnx/unsupported.h"

namespace gcomp::frontend {

/// Names of one graph, in front of those of the graphs around it.
struct Scope {
  const Scope* outer = nullptr;
  std::unordered_map<std::string, Item> items;

  const Item* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->outer)
      if (auto it = scope->items.find(name); it != scope->items.end()) return &it->second;
    return nullptr;
  }
};

class Importer {
 public:
  Importer(const OnnxFile& file, const ImportOptions& options);
  ImportedModel run();

 private:
  void note_symbolic_dimensions();
  void add_inputs(Scope& scope);
  void add_initializers(Scope& scope);
  /// Half-precision parameters and statistics have f32 masters, rounded where they are used.
  Item add_state(const PlannedState& planned, const std::shared_ptr<const Tensor>& values);
  /// A state of the rows that differ, and the file's table of them.
  Item add_table(const PlannedState& planned, const RepeatedRows& rows, const Tensor& table);
  void check_elements(const TensorType& type, const std::string& what) const;
  void lower_nodes(const ::google::protobuf::RepeatedPtrField<::onnx::NodeProto>& nodes, bool main);
  Item input_of(const ::onnx::NodeProto& node, int number, int operand) const;
  void bind_outputs(const ::onnx::NodeProto& node, std::vector<Item> items);
  /// Items of all outputs; `missing` ones where the node, or one before it, is not supported.
  std::vector<Item> lower(const ::onnx::NodeProto& node, const std::vector<Item>& inputs);
  static std::vector<Item> missing_items(int count);
  /// Nothing where the node cannot be lowered: it is refused, or some operand is missing. The latter is looked up all the same, so
  /// that one import names every node that is not supported by itself.
  std::optional<std::vector<Item>> lower_supported(const ::onnx::NodeProto& node, const std::vector<Item>& inputs);
  /// Names what is not supported in the subgraphs of a node that cannot be lowered.
  void look_into_subgraphs(const ::onnx::NodeProto& node);
  std::nullopt_t refuse(const ::onnx::NodeProto& node, const std::string& reason);
  /// The results of a node whose operands are all known, frozen parameters among them; nothing if that is above a limit. Nodes that
  /// are alike, as the masks of all layers, have them once.
  std::optional<std::vector<Item>> fold(const Row& row, const ::onnx::NodeProto& node, std::int64_t opset,
                                        const std::vector<Item>& inputs);
  /// Whether a node that is folded computes in f32 in PyTorch though the model is of f64 there: integers become f32, and what has
  /// one element beside them takes part as a number. Scalars stay as exact as they are.
  static bool is_single(const ::onnx::NodeProto& node, const std::vector<Item>& inputs);
  static void round_to_single(std::vector<Item>& items);
  /// Evaluates it, in a graph of its own.
  std::optional<std::vector<Item>> evaluate(const Row& row, const ::onnx::NodeProto& node, std::int64_t opset,
                                            const std::vector<Item>& inputs);
  /// Results that turn out to depend on no input: a cast to the type of one, say, or the outputs of a subgraph.
  void fold_results(std::vector<Item>& items);
  std::vector<Item> lower_subgraph(const ::onnx::GraphProto& graph, const std::vector<Item>& inputs);
  void update_statistics();
  /// A buffer becomes the first result of this node.
  void move_buffer(const ::onnx::NodeProto& node, const MovedBuffer& moved);
  /// A call of one of the file's own functions, lowered in place.
  std::vector<Item> call(const ::onnx::FunctionProto& function, const ::onnx::NodeProto& caller, const std::vector<Item>& inputs);
  /// Attributes that refer to the function's own take the caller's values; absent ones go.
  static void substitute_attributes(::onnx::NodeProto& node, const ::onnx::NodeProto& caller);
  const std::map<std::string, std::int64_t>& opsets() const { return opsets_.empty() ? source_.opsets : opsets_.back(); }
  /// Whether the output can be computed and is what `loss_outputs` ask for.
  bool is_loss_output(const std::string& name, const Item& item) const;
  /// Refuses what cannot be computed, but for outputs that the loss does not look at.
  void judge_unsupported(const Scope& scope);
  /// Throws with every node that is not supported and that `output` needs; "" for all of the file.
  void report_unsupported(const std::string& output);
  void add_outputs(const Scope& scope);
  /// Outputs have their ONNX names, even where some other value has taken one.
  void name_output(ir::Value* value, const std::string& name, std::unordered_map<std::string, ir::Value*>& named);

  const OnnxFile& file_;
  const Source& source_;
  const ImportOptions& options_;
  Functions functions_;
  ImportedModel model_;
  Builder builder_;
  ConstantPool constants_;
  ConstantFolder folder_;
  ImportState state_;
  Scope* scope_ = nullptr;
  std::vector<std::map<std::string, std::int64_t>> opsets_;
  std::map<std::pair<int, int>, Item> redirected_;
  std::set<std::pair<int, int>> detached_;  // in training form, see ParameterPlan
  std::map<int, MovedBuffer> moved_;        // likewise
  std::set<std::pair<std::string, std::int64_t>> symbolic_;
  std::unordered_set<const ir::Value*> named_;
  std::map<std::string, std::string> unreadable_;  // initializers to the types that gcomp lacks
  UnsupportedNodes unsupported_;
  std::vector<std::size_t> first_made_;  // for each node of the main graph so far, the number of the first node made of it
  /// The seed and the number of the step are states, so that a resumed run draws on.
  formulas::RandomStates random_;
  std::int64_t lowered_ = 0;
  struct Folded {
    std::vector<Item> operands;  // kept: their addresses are in the key
    std::vector<Item> results;
  };
  std::unordered_map<std::string, Folded> folded_;
};

}  // namespace gcomp::frontend
