#include <algorithm>
#include <cmath>

#include "ir/ops/table.h"
#include "tests/codegen/cuda_graphs.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {

using namespace gcomp::ir;

namespace {

constexpr DType kVariants[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8};

/// The case in another dtype in place of f64; false where nothing changes.
bool change_dtype(OpCase& c, DType dtype) {
  if (dtype == DType::f64) return true;
  bool changed = false;
  for (TensorType& type : c.operands) {
    if (type.dtype != DType::f64) continue;
    type.dtype = dtype;
    changed = true;
  }
  for (const auto& [name, value] : Attributes(c.attributes))
    if (const DType* to = std::get_if<DType>(&value); to && *to == DType::f64) {
      c.attributes.set(name, dtype);
      changed = true;
    }
  if (!is_float(dtype)) {
    // Whole numbers, and no negative ones where the type has none.
    c.low = is_unsigned_integer(dtype) ? 0 : std::floor(c.low);
    c.high = std::max(std::ceil(c.high), c.low + 2);
  }
  return changed;
}

}  // namespace

std::vector<LabelledGraph> op_graphs() {
  std::vector<LabelledGraph> all;
  for (const OpCase& original : op_cases()) {
    if (original.attributes.find("ranks")) continue;  // between processes
    for (DType dtype : kVariants) {
      OpCase c = original;
      if (!change_dtype(c, dtype)) continue;
      c.label += concat(".", name_of(dtype));
      try {
        LabelledGraph made{c.label, graph_of(c), c.low, c.high, -1};
        if (c.op->kind == Kind::composite || c.op->kind == Kind::barrier) lower_to_kernels(made.graph);
        all.push_back(std::move(made));
      } catch (const UserError&) {  // the op does not take this dtype
      }
    }
  }
  return all;
}

}  // namespace gcomp::tests
