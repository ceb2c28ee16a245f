#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gcomp/driver/checkpoint_manifest.h"

namespace gcomp::driver {

/// Of a configuration, {"lr": {"value": 0.1, "from": "command line"}, ...}, what decides the training: {"lr": 0.1, ...}. Where
/// files are written, how often, and by how many threads does not.
std::string settings_of(std::string_view config);

/// What a run that goes on has otherwise than its checkpoint, whose settings an earlier version may have written: an option that
/// it did not have yet is as it was where nothing but its default says so, and a list of one is what was that one.
std::vector<ConfigDifference> setting_differences(const std::string& checkpoint, std::string_view config);

}  // namespace gcomp::driver
