// Reads a model file. The file is untrusted: its size is checked before it is read, Protobuf's recursion is bounded, and
// validate() runs before anything else looks at it.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>

#include "frontend/onnx/fixed_weights.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/merged_names.h"
#include "frontend/onnx/tensor_proto.h"
#include "frontend/onnx/validate.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

/// A file's bytes, in memory that nothing cleared first: weights are most of a file.
struct FileBytes {
  std::unique_ptr<char[]> memory;
  std::size_t size = 0;
};

FileBytes read_whole(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  check_user(std::filesystem::exists(status), "cannot read '", path, "': no such file");
  check_user(std::filesystem::is_regular_file(status), "cannot read '", path, "': not a regular file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  check_user(!error, "cannot read '", path, "': ", error.message());
  check_user(size <= kLargestOnnxFile, "'", path, "' has ", size,
             " bytes; an ONNX file is at most 2 GiB, with larger weights in external data");
  std::ifstream stream(path, std::ios::binary);
  check_user(stream.good(), "cannot read '", path, "': ", std::strerror(errno));
  FileBytes bytes{std::make_unique_for_overwrite<char[]>(size), size};
  stream.read(bytes.memory.get(), static_cast<std::streamsize>(size));
  check_user(static_cast<std::uintmax_t>(stream.gcount()) == size, "cannot read '", path, "': it became shorter while it was read");
  return bytes;
}

std::shared_ptr<Source> parse(std::string_view bytes, const std::string& name, const std::string& directory) {
  auto source = std::make_shared<Source>();
  source->name = name;
  source->directory = directory;
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetRecursionLimit(100);
  const bool parsed = source->model.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage();
  check_user(!bytes.starts_with("PK\3\4"), "'", name, "' is a zip archive, such as .npz and .gcx are; wanted an ONNX model");
  check_user(parsed && !bytes.empty(), "'", name, "' is not an ONNX model, or is cut short: it does not parse");
  for (const auto& opset : source->model.opset_import()) {
    const std::string domain = opset.domain() == "ai.onnx" ? "" : opset.domain();
    const auto [known, added] = source->opsets.emplace(domain, opset.version());
    check_user(added || known->second == opset.version(), name, ": operator set '", domain.empty() ? "ai.onnx" : domain,
               "' is imported in two versions, ", known->second, " and ", opset.version());
  }
  validate(*source);
  if (const auto opset = source->opsets.find(""); opset != source->opsets.end())
    source->merged = restore_merged(source->model, opset->second);
  return source;
}

ValueInfo value_info(const ::onnx::ValueInfoProto& proto, const std::string& file) {
  ValueInfo info;
  info.name = proto.name();
  check_user(proto.type().value_case() != ::onnx::TypeProto::VALUE_NOT_SET, file, ": '", proto.name(),
             "' is declared without a type");
  if (!proto.type().has_tensor_type())
    throw UserError(concat(file, ": '", proto.name(),
                           "' is not a tensor; sequences, maps and optionals are no inputs or outputs of a trained model"),
                    ExitCode::unsupported);
  const auto& tensor = proto.type().tensor_type();
  const auto dtype = dtype_of(tensor.elem_type());
  if (!dtype)
    throw UserError(concat(file, ": '", proto.name(), "' has the unsupported type ", onnx_type_name(tensor.elem_type())),
                    ExitCode::unsupported);
  info.dtype = *dtype;
  info.has_shape = tensor.has_shape();
  for (const auto& dim : tensor.shape().dim()) {
    // Exporters write -1 or 0 for "unknown" now and then; a true 0 would make an empty input, which nobody declares.
    if (dim.has_dim_value() && dim.dim_value() > 0) info.dimensions.push_back({dim.dim_value(), ""});
    else
      info.dimensions.push_back({dim.has_dim_value() && dim.dim_value() == 0 ? 0 : -1, dim.has_dim_param() ? dim.dim_param() : ""});
  }
  check_user(info.dimensions.size() <= 32, file, ": '", proto.name(), "' has more than 32 dimensions");
  return info;
}

void count_operators(const ::onnx::GraphProto& graph, std::map<std::string, int>& counts) {
  for (const auto& node : graph.node()) {
    ++counts[node.domain().empty() || node.domain() == "ai.onnx" ? node.op_type() : node.domain() + "::" + node.op_type()];
    for (const auto& attribute : node.attribute())
      if (attribute.has_g()) count_operators(attribute.g(), counts);
  }
}

OnnxFile describe_file(std::shared_ptr<const Source> source) {
  OnnxFile file;
  file.path = source->name;
  const ::onnx::ModelProto& model = source->model;
  file.ir_version = model.ir_version();
  file.producer = model.producer_name() + (model.producer_version().empty() ? "" : " " + model.producer_version());
  file.opsets = source->opsets;
  std::map<std::string, bool> initialized;
  for (const auto& tensor : model.graph().initializer()) {
    initialized[tensor.name()] = true;
    const auto dtype = dtype_of(tensor.data_type());
    file.initializers.push_back({tensor.name(), dtype ? std::string(name_of(*dtype)) : onnx_type_name(tensor.data_type()),
                                 naming_file(file.path, [&] { return shape_of(tensor); }), external_location(tensor),
                                 external_problem(tensor, source->directory)});
  }
  file.fixed = fixed_weights(*source);
  for (const auto& input : model.graph().input())
    if (!initialized.count(input.name())) file.inputs.push_back(value_info(input, file.path));
  for (const auto& output : model.graph().output()) file.outputs.push_back(value_info(output, file.path));
  std::map<std::string, int> counts;
  count_operators(model.graph(), counts);
  file.operators.assign(counts.begin(), counts.end());
  file.source = std::move(source);
  return file;
}

using Locations = std::vector<std::string>;

void add_location(const ::onnx::TensorProto& tensor, Locations& locations) {
  if (tensor.data_location() != ::onnx::TensorProto::EXTERNAL) return;
  for (const auto& entry : tensor.external_data())
    if (entry.key() == "location" && std::find(locations.begin(), locations.end(), entry.value()) == locations.end())
      locations.push_back(entry.value());
}

/// Where initializers and constants of a graph lie outside its file. Bodies of If and Loop are graphs too, as deep as validate()
/// lets them be.
void add_locations(const ::onnx::GraphProto& graph, Locations& locations) {
  for (const auto& tensor : graph.initializer()) add_location(tensor, locations);
  for (const auto& node : graph.node())
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_t()) add_location(attribute.t(), locations);
      if (attribute.has_g()) add_locations(attribute.g(), locations);
    }
}

}  // namespace

FileStamp stamp_of(const std::string& path) {
  FileStamp stamp{.path = path};
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return stamp;
  stamp.device = status.st_dev;
  stamp.inode = status.st_ino;
  stamp.bytes = static_cast<std::uint64_t>(status.st_size);
  stamp.modified = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return stamp;
}

OnnxFile open_onnx_bytes(std::string_view bytes, const std::string& name, const std::string& directory) {
  check_user(bytes.size() <= kLargestOnnxFile, "'", name, "' is larger than 2 GiB");
  return describe_file(parse(bytes, name, directory));
}

std::vector<std::string> external_files(const Source& source) {
  Locations locations;
  add_locations(source.model.graph(), locations);
  for (std::string& location : locations) location = concat(source.directory, "/", location);
  return locations;
}

std::shared_ptr<const void> keep_external_data(const OnnxFile& file) { return file.source->external->keep(); }

bool asks_for_sizes(const OnnxFile& file) {
  constexpr std::string_view kAsking[] = {"Shape", "Size", "EyeLike"};
  return std::ranges::any_of(file.operators, [&](const auto& counted) {
    return std::ranges::find(kAsking, counted.first) != std::end(kAsking) || counted.first.find("::") != std::string::npos;
  });
}

OnnxFile open_onnx(const std::string& path) {
  std::string directory = std::filesystem::path(path).parent_path().string();
  if (directory.empty()) directory = ".";
  const FileStamp stamp = stamp_of(path);  // before it is read: a later change then shows
  const FileBytes bytes = read_whole(path);
  OnnxFile file = open_onnx_bytes({bytes.memory.get(), bytes.size}, path, directory);
  file.files.push_back(stamp);
  for (const std::string& external : external_files(*file.source)) file.files.push_back(stamp_of(external));
  return file;
}

}  // namespace gcomp::frontend
