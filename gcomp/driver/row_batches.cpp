#include "gcomp/driver/row_batches.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "runtime/backend.h"

namespace gcomp::driver {
namespace {

/// Rows of the graph from which the size is found: no size that is given out, so that what scales with rows can be told.
constexpr std::int64_t kProbe = 3;

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

/// Why the rows of the probe must run at once; "" where they need not.
std::string why_whole(const ModelGraph& probe) {
  for (std::size_t i = 0; i < probe.model.outputs.size(); ++i) {
    const Shape& shape = probe.graph.outputs()[i]->type.shape;
    if (shape.empty() || shape[0] != kProbe)
      return concat("output '", probe.model.outputs[i], "' does not have a row for each row of the inputs");
  }
  const std::string node = row_dependence(probe.graph);
  return node.empty() ? "" : concat("node '", node, "' makes a row depend on others or on its number");
}

}  // namespace

RowBatches row_batches(const Model& model, const GraphOptions& options) {
  if (!common_rows(model, options)) return {0, "the inputs have no number of rows in common"};
  std::optional<std::int64_t> bound;
  for (const frontend::ValueInfo& input : model.inputs())
    if (!bound && !options.shapes.data.at(input.name).shape.empty()) bound = bound_rows(input, options.shapes);
  if (bound) return {*bound, ""};
  GraphOptions probing = options;
  probing.shapes.batch = kProbe;
  std::optional<ModelGraph> probe;
  try {
    probe = inference_graph(model, probing);
  } catch (const UserError&) { return {}; }  // compiling for all rows says what is wrong
  if (std::string reason = why_whole(*probe); !reason.empty()) return {0, std::move(reason)};
  const runtime::RunLimits limits = runtime::backend_of(options.target).run_limits;
  const std::int64_t row = std::max<std::int64_t>(1, widest_node(probe->graph) / kProbe);
  return {static_cast<std::int64_t>(
              std::bit_floor(static_cast<std::uint64_t>(std::clamp(limits.bytes / row, std::int64_t{1}, limits.rows)))),
          ""};
}

}  // namespace gcomp::driver
