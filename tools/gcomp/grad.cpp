// gcomp grad: the loss and the gradient of every trained parameter on one batch.
#include <memory>
#include <nlohmann/json.hpp>

#include "gcomp/driver/gradient_run.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/not_a_number.h"
#include "ir/base/finite.h"
#include "ir/base/nearest.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/npz.h"
#include "tools/gcomp/class_weights.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/outputs.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/training_data.h"

namespace gcomp::tools {
namespace {

struct GradFlags {
  std::string model, inputs, outputs, loss, output;
  ModelOptions model_options;
  DeviceOptions device;
};

/// In f16 the loss is scaled before it is differentiated: where it is finite and a gradient is not, the scaled one has overflowed.
void require_no_overflow(const std::vector<NamedTensor>& results) {
  if (!is_finite(results[0].second)) return;
  std::vector<std::string> overflown;
  for (const auto& [name, gradient] : results)
    if (!is_finite(gradient)) overflown.push_back(name);
  if (overflown.empty()) return;
  throw UserError(concat("gradients of ", listing(overflown),
                         " overflow float16, times the loss scale; a smaller one is given by "
                         "--loss-scale 128, and --precision bf16 needs none"),
                  ExitCode::numeric);
}

void grad(const GradFlags& flags, const Console& console) {
  if (flags.loss.empty()) throw UserError(missing_loss("--loss is missing"), ExitCode::usage);
  const Outputs outputs({{"--outputs", flags.outputs, kArrayEndings}});
  outputs.protect("model", flags.model);
  outputs.protect("data", flags.inputs);
  { runtime::AtomicFile probe(flags.outputs); }
  driver::GradientOptions options;
  options.loss = driver::read_loss(with_class_weights(flags.loss, flags.inputs), flags.output);
  options.graph = flags.model_options.parse();
  options.device = flags.device.request();
  options.device_options = flags.device.parse(console);
  CompileProgress compiling(console);
  compiling.watch(options.hooks, options.device_options);
  options.hooks.internal_error = [&](const ir::Graph& graph, const std::string& error) {
    report_internal_error(console, graph, error);
  };
  const Model model = Model::load(flags.model);
  outputs.protect_model(driver::onnx_file(model)->files);
  require_output(flags.output, model, "--outputs");
  require_names(model, options.loss, {}, flags.inputs);
  const std::vector<std::string> names = array_names(model, options.loss);
  const std::vector<NamedTensor> arrays = load_arrays(flags.inputs, names);
  options.graph.shapes.data = types_of(arrays);
  options.graph.shapes.data_source = flags.inputs;
  Gradients gradients = driver::make_gradients(model, options);
  report_parameters(console, driver::imported_model(gradients));
  report_outputs(console, driver::imported_model(gradients), flags.loss, gradients.loss_output());
  console.say("device: " + gradients.device());
  std::vector<NamedTensor> results;
  try {
    results = gradients.run(views_of(arrays));
  } catch (const UserError& error) { throw UserError(concat("'", flags.inputs, "': ", error.what()), error.code()); }
  if (options.graph.precision == DType::f16) require_no_overflow(results);
  runtime::write_npz(flags.outputs, results);
  char text[64];
  std::snprintf(text, sizeof text, "loss %.17g", driver::without_sign_of_nan(results[0].second.at(0)));
  console.result(text);
  console.result(concat("wrote '", flags.outputs, "': loss and ", results.size() - 1, " gradients"));
  console.result_json({{"loss", results[0].second.at(0)}, {"gradients", results.size() - 1}, {"file", flags.outputs}});
}

}  // namespace

Command add_grad(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<GradFlags>();
  ArgumentParser parser = root.add_subcommand("grad", "loss and gradients of a model on one batch, in training form");
  parser.add_option("MODEL", flags->model, "an .onnx file").required();
  parser.add_option("--inputs", flags->inputs, "one batch: arrays named after the model's inputs, and 'label'")
      .type_name("NPZ")
      .required();
  parser.add_option("--outputs", flags->outputs, "'loss', and a gradient for each trained initializer, by its name")
      .type_name("NPZ")
      .required();
  add_loss(parser, flags->loss);
  add_output(parser, flags->output);
  flags->model_options.add_precision(parser, "what floats compute in (default f32)");
  flags->model_options.add_loss_scale(parser);
  flags->model_options.add_shapes(parser);
  flags->model_options.add_selection(parser);
  flags->device.add(parser);
  parser.set_footer("Example:\n  gcomp grad m.onnx --inputs batch.npz --loss cross_entropy --outputs grads.npz --precision f64");
  return {parser, [flags, &console] { grad(*flags, console); }};
}

}  // namespace gcomp::tools
