// Counts a kernel's Traffic from the nest that it was written from, once the threads have their points.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "codegen/cuda/vectors.h"
#include "codegen/flat_nest.h"
#include "codegen/traffic.h"

namespace gcomp::codegen::cuda {

/// Who has which point of the nest.
struct ThreadLayout {
  std::vector<int> thread_axes;  ///< each point of them is a thread's, or that of a group which shares its loops
  int warp_axis = -1;            ///< along which neighbouring threads lie, perhaps a loop's; -1 for none
  int warp_run = 32;             ///< threads of a warp along it
  std::int64_t group = 1;        ///< threads that share a point of `thread_axes`
  std::int64_t blocks = 1;
  int threads = 1;         ///< of a block
  std::int64_t turns = 1;  ///< points of `thread_axes` that a thread has one after another
};

class TrafficCounter {
 public:
  TrafficCounter(const FlatNest& nest, const Vectors& vectors, ThreadLayout layout);

  /// One pass of all threads, each over `steps` points, of which it loads `at_once` before it uses them. Evaluates `roots`, but not
  /// what stands behind the statements in `known`.
  void add_pass(const std::vector<ir::TermPtr>& roots, const std::vector<int>& known, std::int64_t steps, std::int64_t at_once);
  /// A wait of every thread for the others of its block.
  void add_barrier();
  /// Bytes that threads move to and from shared memory, whose rate is that of the first cache.
  void add_shared(double bytes) { traffic_.l1_bytes += bytes; }
  void add_stores(const std::vector<const Store*>& stores);
  Traffic traffic() const { return traffic_; }

 private:
  void add_term(const ir::TermPtr& term, const std::vector<int>& known,
                std::unordered_set<ir::TermPtr, ir::TermHash, ir::TermEqual>& seen);
  void add_read(const ir::TermPtr& read, bool is_vector);
  double executions(const std::vector<int>& axes) const;
  double bytes_a_lane(const ir::Index& index, std::size_t element, bool is_vector) const;
  double fragment_cost(double bytes_a_lane) const;

  const FlatNest& nest_;
  const Vectors& vectors_;
  ThreadLayout layout_;
  std::uint64_t reduced_ = 0;
  std::unordered_set<ir::TermPtr, ir::TermHash, ir::TermEqual> read_before_;
  double pass_bytes_ = 0;
  bool loads_ = false, loads_an_index_ = false;
  Traffic traffic_;
};

/// All of a nest in one pass without reductions.
Traffic map_traffic(const FlatNest& nest, const Vectors& vectors, const ThreadLayout& layout);

}  // namespace gcomp::codegen::cuda
