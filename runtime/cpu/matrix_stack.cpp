#include "runtime/cpu/matrix_stack.h"

#include "ir/base/error.h"

namespace gcomp::runtime::cpu {

MatrixStack make_matrix_stack(const MatmulCall& call, const MatrixView& view, const std::byte* base) {
  check_internal(view.batch_strides.size() == call.batch.size(), "matmul ", call.origin, ": a view has ", view.batch_strides.size(),
                 " batch strides for ", call.batch.size(), " batch dimensions");
  MatrixStack stack{const_cast<std::byte*>(base), {}, view.row_stride, view.column_stride};
  if (element_count(call.batch) == 0) return stack;
  Shape index(call.batch.size(), 0);
  do {
    std::int64_t offset = view.offset;
    for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * view.batch_strides[i];
    stack.offsets.push_back(offset * static_cast<std::int64_t>(size_of(call.dtype)));
  } while (next_index(index, call.batch));
  return stack;
}

}  // namespace gcomp::runtime::cpu
