#include "frontend/onnx/signature.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "frontend/onnx/metadata.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

constexpr std::string_view kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr std::string_view kSignature = "pkg.torch.export.ExportedProgram.graph_signature";
constexpr std::string_view kTracedName = "pkg.torch.onnx.original_node_name";
constexpr std::string_view kCall = "pkg.torch.onnx.fx_node";
constexpr std::string_view kScopes = "pkg.torch.onnx.name_scopes";
constexpr std::string_view kFolded = "pkg.onnxscript.optimizer.folded_from";

struct KindRow {
  std::string_view name;
  InputKind kind;
};
constexpr KindRow kKinds[] = {
    {"PARAMETER", InputKind::parameter}, {"BUFFER", InputKind::buffer}, {"CONSTANT_TENSOR", InputKind::constant}};

std::optional<InputKind> kind_of(std::string_view text) {
  for (const KindRow& row : kKinds)
    if (row.name == text) return row.kind;
  return std::nullopt;
}

bool is_identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string_view identifier_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_identifier(text[end])) ++end;
  return text.substr(at, end - at);
}

/// The strings of a Python list of strings, "['a', 'b']"; of any other text those that stand in quotes.
std::vector<std::string> quoted(std::string_view text) {
  std::vector<std::string> strings;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char quote = text[i];
    if (quote != '\'' && quote != '"') continue;
    std::string& string = strings.emplace_back();
    for (++i; i < text.size() && text[i] != quote; ++i) {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      string += text[i];
    }
  }
  return strings;
}

/// What stands between `begin` and the next `end`; "" where either is missing.
std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t from = text.find(begin);
  if (from == std::string_view::npos) return {};
  const std::size_t to = text.find(end, from + begin.size());
  return to == std::string_view::npos ? std::string_view() : text.substr(from + begin.size(), to - from - begin.size());
}

void add_target(Signature& signature, std::string_view placeholder, std::string_view kind, std::string_view target) {
  const auto known = kind_of(kind);
  if (!known || target.empty() || placeholder.empty()) return;
  signature.targets.emplace(target, *known);
  signature.placeholders.emplace(placeholder, target);
}

/// "p_fc_weight: PARAMETER target='fc.weight'", a line for each input, and "add: BUFFER_MUTATION target='mean'" among the outputs.
void read_lines(std::string_view text, Signature& signature) {
  bool outputs = false;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = text.substr(start, end - start);
    start = end + 1;
    const std::size_t colon = line.find(": ");
    if (line.starts_with("# outputs")) outputs = true;
    if (colon == std::string_view::npos) continue;
    const std::string_view value = line.substr(0, colon), kind = identifier_at(line, colon + 2),
                           target = between(line, "target='", "'");
    if (!outputs) add_target(signature, value, kind, target);
    else if (kind == "BUFFER_MUTATION") signature.mutations.emplace(target, value);
  }
}

/// "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_fc_weight'), target='fc.weight', ...)": before torch 2.6.
void read_specs(std::string_view text, Signature& signature) {
  constexpr std::string_view kSpec = "InputSpec(kind=<InputKind.";
  for (std::size_t at = text.find(kSpec); at != std::string_view::npos;) {
    at += kSpec.size();
    const std::size_t next = text.find(kSpec, at);
    const std::string_view spec = text.substr(at, next == std::string_view::npos ? next : next - at);
    add_target(signature, between(spec, "name='", "'"), identifier_at(spec, 0), between(spec, "target='", "'"));
    at = next;
  }
}

/// What stands between the brackets of "(args = (%p_w, %ids, 1, True), kwargs = {})", lists in pieces.
std::vector<std::string_view> argument_texts(std::string_view text) {
  std::string_view rest = between(text, "(args = (", ")");
  std::vector<std::string_view> arguments;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(", "), rest.size());
    arguments.push_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 2, rest.size()));
  }
  return arguments;
}

template <class Number>
std::optional<Number> number_in(const std::vector<std::string_view>& arguments, std::size_t i) {
  if (i >= arguments.size()) return std::nullopt;
  const std::string_view text = arguments[i];
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// What operators of ONNX have no room for.
void read_numbers(std::string_view text, TracedCall& call) {
  if (call.function == "torch.ops.aten.embedding.default") {
    // Table, indices, padding index, which is never counted from the end here, and whether gradients are divided by frequencies.
    const std::vector<std::string_view> arguments = argument_texts(text);
    call.padding_index = std::max<std::int64_t>(number_in<std::int64_t>(arguments, 2).value_or(-1), -1);
    call.scales_by_frequency = arguments.size() > 3 && arguments[3] == "True";
  }
  if (call.function.starts_with("torch.ops.aten.scatter_reduce")) {
    const std::vector<std::string_view> arguments = argument_texts(text);
    call.averages = std::find(arguments.begin(), arguments.end(), "mean") != arguments.end() ||
                    std::find(arguments.begin(), arguments.end(), "'mean'") != arguments.end();
  }
  if (call.function == "torch.ops.aten.cross_entropy_loss.default") {
    // Scores, classes, weights, reduction, ignored class, label smoothing.
    const double smoothing = number_in<double>(argument_texts(text), 5).value_or(0);
    call.label_smoothing = smoothing > 0 && smoothing <= 1 ? smoothing : 0;
  }
}

TracedCall read_call(const ::onnx::NodeProto& node) {
  const Metadata metadata = metadata_of(node);
  const std::string_view text = find(metadata, kCall);
  TracedCall call;
  if (text.starts_with("%")) call.result = identifier_at(text, 1);
  call.function = between(text, "[target=", "]");
  const std::size_t arguments = text.find('(');
  for (std::size_t at = std::min(arguments, text.size()); at < text.size(); ++at) {
    if (text[at] != '%') continue;
    const std::string_view name = identifier_at(text, at + 1);
    if (!name.empty()) call.arguments.emplace_back(name);
    at += name.size();
  }
  const std::vector<std::string> scopes = quoted(find(metadata, kScopes));
  if (scopes.size() >= 2) call.module = scopes[scopes.size() - 2];
  read_numbers(text, call);
  return call;
}

void read_initializer(const ::onnx::ValueInfoProto& value, Signature& signature) {
  const Metadata metadata = metadata_of(value);
  if (const auto kind = kind_of(find(metadata, kKind))) {
    signature.kinds.emplace(value.name(), *kind);
    add_target(signature, find(metadata, kTracedName), find(metadata, kKind), value.name());
  }
  if (const std::string_view folded = find(metadata, kFolded); !folded.empty())
    signature.folded_from.emplace(value.name(), quoted(folded));
}

}  // namespace

std::string_view operation_of(std::string_view value) {
  const std::size_t last = value.rfind('_');
  const bool numbered = last != std::string_view::npos && last > 0 && last + 1 < value.size() &&
                        value.find_first_not_of("0123456789", last + 1) == std::string_view::npos;
  return numbered ? value.substr(0, last) : value;
}

std::string_view name_of(InputKind kind) {
  switch (kind) {
    case InputKind::parameter: return "parameter";
    case InputKind::buffer: return "buffer";
    case InputKind::constant: return "constant";
  }
  return "?";
}

Signature read_signature(const ::onnx::GraphProto& graph) {
  Signature signature;
  const Metadata metadata = metadata_of(graph);
  const std::string_view text = find(metadata, kSignature);
  read_lines(text, signature);
  if (signature.targets.empty()) read_specs(text, signature);
  std::unordered_set<std::string_view> initializers;
  for (const auto& proto : graph.initializer()) initializers.insert(proto.name());
  for (const auto& value : graph.value_info())
    if (initializers.contains(value.name())) read_initializer(value, signature);
  for (const auto& input : graph.input()) {
    const Metadata entries = metadata_of(input);
    if (const std::string_view name = find(entries, kTracedName); !name.empty()) signature.input_names.emplace(name, input.name());
  }
  for (const auto& node : graph.node()) signature.calls.push_back(read_call(node));
  return signature;
}

namespace {

::onnx::ValueInfoProto& add_info(::onnx::GraphProto& graph, const ::onnx::TensorProto& initializer) {
  ::onnx::ValueInfoProto& value = *graph.add_value_info();
  value.set_name(initializer.name());
  auto* type = value.mutable_type()->mutable_tensor_type();
  type->set_elem_type(initializer.data_type());
  for (const std::int64_t dim : initializer.dims()) type->mutable_shape()->add_dim()->set_dim_value(dim);
  return value;
}

}  // namespace

void write_kind(::onnx::GraphProto& graph, const ::onnx::TensorProto& initializer, InputKind kind) {
  const KindRow* row = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const KindRow& r) { return r.kind == kind; });
  add_metadata(add_info(graph, initializer), std::string(kKind), std::string(row->name));
}

void write_folded(::onnx::GraphProto& graph, const ::onnx::TensorProto& initializer, const std::string& target) {
  add_metadata(add_info(graph, initializer), std::string(kFolded), concat("['", target, "']"));
}

}  // namespace gcomp::frontend
