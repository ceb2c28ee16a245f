#include "tools/gcomp_opt/pass_list.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "codegen/target.h"
#include "ir/base/nearest.h"
#include "passes/autocast.h"
#include "passes/differentiate.h"
#include "passes/pipeline.h"
#include "passes/plan_memory.h"
#include "passes/training.h"

namespace gcomp::opt {
namespace {

using namespace ir;
using passes::PipelineOptions;

struct Settings {
  PipelineOptions pipeline;
  passes::PlanOptions plan;
  passes::AutocastOptions autocast;
  std::string loss = "mse", optimizer = "sgd";
  std::optional<passes::LossScaling> scaling;
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
    GCOMP_OPTION(fuse, merging),
    GCOMP_OPTION(fuse, multi_update),
    GCOMP_OPTION(fuse, max_operands),
    GCOMP_OPTION(fuse, recompute_cost),
    GCOMP_OPTION(fuse, serial_elements),
    GCOMP_OPTION(fuse, min_parallel),
    {"align_products", "min_work", [](Settings& s, std::string_view text) { read(text, s.pipeline.align.min_work); }},
    {"align_products", "elements", [](Settings& s, std::string_view text) { read(text, s.pipeline.target.half_row_elements); }},
    {"split_reductions", "min_elements", [](Settings& s, std::string_view text) { read(text, s.pipeline.split.min_elements); }},
    {"split_reductions", "enough_parallel",
     [](Settings& s, std::string_view text) { read(text, s.pipeline.split.enough_parallel); }},
    {"split_reductions", "parts", [](Settings& s, std::string_view text) { read(text, s.pipeline.split.parts); }},
    {"split_reductions", "parallel_sums", [](Settings& s, std::string_view text) { read(text, s.pipeline.target.parallel_sums); }},
    {"fuse_epilogues", "max_operands", [](Settings& s, std::string_view text) { read(text, s.pipeline.epilogues.max_operands); }},
    {"fuse_epilogues", "max_cost", [](Settings& s, std::string_view text) { read(text, s.pipeline.epilogues.max_cost); }},
    {"autocast", "low", [](Settings& s, std::string_view text) { read_half(text, s.autocast.low); }},
    {"plan_memory", "alignment", [](Settings& s, std::string_view text) { read(text, s.plan.alignment); }},
    {"attach_loss", "loss", [](Settings& s, std::string_view text) { read(text, s.loss); }},
    {"training_step", "loss", [](Settings& s, std::string_view text) { read(text, s.loss); }},
    {"training_step", "loss_scale", [](Settings& s, std::string_view text) { read_scaling(text, s.scaling); }},
    {"training_step", "optimizer", [](Settings& s, std::string_view text) { read(text, s.optimizer); }},
};
#undef GCOMP_OPTION

std::vector<std::string> parameters_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const State& state : graph.states())
    if (state.role == StateRole::parameter) names.push_back(state.value->name);
  return names;
}

/// What gcomp-opt runs beside the pipeline.
struct Extra {
  std::string_view name, summary;
  bool changes_meaning;
  bool (*run)(Graph&, PassState&, const Settings&);
};
constexpr Extra kExtras[] = {
    {"autocast", "mixed precision: each op computes in bf16 (or f16) or in f32, as PyTorch's autocast has it", false,
     [](Graph& graph, PassState&, const Settings& s) { return passes::autocast(graph, s.autocast); }},
    {"differentiate",
     "gradients of the first output by every parameter, or by every float input where there is none, become outputs", false,
     [](Graph& graph, PassState&, const Settings&) {
       check_user(!graph.outputs().empty(), "differentiate: the graph has no output to differentiate");
       std::vector<Value*> wanted;
       for (const State& state : graph.states())
         if (state.role == StateRole::parameter) wanted.push_back(state.value);
       if (wanted.empty())
         for (Value* input : graph.inputs())
           if (is_float(input->type.dtype)) wanted.push_back(input);
       const std::vector<Value*> gradients = passes::differentiate(graph, graph.outputs()[0], wanted);
       graph.outputs().insert(graph.outputs().end(), gradients.begin(), gradients.end());
       return true;
     }},
    {"attach_loss", "the mean loss of the first float output against the new input `label` becomes an output", true,
     [](Graph& graph, PassState&, const Settings& s) { return passes::attach_loss(graph, passes::parse_loss(s.loss)) != nullptr; }},
    {"training_step", "loss, gradients and the optimizer's updates of every parameter", true,
     [](Graph& graph, PassState&, const Settings& s) {
       passes::OptimizerSpec optimizer;
       optimizer.kind = passes::parse_optimizer(s.optimizer);
       passes::make_training_step(graph, passes::parse_loss(s.loss), optimizer, parameters_of(graph), {}, s.scaling);
       return true;
     }},
    {"plan_memory", "gives every value its place, which the printed graph then shows", false,
     [](Graph& graph, PassState& state, const Settings& s) {
       state.plan = passes::plan_memory(graph, s.plan);
       passes::verify_plan(graph, *state.plan, s.plan);
       return false;
     }},
};

std::vector<std::string> options_of(std::string_view pass) {
  std::vector<std::string> names;
  for (const Option& option : kOptions)
    if (option.pass == pass) names.emplace_back(option.name);
  return names;
}

/// For tests of one pass, of no target in particular: every pass does what it can.
TargetInfo target_for(std::string_view pass) {
  TargetInfo info = codegen::target_info({runtime::TargetKind::cuda, "sm_90"});
  info.buffer_alignment = TargetInfo().buffer_alignment;
  info.legal_composite = [all = pass != "expand"](const Node&) { return all; };
  info.half_products = false;
  info.parallel_sums = 0;
  return info;
}

/// "merging=false,max_operands=8".
Settings settings_of(std::string_view pass, std::string_view text, const std::optional<runtime::Target>& target) {
  Settings settings;
  settings.pipeline.target = target ? codegen::target_info(*target) : target_for(pass);
  settings.plan.alignment = settings.pipeline.target.buffer_alignment;
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
  auto add = [&](std::string_view name, std::string_view summary) {
    if (std::none_of(all.begin(), all.end(), [&](const auto& p) { return p.first == name; })) all.emplace_back(name, summary);
  };
  for (const Extra& extra : kExtras)
    if (extra.name != "plan_memory") add(extra.name, extra.summary);
  for (const passes::Pass& pass : passes::pipeline()) add(pass.name, pass.summary);
  for (const Extra& extra : kExtras) add(extra.name, extra.summary);
  return all;
}

Step step_of(std::string_view text, const std::optional<runtime::Target>& target) {
  const std::size_t brace = std::min(text.find('{'), text.size());
  const std::string name(text.substr(0, brace));
  std::string_view options = text.substr(brace);
  if (!options.empty()) {
    if (options.back() != '}') misuse(concat("pass '", text, "' lacks the closing '}' of its options"));
    options = options.substr(1, options.size() - 2);
  }
  const auto extra = std::find_if(std::begin(kExtras), std::end(kExtras), [&](const Extra& e) { return e.name == name; });
  const passes::Pass* pass = passes::find_pass(name);
  if (!pass && extra == std::end(kExtras)) {
    std::vector<std::string> known;
    for (const auto& [candidate, summary] : named_passes()) known.push_back(candidate);
    misuse(concat("unknown pass '", name, "' (--list-passes shows all)", did_you_mean(name, known)));
  }
  Settings settings = settings_of(name, options, target);
  if (pass)
    return {name, std::string(text), false,
            [pass, settings](Graph& graph, PassState&) { return pass->run(graph, settings.pipeline); }};
  return {name, std::string(text), extra->changes_meaning,
          [extra, settings](Graph& graph, PassState& state) { return extra->run(graph, state, settings); }};
}

}  // namespace

std::vector<Step> parse_passes(std::string_view text, const std::string& target) {
  std::optional<runtime::Target> asked;
  if (!target.empty()) asked = runtime::parse_target(target);
  std::vector<Step> steps;
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
    text += concat(name, std::string(name.size() < 18 ? 18 - name.size() : 1, ' '), summary, "\n");
    for (const std::string& option : options_of(name)) text += concat("    {", option, "=...}\n");
  }
  return text;
}

}  // namespace gcomp::opt
