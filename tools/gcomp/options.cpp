#include "tools/gcomp/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <span>

#include "gcomp/driver/fit/batch_loader.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/optimizer_text.h"
#include "ir/base/nearest.h"
#include "tools/command_line/numbers.h"

namespace gcomp::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

[[noreturn]] void usage(const std::string& message) { throw UserError(message, ExitCode::usage); }

/// "batch=32" as a symbol and a size.
std::pair<std::string, std::int64_t> parse_dim(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) usage("--dim " + text + ": wanted SYMBOL=N, such as --dim batch=32");
  return {text.substr(0, equals), parse_integer(std::string_view(text).substr(equals + 1), "--dim " + text)};
}

/// "x:32x20" as an input and a shape; "x:" is a scalar.
std::pair<std::string, Shape> parse_shape(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) usage("--shapes " + text + ": wanted INPUT:NxNxN, such as --shapes x:32x20");
  Shape shape;
  std::string_view rest = std::string_view(text).substr(colon + 1);
  while (!rest.empty()) {
    const std::size_t end = rest.find('x');
    shape.push_back(parse_integer(rest.substr(0, end), "--shapes " + text));
    if (shape.back() < 0) usage("--shapes " + text + ": wanted sizes of 0 or more");
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return {text.substr(0, colon), shape};
}

DType parse_precision(const std::string& text) {
  const std::vector<std::string> known{"f32", "f64", "bf16", "f16"};
  if (std::find(known.begin(), known.end(), text) != known.end()) return *parse_dtype(text);
  usage(concat("--precision ", text, ": wanted f32, f64, bf16 or f16", did_you_mean(text, known)));
}

double parse_loss_scale(const std::string& text) {
  const std::vector<std::string> known{"dynamic"};
  double scale = 0;
  if (!read_number(text, scale).empty() || !(static_cast<float>(scale) > 0 && std::isfinite(static_cast<float>(scale))))
    usage(concat("--loss-scale ", text, ": wanted dynamic, or a number above 0 that float32 holds", did_you_mean(text, known)));
  return scale;
}

bool names_file(const std::string& text) {
  constexpr std::string_view kEndings[] = {".onnx", ".npz", ".gcx"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return text.ends_with(ending); });
}

std::string file_hint(std::string_view flag) { return concat("; a file is named by ", flag); }

constexpr std::string_view kOptimizerFlags[] = {"--optimizer",       "--lr",
                                                "--momentum",        "--dampening",
                                                "--nesterov",        "--weight-decay",
                                                "--betas",           "--eps",
                                                "--group",           "--clip-norm",
                                                "--clip-value",      "--ema",
                                                "--skip-non-finite", "--micro-batches",
                                                "--sync-batchnorm",  "--recompute",
                                                "--loss-chunks",     "--zero",
                                                "--bucket-mib"};
constexpr std::string_view kGraphFlags[] = {"--loss",
                                            "--batch",
                                            "--precision",
                                            "--loss-scale",
                                            "--dim",
                                            "--shapes",
                                            "--lora",
                                            "--lora-rank",
                                            "--lora-alpha",
                                            "--adapter",
                                            "--name-map",
                                            "--freeze",
                                            "--thaw",
                                            "--tie",
                                            "--untie",
                                            "--inference",
                                            "--batchnorm-variance",
                                            "--output",
                                            "--metric",
                                            "--max-nodes",
                                            "--max-elements",
                                            "--max-folded-bytes",
                                            "--max-kernels",
                                            "--max-kernel-bytes"};

bool holds(std::span<const std::string_view> flags, const std::string& flag) {
  return std::ranges::find(flags, flag) != flags.end();
}

/// The value, where there is one, must lie in [low, high).
void require_range(const std::optional<double>& value, double low, double high, const std::string& flag) {
  if (value && !(*value >= low && *value < high))
    usage(concat(flag, " ", *value, ": wanted a number from ", low, std::isinf(high) ? " up" : concat(" to below ", high)));
}

/// By the flag, else by the variable; none where neither is given.
std::optional<runtime::InstructionSet> asked_instruction_set(const std::string& flag) {
  const char* variable = std::getenv("GCOMP_ISA");
  const std::string text = !flag.empty() ? flag : variable ? variable : "";
  if (text.empty()) return std::nullopt;
  const std::vector<std::string> known{"baseline", "avx2", "avx512", "amx"};
  if (std::find(known.begin(), known.end(), text) == known.end())
    usage(
        concat(flag.empty() ? "GCOMP_ISA=" : "--isa ", text, ": wanted baseline, avx2, avx512 or amx", did_you_mean(text, known)));
  return runtime::parse_instruction_set(text);
}

Tuning tuning_of(const std::string& mode) {
  if (mode == "full") return Tuning::all;
  if (mode == "on") return Tuning::favourites;
  return mode == "off" ? Tuning::off : Tuning::equal_bits;
}

/// "nvrtc=/opt/cuda/lib64" as where to look for NVRTC.
void set_library(runtime::LibrarySearch& search, const std::string& text) {
  constexpr std::pair<std::string_view, runtime::LibraryKind> kNames[] = {{"driver", runtime::LibraryKind::driver},
                                                                          {"nvrtc", runtime::LibraryKind::nvrtc},
                                                                          {"cublaslt", runtime::LibraryKind::cublaslt},
                                                                          {"cudnn", runtime::LibraryKind::cudnn},
                                                                          {"nccl", runtime::LibraryKind::nccl}};
  const std::size_t equals = text.find('=');
  const auto named =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& known) { return known.first == text.substr(0, equals); });
  if (named == std::end(kNames) || equals == std::string::npos || equals + 1 == text.size())
    usage(concat("--library ", text, ": wanted NAME=PATH, NAME one of driver, nvrtc, cublaslt, cudnn and nccl"));
  Path& path = search.explicit_of(named->second);
  if (!path.empty()) usage(concat("--library ", named->first, " is given twice"));
  path = text.substr(equals + 1);
}

}  // namespace

std::int64_t parse_integer(std::string_view text, const std::string& flag) {
  std::int64_t value = 0;
  if (const std::string complaint = read_number(text, value); !complaint.empty())
    usage(concat(flag, ": ", complaint, complaint.find("found") == complaint.npos ? concat(", found '", text, "'") : ""));
  return value;
}

std::vector<double> parse_numbers(std::string_view text, const std::string& flag) {
  std::vector<double> values;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    double value = 0;
    if (const std::string complaint = read_number(part, value); !complaint.empty()) usage(concat(flag, ": ", complaint));
    values.push_back(value);
    if (comma == std::string_view::npos) return values;
    text = text.substr(comma + 1);
  }
}

bool is_artifact(const std::string& path) { return std::filesystem::path(path).extension() == ".gcx"; }

void require_batch(std::int64_t batch) {
  if (batch < 0) usage(concat("--batch ", batch, ": wanted 1 or more"));
}

void require_from(std::int64_t least, std::string_view flag, const std::optional<std::int64_t>& value) {
  if (value && *value < least) usage(concat(flag, " ", *value, ": wanted ", least, " or more"));
}

void require_workers(const std::optional<std::int64_t>& workers) {
  if (workers && (*workers < 0 || *workers > driver::kMostWorkers))
    usage(concat("--workers ", *workers, ": wanted 0 to ", driver::kMostWorkers));
}

void require_different(std::span<const std::string> metrics) {
  for (std::size_t i = 0; i < metrics.size(); ++i)
    if (std::ranges::count(metrics.first(i), metrics[i]) > 0) usage(concat("--metric ", metrics[i], " is given twice"));
}

void refuse_decided(const ArgumentParser& parser, const std::string& artifact, std::span<const std::string_view> others) {
  for (const std::string& flag : parser.given())
    if (flag != "--lr" && (holds(kGraphFlags, flag) || holds(kOptimizerFlags, flag) || holds(others, flag)))
      usage(concat(flag, ": '", artifact, "' is compiled, which has decided that; give it to gcomp compile"));
}

void refuse_untrained(const ArgumentParser& parser, std::string_view why) {
  for (const std::string& flag : parser.given())
    if (flag == "--loss" || flag == "--output" || flag == "--metric" || flag == "--lora" || flag == "--loss-scale" ||
        holds(kOptimizerFlags, flag))
      usage(concat(flag, " ", why));
}

void ModelOptions::add_shapes(ArgumentParser& parser) {
  const std::string group = "Shapes";
  parser.add_repeated("--dim", dims, "bind a symbolic dimension, e.g. batch=32; repeatable").type_name("SYMBOL=N").group(group);
  parser.add_repeated("--shapes", shapes, "bind the whole shape of an input, e.g. x:32x20; repeatable")
      .type_name("INPUT:NxN")
      .group(group);
  const auto limit = [&](const std::string& flag, std::int64_t& value, const std::string& meaning) {
    parser.add_option(flag, value, meaning).type_name("N").group("What a model may come to");
  };
  limit("--max-nodes", limits.nodes, "refuse models that unroll to more nodes (default 1000000)");
  limit("--max-elements", limits.elements, "refuse models with a larger tensor (default 2^40)");
  limit("--max-folded-bytes", limits.folded_bytes,
        "compute what depends on no input in advance up to so many bytes in all, a sixteenth of them in one tensor (default 2^30)");
  limit("--max-kernels", program_limits.kernels, "refuse programs of more different kernels (default 4096)");
  limit("--max-kernel-bytes", program_limits.kernel_bytes, "refuse programs whose kernels have more text (default 2^26)");
}

void ModelOptions::add_precision(ArgumentParser& parser, const std::string& meaning) {
  parser.add_option("--precision", precision, meaning).type_name("f32|f64|bf16|f16");
}

void ModelOptions::add_loss_scale(ArgumentParser& parser) {
  parser
      .add_option("--loss-scale", loss_scale,
                  "f16: what the loss is multiplied by in the backward pass (default dynamic, from 65536)")
      .type_name("dynamic|N");
}

void ModelOptions::add_selection(ArgumentParser& parser) {
  const std::string group = "What is trained";
  const auto globs = [&](const std::string& flag, std::vector<std::string>& values, const std::string& meaning) {
    parser.add_repeated(flag, values, meaning).type_name("GLOB").group(group);
  };
  globs("--freeze", freeze, "do not train parameters that match, nor move running statistics that do; repeatable");
  globs("--thaw", thaw, "train what would be left frozen, or what a less exact --freeze matches; repeatable");
  globs("--tie", tie, "one shared parameter for initializers that match; repeatable");
  globs("--untie", untie, "a parameter of its own for each use of initializers that match; repeatable");
  parser.add_option("--batchnorm-variance", batchnorm_variance, "which variance the running statistics keep")
      .type_name("unbiased|population")
      .group(group);
}

driver::GraphOptions ModelOptions::parse() const {
  driver::GraphOptions options;
  for (const std::string& dim : dims) {
    const auto [symbol, size] = parse_dim(dim);
    if (!options.shapes.dims.emplace(symbol, size).second) usage("--dim " + symbol + " is given twice");
  }
  for (const std::string& shape : shapes) {
    auto [input, sizes] = parse_shape(shape);
    if (!options.shapes.shapes.emplace(input, std::move(sizes)).second) usage("--shapes " + input + " is given twice");
  }
  if (!precision.empty()) options.precision = parse_precision(precision);
  if (!loss_scale.empty() && options.precision != DType::f16) usage("--loss-scale has a meaning only with --precision f16");
  if (!loss_scale.empty() && loss_scale != "dynamic") options.loss_scale = parse_loss_scale(loss_scale);
  if (!batchnorm_variance.empty() && batchnorm_variance != "unbiased" && batchnorm_variance != "population")
    usage("--batchnorm-variance " + batchnorm_variance + ": wanted unbiased or population");
  options.freeze = freeze;
  options.train = thaw;
  options.tie = tie;
  options.untie = untie;
  options.batchnorm_variance = batchnorm_variance;
  const std::pair<std::string_view, std::int64_t> bounds[] = {{"--max-nodes", limits.nodes},
                                                              {"--max-elements", limits.elements},
                                                              {"--max-folded-bytes", limits.folded_bytes},
                                                              {"--max-kernels", program_limits.kernels},
                                                              {"--max-kernel-bytes", program_limits.kernel_bytes}};
  for (const auto& [flag, value] : bounds)
    if (value < 1) usage(concat(flag, " ", value, ": wanted a number from 1 up"));
  options.limits = limits;
  options.program_limits = program_limits;
  return options;
}

std::string missing_loss(std::string_view what) {
  return concat(what, ": cross_entropy, mse, bce_with_logits, ... or output:NAME (gcomp train --help, docs/training.md)");
}

void add_metric(ArgumentParser& parser, std::vector<std::string>& metrics) {
  parser
      .add_repeated("--metric", metrics,
                    concat("of evaluations, repeatable: ", names_of(passes::metric_definitions()),
                           " (default accuracy, where the loss decides)"))
      .type_name("METRIC");
}

void add_loss(ArgumentParser& parser, std::string& loss) {
  parser
      .add_option(
          "--loss", loss,
          concat(names_of(passes::loss_definitions()),
                 ", NAME(output, array, option=value, ...), sums of those, output:NAME, or graph:FILE.onnx (docs/training.md)"))
      .type_name("LOSS");
}

void add_output(ArgumentParser& parser, std::string& output) {
  parser
      .add_option("--output", output,
                  "the model's output that loss and accuracy look at (default: the first of floats; what it does not need may be "
                  "unsupported)")
      .type_name("NAME");
}

void require_output(const std::string& output, const Model& model, std::string_view file_flag) {
  if (output.empty() || !driver::onnx_file(model)) return;
  std::vector<std::string> names;
  for (const frontend::ValueInfo& known : driver::onnx_file(model)->outputs) names.push_back(known.name);
  if (std::find(names.begin(), names.end(), output) != names.end()) return;
  usage(concat("--output ", output, ": the model '", model.name(), "' has no output of that name, it has ", listing(names),
               names_file(output) && !file_flag.empty() ? file_hint(file_flag) : did_you_mean(output, names)));
}

void require_path(const std::string& path, std::string_view flag, const std::string& output) {
  if (!path.empty()) return;
  usage(names_file(output) ? concat("--output ", output, ": it names an output of the model", file_hint(flag))
                           : concat(flag, " is missing"));
}

void OptimizerOptions::add(ArgumentParser& parser) {
  const std::string group = "Optimizer (PyTorch's names, formulas and defaults)";
  parser
      .add_option("--optimizer", optimizer,
                  concat(names_of(passes::optimizer_definitions()),
                         ", NAME(option=value, ...), or FILE.gir with a rule of your own (default adamw; docs/training.md)"))
      .type_name("NAME")
      .group(group);
  parser
      .add_option("--lr", learning_rate,
                  "learning rate (default the optimizer's, 0.001 for adamw; for a .gcx that of its last run)")
      .type_name("X")
      .group(group);
  const auto option_of = [&](std::string_view option) {
    return concat("the option ", option, " of ", names_of(passes::optimizer_definitions(), option));
  };
  parser.add_option("--momentum", momentum, option_of("momentum")).type_name("X").group(group);
  parser.add_option("--dampening", dampening, option_of("dampening")).type_name("X").group(group);
  parser.add_flag("--nesterov", nesterov, option_of("nesterov")).group(group);
  parser.add_option("--weight-decay", weight_decay, "the option weight_decay of all optimizers").type_name("X").group(group);
  parser.add_option("--betas", betas, option_of("betas")).type_name("X,X").group(group);
  parser.add_option("--eps", eps, option_of("eps")).type_name("X").group(group);
}

double OptimizerOptions::rate() const {
  require_range(learning_rate, 0, kInfinity, "--lr");
  const driver::Optimizer spec = parse();
  if (learning_rate && spec.options().given("lr"))
    usage(concat("--lr ", *learning_rate, ": --optimizer '", optimizer, "' gives lr itself; leave one of them out"));
  return learning_rate.value_or(spec.learning_rate());
}

driver::Optimizer OptimizerOptions::parse() const {
  driver::Optimizer spec = driver::read_optimizer(optimizer);
  const auto set = [&](std::string_view option, OptionValue value, std::string_view flag) {
    if (spec.options().given(option))
      usage(concat(flag, ": --optimizer '", optimizer, "' gives ", option, " itself; leave one of them out"));
    spec.set(option, std::move(value), flag);
  };
  if (momentum) set("momentum", *momentum, "--momentum");
  if (dampening) set("dampening", *dampening, "--dampening");
  if (nesterov) set("nesterov", true, "--nesterov");
  if (weight_decay) set("weight_decay", *weight_decay, "--weight-decay");
  if (eps) set("eps", *eps, "--eps");
  if (!betas.empty()) set("betas", parse_numbers(betas, "--betas " + betas), "--betas");
  spec.check(nesterov ? "--nesterov" : "--optimizer");
  return spec;
}

void DeviceOptions::add(ArgumentParser& parser) {
  const std::string group = "Device";
  parser.add_option("--device", device, concat(runtime::device_names(), " (default auto)")).type_name("NAME").group(group);
  parser.add_option("--threads", threads, "CPU threads (default: one for each processor)").type_name("N").group(group);
  parser.add_option("--compiler", compiler, "C++ compiler for CPU kernels (default: c++, g++ or clang++)")
      .type_name("PATH")
      .group(group);
  parser
      .add_option("--compiler-timeout", compiler_timeout,
                  "end a compiler that takes longer for one file or CUDA kernel (default 300; 0: never)")
      .type_name("SECONDS")
      .group(group);
  parser
      .add_option(
          "--isa", instruction_set,
          "CPU: the widest vector instructions to use: baseline, avx2, avx512, or amx, whose tiles multiply bf16 (default: the "
          "variable GCOMP_ISA, else what the processor has)")
      .type_name("NAME")
      .group(group);
  parser
      .add_flag("--portable-bits", portable_bits,
                "CPU: the bits of every x86-64 processor with AVX2 and FMA, by any compiler: ends where they cannot be had, and "
                "multiplies bf16 without AMX; nothing else differs from them")
      .group(group);
  parser
      .add_flag("--winograd", winograd,
                "CPU: 3x3 convolutions that move by one position by Winograd's F(2x2, 3x3): faster, and other last digits "
                "(docs/training.md)")
      .group(group);
  parser.add_flag("--no-cache", no_cache, "do not keep compiled kernels in the user's cache directory").group(group);
  parser.add_flag("--tf32", tf32, "CUDA: round f32 matrices to TF32 before they are multiplied").group(group);
  parser.add_flag("--no-cublaslt", no_cublaslt, "CUDA: generated kernels for all matrix products").group(group);
  parser.add_flag("--no-cudnn", no_cudnn, "CUDA: generated kernels for all convolutions and all attention").group(group);
  parser
      .add_flag("--prefer-cudnn", prefer_cudnn,
                "CUDA: cuDNN also for what a generated kernel is expected to compute faster, gradients of attention over few keys")
      .group(group);
  parser
      .add_mode(
          "--tune", tune, {"equal", "on", "full", "off"},
          "CUDA: time cuBLASLt's algorithms for each matrix product once, and remember the fastest, in the cache and in the "
          "checkpoints of a run: its 8 favourites, or with --tune=full all. Without it (--tune=equal) it is the fastest of the "
          "favourites whose results have the very bits of the first; --tune=off takes neither time nor memory")
      .group(group);
  parser.add_flag("--check-steps", check_steps, "CUDA: wait after each kernel, so that an error names it; slow").group(group);
  parser
      .add_repeated(
          "--library", libraries,
          "CUDA: the file of a library, or its folder, and nothing else is tried; NAME is driver, nvrtc, cublaslt, cudnn or "
          "nccl; repeatable")
      .type_name("NAME=PATH")
      .group(group);
}

/// What is asked of one kind of device does nothing on another.
void DeviceOptions::note_options_of_others(const Console& console) const {
  if (request() == runtime::DeviceRequest::cuda) {
    for (const auto& [given, flag] : {std::pair(winograd, "--winograd"), std::pair(!instruction_set.empty(), "--isa")})
      if (given) console.say(concat("note: ", flag, " changes nothing with --device ", device, ": it is for the CPU"));
  }
  if (request() != runtime::DeviceRequest::cpu) return;
  const std::pair<bool, std::string_view> of_cuda[] = {{tune == "on" || tune == "full", "--tune"},
                                                       {tf32, "--tf32"},
                                                       {prefer_cudnn, "--prefer-cudnn"},
                                                       {no_cudnn, "--no-cudnn"},
                                                       {no_cublaslt, "--no-cublaslt"},
                                                       {check_steps, "--check-steps"}};
  for (const auto& [given, flag] : of_cuda)
    if (given) console.say(concat("note: ", flag, " changes nothing with --device ", device, ": it is for CUDA"));
}

runtime::DeviceOptions DeviceOptions::parse(const Console& console) const {
  if (threads < 0) usage(concat("--threads ", threads, ": wanted 1 or more, or 0 for one on each processor"));
  note_options_of_others(console);
  runtime::DeviceOptions options;
  options.threads = threads;
  options.compiler = compiler;
  if (!(compiler_timeout >= 0 && compiler_timeout < kInfinity))
    usage(concat("--compiler-timeout ", compiler_timeout, ": wanted seconds from 0 up, 0 for any time"));
  options.compiler_timeout = compiler_timeout;
  options.use_cache = !no_cache;
  options.instruction_set = asked_instruction_set(instruction_set);
  options.portable_bits = portable_bits;
  options.winograd = winograd;
  options.gpu = runtime::parse_device(device).gpu;
  options.precision = tf32 ? runtime::MatmulPrecision::tf32 : runtime::MatmulPrecision::strict;
  options.use_cublaslt = !no_cublaslt;
  options.use_cudnn = !no_cudnn;
  if (no_cudnn && prefer_cudnn) usage("--prefer-cudnn with --no-cudnn");
  options.prefer_cudnn = prefer_cudnn;
  options.tune = tuning_of(tune);
  options.check_steps = check_steps;
  options.libraries = runtime::search_by_variables([](const char* name) -> const char* { return std::getenv(name); });
  for (const std::string& library : libraries) set_library(options.libraries, library);
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) options.visible_devices = std::string(visible);
  options.log = [&console](std::string_view line) { console.warn(line); };
  options.detail = [&console](std::string_view line) { console.detail(line); };
  return options;
}

void TrustOptions::add(ArgumentParser& parser) {
  const std::string group = "Trust (a .gcx holds machine code, which runs as you)";
  parser
      .add_option("--require-signature", key,
                  "refuse a .gcx that is not signed by this public key (gcomp sign makes and uses keys)")
      .type_name("KEY.pem")
      .group(group);
  parser.add_flag("--rebuild", rebuild, "compile the kernel text of a .gcx instead of loading the machine code in it").group(group);
}

runtime::ArtifactTrust TrustOptions::parse(const std::string& model) const {
  if (!is_artifact(model) && (!key.empty() || rebuild))
    usage(concat(rebuild ? "--rebuild" : "--require-signature", ": '", model, "' is no .gcx"));
  return {.signed_by = key, .binaries = !rebuild};
}

}  // namespace gcomp::tools
