// Which values of a graph share memory, and when that memory is in use: the analysis under plan_memory and order.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "ir/memory_plan.h"
#include "passes/memory/reuse.h"

namespace gcomp::passes {

/// One piece of memory and the values that are kept there, one after another or as aliases.
struct Storage {
  ir::MemorySpace space = ir::MemorySpace::arena;
  std::int64_t bytes = 0;
  int first = 0, last = 0;  ///< node positions between which it is in use, both included; arena only
  std::vector<const ir::Value*> values;
};

/// Where a value lies.
struct StoragePlace {
  int number = -1;                      ///< of its storage; -1 where it has none
  const ir::Value* alias_of = nullptr;  ///< as in ir::Placement
};

struct Storages {
  std::vector<Storage> list;
  ir::ValueTable<StoragePlace> of;

  explicit Storages(const ir::Graph& graph) : of(graph) {}
  const Storage& at(const ir::Value* value) const { return list.at(static_cast<std::size_t>(of.at(value).number)); }
};

using NodeOrder = std::vector<const ir::Node*>;
NodeOrder order_of(const ir::Graph& graph);

/// The value whose elements `value` is: through aliases to what produces, feeds or declares them.
const ir::Value* root_of(const ir::Value* value, const ReuseTable& reuse);

/// Assigns every value of `graph`, its nodes taken in `order`, a storage. States, inputs and constants have their own; so
/// have outputs, in space io. All else is in the arena, where a result takes over the storage of an operand that dies with
/// the node and that the node may overwrite. A value that updates a state is computed in the state itself where all reads
/// of the state come before.
Storages assign_storages(const ir::Graph& graph, const NodeOrder& order, const ReuseTable& reuse);

/// `bytes` rounded up to a multiple of `alignment`.
inline std::int64_t aligned(std::int64_t bytes, std::int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

/// Arena bytes in use at each node, every storage rounded up to the alignment.
std::vector<std::int64_t> live_bytes(const Storages& storages, std::size_t nodes, std::int64_t alignment);

}  // namespace gcomp::passes
