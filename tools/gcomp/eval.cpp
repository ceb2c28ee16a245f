// gcomp eval: the loss and the metrics of a model, .onnx or .gcx, over data.
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "gcomp/driver/evaluation_run.h"
#include "gcomp/driver/kept_names.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/training.h"
#include "tools/gcomp/class_weights.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/data_flags.h"
#include "tools/gcomp/lora_flags.h"
#include "tools/gcomp/metric_text.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

struct EvalFlags {
  std::string model, loss, output;
  std::vector<std::string> metrics;
  std::optional<std::int64_t> batch, workers;
  DataFlags data;
  ModelOptions model_options;
  LoraFlags lora;
  DeviceOptions device;
  TrustOptions trust;
};

void report_left_out(const Console& console, const Evaluation& evaluation, std::int64_t rows) {
  if (evaluation.rows < rows)
    console.say(concat("evaluation leaves out the last ", rows - evaluation.rows, " rows, which fill no batch"));
}

/// What `work` on the data throws names them.
template <class Work>
auto naming_data(const EvalFlags& flags, Work work) {
  try {
    return work();
  } catch (const UserError& error) {
    const std::string_view text = error.what();
    if (error.code() == ExitCode::usage || text.find(flags.data.text()) != text.npos) throw;
    throw UserError(concat("'", flags.data.text(), "': ", text), error.code());
  }
}

Evaluation evaluate_artifact(const EvalFlags& flags, const Console& console) {
  runtime::DeviceOptions device = flags.device.parse(console);
  CompileProgress compiling(console);
  compiling.watch(device);
  Trainer trainer = Trainer::load(flags.model, device, flags.device.request(), flags.trust.parse(flags.model));
  console.say("device: " + trainer.device());
  const std::vector<data::WantedArray> wanted = driver::wanted_for_evaluation(trainer);
  return naming_data(flags, [&] {
    driver::DataRequest request = flags.data.request;
    request.trains = false;
    const driver::OpenedData data = driver::open_data(request, trainer, wanted);
    say_notes(console, data, wanted);
    Evaluation evaluation = driver::evaluate(trainer, *data.train, static_cast<int>(flags.workers.value_or(-1)));
    report_left_out(console, evaluation, data.train->rows());
    return evaluation;
  });
}

Evaluation evaluate_model(const EvalFlags& flags, const driver::LoraSettings& lora, const Console& console) {
  if (flags.loss.empty()) throw UserError(missing_loss("--loss is missing"), ExitCode::usage);
  flags.trust.parse(flags.model);
  driver::EvaluateOptions options;
  options.loss = driver::read_loss(with_class_weights(flags.loss, flags.data.text()), flags.output);
  options.metrics = driver::metrics_of(flags.metrics, options.loss);
  options.batch = flags.batch.value_or(0);
  options.graph = flags.model_options.parse();
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
  const std::vector<data::WantedArray> wanted = driver::wanted_arrays(model, options.loss, options.metrics);
  return naming_data(flags, [&] {
    driver::DataRequest request = flags.data.request;
    request.trains = false;
    request.number_names = driver::number_names_of(flags.model, model);
    const driver::OpenedData data = driver::open_data(request, wanted, &model);
    say_notes(console, data, wanted);
    options.graph.shapes.data_source = data.train->source();
    options.graph.input_forms = data.input_forms;
    driver::EvaluationRun run = driver::evaluate(model, options, *data.train, static_cast<int>(flags.workers.value_or(-1)));
    report_outputs(console, run.model, flags.loss, run.output);
    console.say("device: " + run.device);
    report_left_out(console, run.evaluation, data.train->rows());
    return run.evaluation;
  });
}

void eval(const EvalFlags& flags, const Console& console) {
  const driver::LoraSettings lora = flags.lora.parse();
  const Evaluation evaluation = is_artifact(flags.model) ? evaluate_artifact(flags, console) : evaluate_model(flags, lora, console);
  char text[64];
  std::snprintf(text, sizeof text, "loss %.9g", evaluation.loss);
  console.result(text);
  for (const std::string& line : metric_lines(evaluation, "")) console.result(line);
  nlohmann::json json{{"data", flags.data.text()}, {"loss", evaluation.loss}, {"rows", evaluation.rows}};
  add_metrics(json, evaluation);
  console.result_json(std::move(json));
}

}  // namespace

Command add_eval(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<EvalFlags>();
  ArgumentParser parser = root.add_subcommand("eval", "loss and metrics of a model on data, in inference form");
  parser.add_option("MODEL", flags->model, "an .onnx file, or a .gcx with a training step").required();
  flags->data.add(parser);
  parser.add_option("--workers", flags->workers, "threads that read rows ahead (default: by the data; the results are the same)")
      .type_name("N");
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
            require_from(1, "--batch", flags->batch);
            require_workers(flags->workers);
            require_different(flags->metrics);
            require_statistics(flags->data.request.augment);
            eval(*flags, console);
          }};
}

}  // namespace gcomp::tools
