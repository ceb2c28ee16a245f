#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "ir/verify.h"
#include "passes/simplify.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Throws InternalError where the graph lacks one of `forms`, as far as that can be seen.
void check_forms(Forms forms, const PassContext& context) {
  for (std::size_t i = 0; i < kForms; ++i) {
    const Form form = static_cast<Form>(i);
    if (!forms.has(form)) continue;
    if (const std::string found = find_violation(form, context); !found.empty())
      throw InternalError(concat("wanted a graph that ", describe(form), ": ", found));
  }
}

/// Runs rows over one graph. What changed is told by the graph's hash and not by the pass, and only what changed is verified.
class Runner {
 public:
  Runner(PassContext& context, Forms held) : context_(context), held_(held), hash_(hash_of(context.graph)) {}

  void look_at_entry() const {
    try {
      if (context_.options.verify) verify(context_.graph);
      check_forms(held_, context_);
    } catch (const InternalError& error) {
      throw InternalError(concat("before any pass, as ", context_.options.maker, " made it: ", error.what()));
    }
  }

  void run(const Pass& pass) {
    require_forms(pass);
    context_.graph.compact_numbers();
    const bool left_out = is_disabled(pass.name);
    held_ = after(pass, held_);
    // What another pass would have given is taken for given.
    unseen_ = left_out && !pass.without ? unseen_ | pass.gives : unseen_.without(pass.gives);
    if (auto* work = left_out ? pass.without : pass.run) run(pass, work);
  }

 private:
  bool is_disabled(std::string_view name) const {
    const auto& disabled = context_.options.disabled;
    return std::find(disabled.begin(), disabled.end(), name) != disabled.end();
  }

  void require_forms(const Pass& pass) const {
    if (const Forms missing = pass.needs.without(held_); !missing.empty())
      throw InternalError(
          concat("pass '", pass.name, "' needs a graph that ", describe(first_of(missing)), ": no pass before has seen to that"));
    if (const Forms late = pass.before & held_; !late.empty())
      throw InternalError(concat("pass '", pass.name, "' comes too late for a graph that ", describe(first_of(late))));
  }

  void run(const Pass& pass, bool (*work)(PassContext&)) {
    const auto start = std::chrono::steady_clock::now();
    bool changed = false;
    try {
      changed = execute(pass, work);
      if (changed && context_.options.verify) verify(context_.graph);
      check_forms((changed ? held_ : pass.gives).without(unseen_), context_);
      changed = changed || pass.gives.has(Form::planned);  // the plan is new
    } catch (const InternalError& error) { throw InternalError(concat("after pass '", pass.name, "': ", error.what())); }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (context_.options.observer) context_.options.observer(pass.name, context_.graph, changed, seconds.count());
  }

  /// True if the graph is another.
  bool execute(const Pass& pass, bool (*work)(PassContext&)) {
    try {
      work(context_);
    } catch (const SizeError& error) {
      if (pass.stage == Stage::preparing) throw;
      throw SizeError(concat("in pass '", pass.name, "', ", error.what(), "; give smaller shapes"));
    } catch (const ExchangedStates& error) {
      throw ExchangedStates(concat("in pass '", pass.name, "', graph @", context_.graph.name(), ": ", error.what()));
    } catch (const UserError& error) {
      if (pass.stage == Stage::preparing) throw;
      throw InternalError(error.what());
    }
    const std::size_t hash = hash_of(context_.graph);
    return hash != std::exchange(hash_, hash);
  }

  PassContext& context_;
  Forms held_, unseen_;
  std::size_t hash_;
};

/// What the rows of the stages before give.
Forms held_before(std::span<const Pass> table, Walk walk, Stage stage) {
  Forms held = imported(walk);
  for (const Pass& pass : table)
    if (pass.stage < stage && pass.walks.has(walk)) held = after(pass, held);
  return held;
}

}  // namespace

void run_passes(std::span<const Pass> table, PassContext& context, Walk walk, Stage stage) {
  for (const std::string& name : context.options.disabled)
    if (find_pass(name)) require_optional_pass(name, "pass");
  Runner runner(context, held_before(table, walk, stage));
  runner.look_at_entry();
  for (const Pass& pass : table)
    if (pass.stage == stage && pass.walks.has(walk)) runner.run(pass);
}

std::optional<Accumulation> prepare(Graph& graph, const PipelineOptions& options, const TrainingRequest* training) {
  PassContext context{.graph = graph, .options = options, .training = training, .made = {}};
  const Walk walk = !training ? Walk::inference : training->optimizer ? Walk::training : Walk::gradients;
  run_passes(pipeline(), context, walk, Stage::preparing);
  return std::move(context.made.accumulation);
}

MemoryPlan lower(Graph& graph, const PipelineOptions& options) {
  PassContext context{.graph = graph, .options = options, .made = {}};
  // The caller's mistake, whose graph may be a text: no import makes kernels.
  if (const std::string found = find_violation(Form::unfused, context); !found.empty())
    throw UserError(concat("the graph is lowered already: ", found));
  const Walk walk = find_violation(Form::forward, context).empty() ? Walk::inference : Walk::training;
  run_passes(pipeline(), context, walk, Stage::lowering);
  return std::move(*context.made.plan);
}

bool run_alone(const Pass& pass, PassContext& context, Forms& held) {
  for (std::size_t i = 0; i < kForms; ++i) {
    const Form form = static_cast<Form>(i);
    if (!(pass.needs & kLegality).has(form)) continue;
    if (const std::string found = find_violation(form, context); !found.empty())
      throw UserError(concat("it needs a graph that ", describe(form), ": ", found), ExitCode::usage);
  }
  if (const Forms late = pass.before & held; !late.empty())
    throw UserError(concat("it comes too late for a graph that ", describe(first_of(late))), ExitCode::usage);
  const bool changed = pass.run(context);
  held = after(pass, held);
  check_forms(pass.gives, context);
  return changed;
}

}  // namespace gcomp::passes
