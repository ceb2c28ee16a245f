#include "frontend/onnx/import.h"

#include <algorithm>
#include <new>
#include <set>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "frontend/onnx/binding.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/node_context.h"
#include "frontend/onnx/parameters.h"
#include "frontend/onnx/rows.h"
#include "frontend/onnx/tensor_proto.h"
#include "frontend/onnx/unsupported.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

/// Bytes of one tensor folded from frozen parameters: larger ones stay states, which memory holds once.
constexpr std::int64_t kMostFoldedState = std::int64_t{1} << 20;

std::string domain_of(const ::onnx::NodeProto& node) { return node.domain() == "ai.onnx" ? "" : node.domain(); }

/// Whether an array of this shape has at most so many elements.
bool within(const Shape& shape, std::int64_t elements) {
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t dim) { return dim == 0; })) return true;
  return std::all_of(shape.begin(), shape.end(), [&](std::int64_t dim) { return (elements /= dim) > 0; });
}

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
  Importer(const OnnxFile& file, const ImportOptions& options)
      : file_(file),
        source_(*file.source),
        options_(options),
        functions_(source_),
        builder_(model_.graph),
        constants_(builder_),
        folder_(model_.graph, state_.fold_budget),
        state_{options, source_, model_.repairs, model_.forms, {}, {}, {}, {}, {}} {
    model_.source = file.source;
    state_.is_symbolic = [this](const std::string& value, std::int64_t axis) { return symbolic_.count({value, axis}) > 0; };
    state_.draw_uniform = [this](const Shape& shape) { return draw_uniform(shape); };
    state_.check_rounds = [this](const ::onnx::NodeProto& node, const ::onnx::GraphProto& body, std::int64_t rounds) {
      const std::int64_t each = functions_.nodes_of(body);
      check_user(rounds == 0 || each <= (options_.limits.nodes - lowered_) / rounds, file_.path, ": node '", describe(node),
                 "' unrolls to ", rounds, " rounds of ", each, " nodes, together with the ", lowered_, " before it more than ",
                 options_.limits.nodes, "; --max-nodes N allows more");
    };
    state_.lower_graph = [this](const ::onnx::GraphProto& graph, const std::vector<Item>& inputs) {
      return lower_subgraph(graph, inputs);
    };
  }

  Model run() {
    check_user(!((options_.training || options_.training_form) && options_.as_written),
               "training and as_written exclude each other");
    const std::string& variance = options_.batchnorm_variance;
    check_user(variance.empty() || variance == "unbiased" || variance == "population", "--batchnorm-variance=", variance,
               " is unknown, wanted unbiased or population");
    Scope scope;
    scope_ = &scope;
    note_symbolic_dimensions();
    add_inputs(scope);
    add_initializers(scope);
    lower_nodes(source_.model.graph().node(), /*main=*/true);
    if (!unsupported_.empty()) judge_unsupported(scope);
    add_outputs(scope);
    update_statistics();
    count_random_steps();
    model_.graph.remove_dead();
    return std::move(model_);
  }

 private:
  void note_symbolic_dimensions() {
    auto note = [&](const ::onnx::ValueInfoProto& info) {
      const auto& shape = info.type().tensor_type().shape();
      for (int i = 0; i < shape.dim_size(); ++i)
        if (!shape.dim(i).has_dim_value()) symbolic_.insert({info.name(), i});
    };
    const ::onnx::GraphProto& graph = source_.model.graph();
    for (const auto& info : graph.input()) note(info);
    for (const auto& info : graph.value_info()) note(info);
    for (const auto& info : graph.output()) note(info);
  }

  void add_inputs(Scope& scope) {
    const Binding binding = bind_shapes(file_, options_);
    state_.rebatched = binding.rebatched;
    for (const ValueInfo& input : file_.inputs) {
      if (auto it = options_.constants.find(input.name); it != options_.constants.end()) {
        scope.items[input.name] = {{}, std::make_shared<const Tensor>(import_tensor(options_, it->second)), nullptr};
        continue;
      }
      const TensorType type{import_dtype(options_, input.dtype), binding.shapes.at(input.name)};
      check_elements(type, concat("input '", input.name, "'"));
      scope.items[input.name] = {builder_.input(type, input.name), nullptr, nullptr};
    }
  }

  void add_initializers(Scope& scope) {
    Initializers initializers;
    const ::onnx::GraphProto& graph = source_.model.graph();
    if (graph.sparse_initializer_size())
      throw UserError(concat(file_.path, ": sparse initializers are not supported"), ExitCode::unsupported);
    for (const auto& proto : graph.initializer()) {
      Initializer& initializer = initializers[proto.name()] = {&proto, nullptr};
      if (!dtype_of(proto.data_type())) {
        unreadable_[proto.name()] = onnx_type_name(proto.data_type());
        continue;
      }
      Tensor values = naming_file(file_.path, [&] { return read_tensor(proto, source_.directory); });
      initializer.values = std::make_shared<Tensor>(import_tensor(options_, std::move(values)));
    }
    const ParameterPlan plan = plan_parameters(source_, initializers, options_);
    model_.parameters = plan.parameters;
    model_.aliases = plan.aliases;
    model_.repairs.insert(model_.repairs.end(), plan.repairs.begin(), plan.repairs.end());
    for (const int node : plan.frozen_norms) state_.frozen_norms.insert(&graph.node(node));
    for (const auto& [node, index] : plan.padding_indices) state_.padding_indices.emplace(&graph.node(node), index);
    std::map<std::string, int> parts;
    for (const PlannedState& planned : plan.states) ++parts[planned.initializer];
    for (const auto& [place, state] : plan.redirected) ++parts[graph.node(place.first).input(place.second)];
    for (const auto& [name, initializer] : initializers)
      scope.items[name] = initializer.values ? Item{{}, initializer.values, nullptr} : Item{{}, nullptr, nullptr, /*missing=*/true};
    for (const auto& [place, state] : plan.redirected)
      if (state.empty()) redirected_[place] = scope.items.at(graph.node(place.first).input(place.second));
    std::unordered_map<std::string, Item> states;
    for (const PlannedState& planned : plan.states) {
      const Initializer& initializer = initializers.at(planned.initializer);
      std::shared_ptr<Tensor> values = initializer.values;
      // A state holds the file's own value: only constants are read as the number that their author meant.
      if (values->elements() == 1)
        values = std::make_shared<Tensor>(read_tensor(*initializer.proto, source_.directory).cast(values->dtype()));
      if (auto rows = plan.repeated.find(planned.name); rows != plan.repeated.end())
        states[planned.name] = add_table(planned, rows->second, *values);
      else states[planned.name] = add_state(planned, values, parts.at(planned.initializer) == 1);
    }
    for (const auto& [place, state] : plan.redirected)
      if (!state.empty())
        redirected_[place] = states.count(state) ? states.at(state) : scope.items.at(graph.node(place.first).input(place.second));
    for (auto& [name, item] : states)
      if (initializers.count(name)) scope.items[name] = item;
    for (const auto& [name, alias] : plan.tied) {
      Var var = states.at(alias.state).var;
      const Shape& shape = initializers.at(name).values->shape();
      scope.items[name] = {alias.transposed ? builder_.transpose(var, {1, 0}) : builder_.reshape(var, shape), nullptr, nullptr};
    }
    for (const DroppedBias& bias : plan.dropped) {
      const auto zeros = std::make_shared<Tensor>(initializers.at(bias.like).values->dtype(), bias.shape);
      if (!states.contains(bias.state))
        states[bias.state] = add_state({bias.state, bias.state, ir::StateRole::parameter, true}, zeros, true);
      redirected_[{bias.node, bias.operand}] = states.at(bias.state);
    }
  }

  /// Half-precision parameters and statistics have f32 masters, rounded where they are used.
  /// `last`: nothing else needs the values, which may be large, so they move.
  Item add_state(const PlannedState& planned, const std::shared_ptr<Tensor>& values, bool last) {
    const DType dtype = values->dtype();
    const bool constant = !planned.trained && planned.role == ir::StateRole::parameter;
    const bool master = !constant && (dtype == DType::f16 || dtype == DType::bf16);
    Tensor initial = master ? values->cast(DType::f32) : last && !constant ? std::move(*values) : *values;
    ir::Value* value = model_.graph.add_state(initial.type(), planned.name, planned.role);
    model_.weights.emplace(value->name, std::move(initial));
    Var var = builder_.wrap(value);
    if (master && planned.role == ir::StateRole::parameter) var = builder_.cast(var, dtype);
    return {var, constant ? values : nullptr, nullptr};
  }

  /// A state of the rows that differ, and the file's table of them.
  Item add_table(const PlannedState& planned, const RepeatedRows& rows, const Tensor& table) {
    const auto distinct = std::make_shared<Tensor>(distinct_rows(rows, table));
    const Var state = add_state(planned, distinct, true).var;
    return {builder_.reshape(builder_.gather(state, builder_.constant(Tensor::of_integers(rows.index)), 0), table.shape()), nullptr,
            nullptr};
  }

  void check_elements(const TensorType& type, const std::string& what) const {
    check_user(within(type.shape, options_.limits.elements), file_.path, ": ", what, " is too large: ", to_string(type),
               " has more than ", options_.limits.elements, " elements; --max-elements N allows more");
  }

  template <class Nodes>
  void lower_nodes(const Nodes& nodes, bool main) {
    for (int i = 0; i < nodes.size(); ++i) {
      const ::onnx::NodeProto& node = nodes.Get(i);
      if (main) first_made_.push_back(model_.graph.nodes().size());
      std::vector<Item> inputs;
      for (int k = 0; k < node.input_size() || (main && redirected_.contains({i, k})); ++k)
        inputs.push_back(input_of(node, main ? i : -1, k));
      builder_.set_origin(describe(node));
      bind_outputs(node, lower(node, inputs));
    }
  }

  Item input_of(const ::onnx::NodeProto& node, int number, int operand) const {
    if (auto it = redirected_.find({number, operand}); number >= 0 && it != redirected_.end()) return it->second;
    const std::string& name = node.input(operand);
    if (name.empty()) return {};
    const Item* item = scope_->find(name);
    check_user(item, file_.path, ": node '", describe(node), "' reads '", name, "', which nothing before it makes");
    return *item;
  }

  void bind_outputs(const ::onnx::NodeProto& node, std::vector<Item> items) {
    for (int i = 0; i < node.output_size(); ++i) {
      const std::string& name = node.output(i);
      if (name.empty()) continue;
      Item item =
          static_cast<std::size_t>(i) < items.size() ? items[static_cast<std::size_t>(i)] : Item{{}, nullptr, nullptr, true};
      if (item.var) check_elements(item.var.type(), concat("'", name, "', made by node '", describe(node), "',"));
      if (!item.known && item.var && item.var.value->producer && named_.insert(item.var.value).second)
        model_.graph.rename(item.var.value, name);
      scope_->items[name] = std::move(item);
    }
  }

  /// Items of all outputs; `missing` ones where the node, or one before it, is not supported.
  std::vector<Item> lower(const ::onnx::NodeProto& node, const std::vector<Item>& inputs) {
    check_user(++lowered_ <= options_.limits.nodes, file_.path, ": node '", describe(node),
               "': loops and functions unroll to more than ", options_.limits.nodes, " nodes; --max-nodes N allows more");
    if (auto items = lower_supported(node, inputs)) return std::move(*items);
    look_into_subgraphs(node);
    return missing_items(node.output_size());
  }

  static std::vector<Item> missing_items(int count) {
    return std::vector<Item>(static_cast<std::size_t>(count), Item{{}, nullptr, nullptr, /*missing=*/true});
  }

  /// Nothing where the node cannot be lowered: it is refused, or some operand is missing. The latter is looked up all the same, so
  /// that one import names every node that is not supported by itself.
  std::optional<std::vector<Item>> lower_supported(const ::onnx::NodeProto& node, const std::vector<Item>& inputs) {
    for (int i = 0; i < node.input_size(); ++i)
      if (const std::string& name = node.input(i); inputs[static_cast<std::size_t>(i)].missing && unreadable_.count(name))
        return refuse(node, concat("'", name, "' has the unsupported type ", unreadable_.at(name)));
    const std::string domain = domain_of(node);
    if (const auto* function = functions_.find(domain, node.op_type())) return call(*function, node, inputs);
    const auto opset = opsets().find(domain);
    if (opset == opsets().end()) return refuse(node, concat("the file imports no operator set '", domain, "'"));
    const Row* row = find_row(domain, node.op_type(), opset->second);
    if (!row)
      return refuse(node,
                    knows_operator(domain, node.op_type()) ? concat("not in opset ", opset->second) : "operator not supported");
    const bool starved = std::any_of(inputs.begin(), inputs.end(), [](const Item& item) { return item.missing; });
    Scope* const scope = scope_;
    const std::size_t depth = opsets_.size();
    try {
      if (row->foldable)
        if (auto folded = fold(*row, node, opset->second, inputs)) return std::move(*folded);
      // Without all operands a row runs as far as its first look at one: what it refuses until then, it refuses by itself.
      NodeContext context(node, opset->second, inputs, builder_, constants_, folder_, state_);
      std::vector<Item> items = row->lower(context);
      fold_results(items);
      return items;
    } catch (const UserError& error) {
      scope_ = scope;
      opsets_.resize(depth);
      if (error.code() == ExitCode::unsupported) return refuse(node, error.what());
      if (starved) return std::nullopt;
      throw UserError(concat(file_.path, ": ", error.what()), error.code());
    }
  }

  /// Names what is not supported in the subgraphs of a node that cannot be lowered.
  void look_into_subgraphs(const ::onnx::NodeProto& node) {
    Scope* const scope = scope_;
    const std::size_t depth = opsets_.size();
    for (const auto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      try {
        lower_subgraph(attribute.g(), missing_items(attribute.g().input_size()));
      } catch (const UserError&) {  // it may follow from what is missing
        scope_ = scope;
        opsets_.resize(depth);
      }
    }
  }

  std::nullopt_t refuse(const ::onnx::NodeProto& node, const std::string& reason) {
    const auto opset = opsets().find(domain_of(node));
    unsupported_.add(static_cast<int>(first_made_.size()) - 1, node,
                     opset == opsets().end() ? std::nullopt : std::optional(opset->second), reason);
    return std::nullopt;
  }

  /// Evaluates a node whose operands are all known, frozen parameters among them, in a graph of its own; nothing if that is above a
  /// limit.
  std::optional<std::vector<Item>> fold(const Row& row, const ::onnx::NodeProto& node, std::int64_t opset,
                                        const std::vector<Item>& inputs) {
    const bool all = std::all_of(inputs.begin(), inputs.end(), [](const Item& item) { return !item || item.known; });
    if (!all || inputs.empty()) return std::nullopt;
    ir::Graph scratch;
    Builder builder(scratch, describe(node));
    ConstantPool constants(builder);
    ConstantFolder folder(scratch, state_.fold_budget);
    NodeContext context(node, opset, inputs, builder, constants, folder, state_);
    std::vector<Item> items = row.lower(context);
    const bool frozen = std::any_of(inputs.begin(), inputs.end(), [](const Item& item) { return item.var && item.known; });
    for (Item& item : items) {
      if (!item.var || item.known) continue;
      if (frozen && item.var.type().bytes() > kMostFoldedState) return std::nullopt;
      item = {{}, folder.value_of(item.var.value), nullptr};
      if (!item.known) return std::nullopt;
    }
    return items;
  }

  /// Results that turn out to depend on no input: a cast to the type of one, say, or the outputs of a subgraph.
  void fold_results(std::vector<Item>& items) {
    for (Item& item : items)
      if (item.var && !item.known && !item.sequence)
        if (auto tensor = folder_.value_of(item.var.value)) item = {{}, std::move(tensor), nullptr};
  }

  std::vector<Item> lower_subgraph(const ::onnx::GraphProto& graph, const std::vector<Item>& inputs) {
    Scope scope{scope_, {}};
    check_user(static_cast<int>(inputs.size()) == graph.input_size(), file_.path, ": a subgraph has ", graph.input_size(),
               " inputs, found ", inputs.size());
    for (int i = 0; i < graph.input_size(); ++i) scope.items[graph.input(i).name()] = inputs[static_cast<std::size_t>(i)];
    for (const auto& proto : graph.initializer())
      scope.items[proto.name()] = {
          {}, std::make_shared<const Tensor>(import_tensor(options_, read_tensor(proto, source_.directory))), nullptr};
    Scope* const outer = std::exchange(scope_, &scope);
    lower_nodes(graph.node(), false);
    std::vector<Item> outputs;
    for (const auto& output : graph.output()) outputs.push_back(*scope.find(output.name()));
    scope_ = outer;
    return outputs;
  }

  /// The seed and the number of the step are states, so that a resumed run draws on; the op's id is given here, once and for all.
  Var draw_uniform(const Shape& shape) {
    if (!random_seed_) {
      random_seed_ =
          model_.graph.add_state({DType::i64, {}}, "random_seed", ir::StateRole::counter, static_cast<double>(options_.seed));
      random_step_ = model_.graph.add_state({DType::i64, {}}, "random_step", ir::StateRole::counter, 0.0);
    }
    return builder_.apply(ir::ops::kRandomUniform, {builder_.wrap(random_seed_), builder_.wrap(random_step_)},
                          {{"shape", shape}, {"op_id", next_random_++}});
  }

  void update_statistics() {
    for (const auto& [state, next, origin] : state_.statistics) {
      builder_.set_origin(origin);
      builder_.update(state, next);
    }
  }

  void count_random_steps() {
    if (!random_step_) return;
    builder_.set_origin("random_step");
    builder_.update(random_step_, builder_.wrap(random_step_) + 1.0);
  }

  /// A call of one of the file's own functions, lowered in place.
  std::vector<Item> call(const ::onnx::FunctionProto& function, const ::onnx::NodeProto& caller, const std::vector<Item>& inputs) {
    const std::int64_t below = functions_.nodes_of(function);
    check_user(below <= options_.limits.nodes - lowered_, file_.path, ": node '", describe(caller), "' calls '", function.name(),
               "' with ", below, " nodes in all, together with the ", lowered_, " before it more than ", options_.limits.nodes,
               "; --max-nodes N allows more");
    Scope scope;
    for (int i = 0; i < function.input_size(); ++i)
      scope.items[function.input(i)] = static_cast<std::size_t>(i) < inputs.size() ? inputs[static_cast<std::size_t>(i)] : Item();
    std::map<std::string, std::int64_t> opsets;
    for (const auto& opset : function.opset_import()) opsets[opset.domain() == "ai.onnx" ? "" : opset.domain()] = opset.version();
    ::google::protobuf::RepeatedPtrField<::onnx::NodeProto> nodes = function.node();
    for (auto& node : nodes) substitute_attributes(node, caller);
    Scope* const outer = std::exchange(scope_, &scope);
    opsets_.push_back(std::move(opsets));
    // Descriptions of nodes may point into `nodes`; nothing keeps them beyond this call.
    lower_nodes(nodes, false);
    std::vector<Item> outputs;
    for (const auto& output : function.output()) outputs.push_back(*scope.find(output));
    opsets_.pop_back();
    scope_ = outer;
    return outputs;
  }

  /// Attributes that refer to the function's own take the caller's values; absent ones go.
  static void substitute_attributes(::onnx::NodeProto& node, const ::onnx::NodeProto& caller) {
    for (int i = node.attribute_size(); i-- > 0;) {
      auto* attribute = node.mutable_attribute(i);
      if (attribute->ref_attr_name().empty()) continue;
      const std::string name = attribute->name(), wanted = attribute->ref_attr_name();
      auto it =
          std::find_if(caller.attribute().begin(), caller.attribute().end(), [&](const auto& a) { return a.name() == wanted; });
      if (it == caller.attribute().end()) {
        node.mutable_attribute()->DeleteSubrange(i, 1);
      } else {
        *attribute = *it;
        attribute->set_name(name);
      }
    }
  }

  const std::map<std::string, std::int64_t>& opsets() const { return opsets_.empty() ? source_.opsets : opsets_.back(); }

  /// Whether the output can be computed and is what `loss_output` asks for.
  bool is_loss_output(const std::string& name, const Item& item) const {
    if (!item || item.missing || item.sequence) return false;
    return options_.loss_output->empty() ? is_float(item.type().dtype) : name == *options_.loss_output;
  }

  /// Refuses what cannot be computed, but for outputs that the loss does not look at.
  void judge_unsupported(const Scope& scope) {
    if (!options_.loss_output) return report_unsupported("");
    const ::onnx::GraphProto& graph = source_.model.graph();
    std::vector<std::string> lost;
    bool has_loss = false;
    for (const auto& output : graph.output()) {
      const Item& item = *scope.find(output.name());
      if (item.missing) lost.push_back(output.name());
      has_loss = has_loss || is_loss_output(output.name(), item);
    }
    const bool names_lost = std::ranges::find(lost, *options_.loss_output) != lost.end();
    if (!has_loss) return report_unsupported(names_lost ? *options_.loss_output : "");
    unsupported_.keep(nodes_needed(graph, lost));
    if (!unsupported_.empty()) model_.repairs.push_back(note_outputs_left_out(lost, unsupported_.lines()));
    model_.outputs_left_out = std::move(lost);
  }

  /// Throws with every node that is not supported and that `output` needs; "" for all of the file.
  void report_unsupported(const std::string& output) {
    if (options_.training) unsupported_.add_cuts(model_.graph, source_.model.graph(), first_made_);
    if (!output.empty()) unsupported_.keep(nodes_needed(source_.model.graph(), {output}));
    if (!unsupported_.empty()) unsupported_.report(file_.path, options_.training ? " in training" : "");
  }

  void add_outputs(const Scope& scope) {
    builder_.set_origin("output");
    std::unordered_set<const ir::Value*> used;
    std::unordered_map<std::string, ir::Value*> named;
    for (const auto& node : model_.graph.nodes())
      for (ir::Value* result : node->results) named.emplace(result->name, result);
    for (const auto& output : source_.model.graph().output()) {
      if (std::ranges::find(model_.outputs_left_out, output.name()) != model_.outputs_left_out.end()) continue;
      const Item& item = *scope.find(output.name());
      check_user(!item.sequence, file_.path, ": output '", output.name(), "' is a sequence, wanted a tensor");
      if (item.missing)
        throw UserError(concat(file_.path, ": output '", output.name(), "' cannot be computed"), ExitCode::unsupported);
      Var var = item.var && !item.known ? item.var : constants_.at(item.known);
      // An output is a value of its own: not an input, a state, a constant or another output.
      const bool own = var.value->producer && !item.known && used.insert(var.value).second;
      if (var.value->producer) named.emplace(var.value->name, var.value);
      if (!own) var = builder_.apply(ir::ops::kReshape, {var}, {{"shape", var.shape()}});
      named.emplace(var.value->name, var.value);
      name_output(var.value, output.name(), named);
      model_.graph.outputs().push_back(var.value);
      model_.outputs.push_back(output.name());
      model_.output_types.push_back(var.type());
    }
  }

  /// Outputs have their ONNX names, even where some other value has taken one.
  void name_output(ir::Value* value, const std::string& name, std::unordered_map<std::string, ir::Value*>& named) {
    if (value->name == name) return;
    auto rename = [&](ir::Value* which, const std::string& to) {
      named.erase(which->name);
      model_.graph.rename(which, to);
      named[which->name] = which;
    };
    if (const auto taken = named.find(name); taken != named.end()) rename(taken->second, "");
    rename(value, name);
  }

  const OnnxFile& file_;
  const Source& source_;
  const ImportOptions& options_;
  Functions functions_;
  Model model_;
  Builder builder_;
  ConstantPool constants_;
  ConstantFolder folder_;
  ImportState state_;
  Scope* scope_ = nullptr;
  std::vector<std::map<std::string, std::int64_t>> opsets_;
  std::map<std::pair<int, int>, Item> redirected_;
  std::set<std::pair<std::string, std::int64_t>> symbolic_;
  std::unordered_set<const ir::Value*> named_;
  std::map<std::string, std::string> unreadable_;  // initializers to the types that gcomp lacks
  UnsupportedNodes unsupported_;
  std::vector<std::size_t> first_made_;  // for each node of the main graph so far, the number of the first node made of it
  ir::Value* random_seed_ = nullptr;
  ir::Value* random_step_ = nullptr;
  std::int64_t next_random_ = 0;
  std::int64_t lowered_ = 0;
};

}  // namespace

Model import_onnx(const OnnxFile& file, const ImportOptions& options) {
  try {
    return Importer(file, options).run();
  } catch (const std::bad_alloc&) {
    throw UserError(concat(file.path, ": the model takes more memory than there is"), ExitCode::out_of_memory);
  } catch (const std::length_error&) {
    throw UserError(concat(file.path, ": the model takes more memory than there is"), ExitCode::out_of_memory);
  }
}

}  // namespace gcomp::frontend
