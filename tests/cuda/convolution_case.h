// Convolutions that cuDNN is asked for in tests.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "runtime/program.h"

namespace gcomp::tests {

inline std::int64_t product_of(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

inline constexpr runtime::ConvolutionKind kConvolutionKinds[] = {
    runtime::ConvolutionKind::forward, runtime::ConvolutionKind::input_gradient, runtime::ConvolutionKind::weight_gradient};

struct WindowCase {
  runtime::ConvolutionKind kind = runtime::ConvolutionKind::forward;
  DType dtype = DType::f32;
  bool channels_last = true;
  std::int64_t batch = 2, inputs = 4, outputs = 6, groups = 1;
  std::vector<std::int64_t> input = {5, 6}, kernel = {3, 2}, strides = {2, 1}, begin = {1, 0}, end = {1, 1}, dilations = {1, 2};
  bool packed = channels_last;
};

/// The packing is a launch of no kernel: only whether there is one counts.
inline runtime::ConvolutionCall convolution_call(const WindowCase& c) {
  std::vector<std::int64_t> output;
  for (std::size_t d = 0; d < c.input.size(); ++d)
    output.push_back((c.input[d] + c.begin[d] + c.end[d] - (c.kernel[d] - 1) * c.dilations[d] - 1) / c.strides[d] + 1);
  runtime::ConvolutionCall call{.kind = c.kind,
                                .dtype = c.dtype,
                                .channels_last = c.channels_last,
                                .batch = c.batch,
                                .input_channels = c.inputs,
                                .output_channels = c.outputs,
                                .groups = c.groups,
                                .input_spatial = c.input,
                                .output_spatial = output,
                                .kernel = c.kernel,
                                .strides = c.strides,
                                .pads_begin = c.begin,
                                .pads_end = c.end,
                                .dilations = c.dilations,
                                .origin = "convolution"};
  if (c.packed) call.packing.launches.emplace_back();
  return call;
}

}  // namespace gcomp::tests
