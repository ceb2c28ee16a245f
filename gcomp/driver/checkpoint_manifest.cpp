#include "gcomp/driver/checkpoint_manifest.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "gcomp/driver/saved_json.h"
#include "gcomp/version.h"
#include "ir/base/error.h"
#include "runtime/files/sha256.h"
#include "runtime/files/strict_json.h"

namespace gcomp::driver {
namespace {

using nlohmann::json;

constexpr int kMostManifestNesting = 24;

/// By the number of StateKind.
constexpr std::array<std::string_view, 5> kStateKinds{"parameter", "statistic", "moment", "average", "counter"};
constexpr std::array<std::string_view, 5> kStateFiles{"parameters", "statistics", "moments", "averages", "counters"};

json parsed_text(const std::string& text, std::string_view what) {
  try {
    return runtime::parse_strict_json(text, kMostManifestNesting - 2);
  } catch (const UserError& error) { throw UserError(concat(what, " of the run: ", error.what())); }
}

json parsed_config(const std::string& text) {
  json config = parsed_text(text, "the configuration");
  check_user(config.is_object(), "the configuration of the run is no JSON object");
  return config;
}

json to_json(const CheckpointTensor& tensor) {
  json pieces = json::array();
  for (const TensorPiece& piece : tensor.pieces)
    pieces.push_back({{"file", piece.file}, {"offset", piece.offset}, {"length", piece.length}});
  return {{"dtype", gcomp::name_of(tensor.type.dtype)},
          {"shape", tensor.type.shape},
          {"kind", name_of(tensor.kind)},
          {"pieces", pieces}};
}

json to_json(const CheckpointModel& model) {
  json object = {{"name", model.name},
                 {"sha256", model.sha256.empty() ? json() : json(model.sha256)},
                 {"trained", model.trained},
                 {"original", model.original ? to_json(*model.original) : json()}};
  if (model.lora) object["lora"] = to_json(*model.lora);  // which gcomp without adapters need not know
  return object;
}

StateKind kind_called(const std::string& name) {
  const auto* found = std::ranges::find(kStateKinds, name);
  check_user(found != kStateKinds.end(), "'kind' is '", name, "'");
  return static_cast<StateKind>(found - kStateKinds.begin());
}

/// Each element in one piece, and no file twice.
void check_pieces(const CheckpointTensor& tensor) {
  std::vector<TensorPiece> pieces = tensor.pieces;
  std::ranges::sort(pieces, {}, [](const TensorPiece& piece) { return std::pair(piece.offset, piece.length); });
  std::int64_t end = 0;
  std::set<std::string> files;
  for (const TensorPiece& piece : pieces) {
    check_user(piece.offset == end, "a piece begins at element ", piece.offset, ", but those before it end at ", end);
    check_user(piece.length <= tensor.type.elements() - end, "its pieces have more than its ", tensor.type.elements(), " elements");
    check_user(files.insert(piece.file).second, "two pieces lie in '", piece.file, "'");
    end += piece.length;
  }
  check_user(!pieces.empty() && end == tensor.type.elements(), "its pieces end at element ", end, " of ", tensor.type.elements());
}

CheckpointTensor tensor_of(const json& object, const std::map<std::string, runtime::FileDigest>& files) {
  Members members(object);
  CheckpointTensor tensor;
  const std::optional<DType> dtype = parse_dtype(members.text("dtype"));
  check_user(dtype.has_value(), "its dtype is '", members.text("dtype"), "'");
  tensor.type = {*dtype, members.integers("shape")};
  check_user(tensor.type.elements() >= 0, "its shape is ", gcomp::to_string(tensor.type));
  tensor.kind = kind_called(members.text("kind"));
  for (const json& listed : members.list("pieces")) {
    Members piece(listed);
    tensor.pieces.push_back(
        {.file = piece.text("file"), .offset = piece.integer("offset", 0), .length = piece.integer("length", 0)});
    check_user(files.contains(tensor.pieces.back().file), "'", tensor.pieces.back().file, "' is no file of the checkpoint");
    piece.end();
  }
  members.end();
  check_pieces(tensor);
  return tensor;
}

std::map<std::string, runtime::FileDigest> files_of(const json& object) {
  check_user(object.is_object(), "'files' is no object");
  std::map<std::string, runtime::FileDigest> files;
  for (const auto& [name, listed] : object.items()) {
    check_user(name.find('/') == name.npos && name.ends_with(".safetensors") && !name.starts_with('.'), "'", name,
               "' is no name of a file of a checkpoint");
    Members file(listed);
    files[name] = {file.natural("bytes"), read_digest(file)};
    file.end();
  }
  return files;
}

CheckpointModel model_of(const json& object) {
  Members members(object);
  CheckpointModel model{
      .name = members.text("name"), .sha256 = {}, .trained = members.names("trained"), .original = {}, .lora = {}};
  if (!members.at("sha256").is_null()) model.sha256 = read_digest(members);
  if (!members.at("original").is_null()) model.original = original_of(members.at("original"));
  if (members.has("lora")) model.lora = lora_of(members.at("lora"));
  members.end();
  return model;
}

void check_format(const json& object) {
  check_user(object.is_object() && object.contains("format") && object["format"].is_number_integer(), "it says no format");
  const auto format = object["format"].get<std::int64_t>();
  if (format != kCheckpointFormat)
    throw OtherFormat(concat("it has format ", format,
                             object.contains("gcomp") ? concat(", written by gcomp ", object["gcomp"].dump()) : "", "; this gcomp ",
                             version(), " reads format ", kCheckpointFormat));
}

RunState run_of(Members& members) {
  RunState run{.step = members.integer("step", 0),
               .position = position_of(members.at("position")),
               .schedule = members.at("schedule").dump(),
               .loop = members.at("loop").dump(),
               .config = members.at("config").dump(),
               .timed = members.has("timed_choices") ? members.text("timed_choices") : ""};
  check_user(members.at("config").is_object(), "'config' is no object");
  const std::string digest = members.text("config_sha256");
  check_user(digest == runtime::sha256(run.config), "'config_sha256' is not that of 'config'");
  return run;
}

void compare(const std::string& field, const json* before, const json* now, const std::vector<std::string>& ignored,
             std::vector<ConfigDifference>& differences) {
  if (std::ranges::count(ignored, field) > 0 || (before && now && *before == *now)) return;
  if (!before || !now || !before->is_object() || !now->is_object()) {
    differences.push_back({field, before ? before->dump() : "", now ? now->dump() : ""});
    return;
  }
  std::set<std::string> names;
  for (const json* object : {before, now})
    for (const auto& [name, value] : object->items()) names.insert(name);
  for (const std::string& name : names) {
    const auto member = [&](const json& object) { return object.contains(name) ? &object.at(name) : nullptr; };
    compare(field.empty() ? name : concat(field, ".", name), member(*before), member(*now), ignored, differences);
  }
}

}  // namespace

std::string_view name_of(StateKind kind) { return kStateKinds[static_cast<std::size_t>(kind)]; }
std::string file_of(StateKind kind) { return concat(kStateFiles[static_cast<std::size_t>(kind)], ".safetensors"); }
std::string file_of(StateKind kind, int rank, int ranks) {
  return concat(kStateFiles[static_cast<std::size_t>(kind)], "-", rank, "-of-", ranks, ".safetensors");
}

std::string model_digest(const OriginalModel& original) {
  if (original.path.empty() || original.external.empty()) return original.sha256;
  std::string all = original.sha256;
  for (const OriginalFile& file : original.external) all += concat("\n", file.location, " ", file.sha256);
  return runtime::sha256(all);
}

std::string manifest_text(const Manifest& manifest) {
  json files = json::object(), tensors = json::object();
  for (const auto& [name, file] : manifest.files) files[name] = {{"bytes", file.bytes}, {"sha256", file.sha256}};
  for (const auto& [name, tensor] : manifest.tensors) tensors[name] = to_json(tensor);
  const json config = parsed_config(manifest.run.config);
  const bool scaled = manifest.loss_scale && std::isfinite(*manifest.loss_scale);
  json object = {{"format", kCheckpointFormat},
                 {"gcomp", manifest.gcomp},
                 {"step", manifest.run.step},
                 {"position", to_json(manifest.run.position)},
                 {"loss_scale", scaled ? json(*manifest.loss_scale) : json()},
                 {"schedule", parsed_text(manifest.run.schedule, "the schedule's state")},
                 {"loop", parsed_text(manifest.run.loop, "the loop's state")},
                 {"config", config},
                 {"config_sha256", runtime::sha256(config.dump())},
                 {"model", to_json(manifest.model)},
                 {"files", files},
                 {"tensors", tensors}};
  if (!manifest.run.timed.empty()) object["timed_choices"] = manifest.run.timed;  // which gcomp without timing need not know
  try {
    return object.dump(1) + "\n";
  } catch (const json::exception&) { throw UserError("a name or text of the run is not UTF-8, which a manifest needs"); }
}

Manifest parse_manifest(std::string_view text) {
  const json object = runtime::parse_strict_json(text, kMostManifestNesting);
  check_format(object);
  Members members(object);
  members.at("format");
  Manifest manifest;
  manifest.gcomp = members.text("gcomp");
  manifest.run = run_of(members);
  if (const json& scale = members.at("loss_scale"); !scale.is_null()) {
    check_user(scale.is_number(), "'loss_scale' is ", scale.dump());
    manifest.loss_scale = scale.get<double>();
  }
  manifest.model = model_of(members.at("model"));
  manifest.files = files_of(members.at("files"));
  const json& tensors = members.at("tensors");
  check_user(tensors.is_object(), "'tensors' is no object");
  for (const auto& [name, tensor] : tensors.items()) try {
      manifest.tensors.emplace(name, tensor_of(tensor, manifest.files));
    } catch (const UserError& error) { throw UserError(concat("tensor '", name, "': ", error.what())); }
  members.end();
  return manifest;
}

std::vector<ConfigDifference> config_differences(const std::string& checkpoint, const std::string& now,
                                                 const std::vector<std::string>& ignored) {
  const json before = parsed_config(checkpoint), after = parsed_config(now);
  std::vector<ConfigDifference> differences;
  compare("", &before, &after, ignored, differences);
  return differences;
}

std::string to_string(const std::vector<ConfigDifference>& differences) {
  constexpr std::size_t kListed = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kListed, differences.size()); ++i) {
    const ConfigDifference& difference = differences[i];
    const auto shown = [](const std::string& value) { return value.empty() ? std::string("not there") : value; };
    text += concat(i == 0 ? "" : ", ", "'", difference.field, "' was ", shown(difference.checkpoint), " and is ",
                   shown(difference.now));
  }
  return differences.size() > kListed
             ? concat(text, " and ", differences.size() - kListed, differences.size() == kListed + 1 ? " other" : " others")
             : text;
}

}  // namespace gcomp::driver
