#include "frontend/onnx/fixed_weights.h"

#include <optional>
#include <set>
#include <string_view>

#include "frontend/onnx/functions.h"
#include "frontend/onnx/tensor_proto.h"
#include "frontend/onnx/verdict.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

using ::onnx::NodeProto;
using ::onnx::TensorProto;

class FixedWeights {
 public:
  explicit FixedWeights(const Source& source) : source_(source), functions_(source) { add_nodes(source.model.graph().node(), ""); }

  std::vector<FixedWeight> found;

 private:
  /// As deep as validate() lets graphs and calls be.
  template <class Nodes>
  void add_nodes(const Nodes& nodes, const std::string& place) {
    constexpr int kMatrix = 2;
    for (const NodeProto& node : nodes) {
      if (const auto* function = functions_.find(node.domain(), node.op_type())) {
        if (called_.insert(function).second) add_nodes(function->node(), concat("within the function '", function->name(), "'"));
        continue;
      }
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) add_body(attribute.g(), concat("within the body of ", node.op_type(), " '", describe(node), "'"));
        const bool constant = node.op_type() == "Constant" && attribute.name() == "value" && node.output_size() > 0;
        if (constant && attribute.t().dims_size() >= kMatrix && !is_filled(attribute.t()))
          add(node.output(0), attribute.t(), place.empty() ? "constant of the graph, no initializer" : concat("constant ", place));
      }
    }
  }

  void add_body(const ::onnx::GraphProto& body, const std::string& place) {
    for (const TensorProto& initializer : body.initializer()) add(initializer.name(), initializer, place);
    add_nodes(body.node(), place);
  }

  /// Of one value, such as the zeros that a recurrent layer begins with. What cannot be read is the import's to refuse.
  bool is_filled(const TensorProto& tensor) const {
    try {
      return has_one_value(read_tensor(tensor, source_.directory));
    } catch (const UserError&) { return false; }
  }

  void add(const std::string& name, const TensorProto& tensor, const std::string& place) {
    const std::optional<DType> dtype = dtype_of(tensor.data_type());
    if (!dtype || !is_float(*dtype)) return;
    const TensorType type{*dtype, shape_of(tensor)};
    if (type.elements() > 1) found.push_back({name, type, place});
  }

  const Source& source_;
  Functions functions_;
  std::set<const ::onnx::FunctionProto*> called_;
};

}  // namespace

std::vector<FixedWeight> fixed_weights(const Source& source) {
  return naming_file(source.name, [&] { return FixedWeights(source).found; });
}

}  // namespace gcomp::frontend
