// gcomp compile: a model to an artifact, or to what is inside: IR, plan, kernels.
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "codegen/target.h"
#include "gcomp/driver/compiled_model.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/saved_model.h"
#include "passes/pipeline.h"
#include "runtime/backend.h"
#include "runtime/files/atomic_file.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/emit.h"
#include "tools/gcomp/lora_flags.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/outputs.h"
#include "tools/gcomp/pass_trace.h"
#include "tools/gcomp/rank_plan.h"
#include "tools/gcomp/rate_flags.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/step_flags.h"
#include "tools/gcomp/step_memory.h"

namespace gcomp::tools {
namespace {

struct CompileFlags {
  std::string model, out, target = "cpu", emit, print_after, loss, output;
  std::int64_t batch = 0, seed = 0;
  std::int64_t ranks = 1;
  bool train = false, training = false, time_passes = false, embed_model = false, ptxas = false;
  std::vector<std::string> disabled, metrics, links;
  ModelOptions model_options;
  OptimizerOptions optimizer;
  StepFlags step;
  LoraFlags lora;
  DeviceOptions device;
};

void check_flags(const CompileFlags& flags) {
  const auto usage = [](const std::string& message) { throw UserError(message, ExitCode::usage); };
  if (flags.train && flags.loss.empty()) usage(missing_loss("--train needs --loss"));
  if (flags.train && flags.training)
    usage("--training is for a forward pass in training form; --train compiles the training step, which has it anyway");
  require_batch(flags.batch);
  require_different(flags.metrics);
  if (flags.embed_model && (!flags.train || !is_artifact(flags.out)))
    usage("--embed-model has a meaning only with --train and -o NAME.gcx");
  if (flags.ranks < 1 || (flags.ranks > 1 && !flags.train))
    usage(concat("--ranks ", flags.ranks, ": wanted 1 or more, with --train"));
  if (!flags.links.empty() && (flags.ranks < 2 || flags.emit != "plan"))
    usage("--link is for --emit plan of one of several ranks (--ranks N), whose exchanges it times");
  if (flags.ptxas && (flags.emit != "plan" || !flags.target.starts_with("cuda")))
    usage("--ptxas is for --emit plan with --target cuda:sm_NN, whose kernels it compiles");
  const bool artifact = is_artifact(flags.out);
  if (artifact && flags.ranks > 1)
    usage(concat("--ranks ", flags.ranks, ": an artifact holds the step of one process; --emit shows that of a rank"));
  if (artifact && !flags.emit.empty())
    usage(concat("--emit ", flags.emit, " writes text into the folder -o DIR; -o ", flags.out, " names an artifact"));
  if (!artifact && !flags.out.empty() && flags.emit.empty())
    usage(concat("-o ", flags.out, ": unknown ending, wanted NAME.gcx for an artifact; a folder goes with --emit"));
  if (flags.out.empty() && flags.emit.empty() && flags.print_after.empty() && !flags.time_passes) {
    if (!flags.output.empty()) require_path(flags.out, "--out", flags.output);
    usage("nothing to do: give -o NAME.gcx, --emit ir|plan|cuda|cpp|cubin, --print-after=PASS or --time-passes");
  }
}

/// The target of --emit: cuda and cubin imply CUDA where none is given, cpp the CPU.
runtime::Target target_of(const CompileFlags& flags) {
  const runtime::Target target = runtime::parse_target(flags.target);
  if (flags.emit.empty()) return target;
  const std::string_view needed = needed_target(parse_emit(flags.emit));
  if (needed.empty()) return target;
  runtime::Target wanted = runtime::parse_target(needed);
  if (target.kind == wanted.kind) return target;
  if (flags.target != CompileFlags().target)
    throw UserError(concat("--emit ", flags.emit, " needs --target ", needed, ", found ", flags.target), ExitCode::usage);
  return wanted;
}

/// Compiling starts from the model's weights: what a run has trained would be lost without a word.
void keep_trained(const std::string& path) {
  if (const std::int64_t steps = driver::trained_steps(path); steps > 0)
    throw UserError(concat("-o ", path, ": that file holds the weights of ", steps, steps == 1 ? " trained step" : " trained steps",
                           ", which compiling would replace; give another name, or remove it"),
                    ExitCode::usage);
}

class Compilation {
 public:
  Compilation(const CompileFlags& flags, const Console& console)
      : flags_(flags), console_(console), trace_(console, flags.print_after), progress_(console), target_(target_of(flags)) {
    hooks_ = trace_.hooks();
    driver::require_device(flags.device.request(), target_, flags.out.empty() ? flags.model : flags.out);
    hooks_.begin = [this](std::string_view phase) { progress_.begin(phase); };
    for (const std::string& pass : flags.disabled) passes::require_optional_pass(pass, "--disable");
    hooks_.disabled = flags.disabled;
    options_ = flags.model_options.parse();
    options_.target = target_;
    options_.training_form = flags.training;
    options_.seed = flags.seed;
    options_.lora = flags.lora.parse();
    if (flags.batch > 0) options_.shapes.batch = flags.batch;
    if (flags.train && !options_.precision) options_.precision = DType::f32;
    if (flags.train) loss_ = driver::read_loss(flags.loss, flags.output);
    if (flags.train) driver::metrics_of(flags.metrics, loss_);  // wrong ones are told now
    if (flags.train) optimizer_ = flags.optimizer.parse();
    if (flags.train) options_.step = flags.step.parse(flags.optimizer.rate());
    options_.step.ranks = flags.ranks;
    for (const auto& [option, given] : {std::pair("--zero", flags.step.zero != StepFlags().zero),
                                        std::pair("--bucket-mib", flags.step.bucket_mib != StepFlags().bucket_mib)})
      if (given && flags.ranks <= 1)
        console.say(concat("note: ", option, " changes nothing: this is the step of one process (--ranks N has that of a rank)"));
    if (flags.links.empty()) return;
    links_ = parse_links(flags.links);
    if (!codegen::target_of(target_).rates)
      throw UserError(concat("--link: gcomp knows no rates of ", to_string(target_),
                             ", which a step's time is told by; wanted --target cuda:sm_90 or the like"),
                      ExitCode::usage);
  }

  void run() {
    const Outputs outputs({{"-o", is_artifact(flags_.out) ? flags_.out : "", {".gcx"}}});
    outputs.protect("model", flags_.model);
    if (is_artifact(flags_.out)) {
      keep_trained(flags_.out);
      runtime::AtomicFile probe(flags_.out);
    }
    const auto start = std::chrono::steady_clock::now();
    progress_.begin(concat("reading '", flags_.model, "'"));
    model_ = Model::load(flags_.model);
    const auto kept = driver::keep_data(*model_);
    outputs.protect_model(driver::onnx_file(*model_)->files);
    require_output(flags_.output, *model_, "--out");
    trace_.add("read", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (is_artifact(flags_.out)) {
      make_artifact();
    } else {
      emit();
    }
    if (!flags_.time_passes) return;
    trace_.report();
    console_.result_json({{"phases", trace_.json()}});
  }

 private:
  driver::ModelGraph graph() {
    driver::ModelGraph made = flags_.train ? driver::training_graph(*model_, options_, loss_, optimizer_, hooks_)
                                           : driver::inference_graph(*model_, options_, hooks_);
    report(made.model, driver::settled(loss_, made).output);
    return made;
  }

  void report(const frontend::ImportedModel& model, const std::string& output) const {
    if (flags_.train) {
      report_parameters(console_, model);
      return report_outputs(console_, model, flags_.loss, output);
    }
    report_unfolded(console_, model);
    if (flags_.training)
      report_forms(console_, flags_.model, model.forms.inference,
                   "compiled in training form (the file has them in inference form)");
    else
      report_forms(console_, flags_.model, model.forms.training,
                   "compiled in inference form (--training keeps them as in training)");
  }

  /// Of each program of a step with micro-batches, which may have kernels in common.
  void emit() {
    driver::ModelGraph made = graph();
    std::vector<EmittedFile> files;
    const bool in_parts = made.accumulation.has_value();
    StepMemory memory;
    for (driver::StepGraph& part : driver::step_graphs(made, hooks_)) {
      const driver::LoweredGraph lowered = driver::lower_graph(std::move(part.graph), target_, part.hooks);
      memory.add(part.program, lowered);
      if (flags_.emit.empty()) {
        compile_kernels(lowered);
        continue;
      }
      for (EmittedFile& file : emitted(lowered))
        if (std::ranges::find(files, file.first, &EmittedFile::first) == files.end()) files.push_back(std::move(file));
      if (links_)
        plan_.programs.push_back(
            {part.program, codegen::generate_counted(lowered.graph, lowered.plan, target_, options_.program_limits)});
    }
    if (in_parts && flags_.emit == "plan") files.emplace_back("train_memory.plan", memory.describe());
    if (links_) files.push_back(rank_plan());
    if (!flags_.emit.empty()) write(files);
  }

  std::vector<EmittedFile> emitted(const driver::LoweredGraph& lowered) {
    const EmitKind kind = parse_emit(flags_.emit);
    if (kind == EmitKind::ir) return {emit_ir(lowered)};
    if (kind == EmitKind::plan) return {plan(lowered)};
    const runtime::Program program = driver::generate_program(lowered, target_, hooks_, options_.program_limits);
    if (kind != EmitKind::cubin) return emit_kernels(program);
    if (flags_.out.empty()) throw UserError("--emit cubin writes binary files: give a folder with -o DIR", ExitCode::usage);
    return emit_cubins(program, device_options(), console_);
  }

  EmittedFile plan(const driver::LoweredGraph& lowered) {
    const runtime::DeviceOptions device = device_options();
    return emit_plan(lowered, target_,
                     {.limits = options_.program_limits,
                      .tf32 = device.precision == runtime::MatmulPrecision::tf32,
                      .compiler = flags_.ptxas ? &device : nullptr});
  }

  EmittedFile rank_plan() {
    plan_.ranks = flags_.ranks;
    plan_.shards = flags_.step.micro_batches / flags_.ranks;
    plan_.sharding = options_.step.sharding;
    return {"train_ranks.plan", describe_ranks(plan_, *codegen::target_of(target_).rates, *links_)};
  }

  void write(const std::vector<EmittedFile>& files) {
    std::vector<Output> written;
    for (const auto& [name, text] : files)
      if (!flags_.out.empty()) written.push_back({"-o", (std::filesystem::path(flags_.out) / name).string()});
    Outputs(std::move(written)).protect_model(driver::onnx_file(*model_)->files);
    write_emitted(files, flags_.out, console_);
  }

  runtime::DeviceOptions device_options() {
    runtime::DeviceOptions options = flags_.device.parse(console_);
    options.kernels = trace_.kernels();
    progress_.watch(options);
    return options;
  }

  /// For the table of times, where the device is here: everything up to the point where the first step could run.
  void compile_kernels(const driver::LoweredGraph& lowered) {
    runtime::Program program = driver::generate_program(lowered, target_, hooks_, options_.program_limits);
    const runtime::Backend& backend = runtime::backend_of(target_);
    if (!flags_.time_passes || !backend.everywhere) return;
    const auto device = backend.open(device_options());
    device->load(std::move(program), device->allocate_states());
  }

  void make_artifact() {
    driver::ArtifactOptions options{.graph = options_,
                                    .target = target_,
                                    .loss = {},
                                    .output = flags_.output,
                                    .metrics = flags_.metrics,
                                    .optimizer = optimizer_,
                                    .learning_rate = flags_.optimizer.rate(),
                                    .keep_model = flags_.embed_model ? KeepModel::whole : KeepModel::by_reference,
                                    .device_options = device_options(),
                                    .hooks = hooks_};
    if (flags_.train) options.loss = flags_.loss;
    const driver::CompiledModel compiled = driver::compile_model(*model_, options);
    report(compiled.model, compiled.output);
    runtime::write_artifact(flags_.out, compiled.artifact);
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(flags_.out));
    console_.result(concat("wrote '", flags_.out, "', ", bytes_text(size), ", for ", to_string(target_)));
    if (!flags_.time_passes) console_.result_json({{"out", flags_.out}, {"bytes", size}, {"target", to_string(target_)}});
  }

  const CompileFlags& flags_;
  const Console& console_;
  PassTrace trace_;
  CompileProgress progress_;
  runtime::Target target_;
  driver::CompileHooks hooks_;
  driver::GraphOptions options_;
  driver::LossSpec loss_;
  driver::Optimizer optimizer_;
  std::optional<Model> model_;
  std::optional<codegen::scale::Links> links_;
  RankPlan plan_;  // where there are links
};

}  // namespace

Command add_compile(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<CompileFlags>();
  ArgumentParser parser = root.add_subcommand("compile", "compile a model to an artifact, or show what is inside");
  parser.add_option("MODEL", flags->model, "an .onnx file").required();
  parser.add_flag("--train", flags->train, "compile the training step, not only inference");
  parser.add_flag("--training", flags->training,
                  "the forward pass in training form: BatchNormalization by the statistics of the batch, Dropout live");
  parser.add_option("--seed", flags->seed, "of Dropout and other random operators (default 0)").type_name("N");
  add_loss(parser, flags->loss);
  add_output(parser, flags->output);
  add_metric(parser, flags->metrics);
  parser.add_option("--target", flags->target, "cpu (default) or cuda:sm_90 and the like").type_name("TARGET");
  parser.add_option("--out,-o", flags->out, "the artifact NAME.gcx, or the folder for --emit").type_name("PATH");
  parser.add_flag("--embed-model", flags->embed_model,
                  "with --train: the .gcx keeps the .onnx file itself, not its path and SHA-256");
  parser.add_option("--emit", flags->emit, "ir, plan, cuda, cpp or cubin: to -o DIR, or to stdout").type_name("KIND");
  parser.add_flag("--ptxas", flags->ptxas,
                  "with --emit plan, CUDA: the kernels are compiled, and their registers and shared memory count in its estimates");
  parser.add_option("--print-after", flags->print_after, "the IR after a pass, or after all of them").type_name("PASS|all");
  parser.add_flag("--time-passes", flags->time_passes, "a table of phases and passes with their times");
  parser.add_repeated("--disable", flags->disabled, "leave a pass out that the result does not need; repeatable").type_name("PASS");
  parser.add_option("--batch", flags->batch, "first dimension of every input").type_name("N");
  flags->model_options.add_precision(parser, "what floats compute in (default: f32 with --train, else as the file says)");
  flags->model_options.add_loss_scale(parser);
  flags->model_options.add_shapes(parser);
  flags->model_options.add_selection(parser);
  flags->optimizer.add(parser);
  flags->step.add(parser);
  parser
      .add_option("--ranks", flags->ranks,
                  "with --train --micro-batches S --emit: what one of so many processes runs (docs/distributed.md)")
      .type_name("N")
      .group("Accumulation");
  add_links(parser, flags->links, "Accumulation");
  flags->lora.add_selection(parser);
  flags->device.add(parser);
  parser.set_footer(
      "Examples:\n"
      "  gcomp compile m.onnx --train --loss mse --optimizer sgd --dim batch=32 --target cpu -o model.gcx\n"
      "  gcomp compile m.onnx --train --loss cross_entropy --dim batch=64 --emit cuda -o kernels\n"
      "  gcomp compile m.onnx --train --loss cross_entropy --batch 256 --micro-batches 8 --ranks 8 --target cuda:sm_90 --emit plan "
      "--link 450GB/s,3us -o plan\n"
      "  gcomp compile m.onnx --dim batch=1 --emit ir --print-after=all\n"
      "  gcomp compile m.onnx --train --loss cross_entropy --dim batch=8 --time-passes");
  return {parser, [parser, flags, &console] {
            if (!flags->train) refuse_untrained(parser, "has a meaning only with --train");
            check_flags(*flags);
            Compilation(*flags, console).run();
          }};
}

}  // namespace gcomp::tools
