#include "frontend/onnx/import.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <unordered_set>

#include "frontend/onnx/binding.h"
#include "frontend/onnx/importer.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {

Importer::Importer(const OnnxFile& file, const ImportOptions& options)
    : file_(file),
      source_(*file.source),
      options_(options),
      functions_(source_),
      builder_(model_.graph),
      constants_(builder_),
      folder_(model_.graph, state_.fold_budget),
      state_{options, source_, model_.repairs, model_.forms, {}, {}, {}, {}, {}},
      random_(builder_, options.seed) {
  model_.source = file.source;
  model_.fixed = file.fixed;
  state_.is_symbolic = [this](const std::string& value, std::int64_t axis) { return symbolic_.count({value, axis}) > 0; };
  state_.draw_uniform = [this](const Shape& shape) { return random_.uniform(shape); };
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

ImportedModel Importer::run() {
  check_user(!((options_.training || options_.training_form) && options_.as_written), "training and as_written exclude each other");
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
  random_.count_steps();
  for (Parameter& parameter : model_.parameters) parameter.looked_up = state_.looked_up.contains(parameter.name);
  model_.graph.remove_dead();
  model_.unfolded = state_.fold_budget.note();
  return std::move(model_);
}

void Importer::note_symbolic_dimensions() {
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

void Importer::add_inputs(Scope& scope) {
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

bool Importer::is_loss_output(const std::string& name, const Item& item) const {
  if (!item || item.missing || item.sequence) return false;
  return std::ranges::any_of(*options_.loss_outputs,
                             [&](const std::string& one) { return one.empty() ? is_float(item.type().dtype) : one == name; });
}

void Importer::judge_unsupported(const Scope& scope) {
  if (!options_.loss_outputs) return report_unsupported("");
  const ::onnx::GraphProto& graph = source_.model.graph();
  std::vector<std::string> lost;
  bool has_loss = false;
  for (const auto& output : graph.output()) {
    const Item& item = *scope.find(output.name());
    if (item.missing) lost.push_back(output.name());
    has_loss = has_loss || is_loss_output(output.name(), item);
  }
  const auto named = std::ranges::find_first_of(lost, *options_.loss_outputs);
  if (named != lost.end()) return report_unsupported(*named);
  if (!has_loss) return report_unsupported("");
  unsupported_.keep(nodes_needed(graph, lost));
  if (!unsupported_.empty()) model_.repairs.push_back(note_outputs_left_out(lost, unsupported_.lines()));
  model_.outputs_left_out = std::move(lost);
}

void Importer::report_unsupported(const std::string& output) {
  if (options_.training) unsupported_.add_cuts(model_.graph, source_.model.graph(), first_made_);
  if (!output.empty()) unsupported_.keep(nodes_needed(source_.model.graph(), {output}));
  if (!unsupported_.empty()) unsupported_.report(file_.path, options_.training ? " in training" : "");
}

void Importer::add_outputs(const Scope& scope) {
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

void Importer::name_output(ir::Value* value, const std::string& name, std::unordered_map<std::string, ir::Value*>& named) {
  if (value->name == name) return;
  auto rename = [&](ir::Value* which, const std::string& to) {
    named.erase(which->name);
    model_.graph.rename(which, to);
    named[which->name] = which;
  };
  if (const auto taken = named.find(name); taken != named.end()) rename(taken->second, "");
  rename(value, name);
}

ImportedModel import_onnx(const OnnxFile& file, const ImportOptions& options) {
  try {
    return Importer(file, options).run();
  } catch (const std::bad_alloc&) {
    throw UserError(concat(file.path, ": the model takes more memory than there is"), ExitCode::out_of_memory);
  } catch (const std::length_error&) {
    throw UserError(concat(file.path, ": the model takes more memory than there is"), ExitCode::out_of_memory);
  }
}

}  // namespace gcomp::frontend
