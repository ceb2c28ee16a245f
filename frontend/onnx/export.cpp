// The original file with trained values. Nodes and names stay; only the data of initializers changes, a split initializer becomes
// several, and what was in training form is written in inference form.
#include <algorithm>
#include <map>

#include "frontend/onnx/folded_views.h"
#include "frontend/onnx/forms.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/input_forms.h"
#include "frontend/onnx/signature.h"
#include "frontend/onnx/tensor_proto.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

using ::onnx::ModelProto;
using ::onnx::TensorProto;

TensorProto* find_initializer(ModelProto& model, const std::string& name) {
  for (TensorProto& proto : *model.mutable_graph()->mutable_initializer())
    if (proto.name() == name) return &proto;
  return nullptr;
}

Tensor transposed(const Tensor& matrix) {
  const std::int64_t rows = matrix.shape().at(0), columns = matrix.shape().at(1);
  Tensor result(matrix.dtype(), {columns, rows});
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) result.set(j * rows + i, matrix.at(i * columns + j));
  return result;
}

/// Data that lies outside the file comes in, since the new file may lie elsewhere.
void embed_external_data(ModelProto& model, const Source& source) {
  for (TensorProto& proto : *model.mutable_graph()->mutable_initializer())
    if (proto.data_location() == TensorProto::EXTERNAL) write_tensor(proto, read_tensor(proto, source.directory));
}

/// Of an operand that an initializer is written for: an artifact may say any number.
constexpr int kLargestOperand = 1 << 12;

/// The parameter of the module from which a state was folded that has the name of its value in the trace; else "".
std::string folded_from(const ImportedModel& model, const Signature& signature, const Alias& alias) {
  const bool traced = std::any_of(signature.calls.begin(), signature.calls.end(), [&](const TracedCall& call) {
    return std::find(call.arguments.begin(), call.arguments.end(), alias.state) != call.arguments.end();
  });
  if (!traced || !signature.folded_from.contains(alias.initializer)) return "";
  const auto state = std::find_if(model.parameters.begin(), model.parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == alias.state; });
  return state == model.parameters.end() || !signature.targets.contains(state->likely_name) ? "" : state->likely_name;
}

/// Writes an initializer of its own for one operand of one node, which then reads it, and says what it is where the file says it of
/// the others.
void add_initializer(ModelProto& model, const Alias& alias, const Tensor& values, const Signature& signature,
                     const std::string& folded) {
  ::onnx::GraphProto& graph = *model.mutable_graph();
  const TensorProto* like = find_initializer(model, alias.initializer);
  check_user(like && alias.node < graph.node_size() && alias.operand >= 0 && alias.operand <= kLargestOperand, "no node ",
             alias.node, " or initializer '", alias.initializer, "' to take '", alias.state, "' from");
  ::onnx::NodeProto& node = *graph.mutable_node(alias.node);
  while (node.input_size() <= alias.operand) node.add_input();
  node.set_input(alias.operand, alias.state);
  if (find_initializer(model, alias.state)) return;
  TensorProto part;
  part.set_name(alias.state);
  part.set_data_type(like->data_type());
  part.mutable_dims()->Add(values.shape().begin(), values.shape().end());
  write_tensor(part, values);
  append_initializer(model, part);
  const bool constant = alias.kind == Alias::Kind::constant;
  if (!constant && !folded.empty()) write_folded(graph, part, folded);
  else if (constant || signature.present()) write_kind(graph, part, constant ? InputKind::constant : InputKind::parameter);
}

/// The values that an alias has after training, or null where it did not train: an operand that shared its initializer with
/// something that did keeps the file's.
std::optional<Tensor> values_of(const Alias& alias, const Source& source, const std::map<std::string, Tensor>& states) {
  if (auto state = states.find(alias.state); state != states.end()) return state->second;
  if (alias.kind != Alias::Kind::constant || !states.contains(alias.initializer)) return std::nullopt;
  for (const TensorProto& proto : source.model.graph().initializer())
    if (proto.name() == alias.initializer) return read_tensor(proto, source.directory);
  return std::nullopt;
}

}  // namespace

std::map<std::string, Tensor> float_initializers(const Source& source) {
  std::map<std::string, Tensor> tensors;
  for (const TensorProto& proto : source.model.graph().initializer())
    if (const auto dtype = dtype_of(proto.data_type()); dtype && is_float(*dtype))
      tensors.emplace(proto.name(), naming_file(source.name, [&] { return read_tensor(proto, source.directory); }));
  return tensors;
}

OnnxFile with_initializers(const OnnxFile& file, const std::map<std::string, Tensor>& values) {
  auto source = std::make_shared<Source>(*file.source);
  for (TensorProto& proto : *source->model.mutable_graph()->mutable_initializer()) {
    const auto found = values.find(proto.name());
    if (found == values.end()) continue;
    check_user(found->second.shape() == shape_of(proto), "'", file.path, "': initializer '", proto.name(), "' has the shape [",
               to_string(shape_of(proto)), "], its new value is ", to_string(found->second.type()));
    write_tensor(proto, found->second);
  }
  OnnxFile changed = file;
  changed.source = std::move(source);
  return changed;
}

Tensor as_initializer(const Alias& alias, const Tensor& state, const Shape& shape) {
  const bool repeated = alias.kind == Alias::Kind::repeated;  // table_of() looks at that
  check_user(repeated || (state.elements() == element_count(shape) && (!alias.transposed || shape.size() == 2)), "'",
             alias.initializer, "' of shape [", to_string(shape), "] cannot be '", alias.state, "', ", to_string(state.type()));
  if (alias.kind == Alias::Kind::repeated) return table_of(alias.rows, state, shape);
  return alias.transposed ? transposed(state) : Tensor(state).reshaped(shape);
}

std::string export_onnx_bytes(const ImportedModel& model, const std::map<std::string, Tensor>& states, ExportForm form,
                              std::span<const InputForm> input_forms) {
  check_user(model.source != nullptr, "this model did not come from an ONNX file");
  ModelProto proto = model.source->model;
  embed_external_data(proto, *model.source);
  const Signature signature = read_signature(proto.graph());
  for (const Alias& alias : model.aliases) {
    const std::optional<Tensor> values = values_of(alias, *model.source, states);
    if (!values) continue;
    TensorProto* whole = find_initializer(proto, alias.initializer);
    if (alias.node >= 0) add_initializer(proto, alias, *values, signature, folded_from(model, signature, alias));
    else if (whole) write_tensor(*whole, as_initializer(alias, *values, shape_of(*whole)));
  }
  const auto is_repeated = [&](const std::string& name) {
    return std::any_of(model.aliases.begin(), model.aliases.end(),
                       [&](const Alias& alias) { return alias.kind == Alias::Kind::repeated && alias.state == name; });
  };
  for (TensorProto& initializer : *proto.mutable_graph()->mutable_initializer())
    if (auto it = states.find(initializer.name()); it != states.end() && !is_repeated(it->first))
      write_tensor(initializer, it->second);
  if (form == ExportForm::inference) write_inference_form(proto);
  prepend_input_forms(proto, input_forms);
  check_user(proto.ByteSizeLong() <= kLargestOnnxFile, "the model has ", proto.ByteSizeLong(),
             " bytes; an ONNX file holds at most 2 GiB");
  return proto.SerializeAsString();
}

}  // namespace gcomp::frontend
