// A value of a model that is being written: layers (layers.h) and ops (ops.h) make one from others, and so do the operators below.
// Nothing broadcasts implicitly: operands of an arithmetic operator have equal types; numbers become constants of the type of the
// other operand, which must have them. Operands that do not fit throw UserError naming op and operands.
#pragma once

#include <cstdint>

#include "gcomp/tensor.h"

namespace gcomp {
namespace ir {
struct Value;
class Builder;
}  // namespace ir

/// What builds the model that a Var is of.
class BuilderOf {
 public:
  BuilderOf() = default;
  BuilderOf(ir::Builder* builder, std::uint64_t run) : builder_(builder), run_(run) {}

  /// Throw UserError where there is none, or none any more.
  ir::Builder& operator*() const;
  ir::Builder* operator->() const { return &**this; }
  bool operator==(const ir::Builder* builder) const { return builder_ == builder; }
  /// The run of the definition, ir/definition_run.h in the source tree.
  std::uint64_t run() const { return run_; }

 private:
  ir::Builder* builder_ = nullptr;
  std::uint64_t run_ = 0;
};

/// Lives as long as the run of the definition that it was made in: what uses it later, or in another model, throws UserError.
struct Var {
  ir::Value* value = nullptr;
  BuilderOf builder = {};

  explicit operator bool() const { return value != nullptr; }
  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  std::int64_t rank() const { return type().rank(); }
  /// The size of one axis; negative ones count from the end.
  std::int64_t dim(std::int64_t axis) const { return shape()[static_cast<std::size_t>(axis < 0 ? axis + rank() : axis)]; }
};

Var operator+(Var a, Var b);
Var operator-(Var a, Var b);
Var operator*(Var a, Var b);
Var operator/(Var a, Var b);
Var operator-(Var a);
Var operator+(Var a, double b);
Var operator+(double a, Var b);
Var operator-(Var a, double b);
Var operator-(double a, Var b);
Var operator*(Var a, double b);
Var operator*(double a, Var b);
Var operator/(Var a, double b);
Var operator/(double a, Var b);
// Comparisons give bools.
Var operator<(Var a, Var b);
Var operator<=(Var a, Var b);
Var operator>(Var a, Var b);
Var operator>=(Var a, Var b);
Var operator==(Var a, Var b);

}  // namespace gcomp
