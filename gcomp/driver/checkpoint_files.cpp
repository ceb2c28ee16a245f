#include "gcomp/driver/checkpoint_files.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "gcomp/version.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/sha256.h"

namespace gcomp::driver {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kLargestManifest = std::uintmax_t{1} << 30;
constexpr std::uintmax_t kLargestTensorFile = std::uintmax_t{1} << 40;
constexpr StateKind kKinds[] = {StateKind::parameter, StateKind::statistic, StateKind::moment, StateKind::average,
                                StateKind::counter};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

runtime::FileDigest write_text(runtime::AtomicFolder& folder, const std::string& name, std::string_view text) {
  folder.begin_file(name);
  folder.write(bytes_of(text));
  return folder.end_file();
}

/// Tensors of one file, from where they lie.
class TensorFile {
 public:
  explicit TensorFile(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void add(const std::string& tensor, const TensorType& type, std::span<const std::byte> bytes) {
    types_.emplace_back(tensor, type);
    values_.push_back(bytes);
  }
  /// Nothing where it has none.
  void write(runtime::AtomicFolder& folder, Manifest& manifest) const {
    if (types_.empty()) return;
    const runtime::SafetensorsLayout layout = runtime::safetensors_layout(types_);
    folder.begin_file(name_);
    folder.write(layout.header);
    for (const std::size_t i : layout.order) folder.write(values_[i]);
    manifest.files[name_] = folder.end_file();
  }

 private:
  std::string name_;
  std::vector<NamedType> types_;
  std::vector<std::span<const std::byte>> values_;
};

/// The whole states of one kind as one file.
void write_states(runtime::AtomicFolder& folder, const Snapshot& snapshot, StateKind kind, Manifest& manifest) {
  TensorFile file(file_of(kind));
  for (const Snapshot::State& state : snapshot.states) {
    if (state.kind != kind || state.shares) continue;
    file.add(state.name, state.value.type(), state.value.bytes());
    manifest.tensors[state.name] = {state.value.type(), kind, {{file.name(), 0, state.value.elements()}}};
  }
  file.write(folder, manifest);
}

void add_share(const Snapshot& snapshot, const Snapshot::State& state, TensorFile& file, Manifest& manifest) {
  const passes::ShardedState& shares = *state.shares;
  const std::int64_t begin = shares.begin(snapshot.rank), length = shares.end(snapshot.rank) - begin;
  CheckpointTensor& tensor = manifest.tensors[state.name];
  tensor.type = shares.type;
  tensor.kind = state.kind;
  if (length == 0) return;
  const bool is_whole = length == shares.type.elements();
  const TensorType type = is_whole ? shares.type : TensorType{shares.type.dtype, {length}};
  file.add(state.name, type, state.value.bytes().first(static_cast<std::size_t>(type.bytes())));
  tensor.pieces.push_back({file.name(), begin, length});
}

std::string text_of(const fs::path& path, std::uintmax_t limit) {
  const std::vector<std::byte> bytes = runtime::read_file(path, limit);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string digest_line(std::string_view manifest) { return concat(runtime::sha256(manifest), "  ", kManifestFile, "\n"); }

std::optional<double> loss_scale_of(const Snapshot& snapshot) {
  for (const Snapshot::State& state : snapshot.states)
    if (state.kind == StateKind::counter && state.name == "loss_scale") return state.value.at(0);
  return std::nullopt;
}

/// Puts what a file holds of a tensor in its place.
void assemble(const std::string& name, const CheckpointTensor& tensor, const TensorPiece& piece, Tensor held, Tensor& whole) {
  const bool is_whole = piece.length == tensor.type.elements();
  const TensorType wanted{tensor.type.dtype, is_whole ? tensor.type.shape : Shape{piece.length}};
  check_user(held.type() == wanted, "tensor '", name, "' is ", to_string(held.type()), ", wanted ", to_string(wanted));
  if (is_whole) {
    whole = std::move(held);
    return;
  }
  if (whole.type() != tensor.type) whole = Tensor(tensor.type);
  const auto offset = static_cast<std::size_t>(piece.offset) * size_of(tensor.type.dtype);
  if (!held.bytes().empty()) std::memcpy(whole.data() + offset, held.data(), held.bytes().size());
}

/// Names in the file, and those that the manifest says are in it, must be the same.
void check_names(const Manifest& manifest, const std::string& file, const std::map<std::string, Tensor>& held) {
  std::vector<std::string> missing, extra;
  const auto lies_here = [&](const CheckpointTensor& tensor) {
    return std::ranges::count(tensor.pieces, file, &TensorPiece::file) > 0;
  };
  for (const auto& [name, tensor] : manifest.tensors)
    if (lies_here(tensor) && !held.contains(name)) missing.push_back(name);
  for (const auto& [name, tensor] : held)
    if (const auto listed = manifest.tensors.find(name); listed == manifest.tensors.end() || !lies_here(listed->second))
      extra.push_back(name);
  check_user(missing.empty(), "it lacks ", listing(missing), ", which the manifest says are in it");
  check_user(extra.empty(), "it holds ", listing(extra), ", of which the manifest says nothing");
}

std::map<std::string, Tensor> read_tensor_file(const fs::path& path, const runtime::FileDigest& digest) {
  std::vector<std::byte> bytes = runtime::read_file(path, kLargestTensorFile);
  check_user(bytes.size() == digest.bytes, "it has ", bytes.size(), " bytes, wanted ", digest.bytes);
  check_user(runtime::sha256(bytes) == digest.sha256, "its SHA-256 is not the manifest's: its contents have changed");
  return runtime::parse_safetensors(std::move(bytes), path.string()).tensors;
}

}  // namespace

void write_shares(runtime::AtomicFolder& folder, const Snapshot& snapshot, Manifest& manifest) {
  for (const StateKind kind : kKinds) {
    TensorFile file(file_of(kind, snapshot.rank, snapshot.ranks));
    for (const Snapshot::State& state : snapshot.states)
      if (state.kind == kind && state.shares) add_share(snapshot, state, file, manifest);
    file.write(folder, manifest);
  }
}

void write_checkpoint(const fs::path& path, const Snapshot& snapshot, const PartCollector& collect) {
  Manifest manifest;
  manifest.gcomp = version();
  manifest.run = snapshot.run;
  manifest.loss_scale = loss_scale_of(snapshot);
  manifest.model = snapshot.model;
  runtime::AtomicFolder folder(path);
  for (const StateKind kind : kKinds) write_states(folder, snapshot, kind, manifest);
  write_shares(folder, snapshot, manifest);
  if (collect) collect(folder, manifest);
  const std::string text = manifest_text(manifest);
  write_text(folder, kManifestFile, text);
  write_text(folder, kManifestDigestFile, digest_line(text));
  folder.commit();
}

Manifest read_manifest(const fs::path& path) {
  const auto naming = [&](const std::string& what) { return concat("checkpoint '", path.string(), "': ", what); };
  std::error_code ignored;
  check_user(fs::exists(path / kManifestFile, ignored), naming(concat("it has no ", kManifestFile)));
  try {
    const std::string text = text_of(path / kManifestFile, kLargestManifest);
    const std::string digest = text_of(path / kManifestDigestFile, runtime::kSha256Digits * 4);
    check_user(digest == digest_line(text), kManifestFile, " is not the one that ", kManifestDigestFile,
               " tells of: one of them has changed");
    return parse_manifest(text);
  } catch (const OtherFormat& error) { throw OtherFormat(naming(error.what())); } catch (const UserError& error) {
    throw UserError(naming(error.what()));
  } catch (const std::exception& error) {  // of JSON, for a number out of range
    throw UserError(naming(concat(kManifestFile, ": ", error.what())));
  }
}

void verify_files(const fs::path& path, const Manifest& manifest) {
  for (const auto& [name, digest] : manifest.files) {
    const std::string shown = (path / name).string();
    std::error_code error;
    check_user(fs::is_regular_file(path / name, error), "checkpoint '", path.string(), "': '", name, "' is missing");
    const std::uintmax_t bytes = fs::file_size(path / name, error);
    check_user(!error && bytes == digest.bytes, "'", shown, "' has ", bytes, " bytes, wanted ", digest.bytes);
    check_user(runtime::sha256_of_file(path / name) == digest.sha256, "'", shown,
               "': its SHA-256 is not the manifest's: its contents have changed");
  }
}

std::map<std::string, Tensor> read_tensors(const fs::path& path, const Manifest& manifest,
                                           const std::function<bool(const CheckpointTensor&)>& wanted) {
  const auto is_wanted = [&](const CheckpointTensor& tensor) { return !wanted || wanted(tensor); };
  std::set<std::string> files;
  for (const auto& [name, tensor] : manifest.tensors)
    for (const TensorPiece& piece : tensor.pieces)
      if (is_wanted(tensor)) files.insert(piece.file);
  if (!wanted)
    for (const auto& [file, digest] : manifest.files) files.insert(file);
  std::map<std::string, Tensor> tensors;
  for (const std::string& file : files) try {
      std::map<std::string, Tensor> held = read_tensor_file(path / file, manifest.files.at(file));
      check_names(manifest, file, held);
      for (auto& [name, values] : held) {
        const CheckpointTensor& tensor = manifest.tensors.at(name);
        if (is_wanted(tensor))
          assemble(name, tensor, *std::ranges::find(tensor.pieces, file, &TensorPiece::file), std::move(values), tensors[name]);
      }
    } catch (const UserError& error) { throw UserError(concat("'", (path / file).string(), "': ", error.what()), error.code()); }
  return tensors;
}

}  // namespace gcomp::driver
