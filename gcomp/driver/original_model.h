// The ONNX file that an artifact came from, which export needs beside the trained values: a reference to it, or the file itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "gcomp/saved_form.h"
#include "runtime/artifact.h"

namespace gcomp::driver {

struct OriginalFile {
  std::string location;  ///< relative to the model's directory
  std::string sha256;
};

struct OriginalModel {
  std::string path;                           ///< absolute; "" where the artifact holds the file itself
  std::string sha256;                         ///< of the file at `path`
  std::vector<OriginalFile> external;         ///< its external data
  std::vector<frontend::Alias> aliases;       ///< how states and initializers differ
  frontend::FormCounts::Nodes training_form;  ///< its nodes that export writes in inference form
};

/// Throws UserError where no artifact can keep the file whole (`limit`: bytes that one file of ONNX may have), which
/// keep_original() finds only when all is done.
void check_keeps_whole(const frontend::Source& source, std::uintmax_t limit = frontend::kLargestOnnxFile);

/// What an artifact keeps of `file`; `model` is what import made of it for training. A file that is no longer as it was read, or
/// that never was one, cannot be referred to and is kept whole. Whole means as artifact.model, with external data inside. Where
/// that cannot be read either, nothing is kept.
OriginalModel keep_original(const frontend::OnnxFile& file, const frontend::ImportedModel& model, KeepModel keep,
                            runtime::Artifact& artifact);

/// The same by reference alone, for what cannot hold the file: without path and SHA-256 where the file is no longer as it was read.
OriginalModel refer_to_original(const frontend::OnnxFile& file, const frontend::ImportedModel& model);

/// Keeps whole what was kept by reference; `model` has its source.
void embed_original(OriginalModel& original, const frontend::ImportedModel& model, runtime::Artifact& artifact);

/// The file again, at its path or beside the artifact, with `files` and `source`. Throws UserError that names the path, the SHA-256
/// that is wanted and the cure where the file is missing or another.
frontend::OnnxFile open_original(const OriginalModel& original, const std::vector<std::byte>& whole,
                                 const std::filesystem::path& artifact);

}  // namespace gcomp::driver
