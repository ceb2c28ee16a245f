// metadata_props of a model and its parts. Of the parts the schema has them since ONNX 1.16; with an older one Protobuf keeps them
// unread, as bytes, and writes them again: both are read and written here.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/onnx.pb.h"

namespace gcomp::frontend {

/// Key and value of each entry, in the file's order.
using Metadata = std::vector<std::pair<std::string, std::string>>;
Metadata metadata_of(const ::onnx::ModelProto& proto);
Metadata metadata_of(const ::onnx::GraphProto& proto);
Metadata metadata_of(const ::onnx::NodeProto& proto);
Metadata metadata_of(const ::onnx::ValueInfoProto& proto);

/// The value of `key`, or "".
std::string_view find(const Metadata& metadata, std::string_view key);

/// In the place of what the key had.
void set_metadata(::onnx::ModelProto& proto, const std::string& key, const std::string& value);
void add_metadata(::onnx::GraphProto& proto, const std::string& key, const std::string& value);
void add_metadata(::onnx::NodeProto& proto, const std::string& key, const std::string& value);
void add_metadata(::onnx::ValueInfoProto& proto, const std::string& key, const std::string& value);

}  // namespace gcomp::frontend
