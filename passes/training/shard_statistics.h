// Running statistics of a step in shards: what each shard brings to a statistic, apart from the statistic itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"

namespace gcomp::passes {

/// How a statistic goes on: from itself and what a shard brings to it, in pointwise nodes of its shape.
class StatisticRule {
 public:
  /// Nothing where the graph's other nodes read the statistic too, or it goes on in another way.
  static std::optional<StatisticRule> find(const ir::Graph& graph, ir::Value* statistic, ir::Value* next);

  ir::Value* statistic() const { return statistic_; }
  /// Values of the statistic's shape that do not depend on it.
  const std::vector<ir::Value*>& brought() const { return brought_; }
  /// What the statistic becomes, at the end of the builder's graph, where the rule was found.
  ir::Var apply(ir::Builder& builder, ir::Var statistic, const std::vector<ir::Var>& brought) const;

 private:
  ir::Value *statistic_ = nullptr, *next_ = nullptr;
  std::vector<const ir::Node*> nodes_;  ///< between the two, in the graph's order
  std::vector<ir::Value*> brought_;
};

}  // namespace gcomp::passes
