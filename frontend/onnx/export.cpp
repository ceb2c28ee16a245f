// The original file with trained values. Nodes, names and forms stay; only the data of initializers changes, and a split
// initializer becomes several.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "frontend/onnx/import.h"
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

/// A part of a split initializer becomes an initializer of its own, which its node then reads.
void add_part(ModelProto& model, const Alias& alias, const Tensor& values) {
  ::onnx::GraphProto& graph = *model.mutable_graph();
  const TensorProto* whole = find_initializer(model, alias.initializer);
  check_internal(whole && alias.node >= 0 && alias.node < graph.node_size(), "no initializer '", alias.initializer, "' to take '",
                 alias.state, "' from");
  TensorProto part = *whole;
  part.set_name(alias.state);
  write_tensor(part, values);
  *graph.add_initializer() = part;
  graph.mutable_node(alias.node)->set_input(alias.operand, alias.state);
  // Before IR version 4 an initializer is also an input.
  for (int i = 0; model.ir_version() < 4 && i < graph.input_size(); ++i) {
    if (graph.input(i).name() != alias.initializer) continue;
    ::onnx::ValueInfoProto info = graph.input(i);
    info.set_name(alias.state);
    *graph.add_input() = info;
    break;
  }
}

/// Writes beside the final name and renames, so that a file is there whole or not at all.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), temporary_(path + ".XXXXXX") {
    std::error_code ignored;
    if (const auto target = std::filesystem::weakly_canonical(path, ignored);
        !ignored && std::filesystem::is_symlink(path, ignored)) {
      path_ = target.string();
      temporary_ = path_ + ".XXXXXX";
    }
    descriptor_ = mkstemp(temporary_.data());
    if (descriptor_ < 0) fail();
    const mode_t mask = umask(0);
    umask(mask);
    fchmod_or_fail(0666 & ~mask);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!committed_) unlink(temporary_.c_str());
  }

  void write(const std::string& bytes) {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t got = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail();
      done += static_cast<std::size_t>(got);
    }
  }
  void commit() {
    if (fsync(descriptor_) != 0) fail();
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail();
    committed_ = true;
  }

 private:
  void fchmod_or_fail(mode_t mode) {
    if (fchmod(descriptor_, mode) != 0) fail();
  }
  [[noreturn]] void fail() const { throw UserError(concat("cannot write '", path_, "': ", std::strerror(errno))); }

  std::string path_, temporary_;
  int descriptor_ = -1;
  bool committed_ = false;
};

}  // namespace

std::string export_onnx_bytes(const Model& model, const std::map<std::string, Tensor>& states) {
  check_user(model.source != nullptr, "this model did not come from an ONNX file");
  ModelProto proto = model.source->model;
  embed_external_data(proto, *model.source);
  for (const Alias& alias : model.aliases) {
    auto it = states.find(alias.state);
    if (it == states.end()) continue;
    if (alias.node >= 0) {
      add_part(proto, alias, it->second);
    } else if (TensorProto* tied = find_initializer(proto, alias.initializer)) {
      write_tensor(*tied, alias.transposed ? transposed(it->second) : it->second);
    }
  }
  for (TensorProto& initializer : *proto.mutable_graph()->mutable_initializer())
    if (auto it = states.find(initializer.name()); it != states.end()) write_tensor(initializer, it->second);
  check_user(proto.ByteSizeLong() <= kLargestOnnxFile, "the model has ", proto.ByteSizeLong(),
             " bytes; an ONNX file holds at most 2 GiB");
  return proto.SerializeAsString();
}

void export_onnx(const Model& model, const std::map<std::string, Tensor>& states, const std::string& path) {
  const std::string bytes = export_onnx_bytes(model, states);
  NewFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace gcomp::frontend
