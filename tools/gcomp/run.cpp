// gcomp run: the outputs of a model, .onnx or .gcx, for the arrays of an .npz, or for the rows of other data.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "gcomp/driver/kept_names.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/opened_data.h"
#include "gcomp/driver/prediction.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/npz.h"
#include "runtime/files/npz_stream.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/data_flags.h"
#include "tools/gcomp/lora_flags.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/outputs.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/run_inputs.h"

namespace gcomp::tools {
namespace {

struct RunFlags {
  std::string model, inputs, outputs, augment;
  std::vector<std::string> map;
  std::optional<std::int64_t> batch, workers;
  std::int64_t seed = 0;
  bool training = false, inference = false;
  ModelOptions model_options;
  LoraFlags lora;
  DeviceOptions device;
  TrustOptions trust;
};

/// An .npz by its name goes into the model as it is; all else as gcomp eval reads it.
bool reads_data(const RunFlags& flags) {
  return std::filesystem::path(flags.inputs).extension() != ".npz" || !flags.augment.empty() || !flags.map.empty();
}
bool reads_data(const RunFlags& flags, const std::vector<data::WantedArray>& wanted, const std::vector<InputForm>& forms) {
  return reads_data(flags) || has_pixels(flags.inputs, wanted, forms);
}

driver::DataRequest data_request(const RunFlags& flags) {
  return {.data = {flags.inputs}, .eval_data = {}, .map = flags.map, .augment = flags.augment, .trains = false};
}

/// What the run writes, none of it a file that it reads, in a folder that can be written to.
Outputs protected_outputs(const RunFlags& flags) {
  Outputs files({{"--outputs", flags.outputs, kArrayEndings}});
  files.protect("model", flags.model);
  for (const std::string& path : reads_data(flags) ? driver::paths_of(data_request(flags)) : std::vector{flags.inputs})
    files.protect("data", path);
  flags.lora.protect(files);
  { runtime::AtomicFile probe(flags.outputs); }
  return files;
}

/// A predictor, and the data that it is made for.
struct PredictorOfData {
  Predictor predictor;
  std::vector<data::WantedArray> wanted;
  driver::OpenedData data;
};

PredictorOfData make_predictor(const RunFlags& flags, const Outputs& outputs, const Console& console, CompileProgress& compiling) {
  runtime::DeviceOptions device = flags.device.parse(console);
  compiling.watch(device);
  const runtime::ArtifactTrust trust = flags.trust.parse(flags.model);
  if (is_artifact(flags.model)) {
    PredictorOfData made{
        .predictor = Predictor::load(flags.model, device, flags.device.request(), trust), .wanted = {}, .data = {}};
    made.wanted = driver::wanted_inputs(made.predictor);
    if (reads_data(flags, made.wanted, made.predictor.input_forms()))
      made.data = driver::open_data(data_request(flags), made.predictor, made.wanted);
    return made;
  }
  driver::PredictOptions options;
  options.batch = flags.batch.value_or(0);
  options.graph = flags.model_options.parse();
  options.graph.training_form = flags.training;
  options.graph.seed = flags.seed;
  options.graph.lora = flags.lora.parse();
  options.graph.shapes.data_source = flags.inputs;
  options.device = flags.device.request();
  options.device_options = device;
  compiling.watch(options.hooks, options.device_options);
  options.hooks.internal_error = [&](const ir::Graph& graph, const std::string& error) {
    report_internal_error(console, graph, error);
  };
  Model model = Model::load(flags.model);
  outputs.protect_model(driver::onnx_file(model)->files);
  std::vector<data::WantedArray> wanted = driver::wanted_inputs(model);
  driver::OpenedData data;
  if (reads_data(flags, wanted, {})) {
    driver::DataRequest request = data_request(flags);
    request.number_names = driver::number_names_of(flags.model, model);
    data = driver::open_data(request, wanted);
    options.graph.input_forms = data.input_forms;
  }
  return {driver::make_predictor(std::move(model), options), std::move(wanted), std::move(data)};
}

class Run {
 public:
  Run(const RunFlags& flags, const Console& console)
      : flags_(flags),
        console_(console),
        files_(protected_outputs(flags)),
        compiling_(console),
        made_(make_predictor(flags, files_, console, compiling_)),
        predictor_(made_.predictor),
        inputs_(made_.data.train ? data_inputs(made_.data, made_.wanted, static_cast<int>(flags.workers.value_or(-1)))
                                 : npz_inputs(flags.inputs, predictor_.input_names())) {}

  void run() {
    console_.say("device: " + predictor_.device());
    if (made_.data.train) say_notes(console_, made_.data, made_.wanted);
    predictor_.prepare({inputs_->types().begin(), inputs_->types().end()});
    report_forms(console_, flags_.model, driver::switched_forms(predictor_),
                 flags_.training ? "run in training form (the file has them in inference form)"
                                 : "run in inference form (--training keeps them as in training)");
    const std::int64_t rows = inputs_->rows();
    report_rows(rows);
    if (rows > 0 && predictor_.runs_in_batches()) run_batches(rows);
    else run_whole();
    report_outputs();
  }

 private:
  /// Where a program for one row computes rows apart, only the user knows whether they depend on each other.
  void report_rows(std::int64_t rows) const {
    const std::int64_t most = predictor_.batch();
    const bool told = is_artifact(flags_.model) || flags_.batch;
    if (!predictor_.undivided().empty()) {
      if (rows != 1) console_.say(concat("'", flags_.inputs, "': all rows run at once: ", predictor_.undivided()));
    } else if (most > 0 && rows > 0 && (rows > most || (told && rows != most))) {
      console_.say(concat("'", flags_.inputs, "' has ", grouped(rows), rows == 1 ? " row" : " rows", ", which run in batches of ",
                          most, told && most == 1 ? ": no row may depend on others" : ""));
    }
  }

  std::vector<NamedTensor> predict(const Batch& batch, std::int64_t first_row = 0) {
    try {
      return predictor_.predict(batch, first_row);
    } catch (const UserError& error) { throw UserError(concat("'", flags_.inputs, "': ", error.what()), error.code()); }
  }

  /// Inputs and outputs pass through memory a batch at a time.
  void run_batches(std::int64_t rows) {
    inputs_->begin(predictor_.batch());
    outputs_ = predictor_.output_types(rows);
    runtime::NpzStream out(flags_.outputs, outputs_);
    for (std::int64_t first = 0; first < rows; first += predictor_.batch()) {
      const std::vector<NamedTensor> results = predict(inputs_->next(), first);
      for (std::size_t i = 0; i < results.size(); ++i) out.append(i, results[i].second.bytes());
    }
    out.commit();
  }

  void run_whole() {
    const std::vector<NamedTensor> results = predict(inputs_->whole());
    for (const auto& [name, tensor] : results) outputs_.emplace_back(name, tensor.type());
    runtime::write_npz(flags_.outputs, results);
  }

  void report_outputs() const {
    nlohmann::json json{{"outputs", nlohmann::json::object()}, {"file", flags_.outputs}};
    for (const auto& [name, type] : outputs_) {
      console_.result(concat(name, ": ", to_string(type)));
      json["outputs"][name] = to_string(type);
    }
    console_.result(concat("wrote '", flags_.outputs, "'"));
    console_.result_json(std::move(json));
  }

  const RunFlags& flags_;
  const Console& console_;
  Outputs files_;
  CompileProgress compiling_;
  PredictorOfData made_;
  Predictor& predictor_;
  std::unique_ptr<RunInputs> inputs_;
  std::vector<std::pair<std::string, TensorType>> outputs_;
};

}  // namespace

Command add_run(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<RunFlags>();
  ArgumentParser parser = root.add_subcommand("run", "run a model on arrays or other data, write its outputs");
  parser.add_option("MODEL", flags->model, "an .onnx file, or a .gcx").required();
  parser
      .add_option("--inputs", flags->inputs,
                  "an .npz with arrays named after the model's inputs, or what --data of train and eval takes: folders of images, "
                  "tables, ... (docs/data.md)")
      .type_name("DATA")
      .required();
  parser.add_option("--outputs", flags->outputs, "arrays named after the model's outputs").type_name("NPZ").required();
  parser
      .add_option("--augment", flags->augment,
                  "what is done to rows first, in the form of inference: 'resize(256), center_crop(224), normalize(imagenet)' "
                  "(default: what a .gcx keeps)")
      .type_name("LIST");
  parser.add_repeated("--map", flags->map, "the array that feeds an input, where their names differ; may be repeated")
      .type_name("INPUT=ARRAY");
  parser.add_option("--workers", flags->workers, "threads that read rows ahead (default: by the data)").type_name("N");
  parser
      .add_option("--batch", flags->batch,
                  "rows of one run (default: a power of two that follows from the model's shapes; all at once where rows depend on "
                  "each other)")
      .type_name("N");
  parser.add_flag("--training", flags->training,
                  "BatchNormalization by the statistics of the batch and Dropout live (default: inference form, whatever the file "
                  "says)");
  parser.add_flag("--inference", flags->inference, "the default; kept for older scripts");
  parser.add_option("--seed", flags->seed, "of Dropout and other random operators (default 0)").type_name("N");
  flags->model_options.add_precision(parser, "what floats compute in (default: as the file says)");
  flags->model_options.add_shapes(parser);
  flags->lora.add_adapter(parser);
  flags->device.add(parser);
  flags->trust.add(parser);
  parser.set_footer(
      "Examples:\n"
      "  gcomp run trained.onnx --inputs x.npz --outputs y.npz\n"
      "  gcomp run trained.onnx --inputs photos --augment 'resize(256), center_crop(224), normalize(imagenet)' --outputs y.npz\n"
      "  gcomp run model.gcx --inputs x.npz --outputs y.npz --threads 2\n"
      "  gcomp run model.gcx --rebuild --inputs x.npz --outputs y.npz\n\n"
      "A .gcx holds machine code that runs as you: read only those whose origin you trust, ask for a signature, or --rebuild.");
  return {parser, [parser, flags, &console] {
            constexpr std::string_view kDecided[] = {"--seed", "--training"};
            if (is_artifact(flags->model)) refuse_decided(parser, flags->model, kDecided);
            if (flags->training && flags->inference)
              throw UserError("--training and --inference exclude each other", ExitCode::usage);
            require_from(1, "--batch", flags->batch);
            require_workers(flags->workers);
            require_statistics(flags->augment);
            Run(*flags, console).run();
          }};
}

}  // namespace gcomp::tools
