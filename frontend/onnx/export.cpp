// The original file with trained values. Nodes and names stay; only the data of initializers changes, a split initializer becomes
// several, and what was in training form is written in inference form. What one file has no room for lies beside it.
#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "frontend/onnx/folded_views.h"
#include "frontend/onnx/forms.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/input_forms.h"
#include "frontend/onnx/metadata.h"
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

/// From so many bytes on an initializer may lie beside its file. What is smaller, shapes and axes among it, readers want at hand.
constexpr std::int64_t kSmallestBeside = 1024;
constexpr std::uint64_t kAlignment = 4096;  // of what lies there, which readers map

/// Makes the values of an initializer when they are written, so that only one is in memory once more.
using Values = std::function<Tensor()>;

/// A file in the making. New values of what may come to lie beside it are kept apart: the model says of such initializers, as of
/// those that its source has in other files, that they lie outside.
struct Draft {
  ModelProto model;
  std::map<std::string, Values> values;
};

bool is_outside(const TensorProto& initializer) { return initializer.data_location() == TensorProto::EXTERNAL; }

/// Of its data; 0 for types that gcomp lacks.
std::int64_t bytes_of(const TensorProto& initializer) {
  const auto dtype = dtype_of(initializer.data_type());
  return dtype ? TensorType{*dtype, shape_of(initializer)}.bytes() : 0;
}

Draft draft_of(const Source& source) {
  Draft draft{.model = source.model, .values = {}};
  for (TensorProto& initializer : *draft.model.mutable_graph()->mutable_initializer())
    if (is_outside(initializer) && bytes_of(initializer) < kSmallestBeside)
      write_tensor(initializer, read_tensor(initializer, source.directory));
  return draft;
}

void set_values(Draft& draft, TensorProto& initializer, Values values) {
  if (bytes_of(initializer) < kSmallestBeside) return write_tensor(initializer, values());
  move_data_out(initializer);
  draft.values.insert_or_assign(initializer.name(), std::move(values));
}

/// In the initializer's type.
Tensor values_in(const Draft& draft, const TensorProto& initializer, const Source& source) {
  const auto found = draft.values.find(initializer.name());
  Tensor values = found == draft.values.end() ? read_tensor(initializer, source.directory) : found->second();
  check_internal(values.shape() == shape_of(initializer), "'", initializer.name(), "' does not fit ", to_string(values.type()));
  const DType dtype = dtype_of(initializer.data_type()).value();
  if (values.dtype() != dtype) return values.cast(dtype);
  return values;
}

/// Bytes of the file with all data inside, rounded up.
std::uintmax_t whole_size(const ModelProto& model) {
  constexpr std::uintmax_t kFieldStart = 16;
  std::uintmax_t size = model.ByteSizeLong();
  for (const TensorProto& initializer : model.graph().initializer())
    if (is_outside(initializer)) size += static_cast<std::uintmax_t>(bytes_of(initializer)) + kFieldStart;
  return size;
}

void check_size(std::uintmax_t size, const char* what, std::uintmax_t limit) {
  check_user(size <= limit, "the model has ", size, " bytes", what, "; one ONNX file holds at most ",
             limit == kLargestOnnxFile ? std::string("2 GiB") : std::to_string(limit));
}

void put_inside(Draft& draft, const Source& source) {
  for (TensorProto& initializer : *draft.model.mutable_graph()->mutable_initializer())
    if (is_outside(initializer)) write_tensor(initializer, values_in(draft, initializer, source));
}

void put_beside(Draft& draft, const Source& source, const DataBeside& beside) {
  constexpr std::array<std::byte, kAlignment> kZeros{};
  std::uint64_t end = 0;
  for (TensorProto& initializer : *draft.model.mutable_graph()->mutable_initializer()) {
    if (bytes_of(initializer) < kSmallestBeside) continue;
    const Tensor values = values_in(draft, initializer, source);
    const std::uint64_t gap = (kAlignment - end % kAlignment) % kAlignment;
    beside.write(std::span(kZeros).first(gap));
    beside.write(values.bytes());
    move_data_out(initializer);
    write_place(initializer, {beside.location, end + gap, values.bytes().size()});
    end += gap + values.bytes().size();
  }
}

std::string serialize(Draft& draft, const Source& source, const DataBeside& beside) {
  const std::uintmax_t whole = whole_size(draft.model);
  if (!beside.write) check_size(whole, " with all its data inside", beside.limit);
  if (whole <= beside.limit) put_inside(draft, source);
  else put_beside(draft, source, beside);
  check_size(draft.model.ByteSizeLong(), whole <= beside.limit ? "" : " without what lies beside it", beside.limit);
  return draft.model.SerializeAsString();
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

/// A state's own bytes: all states outlive the draft.
Values where_it_lies(const Tensor& state) {
  return [&state] { return Tensor::sharing(state.type(), {state.bytes(), &state}); };
}

struct NewValues {
  Shape shape;
  Values make;
};

/// The values that an alias has after training, or null where it did not train: an operand that shared its initializer with
/// something that did keeps the file's.
std::optional<NewValues> values_of(const Alias& alias, const Source& source, const std::map<std::string, Tensor>& states) {
  if (auto state = states.find(alias.state); state != states.end())
    return NewValues{state->second.shape(), where_it_lies(state->second)};
  if (alias.kind != Alias::Kind::constant || !states.contains(alias.initializer)) return std::nullopt;
  for (const TensorProto& proto : source.model.graph().initializer())
    if (proto.name() == alias.initializer)
      return NewValues{shape_of(proto), [&proto, &source] { return read_tensor(proto, source.directory); }};
  return std::nullopt;
}

/// Writes an initializer of its own for one operand of one node, which then reads it, and says what it is where the file says it of
/// the others.
void add_initializer(Draft& draft, const Alias& alias, const NewValues& values, const Signature& signature,
                     const std::string& folded) {
  ::onnx::GraphProto& graph = *draft.model.mutable_graph();
  const TensorProto* like = find_initializer(draft.model, alias.initializer);
  check_user(like && alias.node < graph.node_size() && alias.operand >= 0 && alias.operand <= kLargestOperand, "no node ",
             alias.node, " or initializer '", alias.initializer, "' to take '", alias.state, "' from");
  ::onnx::NodeProto& node = *graph.mutable_node(alias.node);
  while (node.input_size() <= alias.operand) node.add_input();
  node.set_input(alias.operand, alias.state);
  if (find_initializer(draft.model, alias.state)) return;
  TensorProto part;
  part.set_name(alias.state);
  part.set_data_type(like->data_type());
  part.mutable_dims()->Add(values.shape.begin(), values.shape.end());
  set_values(draft, part, values.make);
  append_initializer(draft.model, part);
  const bool constant = alias.kind == Alias::Kind::constant;
  if (!constant && !folded.empty()) write_folded(graph, part, folded);
  else if (constant || signature.present()) write_kind(graph, part, constant ? InputKind::constant : InputKind::parameter);
}

}  // namespace

std::map<std::string, Tensor> float_initializers(const std::shared_ptr<const Source>& source) {
  std::map<std::string, Tensor> tensors;
  for (const TensorProto& proto : source->model.graph().initializer())
    if (const auto dtype = dtype_of(proto.data_type()); dtype && is_float(*dtype))
      tensors.emplace(proto.name(), naming_file(source->name, [&] { return share_tensor(source, proto); }));
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
                              std::span<const InputForm> input_forms, const DataBeside& beside,
                              const std::map<std::string, std::string>& metadata) {
  check_user(model.source != nullptr, "this model did not come from an ONNX file");
  Draft draft = draft_of(*model.source);
  const Signature signature = read_signature(draft.model.graph());
  for (const Alias& alias : model.aliases) {
    const std::optional<NewValues> values = values_of(alias, *model.source, states);
    if (!values) continue;
    TensorProto* whole = find_initializer(draft.model, alias.initializer);
    if (alias.node >= 0) add_initializer(draft, alias, *values, signature, folded_from(model, signature, alias));
    else if (whole)
      set_values(draft, *whole,
                 [&alias, make = values->make, shape = shape_of(*whole)] { return as_initializer(alias, make(), shape); });
  }
  const auto is_repeated = [&](const std::string& name) {
    return std::any_of(model.aliases.begin(), model.aliases.end(),
                       [&](const Alias& alias) { return alias.kind == Alias::Kind::repeated && alias.state == name; });
  };
  for (TensorProto& initializer : *draft.model.mutable_graph()->mutable_initializer())
    if (auto it = states.find(initializer.name()); it != states.end() && !is_repeated(it->first))
      set_values(draft, initializer, where_it_lies(it->second));
  if (form == ExportForm::inference) write_inference_form(draft.model);
  prepend_input_forms(draft.model, input_forms);
  for (const auto& [key, value] : metadata) set_metadata(draft.model, key, value);
  return serialize(draft, *model.source, beside);
}

std::string metadata_of(const OnnxFile& file, std::string_view key) {
  return std::string(find(metadata_of(file.source->model), key));
}

void check_fits_one_file(const Source& source, std::uintmax_t limit) {
  check_size(whole_size(source.model), " with all its data inside", limit);
}

}  // namespace gcomp::frontend
