// Rows and columns. Partial results stand in small arrays, one element a lane: of the lanes of a row, combined in a fixed tree when
// the row ends, or of the columns of a block. GCC keeps such an array in vector registers when the lane loop's length is a
// constant. Results are written in the last pass over the reduced axes and after it, when all is read.
#include <algorithm>
#include <functional>

#include "codegen/cpu/loops.h"
#include "codegen/cpu/prepared.h"
#include "codegen/unswitch.h"
#include "ir/base/integers.h"
#include "ir/op.h"

namespace gcomp::codegen::cpu {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kColumnBlock = 64, kWideColumnBlocks[] = {1024, 512, 256}, kFewestBlocks = 8;
constexpr std::int64_t kLongRow = 64;

Reduction::Of of(const Statement& s) { return s.combine->reduction.of; }
bool is_position(const Statement& s) { return of(s) == Reduction::Of::first_maximum || of(s) == Reduction::Of::first_minimum; }

/// How a reduction combines, in text: two values, and all lanes of an array.
struct Combiner {
  std::string symbol;  ///< an operator, or "" where `function` combines
  std::string function;
  std::string fold;
};

Combiner combiner_of(const Statement& s) {
  const bool boolean = s.value->dtype == DType::boolean;
  switch (of(s)) {
    case Reduction::Of::sum: return boolean ? Combiner{"|", "", "gc_fold_or"} : Combiner{"+", "", "gc_fold_sum"};
    case Reduction::Of::product: return boolean ? Combiner{"&", "", "gc_fold_and"} : Combiner{"*", "", "gc_fold_product"};
    case Reduction::Of::maximum: return {"", "gc_maximum", "gc_fold_maximum"};
    case Reduction::Of::minimum: return {"", "gc_minimum", "gc_fold_minimum"};
    case Reduction::Of::first_maximum: return {"", "gc_above", "gc_fold_first_maximum"};
    case Reduction::Of::first_minimum: return {"", "gc_below", "gc_fold_first_minimum"};
    case Reduction::Of::none: break;
  }
  throw InternalError("a reduction that combines nothing");
}

std::string round_function(DType dtype) {
  return dtype == DType::f16 ? "gc_round_f16" : dtype == DType::bf16 ? "gc_round_bf16" : "";
}

/// Where a reduction under way stands.
struct Accumulator {
  int statement = 0;
  std::string values, positions;  ///< arrays
};

class ReductionEmitter {
 public:
  explicit ReductionEmitter(KernelLoops& loops)
      : loops_(loops),
        writer_(loops.writer()),
        nest_(loops.nest()),
        schedule_(loops.schedule()),
        vector_(schedule_.vector_axis),
        columns_(schedule_.kind == ScheduleKind::columns),
        lane_axis_(static_cast<int>(nest_.extents.size())) {
    width_ = columns_ ? std::min(loops.extent(vector_), column_block()) : row_lanes();
    for (int axis : schedule_.reduced) row_axes_.push_back(axis);
    if (!columns_) row_axes_.push_back(vector_);
  }

  void run() {
    std::vector<Loop> outer;
    for (int axis : schedule_.outer) outer.push_back(loops_.whole(axis));
    blocked_ = columns_ && width_ < loops_.extent(vector_);
    if (blocked_) outer.push_back({Loop::Kind::blocks, vector_, loops_.extent(vector_), width_});
    const std::size_t opened = loops_.open_tasks(outer);
    const std::int64_t rest = columns_ ? loops_.extent(vector_) % width_ : 0;
    if (rest == 0) {
      unswitch(nest_, width_, 0);
    } else {
      const std::string test = concat(loops_.block_start(vector_), " + ", width_, " <= ", loops_.extent(vector_));
      writer_.open(concat("if (", test, ")"));
      unswitch(nest_, width_, 0);
      writer_.close();
      writer_.open(concat("if (!(", test, "))"));
      unswitch(nest_, rest, 0);
      writer_.close();
    }
    loops_.close(opened);
  }

 private:
  const Statement& statement(int s) const { return nest_.statements[at(s)]; }
  bool last(int phase) const { return phase + 1 == schedule_.phases; }
  bool varies(const Statement& s, int axis) const { return std::find(s.axes.begin(), s.axes.end(), axis) != s.axes.end(); }
  Index lane() const { return Index::axis(lane_axis_, width_ + 1); }

  /// Sums alone stay in registers. Where elements are written beside them, several arrays are walked a piece of a row at a time,
  /// rows often a page apart, where no prefetcher of the processor goes: pieces are longer then, while there are enough for many
  /// threads.
  std::int64_t column_block() const {
    const bool writes = std::any_of(nest_.stores.begin(), nest_.stores.end(), [&](const Store& store) {
      return std::any_of(schedule_.reduced.begin(), schedule_.reduced.end(),
                         [&](int axis) { return varies(statement(store.statement), axis); });
    });
    if (!writes || schedule_.phases > 1) return kColumnBlock;
    std::int64_t outer = 1;
    for (int axis : schedule_.outer) outer *= loops_.extent(axis);
    for (const std::int64_t width : kWideColumnBlocks)
      if (quotient_up(loops_.extent(vector_), width) * outer >= kFewestBlocks) return width;
    return kColumnBlock;
  }

  /// One vector register of the accumulators' type, two where the row is long enough to hide an addition behind another.
  std::int64_t row_lanes() const {
    std::int64_t lanes = 8;
    for (const Statement& s : nest_.statements)
      if (s.kind == Statement::Kind::reduce && size_of(s.value->dtype) < 8) lanes = 16;
    const std::int64_t extent = loops_.extent(vector_);
    if (extent >= kLongRow) lanes *= 2;
    while (lanes / 2 >= extent) lanes /= 2;
    return lanes;
  }

  /// Conditions that only the outer axes decide are tested once a point.
  void unswitch(const FlatNest& nest, std::int64_t lanes, int tested) {
    std::vector<int> inner = row_axes_;
    if (columns_) inner.push_back(vector_);
    const auto condition = loops_.condition_to_unswitch(nest, inner, tested);
    if (!condition) {
      current_ = &nest;
      return run_phases(lanes);
    }
    const std::string test = writer_.conditions({*condition});
    for (bool holds : {true, false}) {
      const FlatNest version = assuming(nest, *condition, holds);
      writer_.open_sealed(concat(holds ? "if (" : "if (!(", test, holds ? ")" : "))"));
      writer_.use(version);
      unswitch(version, lanes, tested + 1);
      writer_.close();
    }
    writer_.use(nest_);
    current_ = &nest_;
  }

  /// All passes for one point of the outer axes; of columns, `lanes` of the block exist.
  void run_phases(std::int64_t lanes) {
    lanes_ = lanes;
    declare_kept();
    for (int phase = 0; phase < schedule_.phases; ++phase) {
      if (columns_) keep_points(phase);
      const std::vector<Accumulator> accumulators = declare(phase);
      if (columns_) pass_columns(phase, accumulators);
      else pass_row(phase, accumulators);
      bind_results(accumulators);
      bind_kept(phase + 1, 0);
    }
    store_points();
  }

  /// A loop over lanes; the vector axis is at `base` plus the lane.
  void open_lanes(const std::string& base, const std::string& count) {
    const std::string lane = writer_.fresh("x");
    writer_.open_simd(concat("for (long ", lane, " = 0; ", lane, " < ", count, "; ++", lane, ")"));
    writer_.bind_axis(lane_axis_, lane);
    if (base == "0") return writer_.bind_axis(vector_, lane);
    const std::string position = writer_.fresh("i");
    writer_.line(concat("const long ", position, " = ", base, " + ", lane, ";"));
    writer_.bind_axis(vector_, position);
  }
  void open_columns() { open_lanes(blocked_ ? loops_.block_start(vector_) : "0", std::to_string(lanes_)); }

  /// The position of the current element in a kept row.
  Index row_position() const {
    Index position;
    for (int axis : row_axes_) position = position * loops_.extent(axis) + nest_.axis(axis);
    return columns_ ? position * width_ + lane() : position;
  }

  void declare_kept() {
    std::int64_t row = columns_ ? width_ : 1;
    for (int axis : row_axes_) row *= loops_.extent(axis);
    kept_.assign(nest_.statements.size(), {});
    for (std::size_t s = 0; s < kept_.size(); ++s) {
      if (!schedule_.keep[s]) continue;
      kept_[s] = writer_.fresh("s");
      writer_.line(concat("alignas(64) ", compute_type_text(nest_.statements[s].dtype), " ", kept_[s], "[", row, "];"));
    }
  }

  /// Kept values of phases before `phase` are read from their rows; the vector axis counts from `low`.
  void bind_kept(int phase, std::int64_t low) {
    for (std::size_t s = 0; s < kept_.size(); ++s)
      if (schedule_.keep[s] && schedule_.phase[s] < phase)
        writer_.bind_array(static_cast<int>(s), kept_[s], row_position() + Index(low));
  }

  std::string lane_array(std::string_view type) {
    const std::string name = writer_.fresh("r");
    writer_.line(concat("alignas(64) ", type, " ", name, "[", width_, "];"));
    return name;
  }
  void fill(const std::string& array, const std::string& value) {
    const std::string x = writer_.fresh("x");
    writer_.line(concat("for (long ", x, " = 0; ", x, " < ", width_, "; ++", x, ") ", array, "[", x, "] = ", value, ";"));
  }

  std::vector<Accumulator> declare(int phase) {
    std::vector<Accumulator> accumulators;
    for (std::size_t i = 0; i < nest_.statements.size(); ++i) {
      const Statement& s = nest_.statements[i];
      if (s.kind != Statement::Kind::reduce || schedule_.phase[i] != phase) continue;
      Accumulator a{static_cast<int>(i), lane_array(compute_type_text(s.value->dtype)), {}};
      fill(a.values, literal_text(s.value->dtype, identity_of(of(s), s.value->dtype)));
      if (is_position(s)) {
        std::int64_t positions = 1;
        for (int axis : s.over) positions *= loops_.extent(axis);
        a.positions = lane_array(positions < (std::int64_t{1} << 31) ? "int" : "long long");
        fill(a.positions, "0");
      }
      accumulators.push_back(std::move(a));
    }
    return accumulators;
  }

  /// One pass over a row, in pieces within which every condition on the vector axis is settled.
  void pass_row(int phase, const std::vector<Accumulator>& accumulators) {
    for (int axis : schedule_.reduced) loops_.open_serial(loops_.whole(axis));
    const std::vector<std::int64_t> bounds = loops_.piece_bounds(*current_, vector_);
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      FlatNest piece = restricted(*current_, vector_, bounds[i], bounds[i + 1]);
      const std::int64_t length = bounds[i + 1] - bounds[i];
      // Where a row has pieces, kept values are bound for each of them, behind what is written here: no functions.
      const Prepared prepared =
          extract_prepared(piece, vector_, evaluated(piece, phase, accumulators), bounds.size() > 2 ? 0 : length);
      if (bounds.size() > 2) writer_.open_sealed();
      writer_.use(piece);
      const RowPiece row{piece, prepared, phase, accumulators, bounds[i]};
      if (prepared.empty() || length <= kMostDrawn) pass_part(row, "0", 0, length);
      else pass_parts(row, length);
      if (bounds.size() > 2) writer_.close();
    }
    writer_.use(*current_);
    loops_.close(schedule_.reduced.size());
  }

  /// What a pass does in one piece of a row, which begins at `low`.
  struct RowPiece {
    const FlatNest& nest;
    const Prepared& prepared;
    int phase;
    const std::vector<Accumulator>& accumulators;
    std::int64_t low;
  };

  /// A long piece in parts for which there are arrays of random numbers. Parts are whole lanes, so no sum is combined otherwise.
  void pass_parts(const RowPiece& row, std::int64_t length) {
    const std::int64_t whole = length / kMostDrawn * kMostDrawn;
    const std::string part = writer_.fresh("b");
    writer_.open(concat("for (long ", part, " = 0; ", part, " < ", whole, "; ", part, " += ", kMostDrawn, ")"));
    pass_part(row, part, 0, kMostDrawn);
    writer_.close();
    if (whole < length) pass_part(row, std::to_string(whole), whole, length - whole);
  }

  /// Positions `begin` to `begin + length` - 1 of the piece; `begin` is a number, `first`, or a variable where `first` is 0.
  void pass_part(const RowPiece& row, const std::string& begin, std::int64_t first, std::int64_t length) {
    const bool numbered = begin == std::to_string(first);
    const std::int64_t whole = row.accumulators.empty() ? 0 : length / width_ * width_;
    if (!row.prepared.empty()) open_prepared(row.prepared, begin, length);
    if (whole > 0) {
      const std::string base = writer_.fresh("b");
      const std::string end = numbered ? std::to_string(first + whole) : concat(begin, " + ", whole);
      writer_.open(concat("for (long ", base, " = ", begin, "; ", base, " < ", end, "; ", base, " += ", width_, ")"));
      open_lanes(base, std::to_string(width_));
      write_element(row.nest, row.phase, row.accumulators, row.low);
      loops_.close(2);
    }
    if (whole < length) {
      open_lanes(numbered ? std::to_string(first + whole) : begin, std::to_string(length - whole));
      write_element(row.nest, row.phase, row.accumulators, row.low);
      loops_.close(1);
    }
    if (!row.prepared.empty()) writer_.close();
  }

  /// Opens a block and computes in it the random numbers and functions of positions `begin` to `begin + count` - 1 of the vector
  /// axis.
  void open_prepared(const Prepared& prepared, const std::string& begin, std::int64_t count) {
    writer_.open_sealed();
    const int start = lane_axis_ + 1;  // stands for the first position
    writer_.bind_axis(start, begin);
    const Index position = nest_.axis(vector_) - (begin == "0" ? Index(0) : Index::axis(start, loops_.extent(vector_) + 1));
    write_prepared(writer_, prepared, {vector_, begin, std::to_string(count), count, columns_ ? lane_axis_ : -1}, position);
  }

  void pass_columns(int phase, const std::vector<Accumulator>& accumulators) {
    for (int axis : schedule_.reduced) loops_.open_serial(loops_.whole(axis));
    FlatNest nest = *current_;
    const Prepared prepared = extract_prepared(nest, vector_, evaluated(nest, phase, accumulators), lanes_);
    writer_.use(nest);
    if (!prepared.empty()) open_prepared(prepared, blocked_ ? loops_.block_start(vector_) : "0", lanes_);
    open_columns();
    write_element(nest, phase, accumulators, 0);
    loops_.close((prepared.empty() ? 1 : 2) + schedule_.reduced.size());
    writer_.use(*current_);
  }

  /// The statements whose values one pass computes, not those that it reads from arrays.
  std::vector<bool> evaluated(const FlatNest& nest, int phase, const std::vector<Accumulator>& accumulators) const {
    std::vector<bool> found(schedule_.keep.size(), false);
    const std::function<void(int)> add = [&](int s) {
      const bool reduced = statement(s).kind == Statement::Kind::reduce, earlier = schedule_.phase[at(s)] < phase;
      const bool computed = reduced ? !earlier : schedule_.per_element[at(s)] && !(schedule_.keep[at(s)] && earlier);
      if (!computed || found[at(s)]) return;
      found[at(s)] = true;
      for_each_term(nest.statements[at(s)].value, [&](const TermPtr& t) {
        if (t->kind == Term::Kind::local) add(t->slot);
      });
    };
    for (const Accumulator& a : accumulators) add(a.statement);
    for (std::size_t s = 0; s < found.size(); ++s)
      if (schedule_.keep[s] && schedule_.phase[s] == phase) add(static_cast<int>(s));
    if (last(phase))
      for (const Store& store : nest.stores)
        if (schedule_.per_element[at(store.statement)]) add(store.statement);
    return found;
  }

  /// Everything that one pass does at one element: kept values, accumulation, in the last phase results.
  void write_element(const FlatNest& nest, int phase, const std::vector<Accumulator>& accumulators, std::int64_t low) {
    if (low > 0) bind_kept(phase, low);
    for (std::size_t s = 0; s < schedule_.keep.size(); ++s) {
      if (!schedule_.keep[s] || schedule_.phase[s] != phase) continue;
      const std::string value = writer_.statement(static_cast<int>(s));
      writer_.line(concat(kept_[s], "[", writer_.index(row_position() + Index(low)), "] = ", value, ";"));
    }
    for (const Accumulator& a : accumulators) accumulate(a, nest.statements[at(a.statement)].value, low);
    if (!last(phase)) return;
    std::vector<const Store*> stores;
    for (const Store& s : nest.stores)
      if (schedule_.per_element[at(s.statement)]) stores.push_back(&s);
    std::vector<int> axes = schedule_.outer;
    axes.insert(axes.end(), schedule_.reduced.begin(), schedule_.reduced.end());
    axes.push_back(vector_);
    loops_.write_stores(stores, axes);
  }

  void accumulate(const Accumulator& a, const TermPtr& term, std::int64_t low) {
    const Statement& s = statement(a.statement);
    const Combiner combiner = combiner_of(s);
    const std::string lane_text = writer_.index(lane()), total = concat(a.values, "[", lane_text, "]");
    if (of(s) == Reduction::Of::sum && is_float(term->dtype))
      return writer_.line(concat(total, " = ", writer_.added(total, term), ";"));
    const std::string value = writer_.value(term);
    if (!is_position(s)) {
      const std::string combined = combiner.symbol.empty() ? concat(combiner.function, "(", total, ", ", value, ")")
                                                           : concat(total, " ", combiner.symbol, " ", value);
      return writer_.line(concat(total, " = ", combined, ";"));
    }
    Index counter;
    for (int axis : s.over) counter = counter * loops_.extent(axis) + nest_.axis(axis) + Index(axis == vector_ ? low : 0);
    const std::string position = concat(a.positions, "[", lane_text, "]"), better = writer_.fresh("v"),
                      here = writer_.index(counter);
    writer_.line(concat("const bool ", better, " = ", combiner.function, "(", value, ", ", total, ");"));
    writer_.line(concat(total, " = ", better, " ? ", value, " : ", total, ";"));
    writer_.line(concat(position, " = ", better, " ? ", here, " : ", position, ";"));
  }

  /// Turns accumulators into the statements' values.
  void bind_results(const std::vector<Accumulator>& accumulators) {
    for (const Accumulator& a : accumulators) {
      const Statement& s = statement(a.statement);
      const std::string round = round_function(s.dtype);
      if (columns_) {
        const std::string& result = is_position(s) ? a.positions : a.values;
        if (!round.empty()) {
          const std::string x = writer_.fresh("x");
          writer_.line(concat("for (long ", x, " = 0; ", x, " < ", width_, "; ++", x, ") ", result, "[", x, "] = ", round, "(",
                              result, "[", x, "]);"));
        }
        writer_.bind_array(a.statement, result, lane());
        continue;
      }
      const std::string name = writer_.fresh("v");
      const std::string folded =
          concat(combiner_of(s).fold, "<", width_, ">(", a.values, is_position(s) ? ", " + a.positions : "", ")");
      writer_.line(concat("const ", compute_type_text(s.dtype), " ", name, " = ",
                          round.empty() ? folded : concat(round, "(", folded, ")"), ";"));
      writer_.bind_local(a.statement, name);
    }
  }

  /// Columns: statements of a point that need a reduction would be evaluated again for each element; they become arrays.
  void keep_points(int phase) {
    for (std::size_t i = 0; i < nest_.statements.size(); ++i) {
      const Statement& s = nest_.statements[i];
      if (s.kind != Statement::Kind::map || schedule_.per_element[i] || schedule_.phase[i] != phase || !varies(s, vector_) ||
          cost_of(s.value) == 0)
        continue;
      const std::string name = lane_array(compute_type_text(s.dtype));
      open_columns();
      const std::string value = writer_.statement(static_cast<int>(i));
      writer_.line(concat(name, "[", writer_.index(lane()), "] = ", value, ";"));
      loops_.close(1);
      writer_.bind_array(static_cast<int>(i), name, lane());
    }
  }

  /// Results that do not vary over the reduced axes.
  void store_points() {
    std::vector<const Store*> stores;
    for (const Store& s : nest_.stores)
      if (!schedule_.per_element[at(s.statement)]) stores.push_back(&s);
    if (stores.empty()) return;
    std::vector<int> axes = schedule_.outer;
    if (columns_) {
      open_columns();
      axes.push_back(vector_);
    }
    loops_.write_stores(stores, axes);
    if (columns_) loops_.close(1);
  }

  KernelLoops& loops_;
  KernelWriter& writer_;
  const FlatNest& nest_;
  const FlatNest* current_ = &nest_;  // the version under way
  const Schedule& schedule_;
  int vector_;
  bool columns_, blocked_ = false;
  int lane_axis_;           // an axis number beyond the nest's, for the lane
  std::int64_t width_ = 1;  // lanes of an array
  std::int64_t lanes_ = 1;  // columns: lanes that exist in this block
  std::vector<int> row_axes_;
  std::vector<std::string> kept_;
};

}  // namespace

void emit_reductions(KernelLoops& loops) { ReductionEmitter(loops).run(); }

}  // namespace gcomp::codegen::cpu
