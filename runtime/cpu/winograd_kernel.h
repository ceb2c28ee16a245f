// The body of winograd_tiles.h, compiled once per instruction set; as in gemm_kernel.h everything has internal linkage.
#pragma once

#include "runtime/cpu/winograd_tiles.h"

namespace gcomp::runtime::cpu {
namespace {

/// VectorBytes is the register width.
template <class T, int VectorBytes>
struct Winograd {
  typedef T Vector __attribute__((vector_size(VectorBytes), aligned(sizeof(T)), may_alias));
  static constexpr int64_t kLanes = VectorBytes / static_cast<int64_t>(sizeof(T));

  /// Calls part(c, V()) for all channels, V being as many of them as are computed at once.
  template <class Part>
  static inline __attribute__((always_inline)) void for_channels(int64_t channels, const Part& part) {
    int64_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) part(c, Vector());
    for (; c < channels; ++c) part(c, T());
  }

  template <class V>
  static inline __attribute__((always_inline)) V load(const void* from, int64_t at) {
    return *reinterpret_cast<const V*>(static_cast<const T*>(from) + at);
  }
  template <class V>
  static inline __attribute__((always_inline)) void store(void* to, int64_t at, V value) {
    *reinterpret_cast<V*>(static_cast<T*>(to) + at) = value;
  }

  template <class V>
  static inline __attribute__((always_inline)) void source_line(V (&x)[4]) {
    const V a = x[0] - x[2], b = x[1] + x[2], c = x[2] - x[1], d = x[1] - x[3];
    x[0] = a, x[1] = b, x[2] = c, x[3] = d;
  }

  static void transform_source(const void* const* positions, int64_t channels, void* to, int64_t step) {
    for_channels(channels, [&](int64_t c, auto zero) {
      using V = decltype(zero);
      V columns[4][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) columns[j][i] = load<V>(positions[i * 4 + j], c);
        source_line(columns[j]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        V line[4] = {columns[0][i], columns[1][i], columns[2][i], columns[3][i]};
        source_line(line);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) store<V>(to, (i * 4 + j) * step + c, line[j]);
      }
    });
  }

  static void transform_gradient(const void* const* positions, int64_t channels, void* to, int64_t step) {
    for_channels(channels, [&](int64_t c, auto zero) {
      using V = decltype(zero);
      V lines[4][2];
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const V first = load<V>(positions[j], c), second = load<V>(positions[2 + j], c);
        lines[0][j] = first, lines[1][j] = first + second, lines[2][j] = first - second, lines[3][j] = -second;
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const V first = lines[i][0], second = lines[i][1];
        store<V>(to, (i * 4 + 0) * step + c, first);
        store<V>(to, (i * 4 + 1) * step + c, first + second);
        store<V>(to, (i * 4 + 2) * step + c, first - second);
        store<V>(to, (i * 4 + 3) * step + c, -second);
      }
    });
  }

  static void write_results(const void* from, int64_t step, int64_t channels, void* const* positions) {
    for_channels(channels, [&](int64_t c, auto zero) {
      using V = decltype(zero);
      V upper[4], lower[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        V m[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) m[i] = load<V>(from, (i * 4 + j) * step + c);
        upper[j] = m[0] + m[1] + m[2], lower[j] = m[1] - m[2] - m[3];
      }
      store<V>(positions[0], c, upper[0] + upper[1] + upper[2]);
      if (positions[1]) store<V>(positions[1], c, upper[1] - upper[2] - upper[3]);
      if (positions[2]) store<V>(positions[2], c, lower[0] + lower[1] + lower[2]);
      if (positions[3]) store<V>(positions[3], c, lower[1] - lower[2] - lower[3]);
    });
  }

  typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
  /// Rows become columns.
  static inline __attribute__((always_inline)) void transpose(Four (&x)[4]) {
    const Four ab = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), cd = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
    const Four ba = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7), dc = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
    x[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5), x[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    x[2] = __builtin_shufflevector(ba, dc, 0, 1, 4, 5), x[3] = __builtin_shufflevector(ba, dc, 2, 3, 6, 7);
  }

  static constexpr int64_t kTaps = kWinogradTaps;

  /// taps[t][lane] of results [first, first + kLanes), those behind the last zero.
  static void gather_taps(const WinogradWeights& weights, int64_t first, T (&taps)[kTaps][kLanes]) {
    const T* from = static_cast<const T*>(weights.from) + first * weights.step;
    for (int64_t lane = 0; lane < kLanes; lane += 4, from += 4 * weights.step) {
      if (first + lane + 4 > weights.count) {
        for (int64_t i = 0; i < 4; ++i)
          for (int64_t t = 0; t < kTaps; ++t)
            taps[t][lane + i] = first + lane + i < weights.count ? from[i * weights.step + t] : T(0);
        continue;
      }
#pragma GCC unroll 2
      for (int64_t t = 0; t < 8; t += 4) {
        Four x[4];
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) x[i] = load<Four>(from, i * weights.step + t);
        transpose(x);
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) store<Four>(&taps[t + i][lane], 0, x[i]);
      }
      for (int64_t i = 0; i < 4; ++i) taps[kTaps - 1][lane + i] = from[i * weights.step + kTaps - 1];
    }
  }

  /// G x of three.
  static inline __attribute__((always_inline)) void weight_line(const Vector& a, const Vector& b, const Vector& c,
                                                                Vector (&line)[4]) {
    const Vector ends = a + c;
    line[0] = a, line[1] = (ends + b) * T(0.5), line[2] = (ends - b) * T(0.5), line[3] = c;
  }

  static void transform_weights(const WinogradWeights& weights, int64_t width, void* to, int64_t step) {
    for (int64_t first = 0; first < width; first += kLanes) {
      alignas(64) T taps[kTaps][kLanes];
      gather_taps(weights, first, taps);
      const auto tap = [&](int i) { return load<Vector>(taps[weights.turned ? kTaps - 1 - i : i], 0); };
      Vector columns[3][4];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) weight_line(tap(j), tap(3 + j), tap(6 + j), columns[j]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        Vector line[4];
        weight_line(columns[0][i], columns[1][i], columns[2][i], line);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) store<Vector>(to, (i * 4 + j) * step + first, line[j]);
      }
    }
  }

  /// G^T x of four. What is halved is exact, so that it is the same whether the sum after it is fused with it or not.
  static inline __attribute__((always_inline)) void tap_line(const Vector (&x)[4], Vector (&line)[3]) {
    const Vector both = (x[1] + x[2]) * T(0.5), between = (x[1] - x[2]) * T(0.5);
    line[0] = x[0] + both, line[1] = between, line[2] = both + x[3];
  }

  static void write_weights(const void* from, int64_t step, int64_t count, void* to, int64_t to_step) {
    for (int64_t first = 0; first < count; first += kLanes) {
      const int64_t lanes = count - first < kLanes ? count - first : kLanes;
      Vector columns[4][3];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        Vector x[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) x[i] = load_some(from, (i * 4 + j) * step + first, lanes);
        tap_line(x, columns[j]);
      }
      alignas(64) T taps[kTaps][kLanes];
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) {
        const Vector x[4] = {columns[0][i], columns[1][i], columns[2][i], columns[3][i]};
        Vector line[3];
        tap_line(x, line);
#pragma GCC unroll 3
        for (int j = 0; j < 3; ++j) store<Vector>(taps[i * 3 + j], 0, line[j]);
      }
      scatter_taps(taps, lanes, static_cast<T*>(to) + first * to_step, to_step);
    }
  }

  static Vector load_some(const void* from, int64_t at, int64_t lanes) {
    if (lanes == kLanes) return load<Vector>(from, at);
    T values[kLanes] = {};
    for (int64_t i = 0; i < lanes; ++i) values[i] = static_cast<const T*>(from)[at + i];
    return load<Vector>(values, 0);
  }

  static void scatter_taps(const T (&taps)[kTaps][kLanes], int64_t lanes, T* to, int64_t step) {
    for (int64_t lane = 0; lane < lanes; lane += 4, to += 4 * step) {
      if (lane + 4 > lanes) {
        for (int64_t i = 0; lane + i < lanes; ++i)
          for (int64_t t = 0; t < kTaps; ++t) to[i * step + t] = taps[t][lane + i];
        return;
      }
#pragma GCC unroll 2
      for (int64_t t = 0; t < 8; t += 4) {
        Four x[4];
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) x[i] = load<Four>(&taps[t + i][lane], 0);
        transpose(x);
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) store<Four>(to, i * step + t, x[i]);
      }
      for (int64_t i = 0; i < 4; ++i) to[i * step + kTaps - 1] = taps[kTaps - 1][lane + i];
    }
  }

  static constexpr WinogradFunctions functions() {
    return {transform_source, transform_gradient, transform_weights, write_weights, write_results};
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
