// What an op is: one constexpr value that holds everything the rest of the system asks about it. Passes and code
// generation switch over kinds; only the op table, ONNX rows and library matching name ops.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gcomp/var.h"
#include "ir/attributes.h"
#include "ir/base/tensor.h"
#include "ir/box.h"
#include "ir/nest/scalar_body.h"
#include "ir/nest/term.h"

namespace gcomp::ir {

enum class Kind : std::uint8_t {
  constant,    ///< data in an attribute, or one number for every element
  pointwise,   ///< element i of the result from elements i of the operands, by `scalar`
  reduce,      ///< combines over axes; they leave the shape
  contract,    ///< multiply and sum over shared axes: matmul, convolution. Library calls match these
  view,        ///< each element of the result is one element of an operand, or a fill value
  index,       ///< positions computed or looked up: iota, gather, scatter
  scan,        ///< running combination along one axis
  random,      ///< counter-based random numbers
  update,      ///< writes a state
  collective,  ///< between ranks
  barrier,     ///< the operand itself, across which nothing is fused
  composite,   ///< defined by `expand`
  kernel,      ///< a fused region: its LoopNest is the meaning
};

std::string_view name_of(Kind kind);

enum class AttributeType : std::uint8_t { flag, integer, real, text, dtype, integers, reals, tensor, views };

/// One attribute an op accepts. Without a default it is required. Defaults are never stored nor printed.
struct AttributeSpec {
  std::string_view name;
  AttributeType type = AttributeType::integer;
  bool required = true;
  double number = 0;           ///< default of flag, integer and real
  std::string_view text = {};  ///< default of text; `integers` and `views` default to the empty list

  static constexpr AttributeSpec of(std::string_view name, AttributeType type) { return {name, type, true, 0, {}}; }
  static constexpr AttributeSpec optional(std::string_view name, AttributeType type, double number = 0,
                                          std::string_view text = {}) {
    return {name, type, false, number, text};
  }
};

/// Stands for an optional operand that a node has not.
inline TensorType absent_type() { return {DType::boolean, {-1}}; }

/// Types and attributes of a node under inference. Attributes hold defaults here.
struct InferContext {
  std::string_view op;
  std::span<const TensorType> operands;
  const Attributes& attributes;

  const TensorType& operand(std::size_t i) const { return operands[i]; }
  bool has(std::size_t i) const { return i < operands.size() && operands[i] != absent_type(); }
  /// Throws UserError "OP: message".
  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    throw_user({op, ": ", MessagePart(args)...});
  }
  template <class... Args>
  void require(bool condition, const Args&... args) const {
    if (!condition) fail(args...);
  }
};
using InferRule = std::vector<TensorType> (*)(const InferContext&);

/// How a pointwise op relates dtypes; shapes are always equal.
enum class PointwiseTyping : std::uint8_t {
  same,       ///< all operands and the result share one dtype
  floating,   ///< same, and it must be a float
  predicate,  ///< operands share one dtype, the result is bool
  select,     ///< bool, then two of one dtype, which is the result's
  cast,       ///< the result's dtype is the attribute `to`
  logical,    ///< all bool
};

/// In what a node computes where precision is mixed (`autocast`). Sums of products accumulate in f32 in any case.
enum class Precision : std::uint8_t {
  undecided,
  low,       ///< float operands are cast to 16 bits, but optional ones
  wide,      ///< float operands are cast to f32: long sums, and functions whose results need range or digits
  promoted,  ///< in 16 bits where all float operands are, else in f32: what moves values or does little to them
  rounded,   ///< as wide, and the first result is cast back where the first operand had 16 bits
};

/// Which elements of an operand a kernel computes that computes the operand on the way.
enum class Reads : std::uint8_t {
  by_result,  ///< one for each element of the result; of reductions and index ops, every one at least once
  once,       ///< every one, once
  inside,     ///< one for each element of the result that is no margin
};

/// What is laid out as the attribute `channels_last` says.
enum class Layout : std::uint8_t {
  fixed,    ///< not by that attribute
  image,    ///< [n, c, ...] or [n, ..., c]
  windows,  ///< an image's, with the offsets within the window behind
};
struct Layouts {
  Layout operands[2] = {Layout::fixed, Layout::fixed};
  Layout result = Layout::fixed;

  constexpr bool any() const { return operands[0] != Layout::fixed || result != Layout::fixed; }
};

/// For a node of kind view, index, scan, random or contract: the loop nest that defines it.
struct LoopContext {
  std::span<const TensorType> operands;
  std::span<const TensorType> results;
  const Attributes& attributes;
};
using LoopRule = LoopNest (*)(const LoopContext&);

/// A box of the first result of a node. Attributes hold defaults here; an absent operand has the absent_type().
struct BoxContext {
  std::span<const TensorType> operands;
  const TensorType& result;
  const Attributes& attributes;
  const Box& box;
};
/// What computes that box alone: a node of the same op over boxes of its operands.
struct BoxedNode {
  std::vector<std::optional<Box>> operands;  ///< null for all of an operand
  std::optional<Attributes> attributes;      ///< null where they are the node's
};
using BoxRule = std::optional<BoxedNode> (*)(const BoxContext&);

class Builder;
class GradientContext;
class ExpandContext;
struct Node;
struct Value;
using gcomp::Var;

using GradientRule = void (*)(GradientContext&);

/// For ops of kind reduce: what combines two partial results. Arg-reductions give the first position instead.
struct Reduction {
  enum class Of : std::uint8_t { none, sum, product, maximum, minimum, first_maximum, first_minimum };
  Of of = Of::none;
};

/// An IEEE-exact rewrite of nodes of one op with one result.
struct SimplifyRule {
  std::string_view name;
  std::string_view text;                  ///< before -> after
  Value* (*apply)(Node& node, Builder&);  ///< what takes the place of the result; null where the rule does not apply
};

/// One case for the tests that loop over the table: operand types as text ("f64[2,3] i64[2]"), attributes as text, and the
/// range from which operands are drawn.
struct Sample {
  std::string_view operands;
  std::string_view attributes = "";
  double low = -2, high = 2;
};

/// Of a node, how many of the first operands and results may be strided views: the op has the attributes `operand_views` and
/// `result_views` for them. No rule of the op sees them: types, loops, expansion and gradient are those of dense matrices, and what
/// calls the rules reads and writes through the views.
struct MatrixCount {
  int operands = 0, results = 0;
};

struct OpDef {
  std::string_view name;
  std::string_view summary;
  Kind kind = Kind::pointwise;
  int operands = 0;           ///< number of operands; -1 for one or more
  int optional_operands = 0;  ///< how many of the last may be absent
  int results = 1;            ///< -1 for as many as inference gives
  MatrixCount matrices = {};
  std::span<const AttributeSpec> attributes = {};
  PointwiseTyping typing = PointwiseTyping::same;
  /// Scalar operations that one element takes, about: addition 1, division or a root 2, an elementary function 6. Of ops with a
  /// scalar body only: all others move values, or are what their nests consist of.
  int cost = 0;
  Precision precision = Precision::undecided;
  bool (*wide_where)(const Node&) = nullptr;  ///< of an op that is promoted: which nodes are wide all the same
  std::optional<double> identity = {};        ///< x op identity = x, and the other way round where it is commutative
  bool commutative = false;                   ///< x op y = y op x, bit for bit: which maximum(0, -0) is not
  bool involution = false;                    ///< op(op(x)) = x
  bool equality = false;                      ///< whether operands are equal, so that none may differ in its last bit
  bool looks_up = false;                      ///< of kind index: one element of an operand, at a place that another one gives
  Reads reads = Reads::by_result;
  Layouts layouts = {};                      ///< of ops with the attribute `channels_last`
  bool fills = false;                        ///< a view: not all elements of the result are elements of an operand
  bool alias = false;                        ///< a view: the operand's elements in their order, under another shape
  std::span<const SimplifyRule> rules = {};  ///< algebra beyond these facts
  InferRule infer = nullptr;                 ///< all kinds but pointwise and reduce
  ScalarBody scalar = {};
  Reduction reduction = {};
  LoopRule loops = nullptr;
  BoxRule boxed = nullptr;  ///< not of pointwise ops and reductions; gives nothing where no node makes that box alone
  std::vector<Value*> (*expand)(ExpandContext&) = nullptr;
  GradientRule gradient = nullptr;
  bool detaches = false;              ///< no gradient goes through, and nobody is told of what is cut off
  std::string_view no_gradient = {};  ///< why there is none, where there is no rule
  std::span<const Sample> samples = {};
  double low = -2, high = 2;  ///< pointwise: the range of the generic sample

  /// Appends a node without attributes to the graph of `x`, so that ops are called like functions: `kMaximum(kLog(x), low)`.
  Var operator()(Var x) const;
  Var operator()(Var x, Var y) const;
};

/// Conversions of dtype.
constexpr bool is_cast(const OpDef& op) { return op.typing == PointwiseTyping::cast && op.operands == 1; }
/// Views that show elements of their one operand and nothing else.
constexpr bool is_plain_view(const OpDef& op) { return op.kind == Kind::view && op.operands == 1 && !op.fills; }

/// Attributes with the defaults of `op` filled in.
Attributes with_defaults(const OpDef& op, const Attributes& attributes);
/// Drops attributes that equal the op's default; throws UserError on an unknown, missing or wrongly typed one.
Attributes normalized(const OpDef& op, const Attributes& attributes);
/// Whether normalized() gives the same again. Throws as that does.
bool is_normalized(const OpDef& op, const Attributes& attributes);
/// Result types; throws UserError naming op and operand on a mismatch. `kernel` nodes carry their types and are not inferred.
std::vector<TensorType> infer_types(const OpDef& op, std::span<const TensorType> operands, const Attributes& attributes);
/// The loop nest that defines a node of any kind but constant, update, collective and composite.
LoopNest loops_of(const OpDef& op, std::span<const TensorType> operands, std::span<const TensorType> results,
                  const Attributes& attributes);

/// What computes a box of the first result of a node alone: of pointwise ops, reductions and those with a rule. Null where nothing
/// does.
std::optional<BoxedNode> boxed_node(const OpDef& op, std::span<const TensorType> operands, const TensorType& result,
                                    const Attributes& attributes, const Box& box);

/// Identity element of a reduction in `dtype`: 0, 1, lowest (-inf for floats) or highest.
double identity_of(Reduction::Of of, DType dtype);
/// Combines two values as the reduction does; NaN goes through maximum and minimum. Not for first_*.
double combine(Reduction::Of of, double a, double b);

}  // namespace gcomp::ir
