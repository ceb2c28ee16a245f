// Of each matmul, the first kernel among its readers that can follow it is taken into the product:
//
//        %x  %w                        %x  %w  %b
//          \ /                           \ | /
//         matmul                        product  -- relu(x w + b)
//        /      \            ->        /       \                         where other readers need the sum, it is one more result,
//   kernel %b   other               %y          %s, read by other       and where they need x w + b alone, that is
//       |
//      %y
#include "passes/products/fuse_epilogues.h"

#include <algorithm>
#include <optional>

#include "ir/matrices.h"
#include "ir/ops/table.h"
#include "passes/products/epilogue_nest.h"
#include "passes/replaceable_nodes.h"

namespace gcomp::passes {
namespace {

using namespace ir;

struct Context {
  Graph& graph;
  const TargetInfo& target;
  const EpilogueOptions& options;
  ReplaceableNodes nodes;
};

/// A matmul and the kernel that follows it, and what becomes of them.
struct Fusion {
  Node *matmul, *kernel;
  const Node* place;  ///< the one of them in whose place the product can stand
  ProductAndRest fused;
  /// Other readers of the matmul that from now on read the product's last result, an operand that is null here.
  std::vector<std::pair<Node*, Body>> readers;
};

// Whether two nodes can be one.

/// The matmul's place if all that the kernel reads is there; else the kernel's if nobody reads the matmul before and no state that
/// it reads changes in between. Else null.
const Node* place_of(const ReplaceableNodes& nodes, const Node& matmul, const Node& kernel, const std::vector<Node*>& readers) {
  const auto first = nodes.place(&matmul), last = nodes.place(&kernel);
  const bool ready = std::ranges::all_of(
      kernel.operands, [&](const Value* v) { return v == matmul.result() || !v->producer || nodes.place(v->producer) < first; });
  if (ready) return &matmul;
  for (const Node* reader : readers)
    if (reader != &kernel && nodes.place(reader) < last) return nullptr;
  return nodes.has_update_between(first, last) ? nullptr : &kernel;
}

bool is_affordable(const ProductAndRest& fused, DType dtype, const EpilogueOptions& options) {
  const std::vector<Statement>& statements = fused.product.nest.statements;  // the first is the matmul's own
  int cost = 0;
  for (std::size_t s = 1; s < statements.size(); ++s) cost += scalar_cost(statements[s].value);
  return cost <= options.max_cost && fused.product.operands.size() <= static_cast<std::size_t>(options.max_operands) + 2 &&
         std::ranges::any_of(fused.results, [&](const TensorType& type) { return type.dtype == dtype; });
}

bool is_known(const TargetInfo& target, const ProductAndRest& fused) {
  return target.computes_epilogue(fused.product.nest, types_of(fused.product.operands), fused.results);
}

// How.

std::optional<ProductAndRest> affordable_product(const Context& c, const Fusion& fusion, const Body& body, const SumReaders& sum) {
  std::optional<ProductAndRest> fused = fused_product(*fusion.matmul, *fusion.kernel, body, sum);
  return fused && is_affordable(*fused, fusion.matmul->result()->type.dtype, c.options) ? std::move(fused) : std::nullopt;
}

/// Gives the other readers the sum with `bias` in place of the sum; false where one of them reads the sum alone.
bool read_preactivation(Fusion& fusion, const std::vector<Node*>& readers, const Value* bias) {
  std::vector<std::pair<Node*, Body>> bodies;
  for (Node* reader : readers) {
    if (reader == fusion.kernel) continue;
    std::optional<Body> body =
        reader->op == &ops::kKernel ? with_preactivation(*reader, fusion.matmul->result(), bias) : std::nullopt;
    if (!body) return false;
    bodies.emplace_back(reader, *std::move(body));
  }
  fusion.readers = std::move(bodies);
  fusion.fused.keeps_sum = false;
  return true;
}

/// With x w + b as a second result, where the target computes that and all others read it: GELU and its operand.
bool fuse_with_preactivation(const Context& c, const std::vector<Node*>& readers, Fusion& fusion) {
  const Value* sum = fusion.matmul->result();
  for (const Value* bias : fusion.kernel->operands) {
    if (bias == sum || bias->type.elements() != sum->type.shape.back()) continue;
    const std::optional<Body> body = with_preactivation(*fusion.kernel, sum, bias);
    if (!body) continue;
    auto fused = affordable_product(c, fusion, *body, {.keeps_sum = true, .bias = bias});
    if (!fused || !is_known(c.target, *fused)) continue;
    fusion.fused = *std::move(fused);
    if (read_preactivation(fusion, readers, bias)) return true;
  }
  return false;
}

/// A kernel is parted only for what the target computes: parting costs a trip through memory.
bool fuse_with_sum(const Context& c, bool keeps_sum, Fusion& fusion) {
  auto fused = affordable_product(c, fusion, {*fusion.kernel->nest, fusion.kernel->operands}, {.keeps_sum = keeps_sum});
  if (!fused || (fused->rest && !is_known(c.target, *fused))) return false;
  fusion.fused = *std::move(fused);
  return true;
}

std::optional<Fusion> find_fusion(Context& c, Node& matmul) {
  constexpr std::size_t kMostOperands = 64;
  const Value* sum = matmul.result();
  if (!is_float(sum->type.dtype) || sum->type.elements() == 0 || matmul.operands[0]->type.elements() == 0) return std::nullopt;
  const std::vector<Node*> readers = c.nodes.readers(sum);
  const bool keeps_sum = readers.size() > 1 || c.nodes.is_output(sum);
  for (Node* kernel : readers) {
    if (kernel->op != &ops::kKernel || kernel->operands.size() > kMostOperands || looks_up(*kernel->nest)) continue;
    Fusion fusion{&matmul, kernel, place_of(c.nodes, matmul, *kernel, readers), {}, {}};
    if (!fusion.place) continue;
    if ((keeps_sum && fuse_with_preactivation(c, readers, fusion)) || fuse_with_sum(c, keeps_sum, fusion)) return fusion;
  }
  return std::nullopt;
}

// The graph afterwards.

using Replacements = std::unordered_map<Value*, Value*>;

/// Reshapes of a taken result to the product's own shape are the product's result. Whether nothing else reads it.
bool pass_reshapes(ReplaceableNodes& nodes, const Value* result, Value* made, Replacements& replaced) {
  bool all = !nodes.is_output(result);
  for (const Node* reader : nodes.readers(result)) {
    const bool passed = reader->op->alias && reader->result()->type == made->type && !nodes.is_output(reader->result());
    if (passed) replaced[reader->result()] = made;
    all = all && passed;
  }
  return all;
}

/// The product, and reshapes of its results where they are wanted in the kernel's shape.
std::vector<Node*> append_product(Context& c, Fusion& fusion, Replacements& replaced) {
  ProductAndRest& fused = fusion.fused;
  const Node &matmul = *fusion.matmul, &kernel = *fusion.kernel;
  std::vector<Node*> made{c.graph.append_kernel(ops::kProduct, fused.product.operands, std::move(fused.product.nest), fused.results,
                                                kernel.origin.empty() ? matmul.origin : kernel.origin, {}, matmul.attributes)};
  const std::vector<Value*> results = made[0]->results;
  for (std::size_t i = 0; i < fused.taken.size(); ++i) {
    Value *old = kernel.results[fused.taken[i]], *now = results[i];
    if (old->type.shape != now->type.shape && (!pass_reshapes(c.nodes, old, now, replaced) || fused.rest)) {
      made.push_back(c.graph.append(ops::kReshape, {now}, {{"shape", old->type.shape}}, kernel.origin));
      now = made.back()->result();
    }
    c.graph.take_name(old, now);
    replaced[old] = now;
  }
  if (fused.keeps_sum) {
    c.graph.take_name(matmul.result(), results.back());
    replaced[matmul.result()] = results.back();
  }
  return made;
}

void replace_bodies(ReplaceableNodes& nodes, std::vector<std::pair<Node*, Body>>& readers, Value* read) {
  for (auto& [reader, body] : readers) {
    std::ranges::replace(body.operands, static_cast<Value*>(nullptr), read);
    body.prune();
    reader->operands = std::move(body.operands);
    reader->nest = std::make_shared<const LoopNest>(std::move(body.nest));
    nodes.note_operands(reader);
  }
}

std::vector<Node*> append_rest(Context& c, Fusion& fusion, Replacements& replaced) {
  if (!fusion.fused.rest) return {};
  Body& rest = *fusion.fused.rest;
  std::vector<Value*> left = fusion.kernel->results;
  left.erase(left.begin() + static_cast<std::ptrdiff_t>(fusion.fused.taken[0]));
  Node* made = c.graph.append_kernel(ops::kKernel, rest.operands, std::move(rest.nest), types_of(left), fusion.kernel->origin);
  for (std::size_t i = 0; i < left.size(); ++i) {
    c.graph.take_name(left[i], made->results[i]);
    replaced[left[i]] = made->results[i];
  }
  return {made};
}

void apply(Context& c, Fusion fusion) {
  Replacements replaced;
  const std::vector<Node*> made = append_product(c, fusion, replaced);
  replace_bodies(c.nodes, fusion.readers, made[0]->results.back());
  const std::vector<Node*> rest = append_rest(c, fusion, replaced);
  c.nodes.insert_before(fusion.place, made);
  c.nodes.insert_before(fusion.kernel, rest);
  c.nodes.remove(fusion.matmul);
  c.nodes.remove(fusion.kernel);
  c.nodes.replace_uses(replaced);
}

}  // namespace

bool fuse_epilogues(Graph& graph, const TargetInfo& target, const EpilogueOptions& options) {
  if (!target.computes_epilogue) return false;
  std::vector<Node*> matmuls;
  for (Node& node : NodeWalk(graph))
    if (node.op == &ops::kMatmul && !node.attributes.find(kResultViews)) matmuls.push_back(&node);
  Context context{graph, target, options, ReplaceableNodes(graph)};
  bool changed = false;
  for (Node* matmul : matmuls)
    if (std::optional<Fusion> fusion = find_fusion(context, *matmul)) {
      apply(context, *std::move(fusion));
      changed = true;
    }
  if (!changed) return false;
  context.nodes.finish();
  graph.remove_dead();
  return true;
}

}  // namespace gcomp::passes
