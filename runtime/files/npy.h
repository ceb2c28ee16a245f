// NumPy's array format (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html), versions 1 to 3.
// Read: f2 f4 f8, i1 to i8, u1 to u8, b1, either byte order, C and Fortran order, and V2, which is how NumPy stores bfloat16.
// Refused with the reason: objects (they are pickles), strings, complex numbers, records.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "ir/base/tensor.h"
#include "runtime/files/read_bytes.h"

namespace gcomp::runtime {

struct NpyHeader {
  TensorType type;
  bool fortran_order = false;
  bool big_endian = false;
  std::size_t bytes = 0;  ///< of the header, from the magic to the first element
};

/// Errors name neither file nor array: the caller knows them.
NpyHeader read_npy_header(const ReadBytes& read);
/// The elements after a header, in C order and native byte order; bools become 0 or 1. The caller has made sure that the file
/// holds as many bytes as the header says.
Tensor read_npy_elements(const NpyHeader& header, const ReadBytes& read);
/// Whether whole rows lie one after another, so that read_npy_rows() can take some of them.
bool is_row_major(const NpyHeader& header);
/// The next rows of a row-major array, as many as fill `elements`.
void read_npy_rows(const NpyHeader& header, const ReadBytes& read, std::span<std::byte> elements);
/// The header of a C-order array; its length is a multiple of 64.
std::string npy_header(const TensorType& type);

Tensor read_npy(const std::filesystem::path& path);
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace gcomp::runtime
