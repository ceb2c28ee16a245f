// TensorProto <-> Tensor. One function reads every tensor of a file: initializers, constants, attributes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
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
/// Replaces the data by `values`, converted to the proto's type, and drops every other place where data may lie.
void write_tensor(::onnx::TensorProto& proto, const Tensor& values);
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

/// Fills `bytes` from an external file; throws UserError unless `location` is a plain relative path to a regular file without
/// links.
void read_external(const std::string& directory, const std::string& location, std::uint64_t offset, std::span<std::byte> bytes);
/// Throws as that does, and reads nothing.
void check_external(const std::string& directory, const std::string& location, std::uint64_t offset, std::uint64_t length);

}  // namespace gcomp::frontend
