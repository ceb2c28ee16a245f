// A nest being written as one CUDA kernel, with what all kinds of schedule share: which thread has which point, vectors, stores,
// and the frame around the body.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codegen/cuda/vectors.h"
#include "codegen/kernel.h"
#include "codegen/kernel_writer.h"
#include "codegen/schedule.h"

namespace gcomp::codegen::cuda {

class DeviceKernel {
 public:
  /// The nest has its final form: no statement or axis is added from here on.
  DeviceKernel(const FlatNest& nest, bool wide_indices);

  const FlatNest& nest() const { return nest_; }
  KernelWriter& writer() { return writer_; }
  std::int64_t extent(int axis) const { return nest_.extents[static_cast<std::size_t>(axis)]; }
  /// Product of the axes' extents.
  std::int64_t points(const std::vector<int>& axes) const;

  /// Declares a variable for each axis from a row-major position over them, and binds it.
  void bind_axes(const std::string& position, const std::vector<int>& axes);

  /// Where a read vector begins, as a pointer.
  std::string vector_place(const Vectors& vectors, int read);
  /// Under which a read vector may be loaded; "" where it always may.
  std::string read_condition(const Vectors& vectors, int read);
  /// Declares an array for each vector and loads it. `count` is the number of elements left, "" where vectors are always whole.
  void load_vectors(const Vectors& vectors, const std::vector<int>& reads, const std::string& count = {});
  /// Writes the lanes of a vector: `each_lane` inside the loop over them, then the stores. Without vectors there is one lane.
  void write_lanes(const Vectors& vectors, const std::vector<const Store*>& stores, const std::vector<int>& loop_axes,
                   const std::function<void()>& each_lane = {}, const std::string& count = {});
  /// Evaluates the values of all stores here and gives the lines that write them.
  std::vector<std::string> store_lines(const std::vector<const Store*>& stores, const std::vector<int>& loop_axes,
                                       const std::string& condition = {});
  /// Evaluates all, then writes all: reads of an element come before writes to it.
  void write_stores(const std::vector<const Store*>& stores, const std::vector<int>& loop_axes, const std::string& condition = {});

  /// `i == 0 && j == 0` over the loops that the store's statement does not vary over: one thread writes it. "" for none.
  std::string once(const Store& store, const std::vector<int>& loop_axes);

  /// A line with `&&` between conditions, empty ones left out.
  static std::string all_of(const std::vector<std::string>& conditions);

  /// `resident`: how many blocks a multiprocessor should have room for, which bounds the registers of a thread.
  void set_launch(std::int64_t blocks, int threads, int resident = 1);
  /// The whole kernel around the body. Of several segments, buffers come from a SegmentTable, and blockIdx.x counts within one.
  EmittedKernel finish();

 private:
  void write_vector_stores(const Vectors& vectors, const std::vector<const Store*>& stores, const std::vector<int>& loop_axes,
                           const std::function<void()>& each_lane, const std::string& count);

  /// Of one lane: those side by side in words.
  void write_neighbouring_stores(std::vector<const Store*> stores, const std::vector<int>& loop_axes);

  const FlatNest& nest_;
  bool wide_;
  KernelWriter writer_;
  runtime::Grid grid_;
  int resident_ = 1;
};

/// Whether some index of the nest, or a position in its buffers, may exceed 32 bits.
bool needs_wide_indices(const FlatNest& nest);

/// The least power of two that is not below `least`, but `most` where that is less.
int power_of_two_above(std::int64_t least, int most);

std::vector<const Store*> stores_where(const FlatNest& nest, const std::function<bool(const Store&)>& accept);

// One function for each kind of schedule, in emit_KIND.cpp.
EmittedKernel emit_map(FlatNest nest, const Schedule& schedule);
EmittedKernel emit_transpose(FlatNest nest, const Schedule& schedule);
EmittedKernel emit_segments(FlatNest nest);
/// `shared_bytes`: dynamic shared memory that a block may take.
EmittedKernel emit_rows(FlatNest nest, const Schedule& schedule, std::int64_t shared_bytes);
EmittedKernel emit_columns(FlatNest nest, const Schedule& schedule);
EmittedKernel emit_scan(FlatNest nest, const Schedule& schedule);
EmittedKernel emit_scatter(FlatNest nest);
EmittedKernel emit_scatter_ranges(FlatNest nest);

}  // namespace gcomp::codegen::cuda
