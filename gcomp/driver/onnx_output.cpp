#include "gcomp/driver/onnx_output.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "gcomp/driver/kept_names.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::driver {
namespace fs = std::filesystem;
namespace {

/// The file of data, begun with its first bytes.
class DataFile {
 public:
  DataFile(fs::path path, const frontend::Source& source) : path_(std::move(path)), source_(source) {}

  void write(std::span<const std::byte> bytes) {
    if (!file_) begin();
    file_->write(bytes);
  }
  bool begun() const { return file_.has_value(); }
  void commit() {
    if (file_) file_->commit();
  }

 private:
  void begin() {
    std::error_code ignored;
    check_user(!fs::is_symlink(path_, ignored), "cannot write '", path_.string(),
               "': it is a symbolic link, which a file of ONNX cannot refer to");
    for (const std::string& read : frontend::external_files(source_))
      check_user(!fs::equivalent(read, path_, ignored), "cannot write '", path_.string(),
                 "': weights of the model that is exported are read from there; give another name");
    file_.emplace(path_);
  }

  fs::path path_;
  const frontend::Source& source_;
  std::optional<runtime::AtomicFile> file_;
};

}  // namespace

fs::path data_beside(const fs::path& path) {
  // What ONNX takes for a drive, a folder or a mark of its own is no part of a location.
  std::string name = path.filename().string() + ".data";
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '\\' || c == '*'; }, '_');
  return path.parent_path() / name;
}

fs::path write_onnx(const fs::path& path, const frontend::ImportedModel& model, const std::map<std::string, Tensor>& states,
                    const OnnxOutput& output) {
  check_user(model.source != nullptr, "'", path.string(), "': the model did not come from an ONNX file");
  const fs::path beside = data_beside(path);
  DataFile data(beside, *model.source);
  runtime::AtomicFile file(path);
  const std::string bytes = frontend::export_onnx_bytes(model, states, output.form, output.input_forms,
                                                        {.location = beside.filename().string(),
                                                         .write = [&](std::span<const std::byte> next) { data.write(next); },
                                                         .limit = output.largest},
                                                        kept_names(output.number_names));
  file.write(bytes);
  data.commit();
  file.commit();
  return data.begun() ? beside : fs::path();
}

}  // namespace gcomp::driver
