#include "frontend/onnx/node_context.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "frontend/onnx/tensor_proto.h"
#include "ir/base/error.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

using Type = ::onnx::AttributeProto;

}  // namespace

bool is_uniform(const Tensor& tensor) {
  const std::size_t size = size_of(tensor.dtype());
  const auto bytes = tensor.bytes();
  if (tensor.elements() == 0) return false;
  Tensor first(tensor.dtype(), {});
  first.set(0, tensor.at(0));
  if (std::memcmp(first.data(), bytes.data(), size) != 0) return false;
  for (std::size_t i = size; i < bytes.size(); i += size)
    if (std::memcmp(bytes.data(), bytes.data() + i, size) != 0) return false;
  return true;
}

Var ConstantPool::at(const std::shared_ptr<const Tensor>& tensor) {
  if (auto it = made_.find(tensor.get()); it != made_.end()) return it->second;
  Var var = is_uniform(*tensor) ? builder_.full(tensor->type(), tensor->at(0))
                                : builder_.apply(ir::ops::kConstant, {}, {{"value", tensor}});
  kept_.push_back(tensor);
  made_.emplace(tensor.get(), var);
  return var;
}

const Item& NodeContext::item(std::size_t i) const {
  require(has(i), "input ", i, " is missing");
  require(!inputs_[i].sequence, "input ", i, " is a sequence, wanted a tensor");
  return present(i);
}

Var NodeContext::var(const Item& item) {
  require(!item.missing, "an operand cannot be computed");
  // A known tensor may also be a state of the main graph; a scratch graph needs a constant of its own.
  if (item.var && (item.var.builder == &builder_ || !item.known)) return item.var;
  return constants_.at(item.known);
}

Var NodeContext::var(std::size_t i) { return var(item(i)); }

std::vector<Var> NodeContext::vars() {
  std::vector<Var> all;
  for (std::size_t i = 0; i < inputs(); ++i) all.push_back(var(i));
  return all;
}

void NodeContext::refuse_unknown(const Item& item, std::string_view what) const {
  if (const std::string* excess = item.var ? folder_.excess_of(item.var.value) : nullptr) unsupported(what, *excess);
  unsupported(what, " depends on data; it must be known when the model is compiled");
}

const Tensor& NodeContext::known(std::size_t i, std::string_view what) const {
  const Tensor* tensor = known(i);
  if (!tensor) refuse_unknown(any(i), what);
  return *tensor;
}

Integers NodeContext::integers(std::size_t i, std::string_view what) const {
  const Tensor& tensor = known(i, what);
  require(is_integer(tensor.dtype()) || tensor.dtype() == DType::boolean, what, " is ", to_string(tensor.type()),
          ", wanted integers");
  return tensor.to_integers();
}

double NodeContext::number(std::size_t i, std::string_view what) const {
  const Tensor& tensor = known(i, what);
  require(tensor.elements() == 1, what, " is ", to_string(tensor.type()), ", wanted one number");
  require(ir::doubles_hold(tensor), what, " is ", tensor.to_integers()[0], ", wanted an integer below 2^53");
  return tensor.at(0);
}

const Type* NodeContext::find(std::string_view name) const {
  for (const auto& attribute : node_.attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

const Type* NodeContext::find(std::string_view name, Type::AttributeType type) const {
  const Type* found = find(name);
  // Files of IR version 1 have no discriminator; the field that is set tells.
  require(!found || found->type() == type || found->type() == Type::UNDEFINED, "attribute '", name, "' has the wrong type");
  return found;
}

std::int64_t NodeContext::integer(std::string_view name, std::int64_t otherwise) const {
  const Type* found = find(name, Type::INT);
  return found ? found->i() : otherwise;
}

double NodeContext::real(std::string_view name, double otherwise) const {
  const Type* found = find(name, Type::FLOAT);
  return found ? intended_number(found->f()) : otherwise;
}

std::string NodeContext::text(std::string_view name, std::string_view otherwise) const {
  const Type* found = find(name, Type::STRING);
  return found ? found->s() : std::string(otherwise);
}

Integers NodeContext::integers(std::string_view name, Integers otherwise) const {
  const Type* found = find(name, Type::INTS);
  return found ? Integers(found->ints().begin(), found->ints().end()) : std::move(otherwise);
}

std::vector<double> NodeContext::reals(std::string_view name) const {
  const Type* found = find(name, Type::FLOATS);
  std::vector<double> values;
  if (found)
    for (float value : found->floats()) values.push_back(intended_number(value));
  return values;
}

std::vector<std::string> NodeContext::texts(std::string_view name) const {
  const Type* found = find(name, Type::STRINGS);
  return found ? std::vector<std::string>(found->strings().begin(), found->strings().end()) : std::vector<std::string>();
}

Tensor NodeContext::tensor(std::string_view name) const {
  const Type* found = find(name, Type::TENSOR);
  require(found && found->has_t(), "attribute '", name, "' is missing");
  return converted(read_tensor(found->t(), state_.source.directory));
}

const ::onnx::GraphProto& NodeContext::graph(std::string_view name) const {
  const Type* found = find(name, Type::GRAPH);
  require(found && found->has_g(), "attribute '", name, "' is missing");
  return found->g();
}

DType NodeContext::dtype_of(std::int64_t onnx_type) const {
  const auto dtype = frontend::dtype_of(static_cast<int>(onnx_type));
  if (!dtype) unsupported("type ", onnx_type_name(static_cast<int>(onnx_type)), " is not supported");
  return import_dtype(options(), *dtype);
}

Tensor NodeContext::converted(Tensor tensor) const { return import_tensor(options(), std::move(tensor)); }

std::int64_t NodeContext::axis(std::int64_t axis, std::int64_t rank) const {
  require(axis >= -rank && axis < rank, "axis ", axis, " is out of range for rank ", rank);
  return axis < 0 ? axis + rank : axis;
}

Integers NodeContext::axes(Integers axes, std::int64_t rank) const {
  for (auto& a : axes) a = axis(a, rank);
  std::sort(axes.begin(), axes.end());
  require(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), "an axis is listed twice");
  return axes;
}

DType import_dtype(const ImportOptions& options, DType dtype) {
  return options.float_type && is_float(dtype) ? *options.float_type : dtype;
}

Tensor import_tensor(const ImportOptions& options, Tensor tensor) {
  const DType to = import_dtype(options, tensor.dtype());
  if (to == tensor.dtype()) return tensor;
  if (to == DType::f64 && tensor.dtype() == DType::f32 && tensor.elements() == 1)
    return Tensor::of(to, tensor.shape(), {intended_number(tensor.as<float>()[0])});
  return tensor.cast(to);
}

double intended_number(float value) {
  if (!std::isfinite(value) || value == 0) return value;
  const double magnitude = std::fabs(static_cast<double>(value));
  auto matches = [&](double candidate) { return static_cast<float>(candidate) == static_cast<float>(magnitude); };
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(magnitude)).ptr;
  double decimal = magnitude;
  // Few digits are a decimal that somebody wrote; more are a computed number, if one is found that rounds to it.
  const auto significant = std::find_if(text, std::find(text, end, 'e'), [](char c) { return c >= '1' && c <= '9'; });
  const auto digits = std::count_if(significant, std::find(significant, end, 'e'), [](char c) { return c >= '0' && c <= '9'; });
  std::from_chars(text, end, decimal);
  if (digits <= 4) return std::copysign(decimal, value);
  for (double known : {M_PI, M_E, M_LN2, M_LN10, M_LOG2E, M_2_SQRTPI, std::sqrt(2 / M_PI)})
    if (matches(known)) return std::copysign(known, value);
  // Roots of whole numbers and their reciprocals: attention's scale and its square root.
  for (double power : {2.0, -2.0, 4.0, -4.0, -1.0}) {
    const double whole = std::round(std::pow(magnitude, power));
    if (whole >= 1 && whole <= 4096 && matches(std::pow(whole, 1 / power)))
      return std::copysign(power == 2 ? std::sqrt(whole) : power == -2 ? 1 / std::sqrt(whole) : std::pow(whole, 1 / power), value);
  }
  return digits <= 6 ? std::copysign(decimal, value) : value;
}

std::optional<double> uniform_value(Var x) {
  if (!x.value->producer || x.value->producer->op != &ir::ops::kFull) return std::nullopt;
  return x.value->producer->attributes.real("value");
}

Var broadcast_to(Var x, const Shape& shape) {
  if (x.shape() == shape) return x;
  if (const auto value = uniform_value(x)) return x.builder->full({x.dtype(), shape}, *value);
  return x.builder->broadcast(x, shape);
}

Shape broadcast_shape(const NodeContext& n, const std::vector<Shape>& shapes) {
  Shape result;
  for (const Shape& shape : shapes) {
    if (shape.size() > result.size()) result.insert(result.begin(), shape.size() - result.size(), 1);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      std::int64_t& dim = result[result.size() - shape.size() + i];
      n.require(dim == shape[i] || dim == 1 || shape[i] == 1, "shapes [", to_string(shapes.front()), "] and [", to_string(shape),
                "] do not broadcast");
      if (dim == 1) dim = shape[i];
    }
  }
  return result;
}

std::vector<Var> broadcast_together(NodeContext& n, std::vector<Var> operands) {
  std::vector<Shape> shapes;
  for (Var x : operands) shapes.push_back(x.shape());
  const Shape shape = broadcast_shape(n, shapes);
  for (Var& x : operands) x = broadcast_to(x, shape);
  return operands;
}

Var root_of_squares(Var sum) {
  Var zero = sum.builder->like(sum, 0);
  return sum.builder->select(sum == zero, zero, ir::ops::kSqrt(sum));
}

}  // namespace gcomp::frontend
