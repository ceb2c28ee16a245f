// A Protobuf message as a tree of fields, without its generated classes: what structural edits work on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gcomp::tests {

/// A message type: which of its fields are messages themselves. Everything else of variable length is bytes.
struct MessageSchema {
  struct Child {
    int number;
    const MessageSchema* type;
  };
  std::vector<Child> children;
};

/// onnx.ModelProto.
const MessageSchema& onnx_model_schema();

struct WireField {
  int number = 0;
  int wire_type = 0;        ///< Protobuf's: 0 varint, 1 eight bytes, 2 of variable length, 5 four bytes
  std::uint64_t value = 0;  ///< of wire types 0, 1 and 5
  std::string bytes;        ///< of wire type 2, where it is no message
  bool is_message = false;
  std::vector<WireField> fields;  ///< of a message
};

/// The fields of a message. What does not parse as `schema` says is left as bytes; with no schema, whatever parses is a message.
std::vector<WireField> parse_wire(std::string_view bytes, const MessageSchema* schema);
std::string serialize_wire(const std::vector<WireField>& fields);

}  // namespace gcomp::tests
