// Arrays in NumPy's files. Read are f2 f4 f8, i1 to i8, u1 to u8, b1 of either byte order, C and Fortran order, and bfloat16 as
// NumPy stores it; refused with the reason are objects (they are pickles), strings, complex numbers and records.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gcomp/path.h"
#include "gcomp/tensor.h"
#include "gcomp/tensor_view.h"

namespace gcomp {

/// All arrays of an .npz, in its order, by name. Throws UserError naming file and array where one cannot be read.
std::vector<NamedTensor> read_npz(const Path& path);
/// Those of these names, in this order; the others stay unread. Throws UserError with the nearest name where one is missing.
std::vector<NamedTensor> read_npz(const Path& path, std::span<const std::string> names);
/// The file appears whole or not at all; equal arrays give equal bytes.
void write_npz(const Path& path, std::span<const NamedTensor> arrays);

Tensor read_npy(const Path& path);
void write_npy(const Path& path, const Tensor& array);

/// What train_step() and predict() take; the arrays must outlive it.
Batch batch_of(std::span<const NamedTensor> arrays);

}  // namespace gcomp
