// gcomp eval: the loss and the metrics of a model, .onnx or .gcx, over the arrays of an .npz.
#include <memory>
#include <nlohmann/json.hpp>

#include "gcomp/driver/evaluation_run.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/training.h"
#include "tools/gcomp/class_weights.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/lora_flags.h"
#include "tools/gcomp/metric_text.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/training_data.h"

namespace gcomp::tools {
namespace {

struct EvalFlags {
  std::string model, data, loss, output;
  std::vector<std::string> metrics;
  std::int64_t batch = 0;
  ModelOptions model_options;
  LoraFlags lora;
  DeviceOptions device;
  TrustOptions trust;
};

void report_left_out(const Console& console, const Evaluation& evaluation, const Batch& arrays) {
  std::int64_t rows = 0;
  for (const auto& [name, array] : arrays)
    if (!array.type().shape.empty()) rows = array.type().shape[0];
  if (evaluation.rows < rows)
    console.say(concat("evaluation leaves out the last ", rows - evaluation.rows, " rows, which fill no batch"));
}

Evaluation evaluate_artifact(const EvalFlags& flags, const Console& console) {
  runtime::DeviceOptions device = flags.device.parse(console);
  CompileProgress compiling(console);
  compiling.watch(device);
  Trainer trainer = Trainer::load(flags.model, device, flags.device.request(), flags.trust.parse(flags.model));
  console.say("device: " + trainer.device());
  const std::vector<NamedTensor> arrays = load_arrays(flags.data, driver::evaluation_arrays(trainer));
  const Batch batch = views_of(arrays);
  Evaluation evaluation = trainer.evaluate(batch);
  report_left_out(console, evaluation, batch);
  return evaluation;
}

Evaluation evaluate_model(const EvalFlags& flags, const driver::LoraSettings& lora, const Console& console) {
  if (flags.loss.empty()) throw UserError(missing_loss("--loss is missing"), ExitCode::usage);
  flags.trust.parse(flags.model);
  driver::EvaluateOptions options;
  options.loss = driver::read_loss(with_class_weights(flags.loss, flags.data), flags.output);
  options.metrics = driver::metrics_of(flags.metrics, options.loss);
  options.batch = flags.batch;
  options.graph = flags.model_options.parse();
  options.graph.shapes.data_source = flags.data;
  options.graph.lora = lora;
  options.device = flags.device.request();
  options.device_options = flags.device.parse(console);
  CompileProgress compiling(console);
  compiling.watch(options.hooks, options.device_options);
  options.hooks.internal_error = [&](const ir::Graph& graph, const std::string& error) {
    report_internal_error(console, graph, error);
  };
  const Model model = Model::load(flags.model);
  require_output(flags.output, model, "");
  require_names(model, options.loss, options.metrics, flags.data);
  const std::vector<NamedTensor> arrays = load_arrays(flags.data, array_names(model, options.loss, options.metrics));
  const Batch batch = views_of(arrays);
  driver::EvaluationRun run = driver::evaluate(model, options, batch);
  report_outputs(console, run.model, flags.loss, run.output);
  console.say("device: " + run.device);
  report_left_out(console, run.evaluation, batch);
  return run.evaluation;
}

void eval(const EvalFlags& flags, const Console& console) {
  const driver::LoraSettings lora = flags.lora.parse();
  Evaluation evaluation;
  try {
    evaluation = is_artifact(flags.model) ? evaluate_artifact(flags, console) : evaluate_model(flags, lora, console);
  } catch (const UserError& error) {
    if (error.code() == ExitCode::usage || std::string_view(error.what()).find(flags.data) != std::string_view::npos) throw;
    throw UserError(concat("'", flags.data, "': ", error.what()), error.code());
  }
  char text[64];
  std::snprintf(text, sizeof text, "loss %.9g", evaluation.loss);
  console.result(text);
  for (const std::string& line : metric_lines(evaluation, "")) console.result(line);
  nlohmann::json json{{"data", flags.data}, {"loss", evaluation.loss}, {"rows", evaluation.rows}};
  add_metrics(json, evaluation);
  console.result_json(std::move(json));
}

}  // namespace

Command add_eval(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<EvalFlags>();
  ArgumentParser parser = root.add_subcommand("eval", "loss and metrics of a model on the arrays of an .npz, in inference form");
  parser.add_option("MODEL", flags->model, "an .onnx file, or a .gcx with a training step").required();
  parser.add_option("--data", flags->data, "arrays named after the model's inputs, and what loss and metrics read")
      .type_name("NPZ")
      .required();
  add_loss(parser, flags->loss);
  add_output(parser, flags->output);
  add_metric(parser, flags->metrics);
  parser.add_option("--batch", flags->batch, "rows of one run (default: a power of two that follows from the model's shapes)")
      .type_name("N");
  flags->model_options.add_precision(parser, "what floats compute in (default: as the file says)");
  flags->model_options.add_shapes(parser);
  flags->lora.add_adapter(parser);
  flags->device.add(parser);
  flags->trust.add(parser);
  parser.set_footer(
      "Examples:\n"
      "  gcomp eval trained.onnx --data test.npz --loss cross_entropy --metric 'top_k(k=5)' --metric f1\n"
      "  gcomp eval t.gcx --data test.npz\n\n"
      "Every row counts: the last run is filled up with rows that are masked. Where that would change what is computed (a row "
      "depends "
      "on\nothers, or the loss is no mean over its elements) the rows that fill no run are left out, which is said.");
  return {parser, [parser, flags, &console] {
            if (is_artifact(flags->model)) refuse_decided(parser, flags->model);
            require_batch(flags->batch);
            eval(*flags, console);
          }};
}

}  // namespace gcomp::tools
