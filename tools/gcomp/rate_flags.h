// Options that say how fast things are which are not here: links between ranks (--link) and a device (--rates).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/device_rates.h"
#include "codegen/scale/links.h"
#include "tools/command_line/arguments.h"

namespace gcomp::tools {

/// --link, repeatable.
void add_links(ArgumentParser& parser, std::vector<std::string>& links, const std::string& group);

/// "450GB/s,3us": a rate for each rank and direction, and the latency of a message; between all ranks where it stands alone. With
/// "8:50GB/s,10us" beside it, that is between groups of 8 and the other within them. Rates in B/s and bit/s, decimal. Throws
/// UserError (exit 2).
codegen::scale::Links parse_links(std::span<const std::string> texts);
/// The same as parse_links() reads.
std::string text_of(const codegen::scale::Links& links);

/// "h200", "rtx3090", one of them with other values, "h200,copy=4TB/s,f32=60TFLOP/s", or all of copy, f64, f32, f16, bf16 and
/// launch for a device without a name. Throws UserError (exit 2).
codegen::DeviceRates parse_rates(const std::string& text);

/// "12.3ms" in seconds, above 0. Throws UserError (exit 2) that names `flag`.
double parse_time(const std::string& text, const std::string& flag);

}  // namespace gcomp::tools
