// Scatters: results start as zeros and get additions in the row-major order of the statement's axes, without atomics.
//
// The element written is a sum of digits: axes of the statement (say, the columns of an embedding) and loaded indices (its rows).
// Where the digits tell every element apart, the axes among them are free: their points never meet. What is left runs in order.
//   by destination  the loaded indices do not depend on the free axes: a block for each destination looks through all updates and
//                   adds those that are its own, a chunk at a time; most stretches of chunks have none and cost one barrier
//   by point        a thread for each point of the free axes goes through the updates in order
//   serial          one block, for whatever has no such structure
#include <algorithm>

#include "codegen/cuda/device_kernel.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kScatterThreads = 128;
constexpr std::int64_t kMostPoints = 8;  // of the free axes, held by one thread
constexpr std::int64_t kStretch = 8;     // chunks that are looked through at once
constexpr std::int64_t kCountableUpdates = std::int64_t{1} << 31;

/// How a store's index falls into digits.
struct ScatterShape {
  std::vector<int> free;    ///< axes that are digits, in the statement's order
  std::vector<int> serial;  ///< the statement's other axes, in its order
  std::vector<IndexAtom> loaded;
  std::vector<std::int64_t> coefficients;  ///< of `loaded`
  bool exact = false;                      ///< the digits tell all elements apart, and cover them
  bool independent = false;                ///< no loaded index depends on a free axis
};

ScatterShape shape_of(const FlatNest& nest, const Store& store) {
  ScatterShape shape;
  std::vector<std::pair<std::int64_t, std::int64_t>> digits;  // coefficient, extent
  bool plain = store.at.constant() == 0;
  for (const Index::Part& part : store.at.parts()) {
    plain = plain && part.coefficient > 0 && !part.atom.inner;
    digits.emplace_back(part.coefficient, part.atom.extent);
    if (part.atom.kind == IndexAtom::Kind::axis) shape.free.push_back(part.atom.axis);
    if (part.atom.kind == IndexAtom::Kind::loaded) {
      shape.loaded.push_back(part.atom);
      shape.coefficients.push_back(part.coefficient);
    }
  }
  std::sort(digits.begin(), digits.end());
  std::int64_t reach = 0, count = 1;
  for (const auto& [coefficient, extent] : digits) {
    plain = plain && coefficient > reach;
    reach += coefficient * (extent - 1);
    count *= extent;
  }
  shape.exact = plain && count == nest.result_elements[at(store.result)];
  std::vector<int> free;
  for (int a : nest.statements[at(store.statement)].axes) (contains(shape.free, a) ? free : shape.serial).push_back(a);
  shape.free = std::move(free);
  shape.independent = true;
  for (const IndexAtom& atom : shape.loaded)
    for (int a : shape.free) shape.independent = shape.independent && !uses_axis(atom.value, a);
  return shape;
}

std::string add_line(const FlatNest& nest, const Store& store, const std::string& position, const std::string& value) {
  const std::string place = concat("p", nest.operands.size() + at(store.result), "[", position, "]");
  if (!store.accumulate) return concat("gc_put(", place, ", ", value, ");");
  const std::string_view type = compute_type_text(nest.results[at(store.result)]);
  return concat("gc_put(", place, ", (", type, ")(gc_load(", place, ") + ", value, "));");
}

class ScatterWriter {
 public:
  /// Adds one axis to the nest for each loaded index: the destination.
  ScatterWriter(FlatNest& nest, ScatterShape shape)
      : nest_(nest), store_(nest.stores[0]), shape_(std::move(shape)), kernel_(nest_, needs_wide_indices(nest)) {
    target_ = store_.at;
    for (std::size_t i = 0; i < shape_.loaded.size(); ++i) {
      const int axis = static_cast<int>(nest_.extents.size());
      nest_.extents.push_back(shape_.loaded[i].extent);
      destination_.push_back(axis);
      const Index loaded = Index::loaded(shape_.loaded[i].value, shape_.loaded[i].extent);
      target_ = target_ - loaded * shape_.coefficients[i] + nest_.axis(axis) * shape_.coefficients[i];
    }
  }

  EmittedKernel by_destination() {
    const std::int64_t points = kernel_.points(shape_.free), updates = kernel_.points(shape_.serial);
    const std::int64_t held = std::clamp<std::int64_t>(quotient_up(points, kScatterThreads), 1, kMostPoints);
    const std::int64_t chunks = quotient_up(points, held * kScatterThreads);
    kernel_.set_launch(kernel_.points(destination_) * chunks, kScatterThreads);
    KernelWriter& w = kernel_.writer();
    const std::string type(compute_type_text(nest_.results[at(store_.result)]));
    w.line(concat("__shared__ int matches[", kScatterThreads, "], counts[", kScatterThreads / 32, "];"));
    w.line(concat(type, " s[", held, "] = {};"));
    kernel_.bind_axes(concat("blockIdx.x / ", chunks, "u"), destination_);
    w.line(concat("const unsigned first = blockIdx.x % ", chunks, "u * ", held * kScatterThreads, "u + threadIdx.x;"));
    const bool stretches = updates > kStretch * kScatterThreads;
    if (stretches) open_stretch(updates);
    w.open(concat("for (unsigned base = ", stretches ? "stretch" : "0", "; base < ", updates, "u",
                  stretches ? concat(" && base < stretch + ", kStretch * kScatterThreads, "u") : std::string(),
                  "; base += ", kScatterThreads, "u)"));
    write_search(updates);
    // Reads of several updates are in flight at once; they are added in their order all the same.
    w.open("for (int m = 0; m < count; ++m)", "#pragma unroll 8");
    kernel_.bind_axes("(base + matches[m])", shape_.serial);
    open_held(held, points);
    w.line(concat("s[k] += ", w.statement(store_.statement), ";"));
    for (int i = 0; i < (stretches ? 5 : 4); ++i) w.close();
    open_held(held, points);
    w.line(concat("gc_put(p", nest_.operands.size() + at(store_.result), "[", w.index(target_), "], s[k]);"));
    for (int i = 0; i < 2; ++i) w.close();
    EmittedKernel emitted = kernel_.finish();
    emitted.work = {Family::scatter, search_traffic(updates, points, emitted.grid)};
    return emitted;
  }

  EmittedKernel by_point() {
    const std::int64_t points = kernel_.points(shape_.free);
    kernel_.set_launch(quotient_up(points, kScatterThreads), kScatterThreads);
    KernelWriter& w = kernel_.writer();
    w.line(concat("const gc_index t = blockIdx.x * (gc_index)", kScatterThreads, " + threadIdx.x;"));
    if (points % kScatterThreads != 0) w.line(concat("if (t >= ", points, ") return;"));
    kernel_.bind_axes("t", shape_.free);
    open_loops(destination_);
    w.line(concat("gc_put(p", nest_.operands.size() + at(store_.result), "[", w.index(target_), "], (",
                  compute_type_text(nest_.results[at(store_.result)]), ")0);"));
    close_loops(destination_);
    open_loops(shape_.serial);
    const std::string value = w.statement(store_.statement);
    w.line(add_line(nest_, store_, w.index(store_.at), value));
    close_loops(shape_.serial);
    EmittedKernel emitted = kernel_.finish();
    emitted.work = {Family::scatter, serial_traffic(kernel_.points(shape_.serial), points, emitted.grid)};
    return emitted;
  }

 private:
  /// Every block reads the loaded indices of all updates; each update's values are read and each destination's written once.
  Traffic search_traffic(std::int64_t updates, std::int64_t points, const runtime::Grid& grid) const {
    constexpr double kSearch = 8;  // instructions for each update that a thread compares
    double indices = 0;
    for (const IndexAtom& atom : shape_.loaded) indices += static_cast<double>(size_of(atom.value->dtype));
    const auto blocks = static_cast<double>(grid.blocks), all = static_cast<double>(updates);
    const double adds = all * static_cast<double>(points), chunks = all / kScatterThreads;
    Traffic traffic;
    traffic.l2_bytes = blocks * all * indices + adds * bytes_an_update() + written_bytes();
    traffic.waits = blocks * grid.threads * chunks / kStretch + adds;
    traffic.instructions = blocks * all * kSearch + adds * 4;
    return traffic;
  }
  /// A thread goes through all updates of its point, each of which waits for the one before.
  Traffic serial_traffic(std::int64_t updates, std::int64_t points, const runtime::Grid& grid) const {
    const double adds = static_cast<double>(updates) * static_cast<double>(points);
    Traffic traffic;
    traffic.l2_bytes = adds * (bytes_an_update() + 32) + written_bytes();
    traffic.waits = static_cast<double>(grid.blocks) * grid.threads * static_cast<double>(updates);
    traffic.instructions = adds * 16;
    return traffic;
  }
  double bytes_an_update() const {
    double bytes = 0;
    for_each_term(nest_.statements[at(store_.statement)].value, [&](const TermPtr& t) {
      if (t->kind == Term::Kind::read) bytes += static_cast<double>(size_of(t->dtype));
    });
    return bytes;
  }
  double written_bytes() const {
    const auto result = at(store_.result);
    return static_cast<double>(nest_.result_elements[result]) * static_cast<double>(size_of(nest_.results[result]));
  }

  /// Over stretches of chunks, without those in which no update goes to this block's destination.
  void open_stretch(std::int64_t updates) {
    KernelWriter& w = kernel_.writer();
    w.open(concat("for (unsigned stretch = 0; stretch < ", updates, "u; stretch += ", kStretch * kScatterThreads, "u)"));
    w.line("bool any = false;");
    w.open(concat("for (unsigned k = 0; k < ", kStretch, "u; ++k)"), "#pragma unroll");
    w.line(concat("const unsigned update = stretch + k * ", kScatterThreads, "u + threadIdx.x;"));
    w.open(concat("if (update < ", updates, "u)"));
    w.line(concat("any = any || ", match_text("update"), ";"));
    for (int i = 0; i < 2; ++i) w.close();
    w.line("if (!__syncthreads_or(any)) continue;");
  }

  /// Whether an update goes to this block's destination; binds the serial axes.
  std::string match_text(const char* update) {
    KernelWriter& w = kernel_.writer();
    kernel_.bind_axes(update, shape_.serial);
    std::string match;
    for (std::size_t i = 0; i < shape_.loaded.size(); ++i)
      match += concat(i == 0 ? "" : " && ", w.index(Index::loaded(shape_.loaded[i].value, shape_.loaded[i].extent)),
                      " == ", w.index(nest_.axis(destination_[i])));
    return match;
  }

  /// Lists, in order, the updates of this chunk that go to this block's destination.
  void write_search(std::int64_t updates) {
    KernelWriter& w = kernel_.writer();
    w.line("bool match = false;");
    w.open(concat("if (base + threadIdx.x < ", updates, "u)"));
    w.line(concat("match = ", match_text("(base + threadIdx.x)"), ";"));
    w.close();
    w.line(concat("const int count = gc_list_matches<", kScatterThreads, ">(match, matches, counts);"));
  }

  /// Over the points of the free axes that this thread holds; two scopes.
  void open_held(std::int64_t held, std::int64_t points) {
    KernelWriter& w = kernel_.writer();
    w.open(concat("for (int k = 0; k < ", held, "; ++k)"), "#pragma unroll");
    w.line(concat("const unsigned n = first + k * ", kScatterThreads, "u;"));
    w.open(concat("if (n < ", points, "u)"));
    kernel_.bind_axes("n", shape_.free);
  }

  void open_loops(const std::vector<int>& axes) {
    for (int axis : axes) {
      const std::string name = kernel_.writer().fresh("i");
      kernel_.writer().open(concat("for (gc_index ", name, " = 0; ", name, " < ", kernel_.extent(axis), "; ++", name, ")"));
      kernel_.writer().bind_axis(axis, name);
    }
  }
  void close_loops(const std::vector<int>& axes) {
    for (std::size_t i = 0; i < axes.size(); ++i) kernel_.writer().close();
  }

  FlatNest& nest_;
  const Store store_;
  ScatterShape shape_;
  DeviceKernel kernel_;
  std::vector<int> destination_;
  Index target_;  ///< the store's index with destinations in place of loaded indices
};

EmittedKernel emit_serial(const FlatNest& nest) {
  DeviceKernel kernel(nest, needs_wide_indices(nest));
  kernel.set_launch(1, kScatterThreads);
  KernelWriter& w = kernel.writer();
  for (std::size_t r = 0; r < nest.results.size(); ++r)
    w.line(concat("for (gc_index i = threadIdx.x; i < ", nest.result_elements[r], "; i += ", kScatterThreads, ") gc_put(p",
                  nest.operands.size() + r, "[i], (", compute_type_text(nest.results[r]), ")0);"));
  w.line("__syncthreads();");
  w.open("if (threadIdx.x == 0)");
  for (const Store& store : nest.stores) {
    const std::vector<int>& axes = nest.statements[at(store.statement)].axes;
    for (int axis : axes) {
      const std::string name = w.fresh("i");
      w.open(concat("for (gc_index ", name, " = 0; ", name, " < ", nest.extents[at(axis)], "; ++", name, ")"));
      w.bind_axis(axis, name);
    }
    const std::string value = w.statement(store.statement);
    w.line(add_line(nest, store, w.index(store.at), value));
    for (std::size_t i = 0; i < axes.size(); ++i) w.close();
  }
  w.close();
  EmittedKernel emitted = kernel.finish();
  emitted.work.family = Family::scatter;
  return emitted;
}

}  // namespace

EmittedKernel emit_scatter(FlatNest nest) {
  for (const Statement& s : nest.statements)
    check_internal(s.kind == Statement::Kind::map, "a nest that scatters also reduces or scans");
  if (nest.stores.size() != 1) return emit_serial(nest);
  ScatterShape shape = shape_of(nest, nest.stores[0]);
  if (!shape.exact) return emit_serial(nest);
  std::int64_t updates = 1;
  for (int axis : shape.serial) updates *= nest.extents[at(axis)];
  const bool by_destination = shape.independent && !shape.loaded.empty() && updates < kCountableUpdates;
  ScatterWriter writer(nest, std::move(shape));
  return by_destination ? writer.by_destination() : writer.by_point();
}

}  // namespace gcomp::codegen::cuda
