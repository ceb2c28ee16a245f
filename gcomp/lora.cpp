#include "gcomp/lora.h"

#include <algorithm>

#include "gcomp/driver/adapter_file.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"
#include "passes/training/average_parameters.h"

namespace gcomp {

bool has_adapters(const Trainer& trainer) { return trainer.impl().saved.lora.has_value(); }

void save_adapter(const Trainer& trainer, const Path& path, Weights weights, const ModuleNames& modules) {
  check_user(has_adapters(trainer), "cannot write '", path.string(), "': nothing was trained as an adapter");
  check_user(weights == Weights::trained || trainer.keeps_average(), "cannot write '", path.string(),
             "': this training step keeps no average of its parameters");
  driver::Adaptation adaptation = *trainer.impl().saved.lora;
  for (const auto& [parameter, module] : modules) {
    const auto found = std::ranges::find(adaptation.weights, parameter, &driver::AdaptedWeight::parameter);
    check_user(found != adaptation.weights.end(), "cannot write '", path.string(), "': '", parameter, "' has no adapter");
    found->module = module;
  }
  driver::write_adapter(path.string(), adaptation, [&](const std::string& state) {
    return trainer.read(weights == Weights::averaged ? passes::average_name(state) : state);
  });
}

}  // namespace gcomp
