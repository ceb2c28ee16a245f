// Arrays of PyTorch's record under tests/fixtures/layers, by name.
#pragma once

#include <cstdlib>
#include <map>
#include <string>

#include "gcomp/arrays.h"
#include "gcomp/device_options.h"

namespace gcomp::test {

using Arrays = std::map<std::string, Tensor>;

inline Arrays recorded_layers(const std::string& file) {
  Arrays arrays;
  for (auto& [name, tensor] : read_npz(std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/layers/" + file))
    arrays.emplace(name, std::move(tensor));
  return arrays;
}

/// What stands behind "PREFIX".
inline Arrays arrays_under(const Arrays& arrays, const std::string& prefix) {
  Arrays under;
  for (auto it = arrays.lower_bound(prefix); it != arrays.end() && it->first.starts_with(prefix); ++it)
    under.emplace(it->first.substr(prefix.size()), it->second);
  return under;
}

/// GCOMP_TEST_DEVICE=cuda computes there, as in the tests that drive the command.
inline DeviceRequest test_device() {
  const char* device = std::getenv("GCOMP_TEST_DEVICE");
  return device && std::string(device) == "cuda" ? DeviceRequest::cuda : DeviceRequest::cpu;
}

}  // namespace gcomp::test
