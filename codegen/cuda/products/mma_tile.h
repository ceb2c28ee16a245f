// Tiles of products on tensor cores, in place of gc_fma_tile.
#pragma once

// The sums of tiles on tensor cores: kWarpM x kWarpN a warp, in registers as mma leaves them.
template <int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN>
struct gc_warp_sums {
  typedef float V;
  static constexpr int kM = kTileM, kN = kTileN, kK = kTileK;
  static constexpr int kAcross = kN / kWarpN, kThreads = 32 * (kM / kWarpM) * kAcross;
  V sums[kWarpM / 16][kWarpN / 8][4];

  static GC_DEVICE int warp_row() { return (int)threadIdx.x / 32 / kAcross * kWarpM; }
  static GC_DEVICE int warp_column() { return (int)threadIdx.x / 32 % kAcross * kWarpN; }

  GC_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
      for (int j = 0; j < kWarpN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
  }

  template <class Store>
  GC_DEVICE void each_in_rows(int m0, int n0, const Store& store) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kWarpN / 8; ++j) {
      typename Store::template Place<2> place;
      store.find(n0 + warp_column() + j * 8 + lane % 4 * 2, place);
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const V values[2] = {sums[i][j][e], sums[i][j][e + 1]};
          store.put(place, m0 + warp_row() + i * 16 + lane / 4 + e * 4, values);
        }
    }
  }
  // A column's neighbours lie in other lanes: no vectors.
  template <class Store>
  GC_DEVICE void each_in_columns(int m0, int n0, const Store& store) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kWarpN / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        typename Store::template Place<1> place;
        store.find(n0 + warp_column() + j * 8 + lane % 4 * 2 + c, place);
#pragma unroll
        for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
          for (int e = c; e < 4; e += 2) {
            const V value[1] = {sums[i][j][e]};
            store.put(place, m0 + warp_row() + i * 16 + lane / 4 + e / 2 * 8, value);
          }
      }
  }
};

// An operand of a tile in shared memory, which keeps the direction of its source: lines of kPitch elements, those along k for each
// m or n, or those across for each k. Lines are kPadding longer than needed, so that what a warp reads at once lies in different
// banks.
template <class T, int kDirection, int kExtent, int kK, int kPadding>
struct gc_mma_operand {
  static constexpr bool kAlongK = kDirection == gc_along_k;
  static constexpr int kPitch = (kAlongK ? kK : kExtent) + kPadding, kElements = (kAlongK ? kExtent : kK) * kPitch;
  static GC_DEVICE int at(int across, int k) { return kAlongK ? across * kPitch + k : k * kPitch + across; }
};

// Multiplies 16-bit elements on tensor cores. The 8 rows of a matrix of 8 x 8 lie in different banks.
template <class Element, int kDirectionA, int kDirectionB, int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN>
struct gc_mma_tile : gc_warp_sums<kTileM, kTileN, kTileK, kWarpM, kWarpN> {
  typedef Element T;
  typedef gc_mma_operand<T, kDirectionA, kTileM, kTileK, 8> A;
  typedef gc_mma_operand<T, kDirectionB, kTileN, kTileK, 8> B;
  struct alignas(16) Shared {
    T a[2][A::kElements], b[2][B::kElements];
  };

  template <int kVector>
  static GC_DEVICE void put_a(Shared& shared, int half, int m, int k, bool, const gc_vector<T, kVector>& vector) {
    gc_move_vector((gc_vector<T, kVector>*)&shared.a[half][A::at(m, k)], &vector);
  }
  template <int kVector>
  static GC_DEVICE void put_b(Shared& shared, int half, int n, int k, bool, const gc_vector<T, kVector>& vector) {
    gc_move_vector((gc_vector<T, kVector>*)&shared.b[half][B::at(n, k)], &vector);
  }

  // Each lane points to a line of an 8 x 8 matrix.
  GC_DEVICE void multiply(const Shared& shared, int half) {
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8, in_matrix = lane % 8;
    const int a_across = A::kAlongK ? in_matrix : 0, b_across = B::kAlongK ? in_matrix : 0;
#pragma unroll
    for (int k = 0; k < kTileK; k += 16) {
      unsigned a[kWarpM / 16][4], b[kWarpN / 8][2];
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i)
        gc_load_matrices<!A::kAlongK>(a[i], &shared.a[half][A::at(this->warp_row() + i * 16 + matrix % 2 * 8 + a_across,
                                                                  k + matrix / 2 * 8 + in_matrix - a_across)]);
#pragma unroll
      for (int j = 0; j < kWarpN / 8; j += 2) {
        unsigned both[4];
        gc_load_matrices<!B::kAlongK>(both, &shared.b[half][B::at(this->warp_column() + j * 8 + matrix / 2 * 8 + b_across,
                                                                  k + matrix % 2 * 8 + in_matrix - b_across)]);
        b[j][0] = both[0], b[j][1] = both[1], b[j + 1][0] = both[2], b[j + 1][1] = both[3];
      }
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWarpN / 8; ++j) gc_mma(T(), this->sums[i][j], a[i], b[j]);
    }
  }
};
