#include "runtime/artifact.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "gcomp/version.h"
#include "ir/base/error.h"
#include "runtime/backend.h"
#include "runtime/files/hexadecimal.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/sha256.h"
#include "runtime/files/signature.h"
#include "runtime/files/strict_json.h"
#include "runtime/files/zip_archive.h"
#include "runtime/serialize.h"

namespace gcomp::runtime {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kModel = "model.onnx";
constexpr const char* kSignature = "signature.json";
constexpr std::uint64_t kLargestManifest = 64 << 20;

using BytesView = std::span<const std::byte>;

/// What an entry holds: bytes of its own, then those that lie elsewhere.
struct ArtifactEntry {
  std::string name;
  std::vector<std::byte> bytes;
  std::vector<BytesView> views = {};
  Compression compression = Compression::deflated;

  std::vector<BytesView> parts() const {
    std::vector<BytesView> parts{bytes};
    parts.insert(parts.end(), views.begin(), views.end());
    return parts;
  }
};

std::vector<std::byte> to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

/// Letters, digits, "_", "-", "." and "/" without empty, "." or ".." parts: safe to unpack anywhere.
bool is_plain_path(std::string_view path) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  if (path.size() > 255 || path.find_first_not_of(kAllowed) != path.npos) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part.front() == '.') return false;
    begin = end + 1;
  }
  return true;
}

bool is_binary_path(std::string_view path) {
  return is_plain_path(path) &&
         std::any_of(backends().begin(), backends().end(), [&](const Backend* b) { return starts_with(path, b->binary_folder); });
}

void check(const Artifact& artifact) {
  std::set<std::string> names, paths;
  for (const Program& program : artifact.programs) {
    check_internal(is_plain_path(program.name) && program.name.find('/') == std::string::npos, "artifact: program name '",
                   program.name, "' is no file name");
    check_internal(names.insert(program.name).second, "artifact: two programs are called '", program.name, "'");
    check_internal(program.target == artifact.programs[0].target, "artifact: programs of two targets");
  }
  for (const auto& [path, bytes] : artifact.binaries) {
    check_internal(is_binary_path(path), "artifact: a binary's path is '", path, "'");
    check_internal(paths.insert(path).second, "artifact: two binaries at '", path, "'");
  }
}

std::vector<ArtifactEntry> entries_of(const Artifact& artifact) {
  std::vector<ArtifactEntry> entries;
  for (const Program& program : artifact.programs) {
    entries.push_back({concat("programs/", program.name, ".pb"), serialize(program)});
    const std::string_view suffix = backend_of(program.target).kernel_suffix;
    const std::string folder = concat("kernels/", program.name, "/");
    if (!program.prelude.empty()) entries.push_back({concat(folder, "prelude.h"), to_bytes(program.prelude)});
    for (const Kernel& kernel : program.kernels) entries.push_back({concat(folder, kernel.name, suffix), to_bytes(kernel.text)});
  }
  for (const auto& [path, bytes] : artifact.binaries) entries.push_back({path, {}, {bytes}});
  if (!artifact.weights.empty()) {
    SafetensorsParts weights = safetensors_parts(artifact.weights);
    entries.push_back({kWeights, std::move(weights.header), std::move(weights.tensors), Compression::stored});
  }
  if (!artifact.model.empty()) entries.push_back({kModel, {}, {artifact.model}, Compression::stored});
  return entries;
}

std::vector<std::byte> manifest_of(const Artifact& artifact, const std::vector<ArtifactEntry>& entries) {
  nlohmann::ordered_json manifest;
  manifest["format"] = "gcx";
  manifest["schema"] = kArtifactSchema;
  manifest["gcomp"] = version();
  manifest["target"] = artifact.programs.empty() ? "" : to_string(artifact.programs[0].target);
  manifest["programs"] = nlohmann::ordered_json::array();
  for (const Program& program : artifact.programs) manifest["programs"].push_back(program.name);
  manifest["metadata"] = artifact.metadata;
  manifest["entries"] = nlohmann::ordered_json::object();
  for (const ArtifactEntry& entry : entries) {
    std::size_t bytes = 0;
    Sha256 digest;
    for (const BytesView part : entry.parts()) {
      bytes += part.size();
      digest.add(part);
    }
    manifest["entries"][entry.name] = {{"bytes", bytes}, {"sha256", digest.digest()}};
  }
  try {
    return to_bytes(manifest.dump(2) + "\n");
  } catch (const nlohmann::json::exception&) { throw InternalError("artifact: its metadata is not UTF-8"); }
}

const nlohmann::json& manifest_member(const nlohmann::json& object, const char* key) {
  check_user(object.is_object() && object.contains(key), "lacks '", key, "'");
  return object.at(key);
}

std::string text_member(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = manifest_member(object, key);
  check_user(value.is_string(), "has a '", key, "' that is no text");
  return value.get<std::string>();
}

/// Nothing but these members, each once: what is misspelt or made up is not passed over.
void check_members(const nlohmann::json& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items())
    check_user(std::find(known.begin(), known.end(), key) != known.end(), "has an unknown member '", key, "'");
}

void check_manifest(const nlohmann::json& manifest) {
  check_members(manifest, {"format", "schema", "gcomp", "target", "programs", "metadata", "entries"});
  check_user(manifest_member(manifest, "programs").is_array() && manifest_member(manifest, "metadata").is_object() &&
                 manifest_member(manifest, "entries").is_object(),
             "has no lists of programs, metadata and entries");
  text_member(manifest, "gcomp");
  text_member(manifest, "target");
  for (const auto& [name, entry] : manifest.at("entries").items()) {
    text_member(entry, "sha256");
    check_user(manifest_member(entry, "bytes").is_number_unsigned(), "gives entry '", name, "' no size");
    check_members(entry, {"bytes", "sha256"});
  }
}

nlohmann::json read_manifest(const ZipReader& archive) {
  const int index = archive.find(kManifest);
  check_user(index >= 0, "it is no gcomp artifact: entry '", kManifest, "' is missing");
  const auto at = static_cast<std::size_t>(index);
  check_user(archive.entries()[at].bytes <= kLargestManifest, "entry '", kManifest, "' has ", archive.entries()[at].bytes,
             " bytes");
  const std::vector<std::byte> bytes = archive.read(at);
  try {
    nlohmann::json manifest = parse_strict_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 4);
    check_user(text_member(manifest, "format") == "gcx", "is of another format");
    const nlohmann::json& schema = manifest_member(manifest, "schema");
    check_user(schema.is_number_integer() && schema.get<std::int64_t>() == kArtifactSchema, "is of schema ", schema.dump(),
               ", written by gcomp ", text_member(manifest, "gcomp"), "; this is gcomp ", version(), ", which reads schema ",
               kArtifactSchema);
    check_manifest(manifest);
    return manifest;
  } catch (const UserError& error) { throw UserError(concat("entry '", kManifest, "' ", error.what())); }
}

/// The contents of one entry that the manifest lists, compared with its checksum.
std::vector<std::byte> read_entry(const ZipReader& archive, const nlohmann::json& entries, const std::string& name) {
  const int index = archive.find(name);
  check_user(index >= 0 && entries.contains(name), "entry '", name, "' is missing");
  std::vector<std::byte> bytes = archive.read(static_cast<std::size_t>(index));
  check_user(text_member(entries.at(name), "sha256") == sha256(bytes), "entry '", name,
             "' is damaged: its SHA-256 differs from the manifest's");
  check_user(entries.at(name).at("bytes") == bytes.size(), "entry '", name, "' has ", bytes.size(), " bytes, the manifest says ",
             entries.at(name).at("bytes").dump());
  return bytes;
}

struct SignatureEntry {
  std::string key_id;
  std::string signature;  // raw
};

/// The signature that the archive bears, unchecked.
std::optional<SignatureEntry> read_signature(const ZipReader& archive) {
  const int index = archive.find(kSignature);
  if (index < 0) return std::nullopt;
  const auto at = static_cast<std::size_t>(index);
  constexpr std::uint64_t kLargestSignature = 4096;
  check_user(archive.entries()[at].bytes <= kLargestSignature, "entry '", kSignature, "' has ", archive.entries()[at].bytes,
             " bytes");
  const std::vector<std::byte> bytes = archive.read(at);
  try {
    const nlohmann::json json = parse_strict_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 2);
    check_members(json, {"algorithm", "key", "signature"});
    check_user(text_member(json, "algorithm") == "ed25519", "is of the algorithm '", text_member(json, "algorithm"), "'");
    return SignatureEntry{text_member(json, "key"), from_hexadecimal(text_member(json, "signature"))};
  } catch (const UserError& error) { throw UserError(concat("entry '", kSignature, "' ", error.what())); }
}

/// The manifest names the SHA-256 of every other entry, which reading compares: its signature is one of everything.
void require_signature(const ZipReader& archive, const PublicKey& key) {
  const std::optional<SignatureEntry> signature = read_signature(archive);
  check_user(signature.has_value(), "it is not signed; wanted a signature by the key ", key.id());
  check_user(signature->key_id == key.id(), "it is signed by the key ", signature->key_id, ", wanted ", key.id());
  const int manifest = archive.find(kManifest);
  check_user(manifest >= 0 && key.accepts(archive.read(static_cast<std::size_t>(manifest)), signature->signature),
             "its signature by the key ", key.id(), " is not of this content: it was changed after it was signed");
}

std::map<std::string, std::string> metadata_of(const nlohmann::json& manifest) {
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : manifest.at("metadata").items()) {
    check_user(value.is_string(), "entry '", kManifest, "' has metadata '", key, "' that is no text");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

Artifact read(const ZipReader& archive, const std::string& path, const ArtifactTrust& trust) {
  if (!trust.signed_by.empty()) require_signature(archive, PublicKey::load(trust.signed_by.string()));
  const nlohmann::json manifest = read_manifest(archive);
  const nlohmann::json& entries = manifest.at("entries");
  Artifact artifact;
  artifact.metadata = metadata_of(manifest);
  std::set<std::string> program_entries;
  for (const nlohmann::json& program : manifest.at("programs")) {
    const std::string name = concat("programs/", program.is_string() ? program.get<std::string>() : "", ".pb");
    check_user(program_entries.insert(name).second, "entry '", kManifest, "' lists '", name, "' twice");
    artifact.programs.push_back(parse_program(read_entry(archive, entries, name), concat("'", path, "', entry '", name, "'")));
    const Program& loaded = artifact.programs.back();
    check_user(concat("programs/", loaded.name, ".pb") == name, "entry '", name, "' holds program '", loaded.name, "'");
    check_user(to_string(loaded.target) == text_member(manifest, "target"), "entry '", name, "' is for ", to_string(loaded.target),
               ", the manifest for ", text_member(manifest, "target"));
  }
  for (const ZipEntry& entry : archive.entries()) {
    if (entry.name == kManifest || entry.name == kSignature || program_entries.count(entry.name)) continue;
    check_user(entries.contains(entry.name), "entry '", entry.name, "' is not in the manifest");
    std::vector<std::byte> bytes = read_entry(archive, entries, entry.name);
    if (entry.name == kWeights)
      artifact.weights = parse_safetensors(std::move(bytes), concat(path, "', entry '", kWeights)).tensors;
    else if (entry.name == kModel) artifact.model = std::move(bytes);
    else if (is_binary_path(entry.name)) {
      if (trust.binaries) artifact.binaries.emplace_back(entry.name, std::move(bytes));
    } else check_user(starts_with(entry.name, "kernels/"), "entry '", entry.name, "' has no place in an artifact");
  }
  for (const auto& [name, value] : entries.items()) check_user(archive.find(name) >= 0, "entry '", name, "' is missing");
  return artifact;
}

}  // namespace

void write_artifact(const std::filesystem::path& path, const Artifact& artifact) {
  check(artifact);
  const std::vector<ArtifactEntry> entries = entries_of(artifact);
  const std::vector<std::byte> manifest = manifest_of(artifact, entries);
  ZipWriter archive(path);
  archive.add(kManifest, manifest, Compression::deflated);
  for (const ArtifactEntry& entry : entries) archive.add(entry.name, entry.parts(), entry.compression);
  archive.commit();
}

namespace {

/// Opens an archive and does `work` on it; errors name the file.
template <class Work>
auto with_archive(const std::filesystem::path& path, const Work& work) {
  const ZipReader archive(path);
  try {
    return work(archive);
  } catch (const UserError& error) {
    const std::string start = concat("'", path.string(), "'");
    if (starts_with(error.what(), start)) throw;
    throw UserError(concat(start, ": ", error.what()));
  }
}

}  // namespace

Artifact read_artifact(const std::filesystem::path& path, const ArtifactTrust& trust) {
  return with_archive(path, [&](const ZipReader& archive) { return read(archive, path.string(), trust); });
}

std::map<std::string, std::string> read_artifact_metadata(const std::filesystem::path& path) {
  return with_archive(path, [](const ZipReader& archive) { return metadata_of(read_manifest(archive)); });
}

void sign_artifact(const std::filesystem::path& from, const std::filesystem::path& to, const PrivateKey& key) {
  with_archive(from, [&](const ZipReader& archive) {
    read(archive, from.string(), {});  // nothing that is damaged is signed
    std::vector<ArtifactEntry> entries;
    for (std::size_t i = 0; i < archive.entries().size(); ++i)
      if (const std::string& name = archive.entries()[i].name; name != kSignature)
        entries.push_back(
            {name, archive.read(i), {}, name == kWeights || name == kModel ? Compression::stored : Compression::deflated});
    const auto manifest = std::find_if(entries.begin(), entries.end(), [](const auto& entry) { return entry.name == kManifest; });
    const std::string bytes = key.sign(manifest->bytes);
    const nlohmann::ordered_json signature{
        {"algorithm", "ed25519"}, {"key", key.public_key().id()}, {"signature", to_hexadecimal(std::as_bytes(std::span(bytes)))}};
    entries.push_back({kSignature, to_bytes(signature.dump(2) + "\n"), {}, Compression::stored});
    ZipWriter signed_archive(to);
    for (const ArtifactEntry& entry : entries) signed_archive.add(entry.name, entry.parts(), entry.compression);
    signed_archive.commit();
  });
}

std::string signer_of(const std::filesystem::path& path) {
  return with_archive(path, [](const ZipReader& archive) {
    const std::optional<SignatureEntry> signature = read_signature(archive);
    return signature ? signature->key_id : "";
  });
}

}  // namespace gcomp::runtime
