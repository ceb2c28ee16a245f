// Integers no wider than what is read of them, as where a window's first maximum stands: lanes of 64 bits are half as many as those
// of floats, and an eighth of those of bytes.
//
//   t0: i64 = select(a, 3, select(b, 2, 0))               t0: u8 = select(a, 3, select(b, 2, 0))
//   t1: u8 = cast<u8>(t0)                          ->     t1: u8 = t0
#pragma once

#include "codegen/flat_nest.h"

namespace gcomp::codegen {

/// Statements that choose among constants take the dtype to which all who read them cast.
void narrow_integers(FlatNest& nest);

}  // namespace gcomp::codegen
