// What a run of a model's definition holds: the graph that its layers write.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/formulas/random.h"
#include "frontend/layers.h"
#include "frontend/layers/initial_values.h"
#include "ir/base/error.h"
#include "ir/base/shape.h"
#include "ir/builder.h"
#include "ir/definition_run.h"

namespace gcomp {

struct Layers::Impl {
  Impl(frontend::ImportedModel& model, const frontend::ImportOptions& options, std::uint64_t seed)
      : model(model), options(options), seed(seed), builder(model.graph, {}, run.number()), random(builder, options.seed) {}

  frontend::ImportedModel& model;
  const frontend::ImportOptions& options;
  std::uint64_t seed;
  ir::DefinitionRun run;
  ir::Builder builder;
  frontend::formulas::RandomStates random;
  std::vector<ValueInfo> inputs;

  ir::Value* state(const std::string& name, Shape shape, frontend::InitialValues initial, ir::StateRole role);
  Var parameter(const std::string& name, Shape shape, frontend::InitialValues initial) {
    return builder.wrap(state(name, std::move(shape), std::move(initial), ir::StateRole::parameter));
  }
  frontend::Parameter& report_of(const std::string& name);
};

namespace frontend {

/// "layer 'fc1': ", what messages about a layer begin with; "max_pool2d: " for one without a name.
inline std::string layer(const std::string& name) { return concat("layer '", name, "': "); }

/// Throws UserError unless `x` has floats of this rank.
inline void require_rank(const std::string& where, Var x, std::int64_t rank, std::string_view wanted) {
  check_user(x.rank() == rank && is_float(x.dtype()), where, "the input is ", to_string(x.type()), ", wanted floats ", wanted);
}

/// One for each of `rank` axes, each at least `least`. Throws UserError naming `what` where there are neither as many nor one.
std::vector<std::int64_t> each_axis(const std::string& where, std::string_view what, const PerAxis& given, std::size_t rank,
                                    std::int64_t least);
/// `axis` in [0, rank), negative counting from the end.
std::int64_t axis_of(const std::string& where, std::int64_t axis, Var x);

/// The bound of PyTorch's kaiming_uniform_ with a = sqrt(5).
inline double fan_in_bound(std::int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); }

}  // namespace frontend
}  // namespace gcomp
