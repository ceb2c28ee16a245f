// Tiles of f32 multiplied on tensor cores, rounded to TF32, with sums in f32: the warps and rows of mma_kit.h, from sm_80 on.
#pragma once

#ifndef GC_ATTENTION_TF32
#define GC_ATTENTION_TF32

// kWidth is a multiple of 16.
template <int kPaddedWidth, int kOwnRows, int kStreamRows>
struct gc_tf32_kit {
  typedef float T;
  typedef float V;
  typedef float Element;
  static constexpr int kWidth = kPaddedWidth, kOwn = kOwnRows, kStream = kStreamRows, kThreads = 2 * kOwn, kRowLanes = 4;
  // A lane reads the columns of kSide products at once, which are neighbours in memory.
  static constexpr int kSide = kWidth % 32 == 0 ? 4 : 2;
  static constexpr int kRows = 2, kColumns = kStream / 4, kOutColumns = kWidth / 4, kOutVector = kSide;
  // The 8 rows of a matrix lie in different banks, and so do the 4 pairs of rows of which mix() reads vectors.
  static constexpr int kPitch = kWidth + 4;
  static constexpr int kBytes = sizeof(T);
  // Reading its rows again for each tile of the stream would take as long as half of the products. Wide ones leave no registers.
  static constexpr bool kHoldsLeft = kWidth <= 64;
  struct Left {
    gc_shared_place place;
    unsigned held[kHoldsLeft ? kWidth / 8 : 1][4];
    GC_DEVICE explicit Left(const float* own) {
      const int lane = (int)threadIdx.x % 32, matrix = lane / 8, first = (int)threadIdx.x / 32 * 16;
      place = gc_shared_place_of(own + (first + matrix % 2 * 8 + lane % 8) * kPitch + matrix / 2 * 4);
      if constexpr (kHoldsLeft) {
#pragma unroll
        for (int d = 0; d < kWidth / 8; ++d) gc_load_matrices_at<false>(held[d], place + d * 8 * kBytes);
      }
    }
    // Columns d to d + 7 of the warp's rows; d is known when the kernel is compiled.
    GC_DEVICE void get(int d, unsigned (&to)[4]) const {
      if constexpr (kHoldsLeft) {
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e] = held[d / 8][e];
      } else {
        gc_load_matrices_at<false>(to, place + d * kBytes);
      }
    }
  };
  struct alignas(16) Forward {
    float own[kOwn * kPitch], stream[2][kStream * kPitch];
    gc_nothing weights;
  };
  struct alignas(16) Backward {
    float own[2][kOwn * kPitch], stream[2][kStream * kPitch];
    gc_nothing weights;
  };
  struct Scores {
    float values[kStream / 8][4];
    GC_DEVICE float& at(int i, int j) { return values[j / 2][2 * i + j % 2]; }
  };
  // Product p of a group of kSide has every kSide-th of the group's columns.
  struct Output {
    float values[kWidth / 8][4];
    GC_DEVICE float& at(int i, int j) { return values[product(j)][2 * i + j / kSide % 2]; }
    GC_DEVICE float at(int i, int j) const { return values[product(j)][2 * i + j / kSide % 2]; }
    GC_DEVICE void clear() {
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) values[j][e] = 0;
    }
    static GC_DEVICE constexpr int product(int j) { return j / (2 * kSide) * kSide + j % kSide; }
  };

  static GC_DEVICE int row(int i) { return (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + 8 * i; }
  static GC_DEVICE int column(int j) { return j / 2 * 8 + (int)threadIdx.x % 4 * 2 + j % 2; }
  static GC_DEVICE int out_column(int j) {
    return j / (2 * kSide) * (8 * kSide) + (int)threadIdx.x % 4 * (2 * kSide) + j % (2 * kSide);
  }
  static GC_DEVICE float exp(float x) { return gc_rounded_exp(x); }

  template <int kVector>
  static GC_DEVICE void put(float* to, const gc_vector<float, kVector>& vector) {
    gc_put_tf32(to, vector);
  }

  // scores[i][j] = sum over `width` of own[i][d] * stream[j][d]. ldmatrix finds the words as pairs of 16 bits.
  static GC_DEVICE void dot(Scores& scores, const Left& own, const float* stream, int width) {
    const int lane = (int)threadIdx.x % 32;
    const gc_shared_place place = gc_shared_place_of(stream + lane % 8 * kPitch + lane / 8 * 4);
#pragma unroll
    for (int j = 0; j < kStream / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) scores.values[j][e] = 0;
#pragma unroll
    for (int d = 0; d < kWidth; d += 16) {
      if (d >= width) break;
      unsigned near[4], far[4];
      own.get(d, near);
      own.get(d + 8, far);
#pragma unroll
      for (int j = 0; j < kStream / 8; ++j) {
        unsigned both[4];
        gc_load_matrices_at<false>(both, place + (j * 8 * kPitch + d) * kBytes);
        const unsigned left[2] = {both[0], both[1]}, right[2] = {both[2], both[3]};
        gc_mma_tf32(scores.values[j], near, left);
        gc_mma_tf32(scores.values[j], far, right);
      }
    }
  }

  // out[i] += sum over the stream of weights[i][n] * stream[n], weights rounded to TF32. A lane's neighbouring columns of weights
  // are numbers c and c + 4 of the products' k, and so are the rows of the stream that they meet.
  static GC_DEVICE void mix(Output& out, const Scores& weights, const float* stream, gc_nothing, int width) {
    const int lane = (int)threadIdx.x % 32;
    const float* place = stream + lane % 4 * 2 * kPitch + lane / 4 * kSide;
#pragma unroll
    for (int n = 0; n < kStream; n += 8) {
      const float(&w)[4] = weights.values[n / 8];
      unsigned a[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) a[e] = (unsigned)__float_as_int(gc_tf32(w[e / 2 + e % 2 * 2]));
#pragma unroll
      for (int group = 0; group < kWidth / 8; group += kSide) {
        if (group * 8 >= width) break;
        float even[kSide], odd[kSide];
        gc_load_vector(place + n * kPitch + group * 8, even);
        gc_load_vector(place + (n + 1) * kPitch + group * 8, odd);
#pragma unroll
        for (int p = 0; p < kSide; ++p) {
          const unsigned b[2] = {(unsigned)__float_as_int(even[p]), (unsigned)__float_as_int(odd[p])};
          gc_mma_tf32(out.values[group + p], a, b);
        }
      }
    }
  }
};

#endif
