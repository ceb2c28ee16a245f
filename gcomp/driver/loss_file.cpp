#include "gcomp/driver/loss_file.h"

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "frontend/onnx/import.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/builder.h"
#include "ir/copy_nodes.h"

namespace gcomp::driver {
namespace {

using namespace ir;
using frontend::Dimension;
using frontend::ValueInfo;

constexpr std::string_view kPrefix = "graph:";

/// The sizes of an input, of which `known` are those that a symbol has elsewhere; -1 for the others.
Shape declared_shape(const ValueInfo& input, const std::map<std::string, std::int64_t>& known) {
  Shape shape;
  for (const Dimension& d : input.dimensions) {
    const auto found = d.size < 0 ? known.find(d.symbol) : known.end();
    shape.push_back(found == known.end() ? d.size : found->second);
  }
  return shape;
}

/// Parameters and buffers of the file become constants: nothing of a loss trains.
void fix_states(Graph& graph, const std::map<std::string, Tensor>& weights, const std::string& where) {
  graph.remove_updates();
  Graph fixed(graph.name());
  std::unordered_map<const Value*, Value*> values;
  for (const Value* input : graph.inputs()) values[input] = fixed.add_input(input->type, input->name);
  Builder b(fixed, where);
  for (const State& state : graph.states()) {
    const auto weight = weights.find(state.value->name);
    values[state.value] =
        (weight == weights.end() ? b.full(state.value->type, state.fill.value_or(0)) : b.constant(weight->second)).value;
  }
  append_copies(fixed, graph, values);
  for (const Value* output : graph.outputs()) fixed.add_output(values.at(output));
  graph = std::move(fixed);
}

class OnnxLoss final : public passes::LossFile {
 public:
  explicit OnnxLoss(const std::string& path) : file_(frontend::open_onnx(path)), where_(concat("loss graph '", path, "'")) {
    if (file_.outputs.size() != 1) {
      std::vector<std::string> names;
      for (const ValueInfo& output : file_.outputs) names.push_back(output.name);
      throw UserError(concat(where_, " has ", names.size(), " outputs", names.empty() ? "" : concat(", ", listing(names)),
                             "; wanted one, a scalar of floats"),
                      ExitCode::usage);
    }
    for (const ValueInfo& input : file_.inputs) inputs_.push_back(input.name);
  }

  const std::vector<std::string>& inputs() const override { return inputs_; }

  Graph instantiate(const std::map<std::string, Shape>& shapes, DType dtype) const override {
    frontend::ImportOptions options;
    options.float_type = dtype;
    options.freeze = {"*"};
    options.shapes = complete(shapes);
    frontend::ImportedModel model = import(options);
    Graph graph = std::move(model.graph);
    const TensorType& type = graph.outputs()[0]->type;
    check_user(type.shape.empty() && is_float(type.dtype), where_, ": output '", file_.outputs[0].name, "' is ", to_string(type),
               ", wanted a scalar of floats");
    check_user(std::ranges::none_of(graph.states(), [](const State& state) { return state.role == StateRole::counter; }), where_,
               " draws random numbers, which would be the same in each step");
    fix_states(graph, model.weights.all(), where_);
    return graph;
  }

 private:
  frontend::ImportedModel import(const frontend::ImportOptions& options) const {
    try {
      return frontend::import_onnx(file_, options);
    } catch (const UserError& error) { throw UserError(concat(where_, ": ", error.what()), error.code()); }
  }

  /// The shapes with those of arrays that no data have, by what the file declares.
  std::map<std::string, Shape> complete(std::map<std::string, Shape> shapes) const {
    std::map<std::string, std::int64_t> symbols;
    for (const ValueInfo& input : file_.inputs)
      if (const auto found = shapes.find(input.name); found != shapes.end()) note(input, found->second, symbols);
    for (const ValueInfo& input : file_.inputs) {
      if (shapes.contains(input.name)) continue;
      Shape shape = declared_shape(input, symbols);
      check_user(input.has_shape && std::ranges::count(shape, -1) == 0, where_, ": input ", to_string(input),
                 ": nothing says its shape, as there are no data");
      shapes.emplace(input.name, std::move(shape));
    }
    return shapes;
  }

  /// Checks a shape against what the file declares, and notes what symbols stand for.
  void note(const ValueInfo& input, const Shape& shape, std::map<std::string, std::int64_t>& symbols) const {
    if (!input.has_shape) return;
    bool fits = input.dimensions.size() == shape.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) {
      const Dimension& d = input.dimensions[i];
      if (d.size >= 0) fits = d.size == shape[i];
      else if (!d.symbol.empty()) fits = symbols.emplace(d.symbol, shape[i]).first->second == shape[i];
    }
    check_user(fits, where_, ": input ", to_string(input), ": what it stands for has shape [", to_string(shape), "]");
  }

  frontend::OnnxFile file_;
  std::string where_;
  std::vector<std::string> inputs_;
};

}  // namespace

std::string loss_file_of(std::string_view text) {
  return text.starts_with(kPrefix) ? std::string(text.substr(kPrefix.size())) : std::string();
}

passes::LossSpec read_loss(std::string_view text, std::string_view output) {
  passes::LossSpec loss = passes::parse_loss(text, output);
  if (loss.is_graph) loss.file = std::make_shared<const OnnxLoss>(loss_file_of(text));
  return loss;
}

}  // namespace gcomp::driver
