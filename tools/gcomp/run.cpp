// gcomp run: the outputs of a model, .onnx or .gcx, for the arrays of an .npz.
#include <memory>
#include <nlohmann/json.hpp>

#include "gcomp/predictor.h"
#include "runtime/atomic_file.h"
#include "runtime/npz.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/outputs.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/training_data.h"

namespace gcomp::tools {
namespace {

struct RunFlags {
  std::string model, inputs, outputs;
  std::int64_t batch = 0, seed = 0;
  bool training = false, inference = false;
  ModelOptions model_options;
  DeviceOptions device;
};

Predictor make_predictor(const RunFlags& flags, const Outputs& outputs, const Console& console, CompileProgress& compiling) {
  runtime::DeviceOptions device = flags.device.parse(console);
  compiling.watch(device);
  if (is_artifact(flags.model)) return Predictor::load(flags.model, device, flags.device.request());
  PredictOptions options;
  options.batch = flags.batch;
  options.graph = flags.model_options.parse();
  options.graph.training_form = flags.training;
  options.graph.seed = flags.seed;
  options.graph.shapes.data_source = flags.inputs;
  options.device = flags.device.request();
  options.device_options = device;
  compiling.watch(options.hooks, options.device_options);
  options.hooks.internal_error = [&](const ir::Graph& graph, const std::string& error) {
    report_internal_error(console, graph, error);
  };
  Model model = Model::load(flags.model);
  outputs.protect_model(model.onnx()->files);
  return Predictor(std::move(model), std::move(options));
}

/// Where a program for one row computes rows apart, only the user knows whether they depend on each other.
void report_split(const RunFlags& flags, const Predictor& predictor, const Batch& batch, const Console& console) {
  const std::int64_t most = predictor.batch();
  if (batch.empty() || most == 0 || batch[0].second.type().shape.empty()) return;
  const std::int64_t rows = batch[0].second.type().shape[0];
  if (rows != most)
    console.say(concat("'", flags.inputs, "' has ", rows, rows == 1 ? " row" : " rows", ", which run in batches of ", most,
                       most == 1 ? ": no row may depend on others" : ""));
}

void run(const RunFlags& flags, const Console& console) {
  require_batch(flags.batch);
  const Outputs files({{"--outputs", flags.outputs, kArrayEndings}});
  files.protect("model", flags.model);
  files.protect("data", flags.inputs);
  { runtime::AtomicFile probe(flags.outputs); }
  CompileProgress compiling(console);
  Predictor predictor = make_predictor(flags, files, console, compiling);
  const std::vector<NamedTensor> arrays = load_arrays(flags.inputs, predictor.input_names());
  const Batch batch = views_of(arrays);
  console.say("device: " + predictor.device());
  predictor.prepare(batch);
  report_forms(console, flags.model, predictor.switched_forms(),
               flags.training ? "run in training form (the file has them in inference form)"
                              : "run in inference form (--training keeps them as in training)");
  report_split(flags, predictor, batch, console);
  std::vector<NamedTensor> outputs;
  try {
    outputs = predictor.predict(batch);
  } catch (const UserError& error) { throw UserError(concat("'", flags.inputs, "': ", error.what()), error.code()); }
  runtime::write_npz(flags.outputs, outputs);
  nlohmann::json json{{"outputs", nlohmann::json::object()}, {"file", flags.outputs}};
  for (const auto& [name, tensor] : outputs) {
    console.result(concat(name, ": ", to_string(tensor.type())));
    json["outputs"][name] = to_string(tensor.type());
  }
  console.result(concat("wrote '", flags.outputs, "'"));
  console.result_json(std::move(json));
}

}  // namespace

Command add_run(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<RunFlags>();
  ArgumentParser parser = root.add_subcommand("run", "run a model on the arrays of an .npz, write its outputs");
  parser.add_option("MODEL", flags->model, "an .onnx file, or a .gcx").required();
  parser.add_option("--inputs", flags->inputs, "arrays named after the model's inputs").type_name("NPZ").required();
  parser.add_option("--outputs", flags->outputs, "arrays named after the model's outputs").type_name("NPZ").required();
  parser.add_option("--batch", flags->batch, "rows of one run (default: all at once)").type_name("N");
  parser.add_flag("--training", flags->training,
                  "BatchNormalization by the statistics of the batch and Dropout live (default: inference form, whatever the file "
                  "says)");
  parser.add_flag("--inference", flags->inference, "the default; kept for older scripts");
  parser.add_option("--seed", flags->seed, "of Dropout and other random operators (default 0)").type_name("N");
  flags->model_options.add_precision(parser, "what floats compute in (default: as the file says)");
  flags->model_options.add_shapes(parser);
  flags->device.add(parser);
  parser.set_footer(
      "Examples:\n"
      "  gcomp run trained.onnx --inputs x.npz --outputs y.npz\n"
      "  gcomp run model.gcx --inputs x.npz --outputs y.npz --threads 2");
  return {parser, [parser, flags, &console] {
            constexpr std::string_view kSeed[] = {"--seed"};
            if (is_artifact(flags->model)) refuse_decided(parser, flags->model, kSeed);
            if (flags->training && flags->inference)
              throw UserError("--training and --inference exclude each other", ExitCode::usage);
            run(*flags, console);
          }};
}

}  // namespace gcomp::tools
