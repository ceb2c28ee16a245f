#include "frontend/onnx/windows.h"

#include <algorithm>

#include "ir/base/error.h"

namespace gcomp::frontend {

Windows windows_of(const NodeContext& n, const Shape& sizes, Integers kernel) {
  Windows w;
  const std::size_t rank = sizes.size();
  w.kernel = n.integers("kernel_shape", kernel);
  n.require(w.kernel.size() == rank, "kernel_shape has ", w.kernel.size(), " entries for ", rank, " spatial axes");
  n.require(kernel.empty() || w.kernel == kernel, "kernel_shape is [", to_string(w.kernel), "], the weight's is [",
            to_string(kernel), "]");
  w.strides = n.integers("strides", Integers(rank, 1));
  w.dilations = n.integers("dilations", Integers(rank, 1));
  Integers pads = n.integers("pads", Integers(2 * rank, 0));
  n.require(w.strides.size() == rank && w.dilations.size() == rank && pads.size() == 2 * rank,
            "strides, dilations and pads do not fit ", rank, " spatial axes");
  for (std::size_t i = 0; i < rank; ++i) {
    const bool small = std::max({w.kernel[i], w.strides[i], w.dilations[i]}) < (1 << 30) &&
                       std::min({w.kernel[i], w.strides[i], w.dilations[i]}) > 0;
    n.require(small && pads[i] > -(1 << 30) && pads[i] < (1 << 30) && pads[rank + i] > -(1 << 30) && pads[rank + i] < (1 << 30),
              "kernel_shape, strides, dilations or pads are out of range");
  }
  w.low.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(rank));
  w.high.assign(pads.begin() + static_cast<std::ptrdiff_t>(rank), pads.end());
  const std::string mode = n.text("auto_pad", "NOTSET");
  n.require(mode == "NOTSET" || mode == "VALID" || mode == "SAME_UPPER" || mode == "SAME_LOWER", "auto_pad is '", mode,
            "', wanted NOTSET, VALID, SAME_UPPER or SAME_LOWER");
  for (std::size_t i = 0; i < rank && mode != "NOTSET"; ++i) {
    const std::int64_t positions = (sizes[i] + w.strides[i] - 1) / w.strides[i];
    const std::int64_t total =
        mode == "VALID" ? 0 : std::max<std::int64_t>(0, (positions - 1) * w.strides[i] + w.extent(i) - sizes[i]);
    w.low[i] = mode == "SAME_LOWER" ? (total + 1) / 2 : total / 2;
    w.high[i] = total - w.low[i];
  }
  return w;
}

}  // namespace gcomp::frontend
