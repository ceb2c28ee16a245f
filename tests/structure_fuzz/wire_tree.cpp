#include "tests/structure_fuzz/wire_tree.h"

#include <cstring>
#include <optional>

namespace gcomp::tests {
namespace {

/// Deeper than any model of the corpus; what lies below stays bytes.
constexpr int kMostDepth = 40;

std::optional<std::uint64_t> take_varint(std::string_view& in) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> take_fixed(std::string_view& in, std::size_t size) {
  if (in.size() < size) return std::nullopt;
  std::uint64_t value = 0;
  std::memcpy(&value, in.data(), size);
  in.remove_prefix(size);
  return value;
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

/// Null where `number` is no message by the schema.
const MessageSchema* child_of(const MessageSchema& schema, int number) {
  for (const MessageSchema::Child& child : schema.children)
    if (child.number == number) return child.type;
  return nullptr;
}

std::optional<std::vector<WireField>> parse_message(std::string_view in, const MessageSchema* schema, int depth) {
  std::vector<WireField> fields;
  while (!in.empty()) {
    const auto tag = take_varint(in);
    if (!tag || *tag >> 3 == 0 || *tag >> 3 > 0x1FFFFFFF) return std::nullopt;
    WireField field;
    field.number = static_cast<int>(*tag >> 3);
    field.wire_type = static_cast<int>(*tag & 7);
    std::optional<std::uint64_t> value;
    switch (field.wire_type) {
      case 0:
      case 2: value = take_varint(in); break;
      case 1: value = take_fixed(in, 8); break;
      case 5: value = take_fixed(in, 4); break;
      default: return std::nullopt;
    }
    if (!value) return std::nullopt;
    field.value = *value;
    if (field.wire_type == 2) {
      if (*value > in.size()) return std::nullopt;
      field.bytes = in.substr(0, *value);
      in.remove_prefix(*value);
      const MessageSchema* child = schema ? child_of(*schema, field.number) : nullptr;
      const bool may_be_message = schema ? child != nullptr : !field.bytes.empty();
      if (auto inner = may_be_message && depth < kMostDepth ? parse_message(field.bytes, child, depth + 1) : std::nullopt) {
        field.fields = *std::move(inner);
        field.is_message = true;
        field.bytes.clear();
      }
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

}  // namespace

const MessageSchema& onnx_model_schema() {
  struct Schemas {
    MessageSchema entry, opset, dimension, shape, tensor_type, type, value, external, tensor, attribute, node, graph, function,
        model;
    Schemas() {
      shape = {{{1, &dimension}}};
      tensor_type = {{{2, &shape}}};
      type = {{{1, &tensor_type}}};
      value = {{{2, &type}, {4, &entry}}};
      tensor = {{{13, &external}, {16, &entry}}};
      attribute = {{{5, &tensor}, {6, &graph}, {10, &tensor}, {11, &graph}}};
      node = {{{5, &attribute}, {9, &entry}}};
      graph = {{{1, &node}, {5, &tensor}, {11, &value}, {12, &value}, {13, &value}, {16, &entry}}};
      function = {{{7, &node}, {9, &opset}, {11, &attribute}, {12, &value}}};
      model = {{{7, &graph}, {8, &opset}, {14, &entry}, {25, &function}}};
    }
  };
  static const Schemas schemas;
  return schemas.model;
}

std::vector<WireField> parse_wire(std::string_view bytes, const MessageSchema* schema) {
  return parse_message(bytes, schema, 0).value_or(std::vector<WireField>());
}

std::string serialize_wire(const std::vector<WireField>& fields) {
  std::string out;
  for (const WireField& field : fields) {
    put_varint(out, static_cast<std::uint64_t>(field.number) << 3 | static_cast<unsigned>(field.wire_type));
    switch (field.wire_type) {
      case 0: put_varint(out, field.value); break;
      case 1: out.append(reinterpret_cast<const char*>(&field.value), 8); break;
      case 5: out.append(reinterpret_cast<const char*>(&field.value), 4); break;
      default: {
        const std::string bytes = field.is_message ? serialize_wire(field.fields) : field.bytes;
        put_varint(out, bytes.size());
        out += bytes;
      }
    }
  }
  return out;
}

}  // namespace gcomp::tests
