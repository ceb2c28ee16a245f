#include "gcomp/driver/options.h"

#include "passes/pipeline.h"

namespace gcomp::driver {
namespace {

template <class T>
std::optional<T> standard(const Optional<T>& value) {
  return value ? std::optional(*value) : std::nullopt;
}

}  // namespace

GraphOptions graph_options(const gcomp::GraphOptions& options) {
  return {.shapes = {.batch = {},
                     .dims = {options.dims.begin(), options.dims.end()},
                     .shapes = {options.shapes.begin(), options.shapes.end()},
                     .data = {},
                     .data_source = {}},
          .precision = standard(options.precision),
          .loss_scale = standard(options.loss_scale),
          .freeze = options.freeze,
          .train = options.train,
          .tie = options.tie,
          .untie = options.untie,
          .input_forms = options.input_forms,
          .preprocessing = options.preprocessing,
          .number_names = options.number_names,
          .batchnorm_variance = options.batchnorm_variance,
          .seed = options.seed,
          .loss_outputs = {},
          .training_form = options.training_form,
          .step = {},
          .lora = {},
          .limits = options.limits,
          .program_limits = options.program_limits,
          .target = {}};
}

CompileHooks compile_hooks(const gcomp::CompileHooks& hooks) {
  CompileHooks inside;
  if (hooks.begin) inside.begin = hooks.begin;
  if (hooks.phase) inside.phase = hooks.phase;
  for (const std::string& pass : hooks.disabled) passes::require_optional_pass(pass, "CompileHooks::disabled");
  inside.disabled = hooks.disabled;
  return inside;
}

}  // namespace gcomp::driver
