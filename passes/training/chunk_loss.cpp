#include "passes/training/chunk_loss.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/training/losses/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kUsualChunks = 8;

/// One of equal parts of a tensor in the order of its elements, each of one shape.
struct RowPart {
  Shape shape;
  std::size_t cut = 0;  ///< the dimensions that are cut are among the first so many
};

std::optional<RowPart> part_of(const Shape& shape, std::int64_t parts) {
  RowPart made{shape, 0};
  for (std::size_t d = 0; d < shape.size() && parts > 1; ++d) {
    std::int64_t& size = made.shape[d];
    if (size == 0) return std::nullopt;
    const std::int64_t by = size % parts == 0 ? parts : size;
    if (parts % by != 0) return std::nullopt;
    size /= by;
    parts /= by;
    if (by > 1) made.cut = d + 1;
  }
  return parts == 1 ? std::optional(std::move(made)) : std::nullopt;
}

bool are_behind(const Integers& axes, std::size_t cut) {
  return std::ranges::all_of(axes, [&](std::int64_t axis) { return at(axis) >= cut; });
}

/// The product's rows are its first dimension, which alone is cut.
bool has_parts(const Node& product, std::int64_t chunks) { return product.result()->type.shape[0] % chunks == 0; }

bool is_in(const std::vector<Value*>& values, const ValueSet& set) {
  return std::ranges::any_of(values, [&](const Value* value) { return set.contains(value); });
}

ValueSet needed_for(const Graph& graph, const std::vector<Value*>& wanted) {
  ValueSet needed(graph, wanted);
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
    if (is_in((*node)->results, needed)) needed.insert_all((*node)->operands);
  return needed;
}

/// Whether a broadcast's operand is cut with the result, which is in the first `cut` dimensions: it has all of these, or none;
/// nothing where it has some.
std::optional<bool> is_operand_cut(const Node& broadcast, std::size_t cut) {
  const Integers& axes = broadcast.attributes.integers("axes");
  const Shape &from = broadcast.operands[0]->type.shape, &shape = broadcast.result()->type.shape;
  std::size_t same = 0;
  bool varies = false;
  for (std::size_t d = 0; d < axes.size(); ++d) {
    if (at(axes[d]) >= cut) continue;
    same += at(axes[d]) == d && from[d] == shape[d];
    varies = varies || from[d] != 1;
  }
  if (!varies) return false;
  return same == cut ? std::optional(true) : std::nullopt;
}

/// Whether a part of the result is what the node makes of parts of its operands.
bool goes_by_parts(const Node& node, std::int64_t chunks) {
  if (node.results.size() != 1) return false;
  const Shape& shape = node.result()->type.shape;
  const std::optional<RowPart> part = part_of(shape, chunks);
  if (!part) return false;
  const OpDef& op = *node.op;
  if (op.kind == Kind::pointwise || &op == &ops::kFull || &op == &ops::kBinaryCrossEntropy) return true;
  if (op.alias) return part_of(node.operands[0]->type.shape, chunks).has_value();
  if (&op == &ops::kBroadcast) return is_operand_cut(node, part->cut).has_value();
  if (op.kind == Kind::reduce && node.attributes.find("axes")) return are_behind(node.attributes.integers("axes"), part->cut);
  if (&op == &ops::kSoftmax || &op == &ops::kLogSoftmax || &op == &ops::kIota || &op == &ops::kConcat)
    return are_behind({node.attributes.integer("axis")}, part->cut);
  if (&op == &ops::kTranspose) {
    const Integers& from = node.attributes.integers("permutation");
    for (std::size_t d = 0; d < part->cut; ++d)
      if (at(from[d]) != d) return false;
    return true;
  }
  if (&op == &ops::kSlice) {
    const Integers &starts = node.attributes.integers("starts"), &steps = node.attributes.integers("steps");
    for (std::size_t d = 0; d < part->cut; ++d)
      if (starts[d] != 0 || steps[d] != 1 || shape[d] != node.operands[0]->type.shape[d]) return false;
    return true;
  }
  return false;
}

/// Whether its result is the sum of what it makes of parts.
bool sums_rows(const Node& node, std::int64_t chunks) {
  if (node.op != &ops::kCrossEntropy && node.op != &ops::kReduceSum) return false;
  const Shape& shape = node.operands[0]->type.shape;
  const std::optional<RowPart> part = part_of(shape, chunks);
  if (!part) return false;
  if (node.op == &ops::kCrossEntropy) return are_behind({node.attributes.integer("axis")}, part->cut);
  const Integers& axes = node.attributes.integers("axes");
  for (std::size_t d = 0; d < part->cut; ++d)
    if (shape[d] > 1 && std::ranges::count(axes, static_cast<std::int64_t>(d)) == 0) return false;
  return true;
}

/// What lies between a product and what is wanted of it, the loss.
struct LossRegion {
  Node* product = nullptr;
  std::int64_t chunks = 1;
  std::vector<const Node*> between = {};  ///< from the product to the sums, a row of each made of the same row
  std::vector<const Node*> sums = {};     ///< over all rows
  std::vector<const Node*> after = {};    ///< from there to what is wanted
  std::string refused = {};               ///< why it is not cut; "" where it can be
};

std::string described(const Node& node) {
  return concat(node.op->name, " %", node.results[0]->name,
                node.origin.empty() ? std::string() : concat(" (node '", node.origin, "')"));
}

LossRegion region_of(const Graph& graph, const std::vector<Value*>& wanted, const ValueSet& needed, Node& product,
                     std::int64_t chunks) {
  LossRegion region{.product = &product, .chunks = chunks};
  if (!has_parts(product, chunks)) {
    region.refused = concat("the ", product.result()->type.shape[0], " rows of ", described(product), " are not cut into ", chunks,
                            " equal parts");
    return region;
  }
  ValueSet of_rows(graph), of_sums(graph);
  of_rows.insert(product.result());
  for (const auto& node : graph.nodes()) {
    if (!is_in(node->results, needed)) continue;
    const bool reads_rows = is_in(node->operands, of_rows), reads_sums = is_in(node->operands, of_sums);
    if (reads_rows && !reads_sums && sums_rows(*node, chunks) &&
        !is_in({node->operands.begin() + 1, node->operands.end()}, of_rows)) {
      region.sums.push_back(node.get());
      of_sums.insert_all(node->results);
    } else if (reads_rows && !reads_sums && goes_by_parts(*node, chunks)) {
      region.between.push_back(node.get());
      of_rows.insert_all(node->results);
    } else if (reads_rows) {
      region.refused =
          concat(described(*node), " reads the rows of ", described(product), " together, or not in ", chunks, " equal parts");
      return region;
    } else if (reads_sums) {
      region.after.push_back(node.get());
      of_sums.insert_all(node->results);
    }
  }
  if (region.sums.empty() || is_in(wanted, of_rows))
    region.refused = concat("the rows of ", described(product), " are not only summed");
  return region;
}

class LossDivider {
 public:
  LossDivider(Graph& graph, const LossRegion& region)
      : builder_(graph), region_(region), product_(*region.product), chunks_(region.chunks) {}

  /// What takes the place of the sums and of what is made of them.
  std::unordered_map<Value*, Value*> run() {
    make_weights();
    std::vector<std::vector<Var>> sums(region_.sums.size());
    for (std::int64_t i = 0; i < chunks_; ++i) {
      parts_.clear();
      parts_[product_.result()] = product_of(i);
      for (const Node* node : region_.between) parts_[node->result()] = copy_of(*node, i);
      for (std::size_t s = 0; s < sums.size(); ++s) sums[s].push_back(sum_of(*region_.sums[s], i));
    }
    std::unordered_map<Value*, Value*> made;
    for (std::size_t s = 0; s < sums.size(); ++s) made[region_.sums[s]->result()] = total_of(*region_.sums[s], sums[s]).value;
    for (const Node* node : region_.after) {
      std::vector<Value*> operands = node->operands;
      for (Value*& operand : operands)
        if (const auto found = made.find(operand); found != made.end()) operand = found->second;
      const Node* copy = builder_.graph().append(*node->op, std::move(operands), node->attributes, node->origin);
      for (std::size_t r = 0; r < node->results.size(); ++r) made[node->results[r]] = copy->results[r];
    }
    return made;
  }

 private:
  /// The weight for each part. Its gradients are added up from the first part to the last, each sum as it is before the next; they
  /// are as wide as the weight is where it is stored.
  void make_weights() {
    Value* weight = product_.operands[1];
    for (; weight->producer && (is_cast(*weight->producer->op) || is_plain_view(*weight->producer->op));
         weight = weight->producer->operands[0])
      weight_path_.push_back(weight->producer);
    weights_ = {builder_.wrap(weight)};
    while (std::ssize(weights_) < chunks_) weights_.push_back(builder_.apply(ops::kGradientBarrier, {weights_.back()}));
    std::ranges::reverse(weights_);
  }

  Var product_of(std::int64_t i) {
    Var weight = weights_[at(i)];
    for (auto node = weight_path_.rbegin(); node != weight_path_.rend(); ++node)
      weight = applied(**node, {weight}, (*node)->attributes);
    return applied(product_, {slice_of(product_.operands[0], i), weight}, product_.attributes);
  }

  Var applied(const Node& like, std::vector<Var> operands, Attributes attributes) {
    builder_.set_origin(like.origin);
    return builder_.apply(*like.op, std::move(operands), std::move(attributes));
  }

  RowPart part_shape(const Value* value) const {
    std::optional<RowPart> part = part_of(value->type.shape, chunks_);
    check_internal(part.has_value(), "%", value->name, " is not cut into ", chunks_, " parts");
    return *std::move(part);
  }

  Var slice_of(Value* value, std::int64_t i) {
    const Shape& shape = value->type.shape;
    Integers starts(shape.size(), 0);
    std::int64_t elements = i * (value->type.elements() / chunks_);
    for (std::size_t d = shape.size(); d-- > 0;) {
      starts[d] = elements % shape[d];
      elements /= shape[d];
    }
    builder_.set_origin(product_.origin);
    return builder_.slice(builder_.wrap(value), starts, part_shape(value).shape, Integers(shape.size(), 1));
  }

  /// Of what is not made of the rows, what is as large as the product is made by parts as well, and so is what repeats or counts.
  bool is_made_by_parts(const Value* value) const {
    if (!value->producer || !goes_by_parts(*value->producer, chunks_)) return false;
    const OpDef& op = *value->producer->op;
    if (&op == &ops::kFull || &op == &ops::kIota || &op == &ops::kBroadcast) return true;
    return op.kind == Kind::pointwise && value->type.elements() >= product_.result()->type.elements();
  }

  Var part(Value* value, std::int64_t i) {
    if (const auto found = parts_.find(value); found != parts_.end()) return found->second;
    const Var made = is_made_by_parts(value) ? copy_of(*value->producer, i) : slice_of(value, i);
    return parts_[value] = made;
  }

  Var copy_of(const Node& node, std::int64_t i) {
    const RowPart result = part_shape(node.result());
    Attributes attributes = node.attributes;
    for (const char* name : {"shape", "sizes"})
      if (attributes.find(name)) attributes.set(name, result.shape);
    const bool is_whole = node.op == &ops::kBroadcast && !*is_operand_cut(node, result.cut);
    std::vector<Var> operands;
    for (Value* operand : node.operands) operands.push_back(is_whole ? builder_.wrap(operand) : part(operand, i));
    return applied(node, std::move(operands), std::move(attributes));
  }

  Var sum_of(const Node& node, std::int64_t i) {
    Attributes attributes = node.attributes;
    if (node.op == &ops::kCrossEntropy) attributes.set("sum", true);
    std::vector<Var> operands;
    for (Value* operand : node.operands) operands.push_back(part(operand, i));
    return applied(node, std::move(operands), std::move(attributes));
  }

  Var total_of(const Node& node, const std::vector<Var>& parts) {
    builder_.set_origin(node.origin);
    Var total = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) total = total + parts[i];
    const Attributes attributes = with_defaults(*node.op, node.attributes);
    if (node.op == &ops::kReduceSum || attributes.flag("sum")) return total;
    return total /
           sum_of_all(ops::kept_rows(builder_, builder_.wrap(node.operands[1]), attributes.integer("ignore_index"), total.dtype()));
  }

  Builder builder_;
  const LossRegion& region_;
  Node& product_;
  std::int64_t chunks_;
  std::vector<const Node*> weight_path_;  ///< from the product's operand back to the weight
  std::vector<Var> weights_;              ///< for each part
  std::unordered_map<const Value*, Var> parts_;
};

/// Products of a matrix of rows that the loss needs, the one with the most results first.
std::vector<Node*> products_of_rows(const Graph& graph, const ValueSet& needed) {
  std::vector<Node*> found;
  for (const auto& node : graph.nodes())
    if (node->op == &ops::kMatmul && needed.contains(node->result()) && node->result()->type.rank() == 2 &&
        node->result()->type.elements() > 0 && node->operands[0]->type.elements() > 0 &&
        !with_defaults(*node->op, node->attributes).flag("transpose_a"))
      found.push_back(node.get());
  std::ranges::stable_sort(
      found, [](const Node* a, const Node* b) { return a->result()->type.elements() > b->result()->type.elements(); });
  return found;
}

/// Numbers of parts that are tried, the best first.
std::vector<std::int64_t> numbers_for(const Node& product, std::int64_t chunks) {
  if (chunks != kChosenChunks) return {chunks};
  const Shape& rows = product.operands[0]->type.shape;
  const std::int64_t most = std::min(rows[0] / rows[1], kMostLossChunks);
  std::vector<std::int64_t> numbers;
  for (std::int64_t n = kUsualChunks; n <= most; ++n) numbers.push_back(n);
  for (std::int64_t n = std::min(kUsualChunks - 1, most); n > 1; --n) numbers.push_back(n);
  std::erase_if(numbers, [&](std::int64_t n) { return !has_parts(product, n); });
  return numbers;
}

/// The product that is cut, or one whose refusal tells most.
LossRegion find_region(const Graph& graph, const std::vector<Value*>& wanted, std::int64_t chunks) {
  const ValueSet needed = needed_for(graph, wanted);
  LossRegion nearest{.product = nullptr, .refused = "the loss looks at no matrix product"};
  for (Node* product : products_of_rows(graph, needed)) {
    LossRegion refused{.product = product,
                       .refused = concat("parts of ", described(*product), " would have fewer rows than it sums elements, ",
                                         product->operands[0]->type.shape[1], ", which costs more than it saves")};
    for (const std::int64_t n : numbers_for(*product, chunks)) {
      LossRegion region = region_of(graph, wanted, needed, *product, n);
      if (region.refused.empty()) return region;
      refused = std::move(region);
    }
    if (!nearest.product || nearest.product->number < product->number) nearest = std::move(refused);
  }
  return nearest;
}

}  // namespace

Value* chunk_loss(Graph& graph, Value* loss, std::int64_t chunks) {
  if (chunks == 1) return loss;
  const LossRegion region = find_region(graph, {loss}, chunks);
  if (!region.refused.empty())
    throw UserError(concat("--loss-chunks ", chunks == kChosenChunks ? "auto" : std::to_string(chunks), ": ", region.refused),
                    ExitCode::usage);
  Value* divided = LossDivider(graph, region).run().at(loss);
  graph.replace_uses({{loss, divided}});
  graph.take_name(loss, divided);
  return divided;
}

bool chunk_outputs(Graph& graph, std::int64_t chunks) {
  if (chunks == 1) return false;
  const LossRegion region = find_region(graph, graph.outputs(), chunks);
  if (!region.refused.empty()) return false;
  const std::unordered_map<Value*, Value*> made = LossDivider(graph, region).run();
  for (Value*& output : graph.outputs())
    if (const auto found = made.find(output); found != made.end()) output = found->second;
  graph.remove_dead();
  return true;
}

}  // namespace gcomp::passes
