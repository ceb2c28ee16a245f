// ONNX in and out. open_onnx() parses and validates a file, import_onnx() lowers it to a graph with static shapes,
// export_onnx_bytes() writes the same file again with trained values. A file is untrusted: see docs in open.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/import_options.h"
#include "frontend/imported_model.h"
#include "gcomp/input_form.h"
#include "gcomp/saved_form.h"
#include "ir/base/tensor.h"

namespace gcomp::frontend {

/// Bytes that one file may have: Protobuf's limit.
inline constexpr std::uintmax_t kLargestOnnxFile = (std::uintmax_t{1} << 31) - 1;

struct InitializerInfo {
  std::string name;
  std::string dtype;  ///< "f32", or ONNX's name for a type that gcomp lacks, such as "FLOAT8E4M3FN"
  Shape shape;
  std::string location = {};  ///< of external data, as the file says it; "" where the data lies in the file
  std::string problem = {};   ///< why importing would refuse that external data, or ""
};

/// A file as it was when a model was read from it.
struct FileStamp {
  std::string path;
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t modified = 0;  ///< nanoseconds

  bool operator==(const FileStamp&) const = default;
};
/// The file at `path` as it is now; without device and inode where there is none.
FileStamp stamp_of(const std::string& path);

/// What a file says, without lowering it: for `inspect`, and to bind shapes.
struct OnnxFile {
  std::string path;
  std::int64_t ir_version = 0;
  std::string producer;                        ///< "pytorch 2.5.1"
  std::map<std::string, std::int64_t> opsets;  ///< domain ("" is ai.onnx) -> version
  std::vector<ValueInfo> inputs, outputs;      ///< inputs without those that are initializers
  std::vector<InitializerInfo> initializers;
  std::vector<FixedWeight> fixed;                      ///< weights that are no initializers of the main graph
  std::vector<std::pair<std::string, int>> operators;  ///< op type (with "domain::" unless ai.onnx) and count, by name
  /// The file itself, then those with its external data; none where it came from bytes in memory.
  std::vector<FileStamp> files;
  /// Where initializers have other values than those files say: what tells these from any others; else "".
  std::string altered = {};
  std::shared_ptr<const Source> source;
};

/// Whether some op gives the size of a tensor as a number, or is not of ONNX's own and may hide one that does.
bool asks_for_sizes(const OnnxFile& file);

/// Reads and checks a file; lowers nothing. Throws UserError (exit 3) for anything that is not a sound ONNX model.
OnnxFile open_onnx(const std::string& path);
/// The same from bytes in memory; external data is looked for in `directory` ("" refuses it).
OnnxFile open_onnx_bytes(std::string_view bytes, const std::string& name, const std::string& directory = {});

/// Lowers a file. Throws UserError: exit 3 for an unbound dimension, a shape that does not fit and the like; exit 4 with all
/// operators that are not supported in one message.
ImportedModel import_onnx(const OnnxFile& file, const ImportOptions& options = {});

/// The paths of the files with a model's external data.
std::vector<std::string> external_files(const Source& source);

/// While the result lives, imports of the file share what lies beside it, which is then read once.
std::shared_ptr<const void> keep_external_data(const OnnxFile& file);

/// Initializers of floating-point types, as the file has them. Throws UserError as import_onnx() does for data that cannot be read.
std::map<std::string, Tensor> float_initializers(const std::shared_ptr<const Source>& source);

/// The file with these values in the place of its initializers' of the same names, in the initializers' types. Throws UserError
/// where a shape is another. `altered` is the caller's to say.
OnnxFile with_initializers(const OnnxFile& file, const std::map<std::string, Tensor>& values);

/// A tied or repeated state as its initializer of that shape holds it. Throws UserError where they do not fit.
Tensor as_initializer(const Alias& alias, const Tensor& state, const Shape& shape);

using gcomp::ExportForm;

/// Where the data of initializers goes that one file has no room for.
struct DataBeside {
  std::string location;                                   ///< of that file, as the .onnx is to say it
  std::function<void(std::span<const std::byte>)> write;  ///< takes its next bytes; null where there is no such file
  std::uintmax_t limit = kLargestOnnxFile;                ///< bytes of the .onnx
};

/// The original file as bytes with the data of initializers replaced by `states` (by state name, in any float dtype); states
/// that are missing keep the file's values. Names and nodes stay as they came, but for nodes in training form
/// (frontend/onnx/forms.h). `input_forms` become nodes before the others (frontend/onnx/input_forms.h). Where all that is more
/// than `beside.limit` bytes, every initializer of at least 1 KiB goes to the file beside it, from a multiple of 4096 on, one after
/// the other; without such a file that is a UserError. `metadata` are entries of metadata_props, beside those that the file has.
std::string export_onnx_bytes(const ImportedModel& model, const std::map<std::string, Tensor>& states,
                              ExportForm form = ExportForm::inference, std::span<const InputForm> input_forms = {},
                              const DataBeside& beside = {}, const std::map<std::string, std::string>& metadata = {});

/// What the file says under `key` in its metadata_props; "" for nothing.
std::string metadata_of(const OnnxFile& file, std::string_view key);

/// Throws UserError where the model as it came does not fit into one file together with its external data.
void check_fits_one_file(const Source& source, std::uintmax_t limit = kLargestOnnxFile);

}  // namespace gcomp::frontend
