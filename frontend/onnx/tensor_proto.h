// TensorProto <-> Tensor. One function reads every tensor of a file: initializers, constants, attributes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "frontend/onnx/source.h"
#include "ir/base/error.h"
#include "ir/base/tensor.h"

namespace gcomp::frontend {

/// Null for ONNX types that gcomp lacks (strings, complex, float8, 4-bit).
std::optional<DType> dtype_of(int onnx_type);
int onnx_type_of(DType dtype);
/// ONNX's spelling: "FLOAT", "FLOAT8E4M3FN", or a number.
std::string onnx_type_name(int onnx_type);

/// Shape of a tensor, checked: rank at most 32, no negative dimension, at most 2^31 elements' worth of bytes.
Shape shape_of(const ::onnx::TensorProto& proto);
/// Checks sizes before anything is allocated; the data must have exactly the shape's size.
Tensor read_tensor(const ::onnx::TensorProto& proto, const std::string& directory);
/// The same of a tensor within `source`, in whose memory a large one stays; what lies in another file is read once for all that
/// share it (external_data.h).
Tensor share_tensor(const std::shared_ptr<const Source>& source, const ::onnx::TensorProto& proto);
/// Replaces the data by `values`, converted to the proto's type, and drops every other place where data may lie.
void write_tensor(::onnx::TensorProto& proto, const Tensor& values);
/// Drops the data, and gives back the memory of what is large; says that it lies at a place yet to be told.
void move_data_out(::onnx::TensorProto& proto);
/// Tells that place.
void write_place(::onnx::TensorProto& proto, const ExternalPlace& place);
/// Adds it to the model's graph; before IR version 4 an initializer is also an input.
void append_initializer(::onnx::ModelProto& model, const ::onnx::TensorProto& initializer);

/// What `read` gives; a UserError of it names the file too.
template <class Read>
auto naming_file(const std::string& file, const Read& read) {
  try {
    return read();
  } catch (const UserError& error) { throw UserError(concat(file, ": ", error.what()), error.code()); }
}

/// Where the data lies outside the file, as the file says it; "" where it lies inside.
std::string external_location(const ::onnx::TensorProto& proto);
/// Why reading that would be refused, or "".
std::string external_problem(const ::onnx::TensorProto& proto, const std::string& directory);

}  // namespace gcomp::frontend
