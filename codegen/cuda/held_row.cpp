#include "codegen/cuda/held_row.h"

#include <algorithm>

#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

std::string vector_type(const Statement& read, const Vectors& vectors) {
  return concat("gc_vector<", storage_type_text(read.dtype), ", ", vectors.width, ">");
}

}  // namespace

HeldRow::HeldRow(DeviceKernel& kernel, const Vectors& vectors, const std::vector<std::vector<int>>& reads_of_passes,
                 std::int64_t row, std::int64_t shared_bytes)
    : kernel_(kernel), vectors_(vectors), row_(row) {
  if (vectors.width == 1) return;
  std::vector<int> seen;
  for (const std::vector<int>& reads : reads_of_passes)
    for (int read : reads) {
      if (contains(seen, read) && !contains(reads_, read) && !vectors.guards.contains(read)) reads_.push_back(read);
      seen.push_back(read);
    }
  for (int read : reads_) {
    const auto reads = [&](const std::vector<int>& pass) { return contains(pass, read); };
    const auto first = std::ranges::find_if(reads_of_passes, reads);
    first_.push_back(static_cast<int>(first - reads_of_passes.begin()));
    bytes_ += bytes_of(read);
    moved_bytes_ += bytes_of(read) * std::ranges::count_if(reads_of_passes, reads);
  }
  if (bytes_ <= shared_bytes) return;
  reads_.clear();
  first_.clear();
  bytes_ = moved_bytes_ = 0;
}

std::int64_t HeldRow::bytes_of(int read) const {
  return round_up(row_ * vectors_.width * static_cast<std::int64_t>(size_of(kernel_.nest().statements[at(read)].dtype)), 16);
}

std::vector<int> HeldRow::known(int pass) const {
  std::vector<int> known;
  for (std::size_t i = 0; i < reads_.size(); ++i)
    if (first_[i] < pass) known.push_back(reads_[i]);
  return known;
}

void HeldRow::declare() {
  KernelWriter& w = kernel_.writer();
  w.line("extern __shared__ uint4 gc_held[];");
  std::int64_t offset = 0;
  for (int read : reads_) {
    const Statement& statement = kernel_.nest().statements[at(read)];
    const std::string type = vector_type(statement, vectors_);
    arrays_.push_back(w.fresh("h"));
    w.line(concat(type, "* const ", arrays_.back(), " = (", type, "*)(gc_held + ", offset / 16, ");"));
    offset += bytes_of(read);
  }
}

void HeldRow::load(int pass, const std::vector<int>& reads) {
  KernelWriter& w = kernel_.writer();
  for (int read : reads) {
    const std::size_t i = at(std::find(reads_.begin(), reads_.end(), read) - reads_.begin());
    const Statement& statement = kernel_.nest().statements[at(read)];
    std::string vector = concat(arrays_[i], "[r]");
    if (first_[i] == pass) {
      vector = w.fresh("a");
      w.line(concat(vector_type(statement, vectors_), " ", vector, ";"));
      w.line(concat("gc_fetch_vector(", kernel_.vector_place(vectors_, read), ", ", vector, ");"));
      w.line(concat(arrays_[i], "[r] = ", vector, ";"));
    }
    const std::string values = w.fresh("a");
    w.line(concat(compute_type_text(statement.dtype), " ", values, "[", vectors_.width, "];"));
    w.line(concat("gc_unpack_vector(", vector, ", ", values, ");"));
    w.bind_array(read, values, kernel_.nest().axis(vectors_.lane_axis));
  }
}

}  // namespace gcomp::codegen::cuda
