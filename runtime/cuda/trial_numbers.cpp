#include "runtime/cuda/trial_numbers.h"

#include <algorithm>

namespace gcomp::runtime::cuda {
namespace {

/// Elements, after which the numbers come again: a prime number, so that no two lines of a matrix are alike.
constexpr std::int64_t kLongest = (1 << 20) - 3;

}  // namespace

const Tensor& TrialNumbers::pattern(DType dtype, std::int64_t elements) {
  const std::int64_t wanted = std::min(kLongest, elements);
  const auto [at, added] = patterns_.try_emplace(dtype);
  Tensor& pattern = at->second;
  if (!added && pattern.elements() >= wanted) return pattern;
  pattern = Tensor(dtype, {wanted});
  std::uint64_t state = 0x9e3779b97f4a7c15;
  for (std::int64_t i = 0; i < wanted; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    if (is_float(dtype)) pattern.set(i, static_cast<double>(static_cast<std::int64_t>(state)) / 9223372036854775808.0);
  }
  return pattern;
}

void TrialNumbers::fill(const Session& session, CUdeviceptr address, DType dtype, std::int64_t elements,
                        const std::string& origin) {
  if (elements == 0) return;
  const Tensor& numbers = pattern(dtype, elements);
  const auto width = static_cast<std::int64_t>(size_of(dtype));
  for (std::int64_t done = 0; done < elements; done += numbers.elements())
    GCOMP_CUDA(session.driver(), origin, cuMemcpyHtoDAsync_v2, address + static_cast<CUdeviceptr>(done * width), numbers.data(),
               static_cast<std::size_t>(std::min(numbers.elements(), elements - done) * width), session.compute.get());
  GCOMP_CUDA(session.driver(), origin, cuStreamSynchronize, session.compute.get());
}

}  // namespace gcomp::runtime::cuda
