// Tiles multiplied by FMA in V. kLanes neighbouring threads share kRowsEach rows of the block's own tile, each with every kLanes-th
// column; rows are read from shared memory in vectors of 16 bytes, one vector longer than needed so that neighbours lie in other
// banks.
#pragma once

template <class Storage, class Value, int kPaddedWidth, int kOwnRows, int kStreamRows, int kLanes, int kRowsEach>
struct gc_fma_kit {
  typedef Storage T;
  typedef Value V;
  typedef V Element;
  static constexpr int kWidth = kPaddedWidth, kOwn = kOwnRows, kStream = kStreamRows, kRowLanes = kLanes;
  static constexpr int kRows = kRowsEach, kColumns = kStream / kLanes, kOutColumns = kWidth / kLanes;
  static constexpr int kGroups = kOwn / kRows, kThreads = kLanes * kGroups;
  static constexpr int kChunk = 16 / (int)sizeof(V), kOutVector = kOutColumns < kChunk ? kOutColumns : kChunk;
  static constexpr int kPitch = kWidth + kChunk, kWeightPitch = kStream + kChunk;
  typedef const V* Left;
  static constexpr bool kHoldsLeft = false;
  struct alignas(16) Forward {
    V own[kOwn * kPitch], stream[2][kStream * kPitch], weights[kOwn * kWeightPitch];
  };
  struct alignas(16) Backward {
    V own[2][kOwn * kPitch], stream[2][kStream * kPitch], weights[kOwn * kWeightPitch];
  };
  template <int kAcross>
  struct Sums {
    V values[kRows][kAcross];
    GC_DEVICE V& at(int i, int j) { return values[i][j]; }
    GC_DEVICE V at(int i, int j) const { return values[i][j]; }
    GC_DEVICE void clear() {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j) values[i][j] = 0;
    }
  };
  typedef Sums<kColumns> Scores;
  typedef Sums<kOutColumns> Output;

  static GC_DEVICE int row(int i) { return (int)threadIdx.x / kLanes + i * kGroups; }
  static GC_DEVICE int column(int j) { return (int)threadIdx.x % kLanes + j * kLanes; }
  static GC_DEVICE int out_column(int j) {
    return j / kOutVector * (kLanes * kOutVector) + (int)threadIdx.x % kLanes * kOutVector + j % kOutVector;
  }
  static GC_DEVICE V exp(V x) { return gc_exp(x); }

  template <int kVector>
  static GC_DEVICE void put(V* to, const gc_vector<T, kVector>& vector) {
    V values[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = (V)gc_load(vector.at[i]);
    gc_store_vector(to, values);
  }

  // scores[i][j] = sum over `width` of own[i][d] * stream[j][d].
  static GC_DEVICE void dot(Scores& scores, Left own, const V* stream, int width) {
    scores.clear();
#pragma unroll 2
    for (int d = 0; d < width; d += kChunk) {
      V a[kRows][kChunk], b[kColumns][kChunk];
#pragma unroll
      for (int i = 0; i < kRows; ++i) gc_load_vector(own + row(i) * kPitch + d, a[i]);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) gc_load_vector(stream + column(j) * kPitch + d, b[j]);
#pragma unroll
      for (int c = 0; c < kChunk; ++c)
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
          for (int j = 0; j < kColumns; ++j) scores.values[i][j] += a[i][c] * b[j][c];
    }
  }

  // out[i] += sum over the stream of weights[i][n] * stream[n]. Rows of weights are exchanged within the warp.
  static GC_DEVICE void mix(Output& out, const Scores& weights, const V* stream, V* exchange, int) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) exchange[row(i) * kWeightPitch + column(j)] = weights.values[i][j];
    __syncwarp();
#pragma unroll 1
    for (int n = 0; n < kStream; n += kChunk) {
      V w[kRows][kChunk];
#pragma unroll
      for (int i = 0; i < kRows; ++i) gc_load_vector(exchange + row(i) * kWeightPitch + n, w[i]);
#pragma unroll
      for (int c = 0; c < kChunk; ++c)
#pragma unroll
        for (int j = 0; j < kOutColumns; j += kOutVector) {
          V b[kOutVector];
          gc_load_vector(stream + (n + c) * kPitch + out_column(j), b);
#pragma unroll
          for (int e = 0; e < kOutVector; ++e)
#pragma unroll
            for (int i = 0; i < kRows; ++i) out.values[i][j + e] += w[i][c] * b[e];
        }
    }
  }
};
