#include "codegen/cuda/row_steps.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

RowSteps::RowSteps(DeviceKernel& kernel, const RowGroup& group, const Vectors& vectors, std::vector<int> axes, bool numbered,
                   bool wide)
    : kernel_(kernel), group_(group), axes_(std::move(axes)), numbered_(numbered), wide_(wide) {
  const std::int64_t all = kernel.points(axes_);
  row_ = all - (vectors.tail > 0 ? 1 : 0);
  slots_ = quotient_up(all, group.size);
}

void RowSteps::leave_rest_out(std::int64_t rows, std::string_view leave) {
  if (group_.size == 32) return w().line(concat("if (row >= ", rows, "u) ", leave, ";"));
  live_ = "live";
  w().line(concat("const bool live = row < ", rows, "u;"));
  w().line("if (!live) row = 0;");
}

int RowSteps::open(std::int64_t turns) {
  int scopes = 1;
  if (numbered_) {
    w().open(concat("for (int k = 0; k < ", count(), "; ++k)"), "#pragma unroll");
    w().line(concat("const unsigned r = k * ", group_.size, "u + lane;"));
    const std::string inside = DeviceKernel::all_of({live_, row_ % group_.size == 0 ? "" : concat("r < ", row_, "u")});
    if (!inside.empty()) {
      w().open(concat("if (", inside, ")"));
      ++scopes;
    }
  } else {
    w().open(concat("for (", count_type(), " r = lane; r < ", end(), "; r += ", group_.size, ")"),
             turns > 1 ? concat("#pragma unroll ", turns) : "");
  }
  kernel_.bind_axes("r", axes_);
  return scopes;
}

int RowSteps::open_last() {
  w().open(concat("if (", DeviceKernel::all_of({live_, concat("lane == ", row_ % group_.size)}), ")"));
  if (numbered_) w().line(concat("const int k = ", row_ / group_.size, ";"));
  w().line(concat("const ", count_type(), " r = ", row_, ";"));
  kernel_.bind_axes("r", axes_);
  return 1;
}

int RowSteps::open_rounds(int steps) {
  if (numbered_) w().open(concat("for (int first = 0; first < ", count(), "; first += ", steps, ")"), "#pragma unroll");
  else
    w().open(concat("for (", count_type(), " first = lane; first < ", end(), "; first += ", steps * group_.size, ")"),
             "#pragma unroll 1");
  return 1;
}

int RowSteps::open_of_round(Round& round, std::int64_t steps, const std::string& step) {
  round.open();
  if (numbered_) w().line(concat("const int k = ", step, ";"));
  w().line(concat("const ", count_type(),
                  " r = ", numbered_ ? concat("k * ", group_.size, "u + lane") : concat("first + q * ", group_.size, "u"), ";"));
  const bool whole = row_ % (std::int64_t{group_.size} * steps) == 0;
  const std::string inside =
      DeviceKernel::all_of({numbered_ ? live_ : "", numbered_ && count() % steps != 0 ? concat("k < ", count()) : "",
                            whole ? "" : concat("r < ", row_, "u")});
  if (!inside.empty()) w().open(concat("if (", inside, ")"));
  kernel_.bind_axes("r", axes_);
  return inside.empty() ? 1 : 2;
}

void RowSteps::close(int scopes) {
  for (; scopes > 0; --scopes) w().close();
}

}  // namespace gcomp::codegen::cuda
