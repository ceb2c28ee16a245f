// The passes that take an imported forward graph to a memory plan, as one table, and the runner.
//
// A row says what of passes/forms.h it needs, what it must come before, what it gives and what it takes away. A static_assert
// refuses an order in which a row does not find what it needs; the runner checks on the graph what the rows say.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/memory_plan.h"
#include "ir/target_info.h"
#include "passes/forms.h"
#include "passes/fusion/fuse.h"
#include "passes/products/align_products.h"
#include "passes/products/fuse_epilogues.h"
#include "passes/products/split_reductions.h"
#include "passes/simplify.h"
#include "passes/training/accumulate.h"
#include "passes/training/autocast.h"
#include "passes/training/loss_scaling.h"
#include "passes/training/training.h"

namespace gcomp::passes {

struct PipelineOptions {
  ir::TargetInfo target = {};                    ///< codegen::target_info() of the one that the graph is lowered for
  std::optional<AutocastOptions> autocast = {};  ///< without them the graph keeps its types
  SimplifyOptions simplify = {};
  FuseOptions fuse = {};
  AlignOptions align = {};
  SplitOptions split = {};
  EpilogueOptions epilogues = {};
  /// Bytes that a training step may take, its states among them: activations are computed again until it does; 0 for as few as can
  /// be. Without it none is.
  std::optional<std::int64_t> most_memory = {};
  bool channels_last = true;                    ///< let choose_layout move convolutions to channels last
  std::vector<std::string> disabled = {};       ///< names of passes to leave out; UserError (exit 2) for one that cannot be
  bool verify = true;                           ///< verify the graph before the first pass and after every pass that changed it
  std::string_view maker = "whoever built it";  ///< who is to blame for a graph that is broken before the first pass
  /// Called after each pass with its name, whether it changed the graph, and its seconds.
  std::function<void(std::string_view pass, const ir::Graph&, bool changed, double seconds)> observer = {};
};

/// What passes leave for those after them beside the graph.
struct PassResults {
  ir::Value* loss = nullptr;
  ScaledLoss scaled;
  std::vector<ir::Value*> parameters;  ///< that are trained
  std::vector<ir::Value*> gradients;   ///< one for each
  std::vector<ir::Value*> attempts;    ///< counters of steps begun, which an overflow does not stop
  ir::Value* step = nullptr;           ///< its number, from 1
  StepReport report;
  std::optional<Accumulation> accumulation;  ///< of a training step in shards
  std::optional<ir::MemoryPlan> plan;
};

/// What a pass sees.
struct PassContext {
  ir::Graph& graph;
  const PipelineOptions& options;
  const TrainingRequest* training = nullptr;  ///< null in inference and once the step is complete
  PassResults made;
};

/// What a forward graph is to become.
enum class Walk : std::uint8_t { inference = 1, training = 2, gradients = 4 };
inline constexpr Walk kWalks[] = {Walk::inference, Walk::training, Walk::gradients};

/// Those in which a row runs.
class Walks {
 public:
  constexpr Walks(Walk walk) : bits_(static_cast<std::uint8_t>(walk)) {}
  constexpr bool has(Walk walk) const { return (bits_ & static_cast<std::uint8_t>(walk)) != 0; }
  constexpr Walks operator|(Walks other) const { return Walks(static_cast<Walk>(bits_ | other.bits_)); }

 private:
  std::uint8_t bits_;
};
inline constexpr Walks kDifferentiated = Walks(Walk::training) | Walk::gradients, kAnyWalk = kDifferentiated | Walk::inference;

enum class Stage : std::uint8_t {
  preparing,  ///< from the imported graph to one that is complete
  lowering,   ///< from there to a memory plan
};

struct Pass {
  std::string_view name;
  std::string_view summary;
  Stage stage = Stage::lowering;
  Walks walks = kAnyWalk;
  Forms needs = {};
  Forms before = {};  ///< forms of a graph for which the pass comes too late
  Forms gives = {};
  Forms takes = {};
  bool (*run)(PassContext&) = nullptr;
  std::string_view required = {};           ///< why the pass cannot be left out; "" where it can
  bool (*without)(PassContext&) = nullptr;  ///< what runs in its place where it is left out; null for nothing
};

/// What is true of a graph before the first row.
constexpr Forms imported(Walk walk) {
  const Forms forms{Form::forward, Form::unfused};
  return walk == Walk::inference ? forms | Form::complete : forms;
}
constexpr bool may_run(const Pass& pass, Forms held) { return held.has(pass.needs) && (held & pass.before).empty(); }
constexpr Forms after(const Pass& pass, Forms held) { return held.without(pass.takes) | pass.gives; }

/// The first row of a walk that does not find what it needs, or comes too late; the table's size where none does.
constexpr std::size_t first_misplaced(std::span<const Pass> table, Walk walk) {
  Forms held = imported(walk);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!table[i].walks.has(walk)) continue;
    if (!may_run(table[i], held)) return i;
    held = after(table[i], held);
  }
  return table.size();
}

/// Every pass in pipeline order; some stand there more than once.
std::span<const Pass> pipeline();
/// Null for an unknown name.
const Pass* find_pass(std::string_view name);
/// Throws UserError (exit 2), which begins with `where`, with the nearest name where there is no such pass.
void require_pass(std::string_view name, std::string_view where);
/// The same, and where the pass cannot be left out, with the reason.
void require_optional_pass(std::string_view name, std::string_view where);

/// Runs the rows of `stage` that `walk` takes, and checks after each the forms that the table says the graph has. A failure that is
/// gcomp's is an InternalError that names the pass; what a row of Stage::preparing refuses of the user stays the UserError it is.
void run_passes(std::span<const Pass> table, PassContext& context, Walk walk, Stage stage);

/// Takes an imported forward graph to one that can be lowered: attention and precision, and with `training` loss, gradients, and
/// updates where it has an optimizer. Gives what a step in shards runs beside the graph; nothing for any other.
std::optional<Accumulation> prepare(ir::Graph& graph, const PipelineOptions& options, const TrainingRequest* training = nullptr);
/// Takes a complete graph to its memory plan. Throws SizeError, naming the node, where an op needs a value on the way that is
/// larger than any may be.
ir::MemoryPlan lower(ir::Graph& graph, const PipelineOptions& options = {});

/// Runs one pass by itself on a graph that any passes may have made, `held` being what these gave. Throws UserError with the form
/// and the node where the pass would do wrong. True if the pass says that it changed the graph.
bool run_alone(const Pass& pass, PassContext& context, Forms& held);

}  // namespace gcomp::passes
