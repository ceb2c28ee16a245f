#include "gcomp/initialize.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "gcomp/driver/model_source.h"
#include "gcomp/driver/trainer_impl.h"
#include "gcomp/driver/weights_file.h"
#include "ir/base/error.h"
#include "runtime/convert.h"
#include "runtime/files/sha256.h"

namespace gcomp {
namespace {

using frontend::Alias;
using Tensors = std::map<std::string, Tensor>;

constexpr std::size_t kListedDifferences = 3;

std::string listed(const std::vector<InitDifference>& differences) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kListedDifferences, differences.size()); ++i)
    text += concat(i == 0 ? "" : ", ", "'", differences[i].name, "' ", differences[i].reason);
  if (differences.size() <= kListedDifferences) return text;
  const std::size_t others = differences.size() - kListedDifferences;
  return concat(text, " and ", others, others == 1 ? " other" : " others");
}

/// What is to be written, found before anything is.
class Initialization {
 public:
  Initialization(Trainer::Impl& impl, const std::string& path) : impl_(impl), file_(driver::read_weights(path)) {
    if (impl_.source && driver::onnx_file(*impl_.source))
      own_ = frontend::float_initializers(driver::onnx_file(*impl_.source)->source);
    bind_all();
    for (const runtime::StateEntry& entry : impl_.states.entries())
      if (entry.role == runtime::StateRole::running_statistic ||
          (entry.role == runtime::StateRole::parameter && is_float(entry.type.dtype)))
        take(entry);
    for (const auto& [name, tensor] : file_)
      if (!used_.contains(name)) leave(name, tensor);
  }

  InitReport report;
  Tensors values;  ///< of states, in their types

 private:
  const std::vector<Alias>& aliases() const {
    return impl_.saved.original && !impl_.source ? impl_.saved.original->aliases : impl_.model.aliases;
  }

  /// Parameters that no training step reads come with the forward pass.
  void bind_all() {
    const bool some_missing = std::ranges::any_of(
        impl_.saved.weights, [&](const std::string& name) { return file_.contains(name) && !impl_.states.contains(name); });
    if (impl_.source && some_missing) impl_.forward_pass();
  }

  /// The file's tensor for a state: of its own name, or of the initializer that it was parted from.
  const Tensor* find(const std::string& state) {
    if (const auto found = file_.find(state); found != file_.end()) return used_.insert(state), &found->second;
    for (const Alias& alias : aliases()) {
      if (alias.state != state || (alias.kind != Alias::Kind::part && alias.kind != Alias::Kind::constant)) continue;
      if (const auto found = file_.find(alias.initializer); found != file_.end())
        return used_.insert(alias.initializer), &found->second;
    }
    return nullptr;
  }

  /// A bias of zeros that the exporter dropped is in no file.
  bool is_added(const std::string& state) const {
    return std::ranges::any_of(aliases(),
                               [&](const Alias& alias) { return alias.state == state && alias.kind == Alias::Kind::added; });
  }

  bool is_fixed(const runtime::StateEntry& entry) const {
    if (entry.role != runtime::StateRole::parameter || std::ranges::count(impl_.saved.trained, entry.name) > 0) return false;
    return !impl_.source || impl_.model.folded.contains(entry.name) || entry.type.elements() == 1;
  }

  void differ(const std::string& name, std::string reason) { report.differences.push_back({name, std::move(reason)}); }

  void take(const runtime::StateEntry& entry) {
    const Tensor* found = find(entry.name);
    if (!found) {
      if (!is_added(entry.name)) differ(entry.name, "is not there");
      return;
    }
    if (found->shape() != entry.type.shape)
      return differ(entry.name, concat("is ", to_string(found->type()), " there, wanted ", to_string(entry.type)));
    Tensor value = runtime::convert(*found, entry.type.dtype, concat("'", entry.name, "'"));
    if (is_fixed(entry) && value != impl_.memory->read(entry.name))
      return differ(entry.name, "is frozen, and what was computed from it when the model was compiled would stay (with_weights)");
    values.emplace(entry.name, std::move(value));
    report.taken.push_back(entry.name);
  }

  /// A tensor of the file that is no weight: one that the model's own file has too may be a constant or tied to a weight.
  void leave(const std::string& name, const Tensor& tensor) {
    for (const Alias& alias : aliases()) {
      if (alias.initializer != name) continue;
      const auto state = values.find(alias.state);
      const bool whole = alias.kind == Alias::Kind::tied || alias.kind == Alias::Kind::repeated;
      if (!whole || state == values.end()) return;
      if (frontend::as_initializer(alias, state->second, tensor.shape()).cast(tensor.dtype()) != tensor)
        differ(name, concat("is not what '", alias.state, "' is there, to which the model ties it"));
      return;
    }
    const auto own = own_.find(name);
    if (own == own_.end()) {
      // The file that an artifact came from, with all its constants, is not at hand.
      if (impl_.source || !own_.empty()) differ(name, "is not in the model");
      else if (std::ranges::count(impl_.saved.weights, name) == 0) differ(name, "is not in the model");
      return;
    }
    if (own->second.shape() != tensor.shape() || own->second.cast(tensor.dtype()) != tensor)
      differ(name, "is a constant of the model as it was compiled, with another value (with_weights)");
  }

  Trainer::Impl& impl_;
  Tensors file_, own_;
  std::set<std::string> used_;
};

}  // namespace

Model with_weights(const Model& model, const Path& path) {
  Tensors values = driver::read_weights(path.string());
  const frontend::OnnxFile* file = driver::onnx_file(model);
  if (!file) return model;
  const Tensors own = frontend::float_initializers(file->source);
  std::erase_if(values, [&](const auto& value) {
    const auto found = own.find(value.first);
    return found == own.end() || found->second.shape() != value.second.shape();
  });
  if (values.empty()) return model;
  std::string digests = file->altered;
  for (const auto& [name, value] : values)
    digests += concat("\n", name.size(), " ", name, " ", to_string(value.type()), " ", runtime::sha256(value.bytes()));
  frontend::OnnxFile changed = frontend::with_initializers(*file, values);
  changed.altered = runtime::sha256(digests);
  return driver::with_file(model, std::move(changed));
}

std::string to_string(const InitReport& report) {
  const std::string taken = concat(report.taken.size(), report.taken.size() == 1 ? " weight is taken" : " weights are taken");
  return report.differences.empty()
             ? taken
             : concat(taken, ", ", report.differences.size(),
                      report.differences.size() == 1 ? " differs: " : " differ: ", listed(report.differences));
}

InitReport initialize(Trainer& trainer, const Path& path, const InitOptions& options) {
  Trainer::Impl& impl = trainer.impl();
  check_user(impl.pending == 0, "initialize: the losses of ", impl.pending, " steps are to be taken first");
  Initialization made(impl, path.string());
  const std::vector<InitDifference>& differences = made.report.differences;
  check_user(options.partial || differences.empty(), "'", path.string(), "' does not fit the model: ", differences.size(),
             differences.size() == 1 ? " weight differs: " : " weights differ: ", listed(differences),
             "; --partial (InitOptions::partial) takes what fits");
  check_user(!made.report.taken.empty(), "'", path.string(), "' has nothing that fits the model: ", listed(differences));
  for (const auto& [name, value] : made.values) impl.states.write(name, value);
  return std::move(made.report);
}

}  // namespace gcomp
