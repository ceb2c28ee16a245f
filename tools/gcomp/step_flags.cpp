#include "tools/gcomp/step_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "gcomp/driver/training.h"
#include "ir/base/error.h"
#include "ir/base/units.h"
#include "passes/training/chunk_loss.h"
#include "passes/training/optimizers/parameter_kind.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

std::string counted(std::int64_t tensors, std::int64_t elements) {
  return concat(tensors, tensors == 1 ? " tensor, " : " tensors, ", grouped(elements),
                elements == 1 ? " parameter" : " parameters");
}

/// Tensors that are trained and their elements.
std::pair<std::int64_t, std::int64_t> count_trained(Trainer& trainer) {
  const std::vector<std::string> names = trainer.trained();
  const std::set<std::string> trained(names.begin(), names.end());
  const runtime::Program& step = driver::step_of(trainer).program();
  std::int64_t elements = 0;
  for (const runtime::State& state : step.states)
    if (const runtime::Buffer& buffer = step.buffers[static_cast<std::size_t>(state.buffer)]; trained.contains(buffer.name))
      elements += buffer.type.elements();
  return {static_cast<std::int64_t>(names.size()), elements};
}

}  // namespace

void StepFlags::add(ArgumentParser& parser) {
  const std::string group = "Parameter groups, clipping, average";
  std::string kinds;
  for (const std::string& kind : passes::parameter_kind_names()) kinds += concat(kinds.empty() ? "" : ", ", "kind:", kind);
  parser
      .add_repeated(
          "--group", groups,
          concat("other options of the optimizer for some parameters, 'SELECTOR: lr=0.1x, weight_decay=0': globs of names "
                 "and ",
                 kinds, ", with commas; the first that matches decides; repeatable"))
      .type_name("TEXT")
      .group(group);
  parser.add_option("--clip-norm", clip_norm, "the most that the norm of all gradients together may be")
      .type_name("X")
      .group(group);
  parser.add_option("--clip-value", clip_value, "the most that an element of a gradient may be, either way; not both")
      .type_name("X")
      .group(group);
  parser
      .add_option("--ema", ema,
                  "keep an exponential moving average of the parameters with this decay, such as 0.999; evaluation takes it")
      .type_name("X")
      .group(group);
  parser
      .add_flag("--skip-non-finite", skip_non_finite,
                "a step whose loss or gradients are not finite changes nothing (f16 does that anyway)")
      .group(group);
  parser
      .add_option("--skip-spikes", skip_spikes,
                  "a step whose loss or gradient norm lies so many standard deviations above the mean of the last 128 changes "
                  "nothing, nor one that is not finite")
      .type_name("Z")
      .group(group);
  add_micro_batches(parser, micro_batches);
  add_recompute(parser, recompute);
  add_loss_chunks(parser, loss_chunks);
  parser
      .add_option(
          "--zero", zero,
          "what each of several ranks holds a share of: 0 nothing, 1 the optimizer's states, 2 and gradients, 3 and parameters")
      .type_name("0|1|2|3")
      .group("Accumulation");
  parser
      .add_option(
          "--bucket-mib", bucket_mib,
          "ranks exchange gradients and parameters in buckets of about so many MiB: small ones begin early, large ones are few")
      .type_name("MIB")
      .group("Accumulation");
  parser
      .add_flag("--sync-batchnorm", sync_batchnorm,
                "BatchNormalization takes the statistics of the whole batch, of all micro-batches and ranks, and not of a part")
      .group("Accumulation");
}

void add_micro_batches(ArgumentParser& parser, std::int64_t& micro_batches) {
  parser
      .add_option(
          "--micro-batches", micro_batches,
          "cut each batch into N parts of consecutive rows, whose gradients add up: memory for a part, the step of the whole")
      .type_name("N")
      .group("Accumulation");
}

void add_recompute(ArgumentParser& parser, std::string& recompute) {
  parser
      .add_option(
          "--recompute", recompute,
          "compute activations again in the backward pass, as few as bring a step's memory, parameters and optimizer states "
          "among it, to SIZE, such as 6GiB; 'least': as far as it goes. Losses and weights keep their bits")
      .type_name("SIZE|least")
      .group("Accumulation");
}

std::optional<std::int64_t> parse_recompute(const std::string& recompute) {
  if (recompute.empty()) return std::nullopt;
  if (recompute == "least") return 0;
  const std::optional<std::int64_t> bytes = parse_size(recompute);
  if (!bytes)
    throw UserError(concat("--recompute ", recompute, ": wanted a size, such as 6GiB or 800MB, or 'least'"), ExitCode::usage);
  return bytes;
}

void add_loss_chunks(ArgumentParser& parser, std::string& loss_chunks) {
  parser
      .add_option(
          "--loss-chunks", loss_chunks,
          "compute the last product and the loss by N parts of the rows, one after the other, so that the logits of one are "
          "in memory; 'auto': 8, or what else suits the rows")
      .type_name("N|auto")
      .group("Accumulation");
}

std::int64_t parse_loss_chunks(const std::string& loss_chunks) {
  if (loss_chunks == "auto") return passes::kChosenChunks;
  std::int64_t chunks = 0;
  const auto read = std::from_chars(loss_chunks.data(), loss_chunks.data() + loss_chunks.size(), chunks);
  if (read.ec != std::errc() || read.ptr != loss_chunks.data() + loss_chunks.size() || chunks < 1)
    throw UserError(concat("--loss-chunks ", loss_chunks, ": wanted 1 to ", passes::kMostLossChunks, ", or auto"), ExitCode::usage);
  return chunks;
}

driver::StepSettings StepFlags::parse(double learning_rate) const {
  if (skip_spikes && !(*skip_spikes > 0))
    throw UserError(concat("--skip-spikes ", *skip_spikes, ": wanted a number above 0, such as 3"), ExitCode::usage);
  constexpr std::int64_t kMostMib = 1 << 20;
  if (!(bucket_mib > 0 && bucket_mib <= static_cast<double>(kMostMib)))
    throw UserError(concat("--bucket-mib ", bucket_mib, ": wanted a number above 0, at most ", kMostMib), ExitCode::usage);
  driver::StepSettings settings{.groups = groups,
                                .clip_norm = clip_norm,
                                .clip_value = clip_value,
                                .average = ema,
                                .skip_non_finite = skip_non_finite,
                                .skip_spikes = skip_spikes.has_value(),
                                .micro_batches = micro_batches,
                                .sharding = driver::parse_sharding(zero),
                                .bucket_bytes = std::max<std::int64_t>(1, std::llround(std::ldexp(bucket_mib, 20))),
                                .sync_batchnorm = sync_batchnorm,
                                .most_memory = parse_recompute(recompute),
                                .loss_chunks = parse_loss_chunks(loss_chunks),
                                .learning_rate = learning_rate};
  driver::check(settings);
  return settings;
}

void report_groups(const Console& console, Trainer& trainer, double learning_rate) {
  if (trainer.groups().empty()) return;
  const auto say = [&](const std::string& name, std::int64_t tensors, std::int64_t elements, double rate) {
    console.say(concat("group ", name, ": ", counted(tensors, elements), ", learning rate ", rate * learning_rate));
  };
  const auto [tensors, elements] = count_trained(trainer);
  std::int64_t other_tensors = tensors, other_elements = elements;
  for (const ParameterGroup& group : trainer.groups()) {
    say(concat("'", group.text, "'"), group.tensors, group.elements, group.rate);
    other_tensors -= group.tensors;
    other_elements -= group.elements;
  }
  if (other_tensors > 0) say("of the rest", other_tensors, other_elements, 1);
}

}  // namespace gcomp::tools
