// Rows and columns. A row's accumulators are variables that the lanes of the innermost loop share; a column block's are arrays
// with one element a lane. Results are written in the last pass over the reduced axes and after it, when all is read.
#include <algorithm>

#include "codegen/cpu/loops.h"
#include "ir/op.h"

namespace gcomp::codegen::cpu {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kColumnBlock = 64;
constexpr std::int64_t kJam = 4;  // rows that one pass over a column block adds up before it touches the accumulators

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Reduction::Of of(const Statement& s) { return s.combine->reduction.of; }
bool is_position(const Statement& s) { return of(s) == Reduction::Of::first_maximum || of(s) == Reduction::Of::first_minimum; }

std::string join_text(Reduction::Of of, DType dtype, const std::string& a, const std::string& b) {
  const bool boolean = dtype == DType::boolean;
  switch (of) {
    case Reduction::Of::sum: return concat(a, boolean ? " | " : " + ", b);
    case Reduction::Of::product: return concat(a, boolean ? " & " : " * ", b);
    case Reduction::Of::maximum: return concat("gc_maximum(", a, ", ", b, ")");
    case Reduction::Of::minimum: return concat("gc_minimum(", a, ", ", b, ")");
    case Reduction::Of::first_maximum: return concat("gc_above(", b, ", ", a, ")");
    case Reduction::Of::first_minimum: return concat("gc_below(", b, ", ", a, ")");
    case Reduction::Of::none: break;
  }
  return a;
}

std::string clause_of(Reduction::Of of, DType dtype, const std::string& name) {
  const bool boolean = dtype == DType::boolean;
  switch (of) {
    case Reduction::Of::sum: return concat(" reduction(", boolean ? "|" : "+", " : ", name, ")");
    case Reduction::Of::product: return concat(" reduction(", boolean ? "&" : "*", " : ", name, ")");
    case Reduction::Of::maximum: return concat(" reduction(gc_largest : ", name, ")");
    case Reduction::Of::minimum: return concat(" reduction(gc_smallest : ", name, ")");
    case Reduction::Of::none: case Reduction::Of::first_maximum: case Reduction::Of::first_minimum: break;
  }
  return "";
}

/// Where a reduction under way stands.
struct Accumulator {
  int statement = 0;
  std::string value, position;  ///< variables, or arrays for columns
};

class ReductionEmitter {
 public:
  explicit ReductionEmitter(KernelLoops& loops)
      : loops_(loops), writer_(loops.writer()), nest_(loops.nest()), schedule_(loops.schedule()), vector_(schedule_.vector_axis),
        columns_(schedule_.form == Form::columns), lane_axis_(static_cast<int>(nest_.extents.size())) {
    block_ = columns_ ? std::min(loops.extent(vector_), kColumnBlock) : 1;
    for (int axis : schedule_.reduced) row_axes_.push_back(axis);
    if (!columns_) row_axes_.push_back(vector_);
  }

  void run() {
    std::vector<Loop> outer;
    for (int axis : schedule_.outer) outer.push_back(loops_.whole(axis));
    if (columns_) outer.push_back({Loop::Kind::blocks, vector_, loops_.extent(vector_), block_});
    const std::size_t opened = loops_.open_tasks(outer);
    if (columns_) open_block();
    declare_kept();
    for (int phase = 0; phase < schedule_.phases; ++phase) run_phase(phase);
    store_points();
    loops_.close(opened);
  }

 private:
  const Statement& statement(int s) const { return nest_.statements[at(s)]; }
  bool last(int phase) const { return phase + 1 == schedule_.phases; }
  bool varies(const Statement& s, int axis) const { return std::find(s.axes.begin(), s.axes.end(), axis) != s.axes.end(); }

  /// "lanes" is the number of columns in this block.
  void open_block() {
    lanes_ = writer_.fresh("n");
    const std::int64_t extent = loops_.extent(vector_);
    writer_.line(concat("const long ", lanes_, " = ", extent % block_ == 0 ? std::to_string(block_) : concat("gc_least(", block_, ", ", extent, " - ", loops_.block_start(vector_), ")"), ";"));
    if (extent % block_ == 0) lanes_ = std::to_string(block_);
  }

  /// A loop over the lanes of a column block; binds the vector axis and the lane number.
  void open_lanes() {
    const std::string lane = writer_.fresh("x"), position = writer_.fresh("i");
    writer_.open_simd(concat("for (long ", lane, " = 0; ", lane, " < ", lanes_, "; ++", lane, ")"));
    writer_.line(concat("const long ", position, " = ", loops_.block_start(vector_), " + ", lane, ";"));
    writer_.bind_axis(vector_, position);
    writer_.bind_axis(lane_axis_, lane);
  }
  Index lane() const { return Index::axis(lane_axis_, block_ + 1); }

  /// The position of the current element in a kept row.
  Index row_position() const {
    Index position;
    for (int axis : row_axes_) position = position * loops_.extent(axis) + nest_.axis(axis);
    return columns_ ? position * block_ + lane() : position;
  }

  void declare_kept() {
    std::int64_t row = block_;
    for (int axis : row_axes_) row *= loops_.extent(axis);
    kept_.resize(nest_.statements.size());
    for (std::size_t s = 0; s < kept_.size(); ++s) {
      if (!schedule_.keep[s]) continue;
      kept_[s] = writer_.fresh("s");
      writer_.line(concat("alignas(64) ", compute_type_text(nest_.statements[s].dtype), " ", kept_[s], "[", row, "];"));
    }
  }

  std::string array(DType dtype) {
    const std::string name = writer_.fresh("r");
    writer_.line(concat("alignas(64) ", compute_type_text(dtype), " ", name, "[", block_, "];"));
    return name;
  }

  void run_phase(int phase) {
    if (columns_) keep_points(phase);
    const std::vector<Accumulator> accumulators = declare(phase);
    const bool positions = std::any_of(accumulators.begin(), accumulators.end(), [&](const Accumulator& a) { return is_position(statement(a.statement)); });
    if (columns_) pass_columns(phase, accumulators, positions);
    else pass_row(phase, accumulators, positions);
    bind_results(accumulators);
    bind_kept(phase + 1, 0);
  }

  /// Kept values of earlier phases are read from their rows; the vector axis counts from `low`.
  void bind_kept(int phase, std::int64_t low) {
    for (std::size_t s = 0; s < kept_.size(); ++s)
      if (schedule_.keep[s] && schedule_.phase[s] < phase) writer_.bind_array(static_cast<int>(s), kept_[s], row_position() + Index(low));
  }

  std::vector<Accumulator> declare(int phase) {
    std::vector<Accumulator> accumulators;
    for (std::size_t i = 0; i < nest_.statements.size(); ++i) {
      const Statement& s = nest_.statements[i];
      if (s.form != Statement::Form::reduce || schedule_.phase[i] != phase) continue;
      const DType dtype = s.value->dtype;
      Accumulator a{static_cast<int>(i), {}, {}};
      const std::string identity = literal_text(dtype, identity_of(of(s), dtype));
      if (columns_) {
        a.value = array(dtype);
        if (is_position(s)) a.position = array(DType::i64);
        const std::string x = writer_.fresh("x");
        writer_.line(concat("for (long ", x, " = 0; ", x, " < ", block_, "; ++", x, ") ", a.value, "[", x, "] = ", identity, ";"));
        if (is_position(s)) writer_.line(concat("for (long ", x, " = 0; ", x, " < ", block_, "; ++", x, ") ", a.position, "[", x, "] = 0;"));
      } else {
        a.value = writer_.fresh("r");
        writer_.line(concat(compute_type_text(dtype), " ", a.value, " = ", identity, ";"));
        if (is_position(s)) {
          a.position = writer_.fresh("r");
          writer_.line(concat("long long ", a.position, " = 0;"));
        }
      }
      accumulators.push_back(std::move(a));
    }
    return accumulators;
  }

  void pass_row(int phase, const std::vector<Accumulator>& accumulators, bool positions) {
    std::string clauses;
    for (const Accumulator& a : accumulators) clauses += clause_of(of(statement(a.statement)), statement(a.statement).value->dtype, a.value);
    for (int axis : schedule_.reduced) loops_.open_serial(loops_.whole(axis));
    std::vector<std::int64_t> bounds = positions ? std::vector<std::int64_t>() : breakpoints(nest_, vector_);
    bounds.insert(bounds.begin(), 0);
    bounds.push_back(loops_.extent(vector_));
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      const FlatNest piece = bounds.size() == 2 ? nest_ : restricted(nest_, vector_, bounds[i], bounds[i + 1], schedule_.keep);
      writer_.use(piece);
      if (positions) loops_.open_range(vector_, bounds[i], bounds[i + 1]);
      else loops_.open_vector(vector_, bounds[i], bounds[i + 1], clauses);
      if (bounds[i] > 0) bind_kept(phase, bounds[i]);
      write_element(piece, phase, accumulators, bounds[i]);
      loops_.close(1);
    }
    writer_.use(nest_);
    loops_.close(schedule_.reduced.size());
  }

  /// Everything that one pass does at one element: kept values, accumulation, in the last phase results.
  void write_element(const FlatNest& nest, int phase, const std::vector<Accumulator>& accumulators, std::int64_t low) {
    for (std::size_t s = 0; s < nest.statements.size(); ++s) {
      if (!schedule_.keep[s] || schedule_.phase[s] != phase) continue;
      const std::string value = writer_.statement(static_cast<int>(s));
      const Index position = row_position() + Index(columns_ ? 0 : low);
      writer_.line(concat(kept_[s], "[", writer_.index(position), "] = ", value, ";"));
    }
    for (const Accumulator& a : accumulators) accumulate(a, writer_.value(nest.statements[at(a.statement)].value), low);
    if (!last(phase)) return;
    std::vector<const Store*> stores;
    for (const Store& s : nest.stores) if (schedule_.per_element[at(s.statement)]) stores.push_back(&s);
    std::vector<int> axes = schedule_.outer;
    for (int axis : schedule_.reduced) axes.push_back(axis);
    axes.push_back(vector_);
    loops_.write_stores(stores, axes);
  }

  std::string element(const std::string& accumulator) { return columns_ ? concat(accumulator, "[", writer_.index(lane()), "]") : accumulator; }

  void accumulate(const Accumulator& a, const std::string& value, std::int64_t low) {
    const Statement& s = statement(a.statement);
    const std::string total = element(a.value), joined = join_text(of(s), s.value->dtype, total, value);
    if (!is_position(s)) return writer_.line(concat(total, " = ", joined, ";"));
    Index counter;
    for (int axis : s.over) counter = counter * loops_.extent(axis) + nest_.axis(axis) + Index(axis == vector_ ? low : 0);
    const std::string position = element(a.position), better = writer_.fresh("v"), here = writer_.index(counter);
    writer_.line(concat("const bool ", better, " = ", joined, ";"));
    writer_.line(concat(total, " = ", better, " ? ", value, " : ", total, ";"));
    writer_.line(concat(position, " = ", better, " ? ", here, " : ", position, ";"));
  }

  void pass_columns(int phase, const std::vector<Accumulator>& accumulators, bool positions) {
    const bool jams = !positions && !accumulators.empty() && !schedule_.reduced.empty() && !writes_elements(phase) &&
                      loops_.extent(schedule_.reduced.back()) >= kJam;
    const std::size_t serial = schedule_.reduced.size() - (jams ? 1 : 0);
    for (std::size_t i = 0; i < serial; ++i) loops_.open_serial(loops_.whole(schedule_.reduced[i]));
    if (jams) {
      pass_jammed(accumulators, schedule_.reduced.back());
    } else {
      open_lanes();
      write_element(nest_, phase, accumulators, 0);
      loops_.close(1);
    }
    loops_.close(serial);
  }

  bool writes_elements(int phase) const {
    for (std::size_t s = 0; s < nest_.statements.size(); ++s) if (schedule_.keep[s] && schedule_.phase[s] == phase) return true;
    return last(phase) && std::any_of(nest_.stores.begin(), nest_.stores.end(), [&](const Store& s) { return schedule_.per_element[at(s.statement)]; });
  }

  /// kJam rows at a time, their values joined as a tree; then the rest one by one.
  void pass_jammed(const std::vector<Accumulator>& accumulators, int axis) {
    const std::int64_t extent = loops_.extent(axis), whole = extent / kJam * kJam;
    const std::string row = writer_.fresh("i");
    writer_.open(concat("for (long ", row, " = 0; ", row, " < ", whole, "; ", row, " += ", kJam, ")"));
    writer_.bind_axis(axis, row);
    std::vector<std::vector<TermPtr>> values(accumulators.size());
    for (std::int64_t u = 0; u < kJam; ++u) {
      TermRewriter rewriter;
      rewriter.axis = [&](int a, std::int64_t e) { return a == axis ? Index::axis(a, e) + Index(u) : Index::axis(a, e); };
      rewriter.leaf = [&](const TermPtr& t) { return t->kind == Term::Kind::local && schedule_.per_element[at(t->slot)] ? rewriter(value_of(statement(t->slot))) : TermPtr(); };
      for (std::size_t i = 0; i < accumulators.size(); ++i) values[i].push_back(rewriter(statement(accumulators[i].statement).value));
    }
    open_lanes();
    for (std::size_t i = 0; i < accumulators.size(); ++i) {
      const Statement& s = statement(accumulators[i].statement);
      const DType dtype = s.value->dtype;
      std::vector<std::string> parts;
      for (const TermPtr& value : values[i]) parts.push_back(writer_.value(value));
      const std::string low = join_text(of(s), dtype, parts[0], parts[1]), high = join_text(of(s), dtype, parts[2], parts[3]);
      const std::string total = element(accumulators[i].value);
      writer_.line(concat(total, " = ", join_text(of(s), dtype, total, "(" + join_text(of(s), dtype, "(" + low + ")", "(" + high + ")") + ")"), ";"));
    }
    loops_.close(2);
    if (whole == extent) return;
    const std::string rest = writer_.fresh("i");
    writer_.open(concat("for (long ", rest, " = ", whole, "; ", rest, " < ", extent, "; ++", rest, ")"));
    writer_.bind_axis(axis, rest);
    open_lanes();
    for (const Accumulator& a : accumulators) accumulate(a, writer_.value(statement(a.statement).value), 0);
    loops_.close(2);
  }

  /// Turns accumulators into the statements' values.
  void bind_results(const std::vector<Accumulator>& accumulators) {
    for (const Accumulator& a : accumulators) {
      const Statement& s = statement(a.statement);
      const std::string& result = is_position(s) ? a.position : a.value;
      const DType dtype = is_position(s) ? DType::i64 : s.value->dtype;
      const std::string round = s.dtype == DType::f16 ? "gc_round_f16" : s.dtype == DType::bf16 ? "gc_round_bf16" : "";
      if (columns_) {
        check_internal(compute_type(s.dtype) == compute_type(dtype), "a reduction of ", gcomp::name_of(dtype), " gives ", gcomp::name_of(s.dtype));
        const std::string x = writer_.fresh("x");
        if (!round.empty()) writer_.line(concat("for (long ", x, " = 0; ", x, " < ", block_, "; ++", x, ") ", result, "[", x, "] = ", round, "(", result, "[", x, "]);"));
        writer_.bind_array(a.statement, result, lane());
      } else {
        const std::string name = writer_.fresh("v");
        writer_.line(concat("const ", compute_type_text(s.dtype), " ", name, " = ", round, "(", result, ");"));
        writer_.bind_local(a.statement, name);
      }
    }
  }

  /// Columns: statements of a point that need a reduction would be evaluated again for each element; they become arrays.
  void keep_points(int phase) {
    for (std::size_t i = 0; i < nest_.statements.size(); ++i) {
      const Statement& s = nest_.statements[i];
      if (s.form != Statement::Form::map || schedule_.per_element[i] || schedule_.phase[i] != phase || !varies(s, vector_) || cost_of(s.value) == 0) continue;
      const std::string name = array(s.dtype);
      open_lanes();
      const std::string value = writer_.statement(static_cast<int>(i));
      writer_.line(concat(name, "[", writer_.index(lane()), "] = ", value, ";"));
      loops_.close(1);
      writer_.bind_array(static_cast<int>(i), name, lane());
    }
  }

  /// Results that do not vary over the reduced axes.
  void store_points() {
    std::vector<const Store*> stores;
    for (const Store& s : nest_.stores) if (!schedule_.per_element[at(s.statement)]) stores.push_back(&s);
    if (stores.empty()) return;
    std::vector<int> axes = schedule_.outer;
    if (columns_) {
      open_lanes();
      axes.push_back(vector_);
    }
    loops_.write_stores(stores, axes);
    if (columns_) loops_.close(1);
  }

  KernelLoops& loops_;
  KernelWriter& writer_;
  const FlatNest& nest_;
  const Schedule& schedule_;
  int vector_;
  bool columns_;
  int lane_axis_;           // an axis number beyond the nest's, for the position within a column block
  std::int64_t block_ = 1;
  std::string lanes_;
  std::vector<int> row_axes_;
  std::vector<std::string> kept_;
};

}  // namespace

void emit_reductions(KernelLoops& loops) { ReductionEmitter(loops).run(); }

}  // namespace gcomp::codegen::cpu
