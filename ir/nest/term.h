// Terms and loop nests: what a kernel computes, in index notation.
//
// A LoopNest has axes with extents and statements in order. A map statement gives one value for each point of its axes; a
// reduce statement combines its term over the axes it lists and varies over the others. A term reads operands at indices,
// earlier statements at the same point, and applies pointwise ops. Terms are immutable, shared and hashed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/shape.h"
#include "ir/nest/index.h"

namespace gcomp::ir {

struct OpDef;

/// Holds where low <= index < high.
struct Condition {
  Index index;
  std::int64_t low = 0, high = 0;
};

struct Term {
  enum class Kind : std::uint8_t {
    literal,  ///< `number`
    index,    ///< indices[0] as a value of `dtype`
    read,     ///< operand `slot` at `indices`, one for each of its dimensions
    local,    ///< statement `slot` at the current point
    call,     ///< pointwise `op` on `arguments`
    guard,    ///< arguments[0] where all conditions hold, else arguments[1]; the other is not evaluated
  };
  Kind kind = Kind::literal;
  DType dtype = DType::f32;
  double number = 0;
  int slot = 0;
  const OpDef* op = nullptr;
  std::vector<Index> indices;
  std::vector<TermPtr> arguments;
  std::vector<Condition> conditions;
  std::uint64_t axes = 0;  ///< bit a is set where the value depends on axis a, locals not counted
  std::size_t hash = 0;
};

TermPtr literal(DType dtype, double number);
TermPtr index_value(DType dtype, Index index);
TermPtr read(DType dtype, int operand, std::vector<Index> indices);
TermPtr local(DType dtype, int statement);
/// Folds a call on literals.
TermPtr call(DType dtype, const OpDef& op, std::vector<TermPtr> arguments);
/// Drops conditions that always hold; gives `otherwise` where one never does.
TermPtr guard(std::vector<Condition> conditions, TermPtr then, TermPtr otherwise);

int compare(const TermPtr& a, const TermPtr& b, TermComparer* comparer = nullptr);
inline bool uses_axis(const TermPtr& term, int axis) { return term->axes >> axis & 1; }

struct TermHash {
  std::size_t operator()(const TermPtr& t) const { return t->hash; }
};
struct TermEqual {
  bool operator()(const TermPtr& a, const TermPtr& b) const { return compare(a, b) == 0; }
};

/// Rebuilds a term bottom-up. Axes are replaced first; then `leaf` may replace reads and locals, and `rebuilt` calls whose
/// arguments are done (null keeps them). Shared subterms are visited once.
struct TermRewriter {
  std::function<Index(int, std::int64_t)> axis = [](int a, std::int64_t extent) { return Index::axis(a, extent); };
  std::function<TermPtr(const TermPtr&)> leaf = [](const TermPtr&) { return TermPtr(); };
  std::function<TermPtr(const TermPtr&)> rebuilt = [](const TermPtr&) { return TermPtr(); };

  TermPtr operator()(const TermPtr& term);

 private:
  std::shared_ptr<void> memo_;
};

/// Calls `visit` once for each distinct subterm, arguments and loaded indices before their users.
void for_each_term(const TermPtr& root, const std::function<void(const TermPtr&)>& visit);
/// Scalar operations that evaluating the term takes, about (`OpDef::cost`). Locals are not counted.
int scalar_cost(const TermPtr& term);

struct Statement {
  enum class Kind : std::uint8_t { map, reduce, scan };
  Kind kind = Kind::map;
  DType dtype = DType::f32;
  std::vector<int> axes;                    ///< the axes the result varies over, ascending
  const OpDef* combine = nullptr;           ///< the reduce op; for scan the op that accumulates
  std::vector<int> over;                    ///< reduced axes, or the one scanned axis (which stays among `axes`)
  bool exclusive = false, reverse = false;  ///< scan only
  TermPtr value;
};

struct LoopOutput {
  int statement = 0;
  std::vector<Index> index;  ///< one for each dimension of the result
  bool accumulate = false;   ///< adds to zero-initialised memory, over the statement's axes in row-major order
};

struct LoopNest {
  std::vector<std::int64_t> extents;  ///< of each axis
  std::vector<Statement> statements;
  std::vector<LoopOutput> outputs;

  Index axis(int number) const { return Index::axis(number, extents[static_cast<std::size_t>(number)]); }
};

bool operator==(const LoopNest& a, const LoopNest& b);
std::size_t hash_of(const LoopNest& nest);

/// All axes of a nest that some reduce statement combines over, as bits.
std::uint64_t reduced_axes(const LoopNest& nest);

}  // namespace gcomp::ir
