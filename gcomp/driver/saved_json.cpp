#include "gcomp/driver/saved_json.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/files/sha256.h"

namespace gcomp::driver {
namespace {

using nlohmann::json;

/// By the number of frontend::Alias::Kind.
constexpr std::array<std::string_view, 5> kAliasKinds{"part", "constant", "added", "tied", "repeated"};

frontend::Alias::Kind alias_kind(const std::string& name) {
  const auto found = std::find(kAliasKinds.begin(), kAliasKinds.end(), name);
  check_user(found != kAliasKinds.end(), "'kind' of an alias is '", name, "'");
  return static_cast<frontend::Alias::Kind>(found - kAliasKinds.begin());
}

}  // namespace

std::string read_digest(Members& members) {
  std::string text = members.text("sha256");
  check_user(text.size() == runtime::kSha256Digits && text.find_first_not_of("0123456789abcdef") == text.npos, "'sha256' is ",
             text);
  return text;
}

nlohmann::json to_json(const DataPosition& position) {
  return {{"seed", position.seed},
          {"shuffled", position.shuffled},
          {"rows", position.rows},
          {"steps", position.steps},
          {"order", position.order}};
}

DataPosition position_of(const nlohmann::json& object) {
  Members members(object);
  DataPosition position{.seed = members.natural("seed"),
                        .shuffled = members.boolean("shuffled"),
                        .rows = members.integer("rows", 0),
                        .steps = members.integer("steps", 0),
                        .order = members.has("order") ? members.integer("order", 1) : 1};
  check_user(position.order <= kRowOrder, "'order' is ", position.order, ", of a later gcomp; this one knows up to ", kRowOrder);
  members.end();
  return position;
}

nlohmann::json to_json(const OriginalModel& original) {
  json external = json::array(), aliases = json::array();
  for (const OriginalFile& file : original.external) external.push_back({{"location", file.location}, {"sha256", file.sha256}});
  for (const frontend::Alias& alias : original.aliases)
    aliases.push_back({{"state", alias.state},
                       {"initializer", alias.initializer},
                       {"node", alias.node},
                       {"operand", alias.operand},
                       {"transposed", alias.transposed},
                       {"kind", kAliasKinds[static_cast<std::size_t>(alias.kind)]},
                       {"rows", alias.rows}});
  return {{"path", original.path},
          {"sha256", original.sha256},
          {"external", external},
          {"aliases", aliases},
          {"training_batch_norms", original.training_form.batch_norms},
          {"training_dropouts", original.training_form.dropouts}};
}

OriginalModel original_of(const nlohmann::json& object) {
  Members members(object);
  OriginalModel original;
  original.path = members.text("path");
  original.sha256 = original.path.empty() ? members.text("sha256") : read_digest(members);
  for (const json& external : members.list("external")) {
    Members file(external);
    original.external.push_back({file.text("location"), read_digest(file)});
    file.end();
  }
  for (const json& listed : members.list("aliases")) {
    Members alias(listed);
    original.aliases.push_back({.state = alias.text("state"),
                                .initializer = alias.text("initializer"),
                                .node = static_cast<int>(alias.integer("node", -1)),
                                .operand = static_cast<int>(alias.integer("operand", -1)),
                                .transposed = alias.boolean("transposed"),
                                .kind = alias_kind(alias.text("kind")),
                                .rows = alias.integers("rows")});
    alias.end();
  }
  original.training_form = {.batch_norms = members.integer("training_batch_norms", 0),
                            .dropouts = members.integer("training_dropouts", 0)};
  members.end();
  return original;
}

Adaptation lora_of(const nlohmann::json& object) {
  Members members(object);
  Adaptation lora{.rank = members.integer("rank", 1), .alpha = 0, .rank_stabilized = members.boolean("rank_stabilized")};
  const json& alpha = members.at("alpha");
  check_user(alpha.is_number() && std::isfinite(alpha.get<double>()), "'alpha' is ", alpha.dump());
  lora.alpha = alpha.get<double>();
  for (const json& listed : members.list("weights")) {
    Members weight(listed);
    lora.weights.push_back({.parameter = weight.text("parameter"),
                            .module = weight.text("module"),
                            .shape = weight.integers("shape"),
                            .strides = weight.integers("strides")});
    weight.end();
  }
  members.end();
  return lora;
}

nlohmann::json to_json(const Adaptation& lora) {
  json weights = json::array();
  for (const AdaptedWeight& weight : lora.weights)
    weights.push_back(
        {{"parameter", weight.parameter}, {"module", weight.module}, {"shape", weight.shape}, {"strides", weight.strides}});
  return {{"rank", lora.rank}, {"alpha", lora.alpha}, {"rank_stabilized", lora.rank_stabilized}, {"weights", weights}};
}

}  // namespace gcomp::driver
