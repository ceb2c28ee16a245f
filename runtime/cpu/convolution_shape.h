// The extents of a ConvolutionCall in the form that loops want: always three spatial dimensions, strides of both activations.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/program.h"

namespace gcomp::runtime::cpu {

/// Strides in elements of an activation [image, channel, position].
struct ActivationStrides {
  std::int64_t image = 0, channel = 0, position = 0;
};

struct ConvolutionShape {
  using Triple = std::array<std::int64_t, 3>;  ///< depth, height, width; missing leading dimensions are 1

  std::int64_t batch = 0, groups = 1;
  std::int64_t group_inputs = 0, group_outputs = 0;  ///< channels of one group
  Triple input{1, 1, 1}, output{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, pad{0, 0, 0}, dilation{1, 1, 1};
  ActivationStrides input_strides, output_strides;

  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  std::int64_t input_positions() const { return input[0] * input[1] * input[2]; }
  std::int64_t positions() const { return output[0] * output[1] * output[2]; }
  std::int64_t weights() const { return groups * group_outputs * group_inputs * taps(); }
  std::int64_t multiplications() const { return batch * positions() * weights(); }
};

/// Elements of a call's three buffers.
struct ConvolutionElements {
  std::int64_t input = 0, weight = 0, output = 0;
};

/// Throws InternalError where the call's vectors differ in length or its channels are no multiple of the groups.
ConvolutionShape shape_of(const ConvolutionCall& call);
ConvolutionElements elements_of(const ConvolutionCall& call);

}  // namespace gcomp::runtime::cpu
