// Attention over heads, [batch, heads, s, size].
#pragma once

#include "ir/builder.h"

namespace gcomp::frontend::formulas {

/// [batch, s, heads * size] to [batch, heads, s, size], and back.
Var split_heads(Var x, std::int64_t heads);
Var join_heads(Var x);

/// Where a query may attend, as bool, and what is added to its scores, of the scores' shape; either may be null.
struct Mask {
  Var allowed, bias;
};
/// Both conditions, either of which may be null.
Var both(Var a, Var b);

/// Softmax of scores [batch, heads, s, t] over keys. If `may_close_rows`, a row whose keys are all forbidden gives zeros, in its
/// gradient too; else there must be none.
Var attend(Var scores, const Mask& mask, bool may_close_rows);

}  // namespace gcomp::frontend::formulas
