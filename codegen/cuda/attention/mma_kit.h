// Tiles of 16-bit elements multiplied on tensor cores with sums in f32. A warp has 16 rows of the block's own tile; what it
// computes for them stays in its registers, in the layout of mma.h, which is that of a left operand of the next product too.
#pragma once

// Two values rounded to neighbours in one register, the first in the lower half.
GC_DEVICE unsigned gc_pair_of(gc_f16, float low, float high) {
  return (unsigned)gc_store_f16(low).bits | (unsigned)gc_store_f16(high).bits << 16;
}
GC_DEVICE unsigned gc_pair_of(gc_bf16, float low, float high) {
#ifdef __CUDA_ARCH__
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return (unsigned)gc_store_bf16(low).bits | (unsigned)gc_store_bf16(high).bits << 16;
#endif
}

// exp2 and exp, whose errors are far below what rounding to 16 bits or to TF32 leaves.
static constexpr float gc_log2_e = 1.44269504f;
GC_DEVICE float gc_rounded_exp2(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}
GC_DEVICE float gc_rounded_exp(float x) { return gc_rounded_exp2(x * gc_log2_e); }

struct gc_nothing {};

template <class Storage, int kPaddedWidth, int kOwnRows, int kStreamRows>
struct gc_mma_kit {
  typedef Storage T;
  typedef float V;
  typedef T Element;
  static constexpr int kWidth = kPaddedWidth, kOwn = kOwnRows, kStream = kStreamRows, kThreads = 2 * kOwn, kRowLanes = 4;
  static constexpr int kRows = 2, kColumns = kStream / 4, kOutColumns = kWidth / 4, kOutVector = 2;
  static constexpr int kPitch = kWidth + 8;  // the 8 rows of a matrix lie in different banks
  static constexpr int kBytes = sizeof(T);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  static constexpr int kUnrolledWidths = 2;  // more would spill: an instruction takes half of k there
#else
  static constexpr int kUnrolledWidths = kWidth / 16;
#endif
  typedef const T* Left;
  static constexpr bool kHoldsLeft = false;
  struct alignas(16) Forward {
    T own[kOwn * kPitch], stream[2][kStream * kPitch];
    gc_nothing weights;
  };
  struct alignas(16) Backward {
    T own[2][kOwn * kPitch], stream[2][kStream * kPitch];
    gc_nothing weights;
  };
  template <int kAcross>
  struct Sums {
    float values[kAcross / 8][4];
    GC_DEVICE float& at(int i, int j) { return values[j / 2][2 * i + j % 2]; }
    GC_DEVICE float at(int i, int j) const { return values[j / 2][2 * i + j % 2]; }
    GC_DEVICE void clear() {
#pragma unroll
      for (int j = 0; j < kAcross / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) values[j][e] = 0;
    }
  };
  typedef Sums<kStream> Scores;
  typedef Sums<kWidth> Output;

  static GC_DEVICE int row(int i) { return (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + 8 * i; }
  static GC_DEVICE int column(int j) { return j / 2 * 8 + (int)threadIdx.x % 4 * 2 + j % 2; }
  static GC_DEVICE int out_column(int j) { return column(j); }
  static GC_DEVICE float exp(float x) { return gc_rounded_exp(x); }

  template <int kVector>
  static GC_DEVICE void put(T* to, const gc_vector<T, kVector>& vector) {
    gc_move_vector((gc_vector<T, kVector>*)to, &vector);
  }

  // scores[i][j] = sum over `width` of own[i][d] * stream[j][d].
  static GC_DEVICE void dot(Scores& scores, Left own, const T* stream, int width) {
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8, line = lane % 8, first = (int)threadIdx.x / 32 * 16;
    const gc_shared_place own_place = gc_shared_place_of(own + (first + matrix % 2 * 8 + line) * kPitch + matrix / 2 * 8),
                          stream_place = gc_shared_place_of(stream + (matrix / 2 * 8 + line) * kPitch + matrix % 2 * 8);
    scores.clear();
#pragma unroll kUnrolledWidths
    for (int d = 0; d < kWidth; d += 16) {
      if (d >= width) break;
      unsigned a[4];
      gc_load_matrices_at<false>(a, own_place + d * kBytes);
#pragma unroll
      for (int j = 0; j < kStream / 8; j += 2) {
        unsigned both[4];
        gc_load_matrices_at<false>(both, stream_place + (j * 8 * kPitch + d) * kBytes);
        const unsigned left[2] = {both[0], both[1]}, right[2] = {both[2], both[3]};
        gc_mma(T(), scores.values[j], a, left);
        gc_mma(T(), scores.values[j + 1], a, right);
      }
    }
  }

  // out[i] += sum over the stream of weights[i][n] * stream[n], weights rounded to T.
  static GC_DEVICE void mix(Output& out, const Scores& weights, const T* stream, gc_nothing, int width) {
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    const gc_shared_place place = gc_shared_place_of(stream + (matrix % 2 * 8 + line) * kPitch + matrix / 2 * 8);
#pragma unroll
    for (int n = 0; n < kStream; n += 16) {
      const float(&near)[4] = weights.values[n / 8], (&far)[4] = weights.values[n / 8 + 1];
      const unsigned a[4] = {gc_pair_of(T(), near[0], near[1]), gc_pair_of(T(), near[2], near[3]), gc_pair_of(T(), far[0], far[1]),
                             gc_pair_of(T(), far[2], far[3])};
#pragma unroll
      for (int j = 0; j < kWidth / 8; j += 2) {
        if (j * 8 >= width) break;
        unsigned both[4];
        gc_load_matrices_at<true>(both, place + (n * kPitch + j * 8) * kBytes);
        const unsigned left[2] = {both[0], both[1]}, right[2] = {both[2], both[3]};
        gc_mma(T(), out.values[j], a, left);
        gc_mma(T(), out.values[j + 1], a, right);
      }
    }
  }
};
