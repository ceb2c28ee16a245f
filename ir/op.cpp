#include "ir/op.h"

#include <algorithm>
#include <limits>

#include "ir/matrices.h"
#include "ir/nest/loops.h"
#include "ir/ops/shown.h"

namespace gcomp::ir {
namespace {

Attribute default_of(const AttributeSpec& spec) {
  switch (spec.type) {
    case AttributeType::flag: return spec.number != 0;
    case AttributeType::integer: return static_cast<std::int64_t>(spec.number);
    case AttributeType::real: return spec.number;
    case AttributeType::text: return std::string(spec.text);
    case AttributeType::integers: return std::vector<std::int64_t>();
    case AttributeType::reals: return std::vector<double>();
    case AttributeType::dtype: return DType::f32;
    case AttributeType::tensor: return std::shared_ptr<const Tensor>();
    case AttributeType::views: return Views();
  }
  return false;
}

bool has_type(const Attribute& attribute, AttributeType type) {
  switch (type) {
    case AttributeType::flag: return std::holds_alternative<bool>(attribute);
    case AttributeType::integer: return std::holds_alternative<std::int64_t>(attribute);
    case AttributeType::real: return std::holds_alternative<double>(attribute);
    case AttributeType::text: return std::holds_alternative<std::string>(attribute);
    case AttributeType::integers: return std::holds_alternative<std::vector<std::int64_t>>(attribute);
    case AttributeType::reals: return std::holds_alternative<std::vector<double>>(attribute);
    case AttributeType::dtype: return std::holds_alternative<DType>(attribute);
    case AttributeType::tensor: return std::holds_alternative<std::shared_ptr<const Tensor>>(attribute);
    case AttributeType::views: return std::holds_alternative<Views>(attribute);
  }
  return false;
}

TensorType infer_pointwise(const InferContext& c, const OpDef& op) {
  const std::size_t first = op.typing == PointwiseTyping::select ? 1 : 0;
  for (std::size_t i = 1; i < c.operands.size(); ++i) {
    c.require(c.operand(i).shape == c.operand(0).shape, "shapes differ: ", ops::shown(c.operand(0)), " and ",
              ops::shown(c.operand(i)));
    c.require(i <= first || c.operand(i).dtype == c.operand(first).dtype, "dtypes differ: ", ops::shown(c.operand(first)), " and ",
              ops::shown(c.operand(i)));
  }
  TensorType type = c.operand(first);
  switch (op.typing) {
    case PointwiseTyping::same: break;
    case PointwiseTyping::floating:
      c.require(is_float(type.dtype), "operand is ", ops::shown(type), ", wanted floating point");
      break;
    case PointwiseTyping::predicate: type.dtype = DType::boolean; break;
    case PointwiseTyping::select:
      c.require(c.operand(0).dtype == DType::boolean, "condition is ", ops::shown(c.operand(0)), ", wanted bool");
      break;
    case PointwiseTyping::cast: type.dtype = c.attributes.get<DType>("to"); break;
    case PointwiseTyping::logical: c.require(type.dtype == DType::boolean, "operand is ", ops::shown(type), ", wanted bool"); break;
  }
  return type;
}

bool is_position(Reduction::Of of) { return of == Reduction::Of::first_maximum || of == Reduction::Of::first_minimum; }

TensorType infer_reduce(const InferContext& c, const OpDef& op) {
  const auto& axes = c.attributes.integers("axes");
  const TensorType& x = c.operand(0);
  TensorType type{is_position(op.reduction.of) ? DType::i64 : x.dtype, {}};
  std::size_t next = 0;
  for (std::int64_t d = 0; d < x.rank(); ++d) {
    if (next < axes.size() && axes[next] == d) ++next;
    else type.shape.push_back(x.shape[static_cast<std::size_t>(d)]);
  }
  c.require(next == axes.size(), "axes [", ops::shown(axes), "] must ascend within ", ops::shown(x));
  return type;
}

LoopNest pointwise_loops(const OpDef& op, std::span<const TensorType> operands, const TensorType& result) {
  return map_nest(result, [&](const std::vector<Index>& indices) {
    std::vector<TermPtr> arguments;
    for (std::size_t i = 0; i < operands.size(); ++i) arguments.push_back(read(operands[i].dtype, static_cast<int>(i), indices));
    return call(result.dtype, op, std::move(arguments));
  });
}

LoopNest reduce_loops(const OpDef& op, const TensorType& x, const TensorType& result, const std::vector<std::int64_t>& axes) {
  Shape over;
  for (std::int64_t a : axes) over.push_back(x.shape[static_cast<std::size_t>(a)]);
  return reduce_nest(result, over, op, [&](const std::vector<Index>& kept, const std::vector<Index>& reduced) {
    std::vector<Index> indices;
    std::size_t k = 0, r = 0;
    for (std::int64_t d = 0; d < x.rank(); ++d) {
      if (r < axes.size() && axes[r] == d) indices.push_back(reduced[r++]);
      else indices.push_back(kept[k++]);
    }
    return read(x.dtype, 0, indices);
  });
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::constant: return "constant";
    case Kind::pointwise: return "pointwise";
    case Kind::reduce: return "reduce";
    case Kind::contract: return "contract";
    case Kind::view: return "view";
    case Kind::index: return "index";
    case Kind::scan: return "scan";
    case Kind::random: return "random";
    case Kind::update: return "update";
    case Kind::collective: return "collective";
    case Kind::barrier: return "barrier";
    case Kind::composite: return "composite";
    case Kind::kernel: return "kernel";
  }
  return "?";
}

Attributes with_defaults(const OpDef& op, const Attributes& attributes) {
  Attributes all = attributes;
  for (const AttributeSpec& spec : op.attributes)
    if (!spec.required && !all.find(spec.name)) all.set(std::string(spec.name), default_of(spec));
  return all;
}

namespace {

/// Throws UserError where the attribute is none of the op's.
const AttributeSpec& spec_of(const OpDef& op, const std::string& name, const Attribute& value) {
  auto spec = std::find_if(op.attributes.begin(), op.attributes.end(), [&](const AttributeSpec& s) { return s.name == name; });
  check_user(spec != op.attributes.end(), op.name, ": unknown attribute '", name, "'");
  check_user(has_type(value, spec->type), op.name, ": attribute '", name, "' has another type than the op wants");
  return *spec;
}

bool says_default(const AttributeSpec& spec, const Attribute& value) { return !spec.required && equal(value, default_of(spec)); }

void require_all(const OpDef& op, const Attributes& attributes) {
  for (const AttributeSpec& spec : op.attributes)
    check_user(!spec.required || attributes.find(spec.name), op.name, ": attribute '", spec.name, "' is missing");
}

}  // namespace

Attributes normalized(const OpDef& op, const Attributes& attributes) {
  Attributes kept;
  for (const auto& [name, value] : attributes)
    if (!says_default(spec_of(op, name, value), value)) kept.set(name, value);
  require_all(op, kept);
  return kept;
}

bool is_normalized(const OpDef& op, const Attributes& attributes) {
  bool normal = true;
  for (const auto& [name, value] : attributes)
    if (says_default(spec_of(op, name, value), value)) normal = false;
  require_all(op, attributes);
  return normal;
}

std::vector<TensorType> infer_types(const OpDef& op, std::span<const TensorType> operands, const Attributes& attributes) {
  const auto count = static_cast<int>(operands.size());
  const bool fits = op.operands < 0 ? count >= 1 : count <= op.operands && count >= op.operands - op.optional_operands;
  check_user(fits, op.name, ": found ", count, " operands, wanted ", op.operands < 0 ? "one or more" : std::to_string(op.operands));
  for (int i = 0; i < count; ++i)
    check_user(
        operands[static_cast<std::size_t>(i)] != absent_type() || (op.operands >= 0 && i >= op.operands - op.optional_operands),
        op.name, ": operand ", i, " is absent, wanted a value");
  const bool complete = std::all_of(op.attributes.begin(), op.attributes.end(),
                                    [&](const AttributeSpec& spec) { return spec.required || attributes.find(spec.name); });
  const Attributes filled = complete ? Attributes() : with_defaults(op, attributes);
  const Attributes& all = complete ? attributes : filled;
  const InferContext context{op.name, operands, all};
  switch (op.kind) {
    case Kind::pointwise: return {infer_pointwise(context, op)};
    case Kind::reduce: return {infer_reduce(context, op)};
    case Kind::kernel: throw InternalError("kernel nodes carry their types");
    case Kind::constant:
    case Kind::view:
    case Kind::index:
    case Kind::scan:
    case Kind::random:
    case Kind::update:
    case Kind::collective:
    case Kind::barrier: return op.infer(context);
    case Kind::contract:
    case Kind::composite: break;
  }
  if (!has_views(attributes)) return op.infer(context);
  const std::vector<TensorType> seen = seen_types(op, operands, all);
  return stored_types(op, op.infer({op.name, seen, all}), all);
}

std::optional<BoxedNode> boxed_node(const OpDef& op, std::span<const TensorType> operands, const TensorType& result,
                                    const Attributes& attributes, const Box& box) {
  if (has_views(attributes)) return std::nullopt;
  if (op.kind == Kind::pointwise) return BoxedNode{std::vector<std::optional<Box>>(operands.size(), box), {}};
  if (op.kind == Kind::reduce) return BoxedNode{{box_before_reduction(operands[0].shape, attributes.integers("axes"), box)}, {}};
  if (!op.boxed) return std::nullopt;
  std::optional<BoxedNode> made = op.boxed({operands, result, with_defaults(op, attributes), box});
  if (made && made->attributes) made->attributes = normalized(op, *made->attributes);
  return made;
}

LoopNest loops_of(const OpDef& op, std::span<const TensorType> operands, std::span<const TensorType> results,
                  const Attributes& attributes) {
  const Attributes all = with_defaults(op, attributes);
  switch (op.kind) {
    case Kind::pointwise: return pointwise_loops(op, operands, results[0]);
    case Kind::reduce: return reduce_loops(op, operands[0], results[0], all.integers("axes"));
    case Kind::contract:
      if (has_views(attributes)) {
        const std::vector<TensorType> seen = seen_types(op, operands, all), made = op.infer({op.name, seen, all});
        return through_views(op.loops({seen, made, all}), operands, results, all);
      }
      return op.loops({operands, results, all});
    case Kind::constant:
    case Kind::view:
    case Kind::index:
    case Kind::scan:
    case Kind::random: check_internal(op.loops, "op ", op.name, " has no loop nest"); return op.loops({operands, results, all});
    case Kind::update:
    case Kind::collective:
    case Kind::barrier:
    case Kind::composite:
    case Kind::kernel: break;
  }
  throw InternalError(concat("op ", op.name, " of kind ", name_of(op.kind), " has no loop nest"));
}

double identity_of(Reduction::Of of, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  switch (of) {
    case Reduction::Of::none:
    case Reduction::Of::sum: return 0;
    case Reduction::Of::product: return 1;
    case Reduction::Of::maximum:
    case Reduction::Of::first_maximum: return round_to(dtype, dtype == DType::boolean ? 0 : -infinity);
    case Reduction::Of::minimum:
    case Reduction::Of::first_minimum: return round_to(dtype, infinity);
  }
  return 0;
}

double combine(Reduction::Of of, double a, double b) {
  switch (of) {
    case Reduction::Of::none:
    case Reduction::Of::sum: return a + b;
    case Reduction::Of::product: return a * b;
    case Reduction::Of::maximum:
    case Reduction::Of::first_maximum: return scalar::maximum(a, b);
    case Reduction::Of::minimum:
    case Reduction::Of::first_minimum: return scalar::minimum(a, b);
  }
  return 0;
}

}  // namespace gcomp::ir
