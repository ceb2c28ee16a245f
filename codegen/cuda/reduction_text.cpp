#include "codegen/cuda/reduction_text.h"

#include "codegen/kernel_writer.h"
#include "ir/op.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

bool is_position(const Statement& s) { return s.combine->reduction.of >= Reduction::Of::first_maximum; }

std::string total_type(const Statement& s) {
  const std::string type(compute_type_text(s.value->dtype));
  return is_position(s) ? concat("gc_best<", type, ">") : type;
}

std::size_t total_size(const Statement& s) { return is_position(s) ? 16 : size_of(compute_type(s.value->dtype)); }

std::string identity_text(const Statement& s) {
  return is_position(s) ? "{0, -1}"
                        : literal_text(compute_type(s.value->dtype), identity_of(s.combine->reduction.of, s.value->dtype));
}

std::string combiner_text(const Statement& s) {
  const bool boolean = s.value->dtype == DType::boolean;
  switch (s.combine->reduction.of) {
    case Reduction::Of::sum: return boolean ? "gc_combine_or()" : "gc_combine_sum()";
    case Reduction::Of::product: return boolean ? "gc_combine_and()" : "gc_combine_product()";
    case Reduction::Of::maximum: return boolean ? "gc_combine_or()" : "gc_combine_maximum()";
    case Reduction::Of::minimum: return boolean ? "gc_combine_and()" : "gc_combine_minimum()";
    case Reduction::Of::first_maximum: return "gc_combine_first_maximum()";
    case Reduction::Of::first_minimum: return "gc_combine_first_minimum()";
    case Reduction::Of::none: break;
  }
  throw InternalError(concat("reduction ", s.combine->name, " combines nothing"));
}

std::string accumulate_line(const Statement& s, const std::string& total, const std::string& value, const std::string& position) {
  if (s.combine->reduction.of == Reduction::Of::sum && s.value->dtype != DType::boolean) return concat(total, " += ", value, ";");
  const std::string taken = is_position(s) ? concat(total_type(s), "{", value, ", ", position, "}") : value;
  return concat(total, " = ", combiner_text(s), "(", total, ", ", taken, ");");
}

bool adds_nothing(const Statement& s) {
  return s.combine->reduction.of == Reduction::Of::sum && s.value->kind == Term::Kind::literal && s.value->number == 0;
}

bool is_final(const Statement& s) { return !is_position(s) && s.dtype == s.value->dtype && compute_type(s.dtype) == s.dtype; }

std::string final_text(const Statement& s, const std::string& total) {
  if (is_position(s)) return concat("(", total, ".position < 0 ? 0 : ", total, ".position)");
  if (is_final(s)) return total;
  if (s.dtype == DType::f16) return concat("gc_round_f16(", total, ")");
  if (s.dtype == DType::bf16) return concat("gc_round_bf16(", total, ")");
  if (is_integer(s.dtype) && is_float(s.value->dtype)) return concat("gc_to_", gcomp::name_of(s.dtype), "(", total, ")");
  if (s.dtype == DType::boolean) return concat("(", total, " != 0)");
  return concat("(", compute_type_text(s.dtype), ")", total);
}

void check_row_form(const FlatNest& nest) {
  const std::uint64_t reduced = reduced_axes(nest);
  for (const Statement& s : nest.statements) {
    if (s.kind != Statement::Kind::reduce) continue;
    std::uint64_t over = 0;
    for (int a : s.over) over |= std::uint64_t{1} << a;
    check_internal(over == reduced, "a nest reduces over different axes");
    for (int a : s.axes) check_internal(!(reduced >> a & 1), "a reduction varies over an axis that another one reduces");
  }
}

}  // namespace gcomp::codegen::cuda
