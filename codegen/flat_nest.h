// The form of a loop nest that emission works on, and the rewrites that bring a nest into it. Operands are read and results are
// written through one linear index each; axes of extent 1 are gone; axes that every access walks as one are one; axes under a
// quotient or remainder are split so that the quotient vanishes where the sizes allow it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "codegen/kernel.h"
#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "ir/base/tensor.h"
#include "ir/nest/term.h"

namespace gcomp::codegen {

/// Writes a statement to element `at` of a result, once for each point of the statement's axes but `over`, over which it writes the
/// sum.
struct Store {
  int statement = 0;
  int result = 0;
  ir::Index at;
  bool accumulate = false;
  std::vector<int> over = {};
};

/// Reads have exactly one index, the linear one.
struct FlatNest {
  std::vector<std::int64_t> extents;
  std::vector<ir::Statement> statements;
  std::vector<Store> stores;
  std::vector<DType> operands, results;  ///< element types
  std::vector<std::int64_t> operand_elements, result_elements;
  SegmentForm segments = SegmentForm::one;

  ir::Index axis(int number) const { return ir::Index::axis(number, extents[static_cast<std::size_t>(number)]); }
};

/// Operand shapes are needed to make reads linear; reads with one index of an operand of another rank are taken as flat already.
FlatNest flatten(const ir::LoopNest& nest, std::span<const TensorType> operands, std::span<const TensorType> results);

/// Replaces axis a by a1 * divisor + a2 where `v / divisor` and `v % divisor` then simplify away. The scanned axis stays whole.
void split_axes(FlatNest& nest);
/// Replaces one axis by two, the inner one of `size`, which divides its extent; returns the inner one's number.
int split_axis(FlatNest& nest, int axis, std::int64_t size);
/// Replaces neighbouring axes by one where every index uses them as one.
void collapse_axes(FlatNest& nest);
/// Turns reductions over at most `limit` points into map statements, one term for each point, in order.
void unroll_reductions(FlatNest& nest, std::int64_t limit);
/// Replaces one axis by copies of the statements that vary over it, one for each of its positions.
void unroll_axis(FlatNest& nest, int axis);

/// Rebuilds a term from the root down: where `edit` gives a term, that stands in its place; where it gives null, its parts are
/// edited. Shared subterms are visited once.
ir::TermPtr edited(const ir::TermPtr& term, const std::function<ir::TermPtr(const ir::TermPtr&)>& edit);

/// Calls `visit` with every distinct subterm that is evaluated wherever the term is: nothing within a guard, no loaded index.
void for_each_unconditional(const ir::TermPtr& term, const std::function<void(const ir::TermPtr&)>& visit);

/// Calls `visit` with every index of the nest: of reads, conditions, index values and stores, and those nested in them.
void for_each_index(const FlatNest& nest, const std::function<void(const ir::Index&)>& visit);
/// The same for one term.
void for_each_index(const ir::TermPtr& term, const std::function<void(const ir::Index&)>& visit);

/// Distinct terms of each statement, summed: about the lines that one copy of the body takes.
std::size_t count_terms(const FlatNest& nest);

/// The axes over which a term varies, in order.
std::vector<int> axes_of(const FlatNest& nest, const ir::TermPtr& term);

/// All axes some reduction combines over, as bits.
std::uint64_t reduced_axes(const FlatNest& nest);

/// Whether values are rounded to 16 bits, and computed in f32.
inline bool is_narrow_float(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// Converts a term by the cast rules.
ir::TermPtr converted(const ir::TermPtr& term, DType dtype);
/// The value of a map statement as a term of its dtype, rounded to f16 and bf16.
ir::TermPtr value_of(const ir::Statement& statement);

}  // namespace gcomp::codegen
