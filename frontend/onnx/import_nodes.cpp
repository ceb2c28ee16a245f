// Nodes, subgraphs and functions of a file, one after the other; what is known is evaluated on the spot.
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/tensor_proto.h"
#include "ir/base/error.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

/// Bytes of one tensor folded from frozen parameters: larger ones stay states, which memory holds once.
constexpr std::int64_t kMostFoldedState = std::int64_t{1} << 20;

std::string domain_of(const ::onnx::NodeProto& node) { return node.domain() == "ai.onnx" ? "" : node.domain(); }

/// What the results of a node depend on whose operands are all known and no parameters: nodes of one key have equal ones. Large
/// operands count by where they lie.
std::optional<std::string> folding_key(const ::onnx::NodeProto& node, std::int64_t opset, const std::vector<Item>& inputs) {
  constexpr std::int64_t kSmall = 1024;  // bytes
  std::string key = concat(domain_of(node), " ", node.op_type(), " ", opset);
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g() || attribute.graphs_size() > 0) return std::nullopt;
    key += concat(" ", attribute.ByteSizeLong(), " ", attribute.SerializeAsString());
  }
  for (const std::string& output : node.output()) key += output.empty() ? " -" : " +";
  for (const Item& item : inputs) {
    if (item.var || item.sequence || item.missing) return std::nullopt;
    if (!item) {
      key += " none";
      continue;
    }
    key += concat(" ", to_string(item.known->type()), item.single ? " single " : " ");
    const std::int64_t bytes = item.known->type().bytes();
    if (bytes > kSmall) key += concat(reinterpret_cast<std::uintptr_t>(item.known.get()));
    else key.append(reinterpret_cast<const char*>(item.known->data()), static_cast<std::size_t>(bytes));
  }
  return key;
}

/// Whether an array of this shape has at most so many elements.
bool within(const Shape& shape, std::int64_t elements) {
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t dim) { return dim == 0; })) return true;
  return std::all_of(shape.begin(), shape.end(), [&](std::int64_t dim) { return (elements /= dim) > 0; });
}

}  // namespace

void Importer::check_elements(const TensorType& type, const std::string& what) const {
  check_user(within(type.shape, options_.limits.elements), file_.path, ": ", what, " is too large: ", ir::ops::shown(type),
             " has more than ", options_.limits.elements, " elements; --max-elements N allows more");
}

void Importer::lower_nodes(const ::google::protobuf::RepeatedPtrField<::onnx::NodeProto>& nodes, bool main) {
  for (int i = 0; i < nodes.size(); ++i) {
    const ::onnx::NodeProto& node = nodes.Get(i);
    if (main) first_made_.push_back(model_.graph.nodes().size());
    std::vector<Item> inputs;
    for (int k = 0; k < node.input_size() || (main && redirected_.contains({i, k})); ++k)
      inputs.push_back(input_of(node, main ? i : -1, k));
    builder_.set_origin(describe(node));
    for (std::size_t k = 0; main && k < inputs.size(); ++k)
      if (Var& var = inputs[k].var; var && is_float(var.dtype()) && detached_.contains({i, static_cast<int>(k)}))
        var = ir::ops::kDetach(var);
    bind_outputs(node, lower(node, inputs));
    if (const auto moved = moved_.find(i); main && moved != moved_.end()) move_buffer(node, moved->second);
  }
}

Item Importer::input_of(const ::onnx::NodeProto& node, int number, int operand) const {
  if (auto it = redirected_.find({number, operand}); number >= 0 && it != redirected_.end()) return it->second;
  const std::string& name = node.input(operand);
  if (name.empty()) return {};
  const Item* item = scope_->find(name);
  check_user(item, file_.path, ": node '", describe(node), "' reads '", name, "', which nothing before it makes");
  return *item;
}

void Importer::bind_outputs(const ::onnx::NodeProto& node, std::vector<Item> items) {
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& name = node.output(i);
    if (name.empty()) continue;
    Item item = static_cast<std::size_t>(i) < items.size() ? items[static_cast<std::size_t>(i)] : Item{{}, nullptr, nullptr, true};
    if (item.var) check_elements(item.var.type(), concat("'", name, "', made by node '", describe(node), "',"));
    if (!item.known && item.var && item.var.value->producer && named_.insert(item.var.value).second)
      model_.graph.rename(item.var.value, name);
    scope_->items[name] = std::move(item);
  }
}

std::vector<Item> Importer::lower(const ::onnx::NodeProto& node, const std::vector<Item>& inputs) {
  check_user(++lowered_ <= options_.limits.nodes, file_.path, ": node '", describe(node),
             "': loops and functions unroll to more than ", options_.limits.nodes, " nodes; --max-nodes N allows more");
  if (auto items = lower_supported(node, inputs)) return std::move(*items);
  look_into_subgraphs(node);
  return missing_items(node.output_size());
}

std::vector<Item> Importer::missing_items(int count) {
  return std::vector<Item>(static_cast<std::size_t>(count), Item{{}, nullptr, nullptr, /*missing=*/true});
}

std::optional<std::vector<Item>> Importer::lower_supported(const ::onnx::NodeProto& node, const std::vector<Item>& inputs) {
  for (int i = 0; i < node.input_size(); ++i)
    if (const std::string& name = node.input(i); inputs[static_cast<std::size_t>(i)].missing && unreadable_.count(name))
      return refuse(node, concat("'", name, "' has the unsupported type ", unreadable_.at(name)));
  const std::string domain = domain_of(node);
  if (const auto* function = functions_.find(domain, node.op_type())) return call(*function, node, inputs);
  const auto opset = opsets().find(domain);
  if (opset == opsets().end()) return refuse(node, concat("the file imports no operator set '", domain, "'"));
  const Row* row = find_row(domain, node.op_type(), opset->second);
  if (!row)
    return refuse(node, knows_operator(domain, node.op_type()) ? concat("not in opset ", opset->second) : "operator not supported");
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

void Importer::look_into_subgraphs(const ::onnx::NodeProto& node) {
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

std::nullopt_t Importer::refuse(const ::onnx::NodeProto& node, const std::string& reason) {
  const auto opset = opsets().find(domain_of(node));
  unsupported_.add(static_cast<int>(first_made_.size()) - 1, node,
                   opset == opsets().end() ? std::nullopt : std::optional(opset->second), reason);
  return std::nullopt;
}

std::optional<std::vector<Item>> Importer::fold(const Row& row, const ::onnx::NodeProto& node, std::int64_t opset,
                                                const std::vector<Item>& inputs) {
  const bool all = std::all_of(inputs.begin(), inputs.end(), [](const Item& item) { return !item || item.known; });
  if (!all || inputs.empty()) return std::nullopt;
  const std::optional<std::string> key = folding_key(node, opset, inputs);
  if (key)
    if (const auto known = folded_.find(*key); known != folded_.end()) return known->second.results;
  std::optional<std::vector<Item>> results = evaluate(row, node, opset, inputs);
  if (results && options_.float_type == DType::f64 && is_single(node, inputs)) round_to_single(*results);
  if (key && results) folded_.emplace(*key, Folded{inputs, *results});
  return results;
}

bool Importer::is_single(const ::onnx::NodeProto& node, const std::vector<Item>& inputs) {
  if (node.op_type() == "Cast") {
    const auto to = std::ranges::find(node.attribute(), "to", [](const auto& attribute) { return attribute.name(); });
    const bool to_f32 = to != node.attribute().end() && to->i() == ::onnx::TensorProto::FLOAT;
    return to_f32 && inputs[0] && (inputs[0].single || (!is_float(inputs[0].known->dtype()) && inputs[0].known->elements() > 1));
  }
  bool any = false;
  for (const Item& item : inputs) {
    if (!item || !is_float(item.known->dtype())) continue;
    any |= item.single;
    if (!item.single && item.known->elements() != 1) return false;
  }
  return any;
}

void Importer::round_to_single(std::vector<Item>& items) {
  for (Item& item : items) {
    if (!item.known || !is_float(item.known->dtype())) continue;
    item.known = std::make_shared<const Tensor>(item.known->cast(DType::f32).cast(item.known->dtype()));
    item.single = true;
  }
}

std::optional<std::vector<Item>> Importer::evaluate(const Row& row, const ::onnx::NodeProto& node, std::int64_t opset,
                                                    const std::vector<Item>& inputs) {
  ir::Graph scratch;
  Builder builder(scratch, describe(node));
  ConstantPool constants(builder);
  ConstantFolder folder(scratch, state_.fold_budget);
  NodeContext context(node, opset, inputs, builder, constants, folder, state_);
  std::vector<Item> items = row.lower(context);
  const bool frozen = std::any_of(inputs.begin(), inputs.end(), [](const Item& item) { return item.var && item.known; });
  bool computed = false;  // and not passed on
  for (Item& item : items) {
    if (!item.var || item.known) continue;
    computed = true;
    if (frozen && item.var.type().bytes() > kMostFoldedState) return std::nullopt;
    item = {{}, folder.value_of(item.var.value), nullptr};
    if (!item.known) return std::nullopt;
  }
  for (const Item& item : inputs)
    if (item.var && item.known && computed) model_.folded.insert(item.var.value->name);
  return items;
}

void Importer::fold_results(std::vector<Item>& items) {
  for (Item& item : items)
    if (item.var && !item.known && !item.sequence)
      if (auto tensor = folder_.value_of(item.var.value)) item = {{}, std::move(tensor), nullptr};
}

std::vector<Item> Importer::lower_subgraph(const ::onnx::GraphProto& graph, const std::vector<Item>& inputs) {
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

std::vector<Item> Importer::call(const ::onnx::FunctionProto& function, const ::onnx::NodeProto& caller,
                                 const std::vector<Item>& inputs) {
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

void Importer::substitute_attributes(::onnx::NodeProto& node, const ::onnx::NodeProto& caller) {
  for (int i = node.attribute_size(); i-- > 0;) {
    auto* attribute = node.mutable_attribute(i);
    if (attribute->ref_attr_name().empty()) continue;
    const std::string name = attribute->name(), wanted = attribute->ref_attr_name();
    auto it = std::find_if(caller.attribute().begin(), caller.attribute().end(), [&](const auto& a) { return a.name() == wanted; });
    if (it == caller.attribute().end()) {
      node.mutable_attribute()->DeleteSubrange(i, 1);
    } else {
      *attribute = *it;
      attribute->set_name(name);
    }
  }
}

}  // namespace gcomp::frontend
