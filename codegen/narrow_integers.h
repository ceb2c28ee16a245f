// Integers as wide as floats where less is read of them, as where a window's first maximum stands: lanes of 64 bits are half as
// many.
//
//   t0: i64 = select(a, 3, select(b, 2, 0))               t0: i32 = select(a, 3, select(b, 2, 0))
//   t1: u8 = cast<u8>(t0)                          ->     t1: u8 = cast<u8>(t0)
#pragma once

#include "codegen/flat_nest.h"

namespace gcomp::codegen {

/// Statements that choose among constants, and that all who read them cast to u8 or i32, become i32.
void narrow_integers(FlatNest& nest);

}  // namespace gcomp::codegen
