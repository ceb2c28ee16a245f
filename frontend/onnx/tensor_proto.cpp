#include "frontend/onnx/tensor_proto.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

using ::onnx::TensorProto;

struct TypeRow {
  int onnx;
  DType dtype;
};
constexpr TypeRow kTypes[] = {{1, DType::f32},  {2, DType::u8},   {3, DType::i8},      {4, DType::u16},  {5, DType::i16},
                              {6, DType::i32},  {7, DType::i64},  {9, DType::boolean}, {10, DType::f16}, {11, DType::f64},
                              {12, DType::u32}, {13, DType::u64}, {16, DType::bf16}};
constexpr const char* kTypeNames[] = {"UNDEFINED",      "FLOAT",      "UINT8",          "INT8",       "UINT16",   "INT16",
                                      "INT32",          "INT64",      "STRING",         "BOOL",       "FLOAT16",  "DOUBLE",
                                      "UINT32",         "UINT64",     "COMPLEX64",      "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN",
                                      "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "UINT4",      "INT4",     "FLOAT4E2M1"};
constexpr std::int64_t kMaxRank = 32;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 36;

std::string place(const TensorProto& proto) { return proto.name().empty() ? "a tensor" : concat("tensor '", proto.name(), "'"); }

std::uint64_t parse_unsigned(const std::string& text, const TensorProto& proto, const std::string& key) {
  std::uint64_t value = 0;
  check_user(!text.empty() && text.size() <= 19 && text.find_first_not_of("0123456789") == std::string::npos, place(proto),
             ": external data ", key, " is '", text, "', wanted a whole number");
  for (char c : text) value = value * 10 + static_cast<std::uint64_t>(c - '0');
  return value;
}

ExternalPlace external_place(const TensorProto& proto, std::uint64_t bytes) {
  ExternalPlace found{"", 0, bytes};
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") found.location = entry.value();
    else if (entry.key() == "offset") found.offset = parse_unsigned(entry.value(), proto, "offset");
    else if (entry.key() == "length") found.length = parse_unsigned(entry.value(), proto, "length");
    else
      check_user(entry.key() == "checksum" || entry.key() == "basepath", place(proto), ": unknown external data key '", entry.key(),
                 "'");
  }
  check_user(found.length == bytes, place(proto), ": external data has ", found.length, " bytes, its shape wants ", bytes);
  return found;
}

/// `read` takes the place of the bytes.
template <class Read>
Tensor external_tensor(const TensorProto& proto, const TensorType& type, const Read& read) {
  const ExternalPlace found = external_place(proto, static_cast<std::uint64_t>(type.bytes()));
  try {
    std::shared_ptr<const std::byte[]> bytes = read(found);
    const std::span<const std::byte> all(bytes.get(), static_cast<std::size_t>(found.length));
    return Tensor::sharing(type, {all, std::move(bytes)});
  } catch (const UserError& error) { throw UserError(concat(place(proto), ": ", error.what())); }
}

/// From here on a tensor within the file is worth more than a count of those who share it.
constexpr std::uint64_t kLargeTensor = 4096;

/// Copies a typed repeated field; each entry narrows to the element type.
template <class Element, class Field>
void copy_typed(const TensorProto& proto, const Field& field, Tensor& tensor) {
  const auto count = static_cast<std::int64_t>(field.size());
  check_user(count == tensor.elements(), place(proto), ": found ", count, " values, its shape ", to_string(tensor.type()),
             " wants ", tensor.elements());
  auto out = tensor.as<Element>();
  for (std::int64_t i = 0; i < count; ++i) out[static_cast<std::size_t>(i)] = static_cast<Element>(field.Get(static_cast<int>(i)));
}

void read_typed(const TensorProto& proto, Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::f32: return copy_typed<float>(proto, proto.float_data(), tensor);
    case DType::f64: return copy_typed<double>(proto, proto.double_data(), tensor);
    case DType::i64: return copy_typed<std::int64_t>(proto, proto.int64_data(), tensor);
    case DType::u64: return copy_typed<std::uint64_t>(proto, proto.uint64_data(), tensor);
    case DType::u32: return copy_typed<std::uint32_t>(proto, proto.uint64_data(), tensor);
    case DType::i32: return copy_typed<std::int32_t>(proto, proto.int32_data(), tensor);
    case DType::i16: return copy_typed<std::int16_t>(proto, proto.int32_data(), tensor);
    case DType::f16:
    case DType::bf16:
    case DType::u16: return copy_typed<std::uint16_t>(proto, proto.int32_data(), tensor);
    case DType::i8: return copy_typed<std::int8_t>(proto, proto.int32_data(), tensor);
    case DType::u8:
    case DType::boolean: return copy_typed<std::uint8_t>(proto, proto.int32_data(), tensor);
  }
}

Tensor with_clean_bools(Tensor tensor) {
  if (tensor.dtype() == DType::boolean)
    for (std::uint8_t& value : tensor.as<std::uint8_t>()) value = value != 0;
  return tensor;
}

bool has_typed_data(const TensorProto& proto) {
  return proto.float_data_size() || proto.int32_data_size() || proto.int64_data_size() || proto.double_data_size() ||
         proto.uint64_data_size() || proto.string_data_size();
}

}  // namespace

std::optional<DType> dtype_of(int onnx_type) {
  for (const TypeRow& row : kTypes)
    if (row.onnx == onnx_type) return row.dtype;
  return std::nullopt;
}

int onnx_type_of(DType dtype) {
  for (const TypeRow& row : kTypes)
    if (row.dtype == dtype) return row.onnx;
  return 0;
}

std::string onnx_type_name(int onnx_type) {
  const bool known = onnx_type >= 0 && onnx_type < static_cast<int>(std::size(kTypeNames));
  return known ? kTypeNames[onnx_type] : concat("type ", onnx_type);
}

Shape shape_of(const TensorProto& proto) {
  check_user(proto.dims_size() <= kMaxRank, place(proto), " has ", proto.dims_size(), " dimensions, at most ", kMaxRank,
             " are allowed");
  Shape shape(proto.dims().begin(), proto.dims().end());
  std::int64_t elements = 1;
  for (std::int64_t dim : shape) {
    check_user(dim >= 0, place(proto), " has the negative dimension ", dim);
    check_user(dim == 0 || elements <= kMaxBytes / dim, place(proto), " is too large: [", to_string(shape), "]");
    elements *= dim;
  }
  return shape;
}

namespace {

/// `of_raw` makes a tensor of its type and bytes within the file, `of_external` of its type and what lies elsewhere.
template <class OfRaw, class OfExternal>
Tensor tensor_of(const TensorProto& proto, const OfRaw& of_raw, const OfExternal& of_external) {
  const auto dtype = dtype_of(proto.data_type());
  if (!dtype)
    throw UserError(concat(place(proto), " has the unsupported type ", onnx_type_name(proto.data_type())), ExitCode::unsupported);
  check_user(!proto.has_segment(), place(proto), " is stored in segments, which no version of ONNX uses");
  const Shape shape = shape_of(proto);
  const TensorType type{*dtype, shape};
  const auto bytes = static_cast<std::uint64_t>(type.bytes());
  const bool external = proto.data_location() == TensorProto::EXTERNAL;
  check_user(!(proto.has_raw_data() && has_typed_data(proto)), place(proto), " has both raw and typed data");
  if (!external && !proto.has_raw_data()) {
    // Sizes are compared before the tensor is allocated: typed fields hold at least one byte for each element.
    const auto held = static_cast<std::uint64_t>(proto.float_data_size()) + static_cast<std::uint64_t>(proto.int32_data_size()) +
                      static_cast<std::uint64_t>(proto.int64_data_size()) + static_cast<std::uint64_t>(proto.double_data_size()) +
                      static_cast<std::uint64_t>(proto.uint64_data_size());
    check_user(held == static_cast<std::uint64_t>(type.elements()), place(proto), ": found ", held, " values, its shape ",
               to_string(type), " wants ", type.elements());
    Tensor tensor(type);
    if (held) read_typed(proto, tensor);
    return with_clean_bools(std::move(tensor));
  }
  if (external) return with_clean_bools(external_tensor(proto, type, of_external));
  const std::string& raw = proto.raw_data();
  check_user(raw.size() == bytes, place(proto), ": found ", raw.size(), " bytes, its shape ", to_string(type), " wants ", bytes);
  return with_clean_bools(of_raw(type, std::as_bytes(std::span(raw))));
}

}  // namespace

Tensor read_tensor(const TensorProto& proto, const std::string& directory) {
  return tensor_of(proto, Tensor::of_bytes, [&](const ExternalPlace& place) { return read_external(directory, place); });
}

Tensor share_tensor(const std::shared_ptr<const Source>& source, const TensorProto& proto) {
  const auto of_raw = [&](const TensorType& type, std::span<const std::byte> raw) {
    if (raw.size() < kLargeTensor) return Tensor::of_bytes(type, raw);
    return Tensor::sharing(type, {raw, source});
  };
  return tensor_of(proto, of_raw, [&](const ExternalPlace& place) { return source->external->read(source->directory, place); });
}

std::string external_location(const TensorProto& proto) {
  if (proto.data_location() != TensorProto::EXTERNAL) return "";
  for (const auto& entry : proto.external_data())
    if (entry.key() == "location") return entry.value();
  return "?";
}

std::string external_problem(const TensorProto& proto, const std::string& directory) {
  const auto dtype = dtype_of(proto.data_type());
  if (proto.data_location() != TensorProto::EXTERNAL || !dtype) return "";
  try {
    const ExternalPlace found = external_place(proto, static_cast<std::uint64_t>(TensorType{*dtype, shape_of(proto)}.bytes()));
    check_external(directory, found);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

namespace {

/// But for raw data, which a writer replaces.
void clear_data(TensorProto& proto) {
  proto.clear_float_data();
  proto.clear_int32_data();
  proto.clear_int64_data();
  proto.clear_double_data();
  proto.clear_uint64_data();
  proto.clear_external_data();
}

}  // namespace

void write_tensor(TensorProto& proto, const Tensor& values) {
  const auto dtype = dtype_of(proto.data_type());
  check_internal(dtype && values.shape() == shape_of(proto), place(proto), " does not fit ", to_string(values.type()));
  const Tensor converted = values.dtype() == *dtype ? values : values.cast(*dtype);
  clear_data(proto);
  proto.clear_data_location();
  proto.set_raw_data(converted.data(), converted.bytes().size());
}

void move_data_out(TensorProto& proto) {
  clear_data(proto);
  const std::unique_ptr<std::string> freed(proto.release_raw_data());  // clearing would keep its memory
  proto.set_data_location(TensorProto::EXTERNAL);
}

void write_place(TensorProto& proto, const ExternalPlace& place) {
  proto.set_data_location(TensorProto::EXTERNAL);
  proto.clear_external_data();
  for (const auto& [key, value] : {std::pair("location", place.location), std::pair("offset", std::to_string(place.offset)),
                                   std::pair("length", std::to_string(place.length))}) {
    auto& entry = *proto.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
}

void append_initializer(::onnx::ModelProto& model, const TensorProto& initializer) {
  ::onnx::GraphProto& graph = *model.mutable_graph();
  *graph.add_initializer() = initializer;
  if (model.ir_version() >= 4) return;
  ::onnx::ValueInfoProto& input = *graph.add_input();
  input.set_name(initializer.name());
  auto* type = input.mutable_type()->mutable_tensor_type();
  type->set_elem_type(initializer.data_type());
  for (const std::int64_t dim : initializer.dims()) type->mutable_shape()->add_dim()->set_dim_value(dim);
}

}  // namespace gcomp::frontend
