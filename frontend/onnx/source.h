// The parsed file that a model came from. Only frontend/onnx includes Protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "frontend/onnx/external_data.h"
#include "onnx/onnx.pb.h"

namespace gcomp::frontend {

struct Source {
  ::onnx::ModelProto model;
  std::string name;       ///< the file's path, for messages
  std::string directory;  ///< where external data lies; empty: none is allowed
  std::map<std::string, std::int64_t> opsets;
  std::map<std::string, std::string> merged;  ///< initializers restored by merged_names.h -> that which they were merged into
  std::shared_ptr<ExternalData> external = std::make_shared<ExternalData>();
};

/// ONNX's own domain has two names; this is the shorter one, "".
inline std::string domain_called(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

/// How messages name a node: its name, or "OpType of 'first output'".
std::string describe(const ::onnx::NodeProto& node);

}  // namespace gcomp::frontend
