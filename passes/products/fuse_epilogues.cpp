#include "passes/products/fuse_epilogues.h"

#include <algorithm>
#include <optional>

#include "ir/matrices.h"
#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "ir/product.h"
#include "passes/fusion/kernel_body.h"
#include "passes/fusion/nest_domains.h"
#include "passes/replaceable_nodes.h"

namespace gcomp::passes {
namespace {

using namespace ir;

int last_axis(const Shape& shape) { return static_cast<int>(shape.size()) - 1; }

Statement map_over(const std::vector<int>& axes, DType dtype, TermPtr value) {
  Statement statement;
  statement.dtype = dtype;
  statement.axes = axes;
  statement.value = std::move(value);
  return statement;
}

/// The position at which an output is stored, where each axis of the nest is a digit of it.
struct Digits {
  Index position;
  std::vector<std::int64_t> weights;  ///< of the axes; 0 for axes of one step

  static std::optional<Digits> of(const LoopNest& nest, const LoopOutput& output, const Shape& shape) {
    Digits digits{linear_index(output.index, shape), std::vector<std::int64_t>(nest.extents.size())};
    if (!mixed_radix(digits.position, element_count(shape))) return std::nullopt;
    for (const Index::Part& part : digits.position.parts())
      digits.weights[static_cast<std::size_t>(part.atom.axis)] = part.coefficient;
    for (std::size_t a = 0; a < nest.extents.size(); ++a)
      if (nest.extents[a] > 1 && digits.weights[a] == 0) return std::nullopt;
    return digits;
  }
};

/// What becomes of a matmul and a kernel.
struct Joined {
  Body product;                                 ///< operands a and b first
  std::vector<TensorType> results;              ///< of the kernel's joined results, then what other readers keep
  std::vector<std::size_t> joined;              ///< results of the kernel
  bool keeps_sum = false;                       ///< other readers read the last result as the matmul's
  std::vector<std::pair<Node*, Body>> readers;  ///< other readers that now read the last result, as their last operand's null
  std::optional<Body> rest;                     ///< what is left of the kernel; null stands for the one joined result
};

/// Of a row-major position in `shape` the digit of the given weight, from the one axis that it is part of where there is one.
Index digit_of(const Shape& shape, std::int64_t weight, std::int64_t extent) {
  const std::vector<Index> axes = axes_of_shape(shape);
  const Shape strides = row_major_strides(shape);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (weight % strides[d] == 0 && weight / strides[d] * extent <= shape[d])
      return axes[d].quotient(weight / strides[d]).remainder(extent);
  return linear_index(axes, shape).quotient(weight).remainder(extent);
}

class EpilogueFuser {
 public:
  EpilogueFuser(Graph& graph, const TargetInfo& target, const EpilogueOptions& options)
      : graph_(graph), target_(target), options_(options), nodes_(graph) {}

  bool run() {
    std::vector<Node*> products;
    for (const auto& node : graph_.nodes())
      if (node->op == &ops::kMatmul && !node->attributes.find(kResultViews)) products.push_back(node.get());
    bool changed = false;
    for (Node* product : products) changed = join_one(*product) || changed;
    if (!changed) return false;
    nodes_.finish();
    graph_.remove_dead();
    return true;
  }

 private:
  bool join_one(Node& product) {
    const Value* sum = product.result();
    if (!is_float(sum->type.dtype) || sum->type.elements() == 0 || product.operands[0]->type.elements() == 0) return false;
    const std::vector<Node*> readers = nodes_.readers(sum);
    for (Node* kernel : readers) {
      if (kernel->op != &ops::kKernel || kernel->operands.size() > 64) continue;
      const Node* place = place_of(product, *kernel, readers);
      if (!place) continue;
      if (std::optional<Joined> joined = join(product, *kernel, readers)) {
        apply(product, *kernel, *std::move(joined), place);
        return true;
      }
    }
    return false;
  }

  /// Before which of the two the joined product can stand: the matmul if all that the kernel reads is there, else the kernel if
  /// nobody reads the matmul before and no state that it reads changes in between. Else null.
  const Node* place_of(const Node& product, const Node& kernel, const std::vector<Node*>& readers) const {
    const auto first = nodes_.place(&product), last = nodes_.place(&kernel);
    const bool ready = std::all_of(kernel.operands.begin(), kernel.operands.end(), [&](const Value* v) {
      return v == product.result() || !v->producer || nodes_.place(v->producer) < first;
    });
    if (ready) return &product;
    for (const Node* reader : readers)
      if (reader != &kernel && nodes_.place(reader) < last) return nullptr;
    return nodes_.has_update_between(first, last) ? nullptr : &kernel;
  }

  std::optional<Joined> join(const Node& product, const Node& kernel, const std::vector<Node*>& readers) const {
    if (looks_up(*kernel.nest)) return std::nullopt;
    const bool kept = readers.size() > 1 || nodes_.is_output(product.result());
    if (kept)
      for (const Value* bias : kernel.operands) {
        if (bias == product.result() || bias->type.elements() != product.result()->type.shape.back()) continue;
        const std::optional<Body> body = with_preactivation(kernel, product.result(), bias);
        std::optional<Joined> joined = body ? joined_with(product, kernel, *body, bias, kept) : std::nullopt;
        if (joined && is_known(*joined) && rewrite_readers(product.result(), bias, kernel, readers, *joined)) return joined;
      }
    std::optional<Joined> joined = joined_with(product, kernel, {*kernel.nest, kernel.operands}, nullptr, kept);
    return joined && joined->rest && !is_known(*joined) ? std::nullopt : joined;
  }

  bool is_known(const Joined& joined) const {
    return target_.computes_epilogue(joined.product.nest, types_of(joined.product.operands), joined.results);
  }

  bool rewrite_readers(const Value* sum, const Value* bias, const Node& kernel, const std::vector<Node*>& readers,
                       Joined& joined) const {
    for (Node* reader : readers) {
      if (reader == &kernel) continue;
      std::optional<Body> body = reader->op == &ops::kKernel ? with_preactivation(*reader, sum, bias) : std::nullopt;
      if (!body) return false;
      joined.readers.emplace_back(reader, *std::move(body));
    }
    joined.keeps_sum = false;
    return true;
  }

  /// The product with all element-wise results of `body`, which reads the matmul, or, where `bias` is given, in its last operand
  /// the matmul with the bias added. `kept`: what it reads becomes a result too.
  std::optional<Joined> joined_with(const Node& product, const Node& kernel, const Body& body, const Value* bias, bool kept) const {
    const TensorType& type = product.result()->type;
    const Index own = linear_index(axes_of_shape(type.shape), type.shape);
    Joined joined;
    std::vector<std::size_t> left;
    std::optional<Digits> digits;
    const std::vector<bool> on_maps = stand_on_maps(body.nest);
    for (std::size_t o = 0; o < body.nest.outputs.size(); ++o) {
      const auto found =
          kernel.results[o]->type.elements() == type.elements() && on_maps[static_cast<std::size_t>(body.nest.outputs[o].statement)]
              ? Digits::of(body.nest, body.nest.outputs[o], kernel.results[o]->type.shape)
              : std::nullopt;
      if (!found || (digits && !(digits->position == found->position))) {
        left.push_back(o);
        continue;
      }
      digits = found;
      joined.joined.push_back(o);
    }
    if (!digits || (!left.empty() && joined.joined.size() > 1)) return std::nullopt;

    // The body over the product's axes.
    const DType sum_type = compute_type(type.dtype);
    joined.product.nest = product_nest(product.operands[0]->type, product.operands[1]->type, product.attributes);
    const std::vector<int> axes = joined.product.nest.statements[0].axes;
    const int offset = bias ? 2 : 1;
    joined.product.operands = {product.operands[0], product.operands[1]};
    if (bias) {
      joined.product.operands.push_back(const_cast<Value*>(bias));
      const Index n = Index::axis(last_axis(type.shape), type.shape.back());
      const TermPtr added = read(bias->type.dtype, 2, split_index(n, bias->type.shape));
      joined.product.nest.statements.push_back(map_over(axes, type.dtype, call(sum_type, ops::kAdd, {local(sum_type, 0), added})));
    }
    bool aligned = true;
    std::vector<int> slots(body.operands.size(), -1);
    TermRewriter rewriter;
    rewriter.axis = [&](int a, std::int64_t extent) {
      const std::int64_t weight = digits->weights[static_cast<std::size_t>(a)];
      return weight == 0 ? Index(0) : digit_of(type.shape, weight, extent);
    };
    rewriter.leaf = [&](const TermPtr& t) -> TermPtr {
      if (t->kind == Term::Kind::local) return local(t->dtype, t->slot + offset);
      const auto at = static_cast<std::size_t>(t->slot);
      const Value* operand = body.operands[at];
      if (!operand || operand == product.result()) {
        aligned = aligned && linear_index(t->indices, type.shape) == own;
        return operand ? local(sum_type, 0) : local(type.dtype, 1);
      }
      if (slots[at] < 0) {
        const auto known = std::find(joined.product.operands.begin() + 2, joined.product.operands.end(), operand);
        slots[at] = static_cast<int>(known - joined.product.operands.begin());
        if (known == joined.product.operands.end()) joined.product.operands.push_back(const_cast<Value*>(operand));
      }
      return read(t->dtype, slots[at], t->indices);
    };
    for (const Statement& s : body.nest.statements) {
      const bool map = s.kind == Statement::Kind::map;  // what reduces is left
      joined.product.nest.statements.push_back(map_over(axes, s.dtype, map ? rewriter(s.value) : literal(s.dtype, 0)));
    }
    for (std::size_t o : joined.joined) {
      joined.product.nest.outputs.push_back({body.nest.outputs[o].statement + offset, axes_of_shape(type.shape)});
      joined.results.push_back({kernel.results[o]->type.dtype, type.shape});
    }
    if (kept) keep_sum(joined, type, bias != nullptr);
    prune(joined.product);
    if (!aligned || !is_affordable(joined, type.dtype)) return std::nullopt;
    if (!left.empty() && !part(product, kernel, body, left, joined)) return std::nullopt;
    return joined;
  }

  /// For each statement, whether it is a map and stands on maps alone.
  static std::vector<bool> stand_on_maps(const LoopNest& nest) {
    std::vector<bool> maps;
    for (const Statement& s : nest.statements) {
      bool all = s.kind == Statement::Kind::map;
      for_each_term(s.value, [&](const TermPtr& t) {
        if (t->kind == Term::Kind::local) all = all && maps[static_cast<std::size_t>(t->slot)];
      });
      maps.push_back(all);
    }
    return maps;
  }

  static void keep_sum(Joined& joined, const TensorType& type, bool with_bias) {
    LoopNest& nest = joined.product.nest;
    int statement = with_bias ? 1 : 0;
    if (nest.statements[static_cast<std::size_t>(statement)].dtype != type.dtype) {
      const Statement& sum = nest.statements[0];
      nest.statements.push_back(map_over(std::vector<int>(sum.axes), type.dtype, local(sum.dtype, 0)));
      statement = static_cast<int>(nest.statements.size()) - 1;
    }
    nest.outputs.push_back({statement, axes_of_shape(type.shape)});
    joined.results.push_back(type);
    joined.keeps_sum = true;
  }

  /// Statement 0 and the first two operands stay, whether anything reads them or not.
  static void prune(Body& product) {
    const Statement sum = product.nest.statements[0];
    const std::vector<Value*> operands(product.operands.begin(), product.operands.begin() + 2);
    product.nest.outputs.insert(product.nest.outputs.begin(), {0, {}});
    product.prune();
    product.nest.outputs.erase(product.nest.outputs.begin());
    // One value may be both operands of a product.
    if (product.operands.size() < 2 || product.operands[0] != operands[0] || product.operands[1] != operands[1])
      throw InternalError("a product lost its operands");
  }

  bool is_affordable(const Joined& joined, DType dtype) const {
    const std::vector<Statement>& statements = joined.product.nest.statements;  // the first is the product's own
    int cost = 0;
    for (std::size_t s = 1; s < statements.size(); ++s) cost += scalar_cost(statements[s].value);
    return cost <= options_.max_cost && joined.product.operands.size() <= static_cast<std::size_t>(options_.max_operands) + 2 &&
           std::any_of(joined.results.begin(), joined.results.end(), [&](const TensorType& t) { return t.dtype == dtype; });
  }

  /// Leaves the other outputs to a kernel that reads the joined one.
  static bool part(const Node& product, const Node& kernel, const Body& body, const std::vector<std::size_t>& left,
                   Joined& joined) {
    const std::size_t taken = joined.joined[0];
    Body rest = body;
    const LoopOutput& output = body.nest.outputs[taken];
    const int slot = static_cast<int>(rest.operands.size());
    rest.operands.push_back(kernel.results[taken]);
    TermRewriter stored;
    stored.leaf = [&](const TermPtr& t) {
      const bool is_it = t->kind == Term::Kind::local && t->slot == output.statement;
      return is_it ? read(t->dtype, slot, output.index) : TermPtr();
    };
    for (Statement& statement : rest.nest.statements) statement.value = stored(statement.value);
    rest.nest.outputs.clear();
    for (std::size_t o : left) rest.nest.outputs.push_back(body.nest.outputs[o]);
    rest.prune();
    for (const Value* operand : rest.operands)
      if (!operand || operand == product.result()) return false;
    joined.rest = std::move(rest);
    return true;
  }

  void apply(Node& product, Node& kernel, Joined joined, const Node* place) {
    const Shape& shape = product.result()->type.shape;
    std::vector<Node*> made;
    made.push_back(graph_.append_kernel(ops::kProduct, joined.product.operands, std::move(joined.product.nest), joined.results,
                                        kernel.origin.empty() ? product.origin : kernel.origin, {}, product.attributes));
    const std::vector<Value*> results = made[0]->results;
    std::unordered_map<Value*, Value*> replaced;
    for (std::size_t i = 0; i < joined.joined.size(); ++i) {
      Value *old = kernel.results[joined.joined[i]], *now = results[i];
      if (old->type.shape != shape && (!pass_reshapes(old, now, replaced) || joined.rest)) {
        made.push_back(graph_.append(ops::kReshape, {now}, {{"shape", old->type.shape}}, kernel.origin));
        now = made.back()->result();
      }
      graph_.take_name(old, now);
      replaced[old] = now;
    }
    if (joined.keeps_sum) {
      graph_.take_name(product.result(), results.back());
      replaced[product.result()] = results.back();
    }
    for (auto& [reader, body] : joined.readers) {
      std::replace(body.operands.begin(), body.operands.end(), static_cast<Value*>(nullptr), results.back());
      body.prune();
      reader->operands = std::move(body.operands);
      reader->nest = std::make_shared<const LoopNest>(std::move(body.nest));
      nodes_.note_operands(reader);
    }
    std::vector<Node*> rest;
    if (joined.rest) {
      std::vector<TensorType> types;
      std::vector<std::size_t> left;
      for (std::size_t o = 0; o < kernel.results.size(); ++o)
        if (o != joined.joined[0]) left.push_back(o), types.push_back(kernel.results[o]->type);
      rest.push_back(graph_.append_kernel(ops::kKernel, joined.rest->operands, std::move(joined.rest->nest), types, kernel.origin));
      for (std::size_t i = 0; i < left.size(); ++i) {
        graph_.take_name(kernel.results[left[i]], rest[0]->results[i]);
        replaced[kernel.results[left[i]]] = rest[0]->results[i];
      }
    }
    nodes_.insert_before(place, made);
    nodes_.insert_before(&kernel, rest);
    nodes_.remove(&product);
    nodes_.remove(&kernel);
    nodes_.replace_uses(replaced);
  }

  /// Reshapes of a joined result to the product's own shape are the product's result. Whether nothing else reads it.
  bool pass_reshapes(const Value* result, Value* product, std::unordered_map<Value*, Value*>& replaced) {
    bool all = !nodes_.is_output(result);
    for (const Node* reader : nodes_.readers(result)) {
      const bool passed =
          reader->op == &ops::kReshape && reader->result()->type == product->type && !nodes_.is_output(reader->result());
      if (passed) replaced[reader->result()] = product;
      all = all && passed;
    }
    return all;
  }

  Graph& graph_;
  const TargetInfo& target_;
  const EpilogueOptions& options_;
  ReplaceableNodes nodes_;
};

}  // namespace

bool fuse_epilogues(Graph& graph, const TargetInfo& target, const EpilogueOptions& options) {
  return target.computes_epilogue && EpilogueFuser(graph, target, options).run();
}

}  // namespace gcomp::passes
