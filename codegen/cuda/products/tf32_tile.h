// Products of f32 in TF32.
#pragma once

#ifndef GC_TF32_TILE
#define GC_TF32_TILE

// Multiplies f32 on tensor cores, rounded to TF32 on the way into shared memory. A lane's elements are words: of lines along k,
// ldmatrix finds them as pairs of 16 bits; of lines across, a warp reads 4 lines of 8 neighbours.
template <int kDirectionA, int kDirectionB, int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN>
struct gc_tf32_tile : gc_warp_sums<kTileM, kTileN, kTileK, kWarpM, kWarpN> {
  typedef float T;
  typedef gc_mma_operand<T, kDirectionA, kTileM, kTileK, kDirectionA == gc_along_k ? 4 : 8> A;
  typedef gc_mma_operand<T, kDirectionB, kTileN, kTileK, kDirectionB == gc_along_k ? 4 : 8> B;
  struct alignas(16) Shared {
    T a[2][A::kElements], b[2][B::kElements];
  };

  template <int kVector>
  static GC_DEVICE void put_a(Shared& shared, int half, int m, int k, bool, const gc_vector<T, kVector>& vector) {
    gc_put_tf32(&shared.a[half][A::at(m, k)], vector);
  }
  template <int kVector>
  static GC_DEVICE void put_b(Shared& shared, int half, int n, int k, bool, const gc_vector<T, kVector>& vector) {
    gc_put_tf32(&shared.b[half][B::at(n, k)], vector);
  }

  // Four matrices of 8 x 4 words: number i lies i / across_step % 2 * 8 further across and i / k_step % 2 * 4 further along k.
  template <class Operand>
  static GC_DEVICE void load(const T* shared, int across, int k, int across_step, int k_step, unsigned (&to)[4]) {
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8;
    if constexpr (Operand::kAlongK) {
      gc_load_matrices<false>(to,
                              &shared[Operand::at(across + matrix / across_step % 2 * 8 + lane % 8, k + matrix / k_step % 2 * 4)]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[i] = (unsigned)__float_as_int(
            shared[Operand::at(across + i / across_step % 2 * 8 + lane / 4, k + i / k_step % 2 * 4 + lane % 4)]);
    }
  }

  GC_DEVICE void multiply(const Shared& shared, int half) {
#pragma unroll
    for (int k = 0; k < kTileK; k += 8) {
      unsigned a[kWarpM / 16][4], b[kWarpN / 8][2];
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) load<A>(shared.a[half], this->warp_row() + i * 16, k, 1, 2, a[i]);
#pragma unroll
      for (int j = 0; j < kWarpN / 8; j += 2) {
        unsigned both[4];
        load<B>(shared.b[half], this->warp_column() + j * 8, k, 2, 1, both);
        b[j][0] = both[0], b[j][1] = both[1], b[j + 1][0] = both[2], b[j + 1][1] = both[3];
      }
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWarpN / 8; ++j) gc_mma_tf32(this->sums[i][j], a[i], b[j]);
    }
  }
};

#endif
