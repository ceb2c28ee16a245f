#include "gcomp/driver/original_model.h"

#include <algorithm>

#include "ir/base/error.h"
#include "runtime/files/sha256.h"

namespace gcomp::driver {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kCure =
    "put it back, there or beside the artifact, or write --out as .gcx; --embed-model of gcomp compile and train keeps it inside";

constexpr std::size_t kShownDigits = 16;  // of a SHA-256 in a message

bool unchanged(const std::vector<frontend::FileStamp>& files) {
  return std::all_of(files.begin(), files.end(), [](const auto& stamp) { return frontend::stamp_of(stamp.path) == stamp; });
}

void keep_whole(const frontend::ImportedModel& model, runtime::Artifact& artifact) {
  frontend::ImportedModel plain;
  plain.source = model.source;
  const std::string bytes = frontend::export_onnx_bytes(plain, {}, frontend::ExportForm::as_written);
  const auto view = std::as_bytes(std::span(bytes));
  artifact.model.assign(view.begin(), view.end());
}

void refer(OriginalModel& original, const std::vector<frontend::FileStamp>& files) {
  const fs::path path = fs::absolute(files[0].path).lexically_normal();
  original.path = path.string();
  original.sha256 = runtime::sha256_of_file(path);
  for (std::size_t i = 1; i < files.size(); ++i) {
    const fs::path external = fs::absolute(files[i].path).lexically_normal();
    original.external.push_back({external.lexically_relative(path.parent_path()).string(), runtime::sha256_of_file(external)});
  }
}

/// Throws where the file at `path` is not the one of this SHA-256.
void require_digest(const fs::path& artifact, std::string_view what, const fs::path& path, const std::string& wanted) {
  std::error_code ignored;
  check_user(fs::exists(path, ignored), "'", artifact.string(), "' was compiled from the ", what, " '", path.string(),
             "' (SHA-256 ", wanted.substr(0, kShownDigits), "...), which export needs and which is not there; ", kCure);
  const std::string found = runtime::sha256_of_file(path);
  check_user(found == wanted, "'", artifact.string(), "' was compiled from another ", what, " than '", path.string(),
             "' is now: its SHA-256 begins with ", found.substr(0, kShownDigits), ", wanted ", wanted.substr(0, kShownDigits), "; ",
             kCure);
}

fs::path find_original(const OriginalModel& original, const fs::path& artifact) {
  const fs::path path = original.path, beside = artifact.parent_path() / path.filename();
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  if (fs::exists(beside, ignored)) return beside;
  throw UserError(concat("'", artifact.string(), "' was compiled from '", path.string(), "' (SHA-256 ",
                         original.sha256.substr(0, kShownDigits), "...), which export needs and which is not there; ", kCure));
}

}  // namespace

void check_keeps_whole(const frontend::Source& source, std::uintmax_t limit) {
  try {
    frontend::check_fits_one_file(source, limit);
  } catch (const UserError& error) {
    throw UserError(concat("an artifact cannot keep the model inside (--embed-model): ", error.what(),
                           "; without that option it keeps the file's path and SHA-256"));
  }
}

OriginalModel keep_original(const frontend::OnnxFile& file, const frontend::ImportedModel& model, KeepModel keep,
                            runtime::Artifact& artifact) {
  OriginalModel original{.path = {}, .sha256 = {}, .external = {}, .aliases = model.aliases, .training_form = model.forms.training};
  try {
    if (keep == KeepModel::by_reference && !file.files.empty() && file.altered.empty() && unchanged(file.files))
      refer(original, file.files);
    else keep_whole(model, artifact);
  } catch (const UserError&) {
    original.path.clear();  // files that cannot be read any more are no reason to lose what was trained: open_original() says so
  }
  return original;
}

OriginalModel refer_to_original(const frontend::OnnxFile& file, const frontend::ImportedModel& model) {
  OriginalModel original{.path = {}, .sha256 = {}, .external = {}, .aliases = model.aliases, .training_form = model.forms.training};
  try {
    if (!file.files.empty() && unchanged(file.files)) refer(original, file.files);
  } catch (const UserError&) { original.path.clear(); }  // as above
  if (!file.altered.empty()) {  // the file alone is not the model, but its digest and theirs tell one such from another
    original.sha256 = runtime::sha256(concat(original.sha256, "\n", file.altered));
    original.path.clear();
  }
  return original;
}

void embed_original(OriginalModel& original, const frontend::ImportedModel& model, runtime::Artifact& artifact) {
  keep_whole(model, artifact);
  original.path.clear();
  original.sha256.clear();
  original.external.clear();
}

frontend::OnnxFile open_original(const OriginalModel& original, const std::vector<std::byte>& whole, const fs::path& artifact) {
  if (original.path.empty()) {
    check_user(!whole.empty(), "'", artifact.string(),
               "' holds no ONNX file, for the one that it came from could not be read when it was written; write --out as .gcx");
    return frontend::open_onnx_bytes({reinterpret_cast<const char*>(whole.data()), whole.size()},
                                     concat(artifact.string(), ", entry 'model.onnx'"));
  }
  const fs::path path = find_original(original, artifact);
  require_digest(artifact, "model", path, original.sha256);
  for (const OriginalFile& file : original.external)
    require_digest(artifact, "file of external data", path.parent_path() / file.location, file.sha256);
  frontend::OnnxFile file = frontend::open_onnx(path.string());
  check_user(unchanged(file.files), "'", path.string(), "' changed while it was read");
  return file;
}

}  // namespace gcomp::driver
