#include "frontend/onnx/metadata.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>

namespace gcomp::frontend {
namespace {

using google::protobuf::internal::WireFormatLite;

/// Numbers of the field metadata_props, from the schema of ONNX 1.16; a model has had it from the start.
constexpr int kModelField = 14, kGraphField = 16, kNodeField = 9, kValueInfoField = 4;

/// The entries of field `number` among fields that the schema does not know; stops at what is not sound.
Metadata read_unknown(const std::string& bytes, int number) {
  Metadata metadata;
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  const std::uint32_t wanted = WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  while (const std::uint32_t tag = stream.ReadTag()) {
    std::string text;
    ::onnx::StringStringEntryProto entry;
    if (tag != wanted) {
      if (!WireFormatLite::SkipField(&stream, tag)) break;
    } else if (WireFormatLite::ReadBytes(&stream, &text) && entry.ParseFromString(text)) {
      metadata.emplace_back(entry.key(), entry.value());
    } else break;
  }
  return metadata;
}

template <class Proto>
Metadata read(const Proto& proto, int number) {
  if constexpr (requires { proto.metadata_props(); }) {
    Metadata metadata;
    for (const auto& entry : proto.metadata_props()) metadata.emplace_back(entry.key(), entry.value());
    return metadata;
  } else {
    return read_unknown(proto.unknown_fields(), number);
  }
}

template <class Proto>
void write(Proto& proto, int number, const std::string& key, const std::string& value) {
  ::onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  if constexpr (requires { proto.add_metadata_props(); }) {
    *proto.add_metadata_props() = entry;
  } else {
    google::protobuf::io::StringOutputStream string(proto.mutable_unknown_fields());
    google::protobuf::io::CodedOutputStream stream(&string);
    WireFormatLite::WriteBytes(number, entry.SerializeAsString(), &stream);
  }
}

}  // namespace

Metadata metadata_of(const ::onnx::ModelProto& proto) { return read(proto, kModelField); }
Metadata metadata_of(const ::onnx::GraphProto& proto) { return read(proto, kGraphField); }
Metadata metadata_of(const ::onnx::NodeProto& proto) { return read(proto, kNodeField); }
Metadata metadata_of(const ::onnx::ValueInfoProto& proto) { return read(proto, kValueInfoField); }

std::string_view find(const Metadata& metadata, std::string_view key) {
  const auto entry = std::find_if(metadata.begin(), metadata.end(), [&](const auto& e) { return e.first == key; });
  return entry == metadata.end() ? std::string_view() : std::string_view(entry->second);
}

void set_metadata(::onnx::ModelProto& proto, const std::string& key, const std::string& value) {
  auto& entries = *proto.mutable_metadata_props();
  const auto last = std::remove_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.key() == key; });
  entries.erase(last, entries.end());
  ::onnx::StringStringEntryProto& entry = *proto.add_metadata_props();
  entry.set_key(key);
  entry.set_value(value);
}
void add_metadata(::onnx::GraphProto& proto, const std::string& key, const std::string& value) {
  write(proto, kGraphField, key, value);
}
void add_metadata(::onnx::NodeProto& proto, const std::string& key, const std::string& value) {
  write(proto, kNodeField, key, value);
}
void add_metadata(::onnx::ValueInfoProto& proto, const std::string& key, const std::string& value) {
  write(proto, kValueInfoField, key, value);
}

}  // namespace gcomp::frontend
