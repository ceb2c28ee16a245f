// Outputs of one graph, computed in two ways.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "ir/base/tensor.h"

namespace gcomp::tests {

/// Each element within `tolerance` of its tensor's largest, or of 1 where that is less.
inline void expect_equal(std::span<const Tensor> found, std::span<const Tensor> expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    double scale = 1;
    for (std::int64_t j = 0; j < expected[i].elements(); ++j) scale = std::max(scale, std::abs(expected[i].at(j)));
    ASSERT_EQ(found[i].shape(), expected[i].shape()) << what << ", output " << i;
    for (std::int64_t j = 0; j < found[i].elements(); ++j)
      ASSERT_NEAR(found[i].at(j), expected[i].at(j), tolerance * scale) << what << ", output " << i << ", element " << j;
  }
}

}  // namespace gcomp::tests
