// Groups of options that several subcommands share, and what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/driver/compile.h"
#include "runtime/artifact_trust.h"
#include "runtime/device.h"
#include "tools/command_line/arguments.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

/// What decides a model's graph: shapes, precision, what is trained.
struct ModelOptions {
  std::vector<std::string> dims, shapes, freeze, thaw, tie, untie;
  std::string precision, loss_scale, batchnorm_variance;
  ImportLimits limits;
  ProgramLimits program_limits;

  void add_shapes(ArgumentParser& parser);
  void add_precision(ArgumentParser& parser, const std::string& meaning);
  void add_loss_scale(ArgumentParser& parser);
  void add_selection(ArgumentParser& parser);
  /// Throws UserError (exit 2) for what cannot be read.
  driver::GraphOptions parse() const;
};

/// "WHAT: cross_entropy, ...", for a loss that is not given.
std::string missing_loss(std::string_view what);
void add_metric(ArgumentParser& parser, std::vector<std::string>& metrics);
void add_loss(ArgumentParser& parser, std::string& loss);
/// --output: what the loss looks at.
void add_output(ArgumentParser& parser, std::string& output);
/// Throws UserError (exit 2) where the model has no output of this name; a file's name gets the flag that takes one.
void require_output(const std::string& output, const Model& model, std::string_view file_flag);
/// Throws UserError (exit 2) where the path is missing; where `output` looks like one, that says so.
void require_path(const std::string& path, std::string_view flag, const std::string& output);

struct OptimizerOptions {
  std::string optimizer = "adamw", betas;
  std::optional<double> learning_rate, momentum, dampening, weight_decay, eps;
  bool nesterov = false;

  void add(ArgumentParser& parser);
  /// The learning rate that was given, or the optimizer's default.
  double rate() const;
  /// Throws UserError (exit 2) for a value out of range or an option that the optimizer does not have.
  driver::Optimizer parse() const;
};

struct DeviceOptions {
  std::string device = "auto", compiler, instruction_set, tune;
  std::vector<std::string> libraries;
  int threads = 0;
  double compiler_timeout = 300;
  bool no_cache = false, portable_bits = false, winograd = false, tf32 = false, no_cublaslt = false, no_cudnn = false,
       prefer_cudnn = false, check_steps = false;

  void add(ArgumentParser& parser);
  runtime::DeviceRequest request() const { return runtime::parse_device(device).request; }
  /// Throws UserError (exit 2) for what cannot be read.
  runtime::DeviceOptions parse(const Console& console) const;

 private:
  void note_options_of_others(const Console& console) const;
};

/// What a command that reads a .gcx may demand of it.
struct TrustOptions {
  std::string key;
  bool rebuild = false;

  void add(ArgumentParser& parser);
  /// Throws UserError (exit 2) where something is demanded of a `model` that is no artifact.
  runtime::ArtifactTrust parse(const std::string& model) const;
};

/// "0.9,0.999" as numbers, "32" as a whole number; both throw UserError (exit 2) that names `flag`.
std::vector<double> parse_numbers(std::string_view text, const std::string& flag);
std::int64_t parse_integer(std::string_view text, const std::string& flag);

bool is_artifact(const std::string& path);

/// Throws UserError (exit 2) for a number of rows below 0; 0 is none given.
void require_batch(std::int64_t batch);
/// Throws UserError (exit 2) where the value is given and is less: "--batch 0: wanted 1 or more".
void require_from(std::int64_t least, std::string_view flag, const std::optional<std::int64_t>& value);
/// Throws UserError (exit 2) for a number of threads that read ahead which is out of range.
void require_workers(const std::optional<std::int64_t>& workers);
/// Throws UserError (exit 2) where one metric is there twice.
void require_different(std::span<const std::string> metrics);

/// Throws UserError (exit 2) where an option was given that an artifact has decided: it would do nothing.
/// `others` are further options of the command that are decided.
void refuse_decided(const ArgumentParser& parser, const std::string& artifact, std::span<const std::string_view> others = {});
/// The same for options that mean nothing where nothing is trained; `why` follows the option in the message.
void refuse_untrained(const ArgumentParser& parser, std::string_view why);

}  // namespace gcomp::tools
