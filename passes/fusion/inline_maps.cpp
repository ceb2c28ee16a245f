// Step 1 of fusion: which values live in memory, each with a nest of its own (unit_nests.h); the rest is inlined into those.

#include <algorithm>

#include "passes/fusion/fusion_units.h"
#include "passes/fusion/unit_nests.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Stays a node: libraries, dense constants, updates.
bool is_opaque(const Node& node) {
  switch (node.op->kind) {
    case Kind::contract:
    case Kind::update:
    case Kind::collective:
    case Kind::barrier:
    case Kind::kernel:
    case Kind::composite: return true;
    case Kind::constant: return !node.op->loops;
    case Kind::pointwise:
    case Kind::reduce:
    case Kind::view:
    case Kind::index:
    case Kind::scan:
    case Kind::random: return false;
  }
  return true;
}

/// Values in memory that computing a value reads, each once, as far as they are counted.
class Leaves {
 public:
  void add(const Value* leaf) {
    if (leaves_.size() < kCounted && !contains(leaf)) leaves_.push_back(leaf);
  }
  void add(const Leaves& others) {
    for (const Value* leaf : others.leaves_) add(leaf);
  }
  bool contains(const Value* leaf) const { return std::find(leaves_.begin(), leaves_.end(), leaf) != leaves_.end(); }
  std::size_t size() const { return leaves_.size(); }
  auto begin() const { return leaves_.begin(); }
  auto end() const { return leaves_.end(); }

 private:
  static constexpr std::size_t kCounted = 13;  ///< one more than any decision asks for
  std::vector<const Value*> leaves_;
};

/// Who reads a value, looking through views that live nowhere.
struct Readers {
  const Node* first = nullptr;
  bool several = false;
  bool takes_extreme = false, compares = false;  ///< some reader is a maximum or minimum over axes; some reader asks for equality
  bool opaque = false;                           ///< some opaque node or the caller does, itself or reshaped

  void add(const Node* reader) {
    several = several || (first && first != reader);
    first = reader;
    const Reduction::Of of = reader->op->reduction.of;
    takes_extreme =
        takes_extreme || (reader->op->kind == Kind::reduce && (of == Reduction::Of::maximum || of == Reduction::Of::minimum));
    compares = compares || reader->op->equality;
  }
  void add(const Readers& through_view) {
    several = several || through_view.several || (first && through_view.first && first != through_view.first);
    first = first ? first : through_view.first;
    takes_extreme = takes_extreme || through_view.takes_extreme;
    compares = compares || through_view.compares;
  }
};

class Inliner {
 public:
  Inliner(Graph& graph, const FuseOptions& options)
      : graph_(graph),
        options_(options),
        users_(graph),
        outputs_(graph, graph.outputs()),
        readers_(graph),
        index_lengths_(graph),
        update_only_(graph),
        aliases_(graph),
        inlined_(graph),
        leaves_(graph),
        terms_(graph),
        reached_(graph) {
    trains_ = std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& n) { return n->op->kind == Kind::update; });
    find_update_only();
    for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it)
      for (const Value* result : (*it)->results) find_readers(result);
  }

  std::vector<FusionUnit> run() {
    for (const Node& node : NodeWalk(graph_)) decide(node);
    std::vector<FusionUnit> units;
    UnitNests nests(inlined_);
    for (const auto& node : graph_.nodes()) {
      if (is_opaque(*node) || is_alias(*node)) {
        FusionUnit unit;
        unit.node = node.get();
        unit.operands = node->operands;
        unit.results = node->results;
        units.push_back(std::move(unit));
      } else if (!is_inlined(node->result())) {
        units.push_back(unit_of(*node, nests));
      }
    }
    return units;
  }

 private:
  /// Pointwise values that feed, through others of their shape, nothing but updates: the optimizer. Its boundary stays in
  /// memory, so that it can be one launch over all parameters.
  void find_update_only() {
    for (auto it = graph_.nodes().rbegin(); it != graph_.nodes().rend(); ++it) {
      const Node& node = **it;
      if (node.results.size() != 1 || outputs_.contains(node.result())) continue;
      const bool spread = node.op->kind == Kind::view && node.operands[0]->type.rank() == 0;
      if (node.op->kind != Kind::pointwise && !spread && !splat_value(node.result())) continue;
      if (node.result()->type.shape.empty()) continue;
      const auto users = users_.of(node.result());
      if (!users.empty() && std::all_of(users.begin(), users.end(), [&](const Node* user) {
            return user->op->kind == Kind::update || user->op->kind == Kind::barrier ||
                   (update_only_[user] && user->result()->type.shape == node.result()->type.shape);
          }))
        update_only_[&node] = true;
    }
  }

  /// A reshape of a value in memory that some opaque node, output or the optimizer reads: the same bytes under another type.
  bool is_alias(const Node& node) { return aliases_[&node]; }

  /// After the readers of all later values.
  void find_readers(const Value* value) {
    Readers& readers = readers_[value];
    readers.opaque = outputs_.contains(value);
    for (const Node* user : users_.of(value)) {
      const bool opaque = is_opaque(*user);
      const Readers through = opaque ? Readers() : readers_.at(user->result());
      readers.opaque = readers.opaque || opaque || (user->op->alias && through.opaque);
      const bool nowhere = !opaque && (user->op->kind == Kind::view || widens(*user));
      if (nowhere && !through.opaque) readers.add(through);
      else readers.add(user);
    }
  }

  /// A cast of floats that loses nothing: its readers do it, and memory holds the fewer bytes.
  bool widens(const Node& node) const {
    if (!options_.inlining || !is_cast(*node.op)) return false;
    const DType from = node.operands[0]->type.dtype, to = node.result()->type.dtype;
    return is_float(from) && is_float(to) && size_of(from) < size_of(to) && !crosses_into_update(node);
  }

  /// Then the value lives in memory.
  bool read_by_opaque(const Value* value) const { return readers_.at(value).opaque; }

  std::int64_t elements_read_by(const Value* value) {
    std::int64_t most = 0;
    for (const Node* user : users_.of(value)) {
      std::int64_t elements = user->results.empty() ? 0 : user->results[0]->type.elements();
      if (user->op->kind == Kind::reduce || user->op->kind == Kind::index) elements = std::max(elements, value->type.elements());
      const bool margin = user->op->reads == Reads::inside && elements <= 2 * value->type.elements();
      if (user->op->reads == Reads::once || margin) elements = value->type.elements();
      most = std::max(most, elements);
    }
    return most;
  }

  void decide(const Node& node) {
    if (is_opaque(node)) return;
    bound_terms(node);
    bound_indices(node);
    Value* value = node.result();
    Leaves& leaves = leaves_[value];
    for (const Value* operand : node.operands) {
      if (is_inlined(operand)) leaves.add(leaves_[operand]);
      else leaves.add(operand);
    }
    if (node.operands.empty()) {
      inlined_[value] = !read_by_opaque(value);
      return;
    }
    if (node.op->alias && (read_by_opaque(value) || crosses_into_update(node)) && leaves.contains(node.operands[0])) {
      aliases_[&node] = true;
      return;
    }
    const bool view = node.op->kind == Kind::view, map = view || node.op->kind == Kind::pointwise || node.op->looks_up;
    if (!map || read_by_opaque(value)) return;
    if (!options_.inlining) {
      inlined_[value] = is_plain_view(*node.op) && is_inlined(node.operands[0]);
      return;
    }
    const Readers readers = readers_.at(value);
    if (!readers.first) return;
    if (leaves.size() > 12 && !view) return;
    if (crosses_into_update(node)) return;
    if (narrows_reduction(node)) return;
    if (value->type.rank() == 1 && casts_parameter(node)) return;
    // Which elements are the largest of a row is asked by comparing them with it, as the gradient of a maximum does. Computed a
    // second time, in a kernel that contracts other products and sums, they would differ from it in the last bit and none would be
    // found.
    if (is_float(value->type.dtype) && readers.takes_extreme && readers.compares) return;
    const std::int64_t own = std::max<std::int64_t>(value->type.elements(), 1), largest = elements_read_by(value);
    if (!view && largest > own && value->type.rank() > 0 && costs_more_than(1, node)) return;
    if (view && node.operands.size() > 1 && leaves.size() > 4) return;
    inlined_[value] = !readers.several || view || widens(node) ||
                      (is_read_as_cheaply(leaves, *value) && !costs_more_than(options_.recompute_cost, node));
  }

  /// Whether what a value is computed from is one array of its size, or where it is read in parts, several of no more bytes: a
  /// kernel over a part does not become one with what makes the whole.
  bool is_read_as_cheaply(const Leaves& leaves, const Value& value) const {
    const std::int64_t own = std::max<std::int64_t>(value.type.elements(), 1);
    std::size_t large = 0, bytes = 0;  // of one element
    for (const Value* leaf : leaves) {
      if (leaf->type.elements() * 2 <= own) continue;
      ++large;
      bytes += size_of(leaf->type.dtype);
    }
    return large <= 1 || (bytes <= size_of(value.type.dtype) && is_read_in_parts(value));
  }
  bool is_read_in_parts(const Value& value) const {
    return std::ranges::all_of(users_.of(&value), [&](const Node* user) {
      return is_plain_view(*user->op) && user->result()->type.elements() < value.type.elements();
    });
  }

  /// Where one element would take too many terms, operands stay in memory after all, the longest first.
  void bound_terms(const Node& node) {
    while (terms_of(node) > options_.max_terms) {
      const Value* longest = nullptr;
      int most = 1;
      for (const Value* operand : node.operands) {
        if (!is_inlined(operand) || terms_of(*operand->producer) <= most) continue;
        longest = operand;
        most = terms_of(*operand->producer);
      }
      if (!longest) return;
      inlined_[longest] = false;
      terms_[node.result()] = 0;
    }
  }

  /// An index through a reshape holds the whole index once for each dimension, unless they cancel. Where reshapes one under another
  /// could make too much of it, the operand stays in memory.
  void bound_indices(const Node& node) {
    constexpr std::int64_t kLongestIndex = 4096;
    std::int64_t factor = 1, longest = 1;
    if (node.op->alias) {
      const Shape& shape = node.operands[0]->type.shape;
      factor = std::max<std::int64_t>(1, std::count_if(shape.begin(), shape.end(), [](std::int64_t dim) { return dim != 1; }));
    }
    for (const Value* operand : node.operands) {
      if (!is_inlined(operand)) continue;
      const std::int64_t length = index_lengths_.at(operand);
      if (length * factor > kLongestIndex) inlined_[operand] = false;
      else longest = std::max(longest, length);
    }
    index_lengths_[node.result()] = longest * factor;
  }

  /// Terms that one element of the node's result takes with all that is inlined, about: what is read at one point counts once, what
  /// a view reads at another counts again. Saturates just above the limit.
  int terms_of(const Node& node) {
    int& known = terms_[node.result()];
    if (known > 0) return known;
    const Value* only = nullptr;
    int read = 0;
    bool several = false;
    for (const Value* operand : node.operands) {
      if (!is_inlined(operand)) {
        ++read;
        continue;
      }
      several = several || (only && only != operand);
      only = operand;
    }
    const bool here = node.op->kind == Kind::pointwise;
    // Along a chain each count follows from the one before it.
    const int terms = here && several ? count_terms(node) : 1 + read + (only ? terms_of_inlined(node, here) : 0);
    return known = std::min(terms, options_.max_terms + 1);
  }

  /// For a node whose inlined operands are one value, or are each read at points of their own.
  int terms_of_inlined(const Node& node, bool once) {
    int terms = 0;
    for (const Value* operand : node.operands) {
      if (!is_inlined(operand)) continue;
      terms = std::min(terms + terms_of(*operand->producer), options_.max_terms + 1);
      if (once) break;
    }
    return terms;
  }

  int count_terms(const Node& node) {
    int terms = 0;
    begin_walk();
    std::vector<const Node*> open{&node};
    while (!open.empty() && terms <= options_.max_terms) {
      const Node& next = *open.back();
      open.pop_back();
      ++terms;
      const bool here = next.op->kind == Kind::pointwise;
      for (const Value* operand : next.operands) {
        if (!is_inlined(operand)) ++terms;
        else if (!here) terms += terms_of(*operand->producer);
        else if (reach(operand)) open.push_back(operand->producer);
      }
    }
    return terms;
  }

  bool is_inlined(const Value* value) { return value && inlined_[value]; }

  /// Forgets what earlier walks through operands reached.
  void begin_walk() { ++walk_; }
  /// Whether this walk reaches the value for the first time.
  bool reach(const Value* value) { return std::exchange(reached_[value], walk_) != walk_; }

  /// Whether computing a value, with all that is inlined on the way, each once, costs more.
  bool costs_more_than(int limit, const Node& node) {
    begin_walk();
    std::vector<const Node*> open{&node};
    while (!open.empty() && limit >= 0) {
      const Node& next = *open.back();
      open.pop_back();
      limit -= next.op->cost;
      for (const Value* operand : next.operands)
        if (is_inlined(operand) && reach(operand)) open.push_back(operand->producer);
    }
    return limit < 0;
  }

  /// The gradient and other operands of the optimizer stay in memory, so that all parameters share one kernel.
  bool crosses_into_update(const Node& node) const {
    if (update_only_[&node]) return false;
    const auto users = users_.of(node.result());
    return std::any_of(users.begin(), users.end(), [&](const Node* user) { return update_only_[user]; });
  }

  /// A cast to fewer bytes of a reduced value: what goes to memory is the cast, in the reduction's own kernel.
  static bool narrows_reduction(const Node& node) {
    return is_cast(*node.op) && node.operands[0]->producer && node.operands[0]->producer->op->kind == Kind::reduce &&
           size_of(node.result()->type.dtype) < size_of(node.operands[0]->type.dtype);
  }

  /// All of them are one launch (fuse_parameter_casts), and libraries take a product's bias in the product's own dtype only.
  bool casts_parameter(const Node& node) const {
    if (!trains_ || !is_cast(*node.op) || !graph_.find_state(node.operands[0])) return false;
    const TensorType &from = node.operands[0]->type, &to = node.result()->type;
    return is_float(from.dtype) && is_float(to.dtype) && size_of(to.dtype) < size_of(from.dtype);
  }

  FusionUnit unit_of(Node& node, UnitNests& nests) {
    FusionUnit unit = nests.unit_of(node);
    unit.update = update_only_[&node];
    unit.parameter_cast = casts_parameter(node);
    return unit;
  }

  Graph& graph_;
  const FuseOptions& options_;
  const Users users_;
  bool trains_ = false;
  ValueSet outputs_;
  ValueTable<Readers> readers_;
  ValueTable<std::int64_t> index_lengths_;
  NodeTable<char> update_only_, aliases_;  ///< by truth value
  ValueTable<char> inlined_;               ///< by truth value
  ValueTable<Leaves> leaves_;
  ValueTable<int> terms_;              ///< 0 where they are not counted
  ValueTable<std::uint64_t> reached_;  ///< the last walk that reached the value
  std::uint64_t walk_ = 0;
};

}  // namespace

std::vector<FusionUnit> inline_maps(Graph& graph, const FuseOptions& options) { return Inliner(graph, options).run(); }

}  // namespace gcomp::passes
