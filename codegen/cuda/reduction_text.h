// What the text of every reduction has in common: types, first values and functors of totals, and their rounding.
#pragma once

#include <string>

#include "codegen/flat_nest.h"

namespace gcomp::codegen::cuda {

/// Whether a reduction finds where the best value stands.
bool is_position(const ir::Statement& s);

/// The type of a total: that of the values, or a gc_best of it.
std::string total_type(const ir::Statement& s);
/// Bytes of a total.
std::size_t total_size(const ir::Statement& s);
/// What a total starts as.
std::string identity_text(const ir::Statement& s);
/// The functor of prelude/group.h that combines two totals.
std::string combiner_text(const ir::Statement& s);
/// The line that adds a value to a total; `position` tells where it stands among what is reduced.
std::string accumulate_line(const ir::Statement& s, const std::string& total, const std::string& value,
                            const std::string& position);

/// Whether a total stays what it is: a sum of zeros.
bool adds_nothing(const ir::Statement& s);

/// Whether a total is the statement's value as it is.
bool is_final(const ir::Statement& s);
/// The statement's value of a total.
std::string final_text(const ir::Statement& s, const std::string& total);

/// Every reduction must run over the same axes, and none may vary over them: one pass over the row then serves all.
void check_row_form(const FlatNest& nest);

}  // namespace gcomp::codegen::cuda
