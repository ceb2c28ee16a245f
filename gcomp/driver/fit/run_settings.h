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
/// it did not have yet, or whose default it did not write, is as it was where nothing but the default says so, and a list of one is
/// what was that one. Paths are the files that they name now; rows that cannot be read, which ended the run, may be passed over.
std::vector<ConfigDifference> setting_differences(const std::string& checkpoint, std::string_view config);

/// Takes the device out of the differences where the automatic choice and a name mean the same: `before` and `now` are what
/// Trainer::device() says.
void take_device(std::vector<ConfigDifference>& differences, std::string_view before, std::string_view now);

}  // namespace gcomp::driver
