// Index arithmetic of loop nests: integer expressions over loop axes, kept in a canonical form so that equal access
// patterns compare equal and reshapes cancel.
//
// An Index is constant + sum of coefficient * atom. An atom is a loop axis, the floor quotient or remainder of another Index
// by a positive constant, or an integer that is itself loaded (an indirect access). Every atom knows its range, so that
// quotients and remainders of collapsed axes simplify away: (i*128 + j) / 128 is i where j < 128.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gcomp::ir {

class Index;
struct Term;
using TermPtr = std::shared_ptr<const Term>;

struct IndexAtom {
  enum class Kind : std::uint8_t { axis, quotient, remainder, loaded };
  Kind kind = Kind::axis;
  int axis = 0;                        ///< axis number (Kind::axis)
  std::int64_t extent = 0;             ///< axis, loaded: the value lies in [0, extent)
  std::shared_ptr<const Index> inner;  ///< quotient, remainder
  std::int64_t divisor = 1;
  TermPtr value;  ///< loaded
};

/// -1, 0 or 1: where a comes before b, is equal or comes after it.
template <class T>
int order(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

/// A total order on structure; 0 for equal.
/// `comparer` is that of a comparison of terms in progress, which knows what is equal already (ir/nest/term.cpp).
struct TermComparer;
int compare(const IndexAtom& a, const IndexAtom& b, TermComparer* comparer = nullptr);
int compare(const Index& a, const Index& b, TermComparer* comparer = nullptr);

/// A closed interval.
struct IndexRange {
  std::int64_t low = 0, high = 0;
};
IndexRange range_of(const IndexAtom& atom);

class Index {
 public:
  struct Part {
    IndexAtom atom;
    std::int64_t coefficient = 1;
  };

  Index(std::int64_t constant = 0) : constant_(constant) {}  // NOLINT: integers are indices
  static Index axis(int number, std::int64_t extent);
  /// The value of `term`, clamped by whoever evaluates it to [0, extent).
  static Index loaded(TermPtr term, std::int64_t extent);

  const std::vector<Part>& parts() const { return parts_; }
  std::int64_t constant() const { return constant_; }
  std::optional<std::int64_t> as_constant() const { return parts_.empty() ? std::optional(constant_) : std::nullopt; }
  /// The axis number where the index is exactly one axis.
  std::optional<int> as_axis() const;
  /// The coefficient of an axis as it appears directly; 0 where it does not.
  std::int64_t coefficient_of(int axis) const;
  /// Whether `axis` appears inside a quotient, a remainder or a loaded value.
  bool uses_nonlinearly(int axis) const;
  bool uses(int axis) const;
  bool has_loaded() const;
  IndexRange range() const;

  /// Floor quotient and remainder in [0, divisor) by a positive constant.
  Index quotient(std::int64_t divisor) const;
  Index remainder(std::int64_t divisor) const;

  /// Replaces every axis by `axis_map(number, extent)` and every loaded term by `term_map(term)`.
  Index substitute(const std::function<Index(int, std::int64_t)>& axis_map,
                   const std::function<TermPtr(const TermPtr&)>& term_map) const;

  friend Index operator+(const Index& a, const Index& b);
  friend Index operator*(const Index& a, std::int64_t factor);
  friend Index operator-(const Index& a, const Index& b) { return a + b * -1; }
  friend bool operator==(const Index& a, const Index& b) { return compare(a, b) == 0; }

 private:
  void add_part(const IndexAtom& atom, std::int64_t coefficient);

  std::vector<Part> parts_;  // sorted by atom, coefficients non-zero
  std::int64_t constant_ = 0;
};

/// The row-major position of `indices` in an array of `shape`.
Index linear_index(const std::vector<Index>& indices, const std::vector<std::int64_t>& shape);
/// The inverse: one index for each dimension of `shape` from a row-major position.
std::vector<Index> split_index(const Index& linear, const std::vector<std::int64_t>& shape);

}  // namespace gcomp::ir
