#include "gcomp/driver/row_batches.h"

#include <algorithm>
#include <bit>
#include <set>
#include <unordered_set>
#include <vector>

#include "gcomp/driver/model_source.h"
#include "passes/row_dependence.h"
#include "runtime/backend.h"

namespace gcomp::driver {
namespace {

/// Rows of the graph from which the size is found: no size that is given out, so that what scales with rows can be told.
constexpr std::int64_t kProbe = 3;
constexpr std::int64_t kOther = 5;  // and of another, where no number is known

/// The first dimension that all inputs but scalars have; nothing where they differ, or all are scalars.
std::optional<std::int64_t> common_rows(const Model& model, const GraphOptions& options) {
  std::optional<std::int64_t> rows;
  for (const frontend::ValueInfo& input : model.inputs()) {
    const Shape& shape = options.shapes.data.at(input.name).shape;
    if (shape.empty()) continue;
    if (rows && *rows != shape[0]) return std::nullopt;
    rows = shape[0];
  }
  return rows;
}

/// What file and options say of an input's first dimension.
std::optional<std::int64_t> bound_rows(const frontend::ValueInfo& input, const ShapeRequest& request) {
  if (const auto asked = request.shapes.find(input.name); asked != request.shapes.end() && !asked->second.empty())
    return asked->second[0];
  if (!input.has_shape || input.dimensions.empty()) return std::nullopt;
  const frontend::Dimension& first = input.dimensions[0];
  if (first.size >= 0) return first.size;
  const auto bound = request.dims.find(first.symbol);
  return bound == request.dims.end() ? std::nullopt : std::optional(bound->second);
}

/// Most bytes that a node reads and writes of what depends on inputs.
std::int64_t widest_node(const ir::Graph& graph) {
  std::unordered_set<const ir::Value*> varying(graph.inputs().begin(), graph.inputs().end());
  std::int64_t widest = 0;
  for (const auto& node : graph.nodes()) {
    std::int64_t bytes = 0;
    for (const ir::Value* operand : node->operands)
      if (operand && varying.count(operand)) bytes += operand->type.bytes();
    if (bytes == 0) continue;
    for (const ir::Value* result : node->results) bytes += result->type.bytes();
    varying.insert(node->results.begin(), node->results.end());
    widest = std::max(widest, bytes);
  }
  return widest;
}

/// The model at another number of rows; nothing where it takes none.
std::optional<ModelGraph> probe_of(const Model& model, GraphOptions options, std::int64_t rows) {
  options.shapes.batch = rows;
  try {
    return inference_graph(model, options);
  } catch (const UserError&) { return std::nullopt; }  // compiling says what is wrong
}

/// Those alone, which have a row for each row of the inputs.
void keep_outputs(ModelGraph& made, std::span<const std::string> names, std::int64_t rows) {
  std::vector<ir::Value*> kept;
  for (std::size_t i = 0; i < made.model.outputs.size(); ++i) {
    ir::Value* output = made.graph.outputs()[i];
    const bool has_rows = !output->type.shape.empty() && output->type.shape[0] == rows;
    if (has_rows && std::ranges::find(names, made.model.outputs[i]) != names.end()) kept.push_back(output);
  }
  made.graph.clear_outputs();
  for (ir::Value* output : kept) made.graph.add_output(output);
  made.graph.remove_dead();
}

/// Whether some op of the model may give the size of a tensor as a number.
bool asks_for_sizes(const Model& model) {
  const frontend::OnnxFile* file = onnx_file(model);
  return !file || frontend::asks_for_sizes(*file);
}

/// The node that makes a row of the probe depend on others, or on their number, as the model of the numbers in `others` shows; ""
/// where none does. A branch that another number chooses than these is not seen.
std::string dependent_node(const Model& model, const GraphOptions& options, const ModelGraph& probe,
                           const std::set<std::int64_t>& others, std::span<const std::string> outputs = {}) {
  if (std::string node = row_dependence(probe.graph); !node.empty() || !asks_for_sizes(model)) return node;
  for (const std::int64_t rows : others) {
    if (rows < 2 || rows == kProbe) continue;  // shapes of one row are others: what is repeated for each need not be
    std::optional<ModelGraph> other = probe_of(model, options, rows);
    if (!other) continue;
    if (!outputs.empty()) keep_outputs(*other, outputs, rows);
    if (std::string node = row_dependence(other->graph); !node.empty()) return node;  // many rows are grouped as few cannot be
    if (auto node = passes::count_dependence(probe.graph, kProbe, other->graph, rows)) return *std::move(node);
  }
  return "";
}

/// Whether the file says of an output that it has a row for each row of the inputs: "batch" for both, not "Min(3, batch)" or 3.
bool is_told_to_have_rows(const Model& model, const std::string& output) {
  const frontend::OnnxFile* file = onnx_file(model);
  if (!file) return false;
  const auto told = std::ranges::find(file->outputs, output, &frontend::ValueInfo::name);
  if (told == file->outputs.end() || told->dimensions.empty() || told->dimensions[0].symbol.empty()) return false;
  return std::ranges::any_of(file->inputs, [&](const frontend::ValueInfo& input) {
    return !input.dimensions.empty() && input.dimensions[0].symbol == told->dimensions[0].symbol;
  });
}

/// An output that has not, as the model of another number of rows shows where the file does not tell; "" where all have.
std::string output_without_rows(const Model& model, const GraphOptions& options, const ModelGraph& probe) {
  const auto has = [](const ModelGraph& made, std::size_t output, std::int64_t rows) {
    const Shape& shape = made.graph.outputs()[output]->type.shape;
    return !shape.empty() && shape[0] == rows;
  };
  std::vector<std::size_t> untold;
  for (std::size_t i = 0; i < probe.model.outputs.size(); ++i) {
    if (!has(probe, i, kProbe)) return probe.model.outputs[i];
    if (!is_told_to_have_rows(model, probe.model.outputs[i])) untold.push_back(i);
  }
  const std::optional<ModelGraph> other = untold.empty() ? std::nullopt : probe_of(model, options, kOther);
  for (const std::size_t i : untold)
    if (other && !has(*other, i, kOther)) return probe.model.outputs[i];
  return "";
}

/// Why the rows of the probe must run at once; "" where they need not.
std::string why_whole(const Model& model, const GraphOptions& options, const ModelGraph& probe,
                      const std::set<std::int64_t>& others) {
  if (const std::string output = output_without_rows(model, options, probe); !output.empty())
    return concat("output '", output, "' does not have a row for each row of the inputs");
  const std::string node = dependent_node(model, options, probe, others);
  return node.empty() ? "" : concat("node '", node, "' makes a row depend on others or on its number");
}

}  // namespace

RowBatches row_batches(const Model& model, const GraphOptions& options) {
  const std::optional<std::int64_t> all = common_rows(model, options);
  if (!all) return {0, "the inputs have no number of rows in common"};
  std::optional<std::int64_t> bound;
  for (const frontend::ValueInfo& input : model.inputs())
    if (!bound && !options.shapes.data.at(input.name).shape.empty()) bound = bound_rows(input, options.shapes);
  if (bound) return {*bound, ""};
  const std::optional<ModelGraph> probe = probe_of(model, options, kProbe);
  if (!probe) return {};
  const runtime::RunLimits limits = runtime::backend_of(options.target).run_limits;
  const std::int64_t row = std::max<std::int64_t>(1, widest_node(probe->graph) / kProbe);
  const auto batch = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::clamp(limits.bytes / row, std::int64_t{1}, limits.rows))));
  if (std::string reason = why_whole(model, options, *probe, {*all, batch}); !reason.empty()) return {0, std::move(reason)};
  return {batch, ""};
}

std::string row_dependence(const Model& model, const GraphOptions& options, const ir::Graph& forward) {
  std::set<std::int64_t> firsts;
  for (const ir::Value* input : forward.inputs())
    if (!input->type.shape.empty()) firsts.insert(input->type.shape[0]);
  if (firsts.size() != 1) return row_dependence(forward);
  const std::int64_t rows = *firsts.begin();
  const bool tells = rows > 1;
  if (std::string node = row_dependence(forward); tells && (!node.empty() || !asks_for_sizes(model))) return node;
  const std::optional<ModelGraph> probe = probe_of(model, options, kProbe);
  if (!probe) return "";
  if (tells && rows != kProbe)
    if (auto node = passes::count_dependence(probe->graph, kProbe, forward, rows)) return *std::move(node);
  std::set<std::int64_t> others;
  if (!tells || rows == kProbe) others.insert(kOther);
  for (const auto& [name, type] : options.shapes.data)
    if (!type.shape.empty() && type.shape[0] != rows) others.insert(type.shape[0]);
  return dependent_node(model, options, *probe, others);
}

std::string dependence_of_outputs(const Model& model, GraphOptions options, std::span<const std::string> outputs) {
  const std::int64_t rows = options.shapes.batch.value_or(kOther);
  const std::set<std::int64_t> others = {rows, rows / options.step.micro_batches};
  options.step = {};
  options.loss_outputs.emplace(outputs.begin(), outputs.end());
  std::optional<ModelGraph> probe = probe_of(model, options, kProbe);
  if (!probe || outputs.empty()) return "";
  keep_outputs(*probe, outputs, kProbe);
  return dependent_node(model, options, *probe, others, outputs);
}

}  // namespace gcomp::driver
