#include "tools/gcomp_opt/pass_list.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "codegen/target.h"
#include "ir/base/nearest.h"
#include "passes/memory/plan_memory.h"
#include "passes/pipeline.h"
#include "passes/training/training.h"

namespace gcomp::opt {
namespace {

using namespace ir;
using passes::PipelineOptions;

struct Settings {
  PipelineOptions pipeline;
  std::string loss = "mse", optimizer = "sgd";
  std::optional<passes::LossScaling> scaling;
  passes::StepOptions step;
  std::int64_t loss_chunks = 1;
};

[[noreturn]] void misuse(const std::string& message) { throw UserError(message, ExitCode::usage); }

void read(std::string_view text, bool& value) {
  if (text != "true" && text != "false") misuse(concat("found '", text, "', wanted true or false"));
  value = text == "true";
}
template <class T>
void read(std::string_view text, T& value) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) misuse(concat("found '", text, "', wanted an integer"));
}
void read(std::string_view text, std::string& value) { value = text; }
/// "none", "dynamic" or a number.
void read_scaling(std::string_view text, std::optional<passes::LossScaling>& value) {
  std::int64_t number = 0;
  if (text == "none") return value.reset();
  if (text == "dynamic") return void(value.emplace());
  read(text, number);
  value = passes::LossScaling{static_cast<double>(number)};
}
void read_bound(std::string_view text, std::optional<double>& value) {
  std::int64_t number = 0;
  read(text, number);
  value = static_cast<double>(number);
}
void read_alignment(std::string_view text, std::int64_t& value) {
  read(text, value);
  if (value < 1 || (value & (value - 1)) != 0) misuse(concat("found ", value, ", wanted a power of two"));
}
/// Of any decay.
void read_average(std::string_view text, std::optional<double>& value) {
  bool averages = false;
  read(text, averages);
  if (averages) value = 0.9;
}
void read_half(std::string_view text, DType& value) {
  if (text != "bf16" && text != "f16") misuse(concat("found '", text, "', wanted bf16 or f16"));
  value = *parse_dtype(text);
}

/// One option of one pass.
struct Option {
  std::string_view pass, name;
  void (*set)(Settings&, std::string_view);
};
#define GCOMP_OPTION(pass, member)                                                                  \
  {                                                                                                 \
#pass, #member, [](Settings & s, std::string_view text) { read(text, s.pipeline.pass.member); } \
  }
constexpr Option kOptions[] = {
    GCOMP_OPTION(simplify, fold_bytes),
    GCOMP_OPTION(fuse, inlining),
    GCOMP_OPTION(fuse, loop_fusion),
    GCOMP_OPTION(fuse, horizontal_fusion),
    GCOMP_OPTION(fuse, strips),
    GCOMP_OPTION(fuse, alike),
    GCOMP_OPTION(fuse, max_operands),
    GCOMP_OPTION(fuse, recompute_cost),
    GCOMP_OPTION(fuse, serial_elements),
    GCOMP_OPTION(fuse, min_parallel),
    {"align_channels", "min_work", [](Settings& s, std::string_view text) { read(text, s.pipeline.align.min_work); }},
    {"align_channels", "elements", [](Settings& s, std::string_view text) { read(text, s.pipeline.target.half_row_elements); }},
    {"align_products", "min_work", [](Settings& s, std::string_view text) { read(text, s.pipeline.align.min_work); }},
    {"align_products", "elements", [](Settings& s, std::string_view text) { read(text, s.pipeline.target.half_row_elements); }},
    {"split_reductions", "min_elements", [](Settings& s, std::string_view text) { read(text, s.pipeline.split.min_elements); }},
    {"split_reductions", "enough_parallel",
     [](Settings& s, std::string_view text) { read(text, s.pipeline.split.enough_parallel); }},
    {"split_reductions", "parts", [](Settings& s, std::string_view text) { read(text, s.pipeline.split.parts); }},
    {"split_reductions", "parallel_sums", [](Settings& s, std::string_view text) { read(text, s.pipeline.target.parallel_sums); }},
    {"split_reductions", "row_strips", [](Settings& s, std::string_view text) { read(text, s.pipeline.target.row_strips); }},
    {"fuse_epilogues", "max_operands", [](Settings& s, std::string_view text) { read(text, s.pipeline.epilogues.max_operands); }},
    {"fuse_epilogues", "max_cost", [](Settings& s, std::string_view text) { read(text, s.pipeline.epilogues.max_cost); }},
    {"autocast", "low", [](Settings& s, std::string_view text) { read_half(text, s.pipeline.autocast->low); }},
    {"recompute", "most_memory", [](Settings& s, std::string_view text) { read(text, s.pipeline.most_memory.emplace()); }},
    {"plan_memory", "alignment",
     [](Settings& s, std::string_view text) { read_alignment(text, s.pipeline.target.buffer_alignment); }},
    {"attach_loss", "loss", [](Settings& s, std::string_view text) { read(text, s.loss); }},
    {"chunk_loss", "chunks", [](Settings& s, std::string_view text) { read(text, s.loss_chunks); }},
    {"scale_loss", "loss_scale", [](Settings& s, std::string_view text) { read_scaling(text, s.scaling); }},
    {"attach_optimizer", "optimizer", [](Settings& s, std::string_view text) { read(text, s.optimizer); }},
    {"training_step", "loss", [](Settings& s, std::string_view text) { read(text, s.loss); }},
    {"training_step", "loss_scale", [](Settings& s, std::string_view text) { read_scaling(text, s.scaling); }},
    {"training_step", "clip_norm", [](Settings& s, std::string_view text) { read_bound(text, s.step.clipping.norm); }},
    {"training_step", "clip_value", [](Settings& s, std::string_view text) { read_bound(text, s.step.clipping.value); }},
    {"training_step", "average", [](Settings& s, std::string_view text) { read_average(text, s.step.average); }},
    {"training_step", "skip_non_finite", [](Settings& s, std::string_view text) { read(text, s.step.skip_non_finite); }},
    {"training_step", "skip_spikes", [](Settings& s, std::string_view text) { read(text, s.step.skip_spikes); }},
    {"training_step", "optimizer", [](Settings& s, std::string_view text) { read(text, s.optimizer); }},
};
#undef GCOMP_OPTION

std::vector<std::string> parameters_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const State& state : graph.states())
    if (state.role == StateRole::parameter) names.push_back(state.value->name);
  return names;
}

constexpr std::string_view kTrainingStep = "training_step";

/// Passes after which outputs or states are not those of before.
constexpr std::string_view kOtherMeaning[] = {"attach_loss", "skip_non_finite", "show_loss", "show_gradients", kTrainingStep};

passes::TrainingRequest request_of(const Graph& graph, const Settings& settings) {
  const passes::OptimizerSpec optimizer(settings.optimizer, "optimizer");
  optimizer.check("optimizer");
  return {.loss = passes::parse_loss(settings.loss),
          .optimizer = optimizer,
          .trained = parameters_of(graph),
          .scaling = settings.scaling,
          .step = settings.step,
          .loss_chunks = settings.loss_chunks};
}

bool run_training_step(Graph& graph, PassState&, const Settings& settings) {
  const passes::TrainingRequest request = request_of(graph, settings);
  check_user(!request.trained.empty(), "found no parameter among the ", graph.states().size(), " states of @", graph.name(),
             ", wanted one at least, such as 'state %w: f32[3,2] parameter'");
  passes::make_training_step(graph, request.loss, *request.optimizer, request.trained, {}, request.scaling, request.step);
  return true;
}

/// The first output, which is the loss without attach_loss.
void add_loss(const Graph& graph, std::string_view pass, passes::PassResults& made) {
  if (made.loss) return;
  check_user(!graph.outputs().empty(), pass, ": the graph has no output that is the loss");
  made.loss = graph.outputs()[0];
}

/// The loss by every parameter, or by every float input where there is none.
void add_what_to_differentiate(const Graph& graph, passes::PassResults& made) {
  if (!made.scaled.scaled) made.scaled.scaled = made.loss;
  if (!parameters_of(graph).empty() || !made.parameters.empty()) return;
  for (Value* input : graph.inputs())
    if (is_float(input->type.dtype)) made.parameters.push_back(input);
}

/// Runs a pass of the table with what earlier ones have left.
bool run_pass(const passes::Pass& pass, Graph& graph, PassState& state, const Settings& settings) {
  passes::TrainingRequest request = request_of(graph, settings);
  if (pass.walks.has(passes::Walk::gradients) && !pass.walks.has(passes::Walk::training)) request.optimizer.reset();
  passes::PassContext context{.graph = graph, .options = settings.pipeline, .training = &request, .made = std::move(state.made)};
  const bool differentiates = pass.name == "differentiate";
  if (differentiates || pass.name == "chunk_loss") add_loss(graph, pass.name, context.made);
  if (differentiates) add_what_to_differentiate(graph, context.made);
  const bool changed = passes::run_alone(pass, context, state.held);
  state.made = std::move(context.made);
  if (differentiates)  // the text shows them
    graph.outputs().insert(graph.outputs().end(), state.made.gradients.begin(), state.made.gradients.end());
  return changed;
}

std::vector<std::string> options_of(std::string_view pass) {
  std::vector<std::string> names;
  for (const Option& option : kOptions)
    if (option.pass == pass) names.emplace_back(option.name);
  return names;
}

/// For tests of one pass, of no target in particular: every pass does what it can.
TargetInfo target_for(std::string_view pass) {
  TargetInfo info = codegen::target_info(runtime::parse_target("cuda:sm_90"));
  info.buffer_alignment = TargetInfo().buffer_alignment;
  info.legal_composite = [all = pass != "expand"](const Node&) { return all; };
  if (pass == "widen_contractions") info.widens = [](const Node&) { return true; };
  info.parallel_sums = 0;
  if (pass == "split_reductions") info.row_strips = 0;
  return info;
}

/// "loop_fusion=false,max_operands=8".
Settings settings_of(std::string_view pass, std::string_view text, const std::optional<runtime::Target>& target) {
  Settings settings;
  settings.pipeline.target = target ? codegen::target_info(*target) : target_for(pass);
  settings.pipeline.autocast.emplace();
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) misuse(concat("pass '", pass, "': found option '", item, "', wanted NAME=VALUE"));
    const std::string_view name = item.substr(0, equals);
    const auto option =
        std::find_if(std::begin(kOptions), std::end(kOptions), [&](const Option& o) { return o.pass == pass && o.name == name; });
    const std::vector<std::string> known = options_of(pass);
    if (option == std::end(kOptions))
      misuse(concat("pass '", pass, "' has no option '", name, "', it has ", listing(known), did_you_mean(name, known)));
    try {
      option->set(settings, item.substr(equals + 1));
    } catch (const UserError& error) { misuse(concat("pass '", pass, "', option '", name, "': ", error.what())); }
  }
  return settings;
}

std::vector<std::pair<std::string, std::string>> named_passes() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const passes::Pass& pass : passes::pipeline())
    if (std::none_of(all.begin(), all.end(), [&](const auto& p) { return p.first == pass.name; }))
      all.emplace_back(pass.name, pass.summary);
  all.emplace_back(kTrainingStep, "attach_loss to show_loss: loss, gradients and the optimizer's updates of every parameter");
  return all;
}

/// Those that lower a complete graph, whatever it is.
std::string names_of_lowering() {
  std::string names;
  for (const passes::Pass& pass : passes::pipeline())
    if (pass.stage == passes::Stage::lowering && pass.walks.has(passes::Walk::training))
      names += concat(names.empty() ? "" : ",", pass.name);
  return names;
}

Step step_of(std::string_view text, const std::optional<runtime::Target>& target) {
  const std::size_t brace = std::min(text.find('{'), text.size());
  const std::string name(text.substr(0, brace));
  std::string_view options = text.substr(brace);
  if (!options.empty()) {
    if (options.back() != '}') misuse(concat("pass '", text, "' lacks the closing '}' of its options"));
    options = options.substr(1, options.size() - 2);
  }
  const passes::Pass* pass = passes::find_pass(name);
  if (!pass && name != kTrainingStep) {
    std::vector<std::string> known;
    for (const auto& [candidate, summary] : named_passes()) known.push_back(candidate);
    misuse(concat("unknown pass '", name, "' (--list-passes shows all)", did_you_mean(name, known)));
  }
  const bool changes_meaning = std::find(std::begin(kOtherMeaning), std::end(kOtherMeaning), name) != std::end(kOtherMeaning);
  return {name, std::string(text), changes_meaning,
          [pass, settings = settings_of(name, options, target)](Graph& graph, PassState& state) {
            return pass ? run_pass(*pass, graph, state, settings) : run_training_step(graph, state, settings);
          }};
}

}  // namespace

std::vector<Step> parse_passes(std::string_view text, const std::string& target) {
  std::optional<runtime::Target> asked;
  if (!target.empty()) asked = runtime::parse_target(target);
  std::vector<Step> steps;
  const std::string lowering = text == "all" ? names_of_lowering() : "";
  if (!lowering.empty()) text = lowering;
  while (!text.empty()) {
    int depth = 0;
    std::size_t end = 0;
    while (end < text.size() && (text[end] != ',' || depth > 0)) {
      depth += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
      ++end;
    }
    steps.push_back(step_of(text.substr(0, end), asked));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return steps;
}

std::string list_passes() {
  std::string text;
  for (const auto& [name, summary] : named_passes()) {
    text += concat(name, std::string(name.size() < 20 ? 20 - name.size() : 1, ' '), summary, "\n");
    for (const std::string& option : options_of(name)) text += concat("    {", option, "=...}\n");
  }
  return text;
}

}  // namespace gcomp::opt
