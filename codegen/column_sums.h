// Rows and columns in one kernel. Where a nest reduces its rows, and sums the same values over rows, it takes both from one
// reading:
//
//   axes i:512, j:32, k:768                                            a strip of 32 rows for each i
//   t0[i,j] = sum over k of dy[i,j,k] * w[k]                           reductions of rows
//   y[i,j,k] = ... t0 ...
//   s[i,k] = sum over j of dy[i,j,k]                                   column sums: added up while the rows pass by
//
// Code generation sees the rows alone; a column sum is a value of each element, and its store says over which axes it sums.
#pragma once

#include <vector>

#include "codegen/flat_nest.h"

namespace gcomp::codegen {

/// Makes the column sums of a nest that reduces its rows too a matter of their stores. Nests that reduce over one set of axes stay.
void set_column_sums_aside(FlatNest& nest);
/// Whether some store sums.
bool sums_columns(const FlatNest& nest);
/// The axes that stores sum over, ascending: those along which the rows of a strip lie.
std::vector<int> strip_axes(const FlatNest& nest);

}  // namespace gcomp::codegen
