// The body of depthwise_tiles.h, compiled with convolution_kernel.h once per instruction set; as there everything has internal
// linkage. An element is one chain of fused multiply-adds, over the taps or over the positions: no vector changes it.
#pragma once

#include "runtime/cpu/depthwise_tiles.h"

namespace gcomp::runtime::cpu {
namespace {

template <class T, int VectorBytes>
struct Depthwise {
  typedef T Vector __attribute__((vector_size(VectorBytes)));
  typedef T Unaligned __attribute__((vector_size(VectorBytes), aligned(sizeof(T)), may_alias));
  static constexpr int64_t kLanes = VectorBytes / static_cast<int64_t>(sizeof(T));
  static constexpr int kRows = 8;            // positions of a tile
  static constexpr int kTaps = 9;            // of a weight gradient that are summed at once
  static constexpr int64_t kWeights = 4096;  // of the taps of some channels, about

  static Vector load(const T* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static void put(const Vector& value, T* to) { *reinterpret_cast<Unaligned*>(to) = value; }

  /// Calls vector(c) for channels [c, c + kLanes) until [begin, end) are done, of which some before may be done again, or one(c)
  /// where there are fewer at all.
  template <class OfVector, class OfOne>
  static void for_channels(int64_t begin, int64_t end, const OfVector& vector, const OfOne& one) {
    int64_t c = begin;
    for (; c + kLanes <= end; c += kLanes) vector(c);
    if (c < end && end >= kLanes) vector(end - kLanes);
    else
      for (; c < end; ++c) one(c);
  }

  template <int M>
  static void convolve_tile(const DepthwiseBlock& block, int64_t p, int64_t begin, int64_t end) {
    const int64_t *sources = block.sources + p, *targets = block.targets + p;
    const T* weights = static_cast<const T*>(block.weights);
    const T* from[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) from[i] = static_cast<const T*>(block.input) + sources[i];
    const auto vector = [&](int64_t c) {
      Vector sum[M];
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) sum[i] = Vector{};
      for (int64_t t = 0; t < block.taps; ++t) {
        const Vector weight = load(weights + block.tap_numbers[t] * block.weight_stride + c);
        const int64_t at = block.tap_offsets[t] + c;
#pragma GCC unroll 8
        for (int i = 0; i < M; ++i) sum[i] += load(from[i] + at) * weight;
      }
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) put(sum[i], static_cast<T*>(block.target) + targets[i] + c);
    };
    const auto one = [&](int64_t c) {
      for (int i = 0; i < M; ++i) {
        T sum = 0;
        for (int64_t t = 0; t < block.taps; ++t)
          sum += from[i][block.tap_offsets[t] + c] * weights[block.tap_numbers[t] * block.weight_stride + c];
        static_cast<T*>(block.target)[targets[i] + c] = sum;
      }
    };
    for_channels(begin, end, vector, one);
  }

  static void convolve(const DepthwiseBlock& block) {
    // Their weights stay in the first cache for all positions.
    const int64_t taps = block.taps > 0 ? block.taps : 1;
    const int64_t together = kLanes * (kWeights / taps > kLanes ? kWeights / taps / kLanes : 1);
    for (int64_t c = 0; c < block.channels; c += together) {
      const int64_t end = c + together < block.channels ? c + together : block.channels;
      int64_t p = 0;
      for (; p + kRows <= block.positions; p += kRows) convolve_tile<kRows>(block, p, c, end);
      for (; p + 4 <= block.positions; p += 4) convolve_tile<4>(block, p, c, end);
      for (; p < block.positions; ++p) convolve_tile<1>(block, p, c, end);
    }
  }

  /// N taps from number `first` on.
  template <int N>
  static void add_taps(const DepthwiseBlock& block, int64_t first) {
    T* row[N];
    int64_t at[N];
    for (int t = 0; t < N; ++t) {
      row[t] = static_cast<T*>(block.weights) + block.tap_numbers[first + t] * block.weight_stride;
      at[t] = block.tap_offsets[first + t];
    }
    const T *input = static_cast<const T*>(block.input), *gradient = static_cast<const T*>(block.target);
    // The last `count` of a vector's channels.
    const auto vector = [&](int64_t c, int64_t count) {
      Vector sum[N];
#pragma GCC unroll 9
      for (int t = 0; t < N; ++t) sum[t] = load(row[t] + c);
      for (int64_t p = 0; p < block.positions; ++p) {
        const T* from = input + block.sources[p] + c;
        const Vector factor = load(gradient + block.targets[p] + c);
#pragma GCC unroll 9
        for (int t = 0; t < N; ++t) sum[t] += load(from + at[t]) * factor;
      }
      if (count == kLanes) {
#pragma GCC unroll 9
        for (int t = 0; t < N; ++t) put(sum[t], row[t] + c);
        return;
      }
      T sums[N][kLanes];
#pragma GCC unroll 9
      for (int t = 0; t < N; ++t) put(sum[t], sums[t]);
      for (int t = 0; t < N; ++t)
        for (int64_t i = kLanes - count; i < kLanes; ++i) row[t][c + i] = sums[t][i];
    };
    int64_t c = 0;
    for (; c + kLanes <= block.channels; c += kLanes) vector(c, kLanes);
    if (c < block.channels && block.channels >= kLanes) return vector(block.channels - kLanes, block.channels - c);
    for (; c < block.channels; ++c)
      for (int t = 0; t < N; ++t) {
        T sum = row[t][c];
        for (int64_t p = 0; p < block.positions; ++p) sum += input[block.sources[p] + at[t] + c] * gradient[block.targets[p] + c];
        row[t][c] = sum;
      }
  }

  static void add_weight_gradient(const DepthwiseBlock& block) {
    int64_t t = 0;
    for (; t + kTaps <= block.taps; t += kTaps) add_taps<kTaps>(block, t);
    switch (block.taps - t) {
      case 8: return add_taps<8>(block, t);
      case 7: return add_taps<7>(block, t);
      case 6: return add_taps<6>(block, t);
      case 5: return add_taps<5>(block, t);
      case 4: return add_taps<4>(block, t);
      case 3: return add_taps<3>(block, t);
      case 2: return add_taps<2>(block, t);
      case 1: return add_taps<1>(block, t);
      default: return;
    }
  }

  static constexpr DepthwiseFunctions functions() { return {convolve, add_weight_gradient}; }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
