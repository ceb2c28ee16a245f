// Attention of bf16 by the tiles of AMX: what stream.h does by registers of f32. Scores, weights and sums are f32; weights, and the
// gradients of scores, are rounded to bf16 where they are multiplied by a matrix.
//
// A tile of the left operand holds 16 rows of 32 elements along k, one of the right operand 16 pairs along k of 16 columns, and one
// of sums 16 x 16 of f32. A step of 32 elements is one chain for its even and one for its odd elements (runtime/cpu/amx.h).
#pragma once

#if defined(GC_TILES)

#if defined(GC_TILES_IN_MEMORY)  // of a test, which has put a namespace gc_tile of its own before this
#elif !defined(__AMX_BF16__)
#error "this C++ compiler knows no AMX: another one (--compiler), or --isa avx512"
#else
// The instructions by name: the compilers' functions for them do not say that they read memory.
namespace gc_tile {
struct alignas(64) shapes {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short row_bytes[16] = {};
  unsigned char rows[16] = {};
};
static void begin() {
  shapes all;
  for (int tile = 0; tile < 8; ++tile) all.row_bytes[tile] = 64, all.rows[tile] = 16;
  asm volatile("ldtilecfg %0" : : "m"(all) : "memory");
}
static void end() { asm volatile("tilerelease" : : : "memory"); }
template <int T>
GC_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(T));
}
template <int T>
GC_INLINE void load(const void* from, long row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(T) : "memory");
}
template <int T>
GC_INLINE void store(void* to, long row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row_bytes), "i"(T) : "memory");
}
template <int C, int A, int B>
GC_INLINE void add_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}
}  // namespace gc_tile
#endif

namespace gc_attention {

typedef unsigned word __attribute__((may_alias));        // a pair of bf16, the first one in the lower half
typedef unsigned short half __attribute__((may_alias));  // a bf16

constexpr long kBlock = 32;  // rows and columns of four tiles of sums, and elements of a step
constexpr long kPairs = kTile / 2;

// c = (kAdds ? c : 0) + a * b over `steps` of kBlock, a block of c. Distances from a row of 16 bits, of pairs, and of sums to the
// next are in elements of each.
template <bool kAdds, long kARow, long kBRow, long kCRow>
GC_INLINE void multiply_block(long steps, const half* a, const word* b, float* c) {
  if (kAdds) {
    gc_tile::load<0>(c, kCRow * 4);
    gc_tile::load<1>(c + 16, kCRow * 4);
    gc_tile::load<2>(c + 16 * kCRow, kCRow * 4);
    gc_tile::load<3>(c + 16 * kCRow + 16, kCRow * 4);
  } else {
    gc_tile::zero<0>();
    gc_tile::zero<1>();
    gc_tile::zero<2>();
    gc_tile::zero<3>();
  }
  for (long step = 0; step < steps; ++step, a += kBlock, b += 16 * kBRow) {
    gc_tile::load<6>(b, kBRow * 4);
    gc_tile::load<4>(a, kARow * 2);
    gc_tile::add_products<0, 4, 6>();
    gc_tile::load<7>(b + 16, kBRow * 4);
    gc_tile::add_products<1, 4, 7>();
    gc_tile::load<5>(a + 16 * kARow, kARow * 2);
    gc_tile::add_products<2, 5, 6>();
    gc_tile::add_products<3, 5, 7>();
  }
  gc_tile::store<0>(c, kCRow * 4);
  gc_tile::store<1>(c + 16, kCRow * 4);
  gc_tile::store<2>(c + 16 * kCRow, kCRow * 4);
  gc_tile::store<3>(c + 16 * kCRow + 16, kCRow * 4);
}

GC_INLINE long steps_of(long elements) { return up_to(elements, kBlock) / kBlock; }

// scores[query][key] = sum over width of own[query][d] * stream[d][key], stream in pairs along d.
template <long W>
static void dot(const place& p, long width, const half* own, const word* stream, float* scores) {
  for (long i = 0; i < p.queries; i += kBlock)
    for (long j = 0; j < p.seen(i + kBlock - 1); j += kBlock)
      multiply_block<false, W, kTile, kTile>(steps_of(width), own + i * W, stream + j, scores + i * kTile + j);
}

// out[query] += sum over keys of weights[query][key] * stream[key], stream in pairs along keys.
template <long W>
static void mix(const place& p, long width, const half* weights, const word* stream, float* out) {
  for (long i = 0; i < p.queries; i += kBlock)
    for (long j = 0; j < width; j += kBlock)
      multiply_block<true, kTile, W, W>(steps_of(p.seen(i + kBlock - 1)), weights + i * kTile, stream + j, out + i * W + j);
}

// out[key] += sum over queries of turned[key][query] * stream[query], stream in pairs along queries.
template <long W>
static void mix_turned(const place& p, long width, const half* turned, const word* stream, float* out) {
  for (long i = 0; i < p.keys; i += kBlock) {
    const long first = gc_most(i - p.ahead, 0) / kBlock * kBlock;
    if (first >= p.queries) return;
    for (long j = 0; j < width; j += kBlock)
      multiply_block<true, kTile, W, W>(steps_of(p.queries - first), turned + i * kTile + first, stream + first / 2 * W + j,
                                        out + i * W + j);
  }
}

// Rows of a matrix; zeros beside and below them.
template <long W>
static void fill(half* to, const gc_bf16* from, const view& v, long rows, long width) {
  for (long r = 0; r < rows; ++r) {
    if (width == W) __builtin_memcpy(to + r * W, from + r * v.row, W * 2);
    else __builtin_memcpy(to + r * W, from + r * v.row, width * 2);
    for (long c = width; c < W; ++c) to[r * W + c] = 0;
  }
  for (long i = rows * W; i < kTile * W; ++i) to[i] = 0;
}

// Rows 2i and 2i + 1 as a row of pairs.
template <long W>
static void pair_rows(word* to, const half* rows) {
  for (long i = 0; i < kPairs; ++i)
    for (long c = 0; c < W; ++c) to[i * W + c] = rows[2 * i * W + c] | (unsigned)rows[(2 * i + 1) * W + c] << 16;
}

// Pairs along rows as rows of pairs.
template <long W>
static void turn_rows(word* to, const half* rows) {
  gc_transpose((unsigned*)to, kTile, (const unsigned*)rows, W / 2, kTile, W / 2);
}

// Row r of a tile of f32, of which a query sees the first keys, rounded; zeros behind them.
GC_INLINE void round_row(half* to, const float* from, long seen) {
  const long end = up_to(seen, kLanes);
  for (long c = 0; c < end; c += kLanes)
    _Pragma("omp simd") for (int l = 0; l < kLanes; ++l) to[c + l] = gc_store_bf16(from[c + l]).bits;
  for (long c = end; c < kTile; ++c) to[c] = 0;
}
static void round_rows(const place& p, half* to, const float* from) {
  for (long r = 0; r < p.queries; ++r) round_row(to + r * kTile, from + r * kTile, p.seen(r));
  for (long i = p.queries * kTile; i < kTile * kTile; ++i) to[i] = 0;
}

// [query][key] to [key][query].
static void turn_tile(half* to, word* pairs, const half* rows) {
  pair_rows<kTile>(pairs, rows);
  gc_transpose((unsigned*)to, kPairs, (const unsigned*)pairs, kTile, kPairs, kTile);
}

// The thread's registers, taken and given back.
struct registers {
  registers() { gc_tile::begin(); }
  ~registers() { gc_tile::end(); }
};

// The forward pass.
template <long W>
struct tile_operands {
  alignas(64) half q[kTile * W], rows[kTile * W], weights[kTile * kTile];
  alignas(64) word k[W / 2 * kTile], v[kPairs * W];

  void take_queries(const sizes& s, const gc_bf16* queries, long count) { fill<W>(q, queries, s.q, count, s.width); }
  void take_keys(const sizes& s, const gc_bf16* keys, const gc_bf16* values, long count) {
    fill<W>(rows, keys, s.k, count, s.width);
    turn_rows<W>(k, rows);
    fill<W>(rows, values, s.v, count, s.value_width);
    pair_rows<W>(v, rows);
  }
  void dot(const sizes& s, const place& p, float* scores) const { gc_attention::dot<W>(p, s.width, q, k, scores); }
  void mix(const sizes& s, const place& p, const float* exact, float* y) {
    round_rows(p, weights, exact);
    gc_attention::mix<W>(p, s.value_width, weights, v, y);
  }

 private:
  registers own;
};

// The gradient.
template <long W>
struct tile_gradients {
  alignas(64) half q[kTile * W], dy[kTile * W], rows[kTile * W];
  alignas(64) word k_pairs[kPairs * W], k[W / 2 * kTile], v[W / 2 * kTile], q_pairs[kPairs * W], dy_pairs[kPairs * W];
  alignas(64) half weights[kTile * kTile], gradients[kTile * kTile], turned[kTile * kTile];
  alignas(64) word pairs[kPairs * kTile];

  void take_keys(const sizes& s, const gc_bf16* keys, const gc_bf16* values, long count) {
    fill<W>(rows, values, s.v, count, s.value_width);
    turn_rows<W>(v, rows);
    fill<W>(rows, keys, s.k, count, s.width);
    turn_rows<W>(k, rows);
    pair_rows<W>(k_pairs, rows);
  }
  void take_queries(const sizes& s, const gc_bf16* queries, const gc_bf16* dys, long count) {
    fill<W>(q, queries, s.q, count, s.width);
    pair_rows<W>(q_pairs, q);
    fill<W>(dy, dys, s.y, count, s.value_width);
    pair_rows<W>(dy_pairs, dy);
  }
  void dot(const sizes& s, const place& p, float* weights, float* of_weights) const {
    gc_attention::dot<W>(p, s.width, q, k, weights);
    gc_attention::dot<W>(p, s.value_width, dy, v, of_weights);
  }
  void take_gradients(const place& p, const float* exact) { round_rows(p, gradients, exact); }
  void mix(const sizes& s, const place& p, const float* exact_weights, const float*, float* dk, float* dv) {
    turn_tile(turned, pairs, gradients);
    mix_turned<W>(p, s.width, turned, q_pairs, dk);
    round_rows(p, weights, exact_weights);
    turn_tile(turned, pairs, weights);
    mix_turned<W>(p, s.value_width, turned, dy_pairs, dv);
  }
  // Rows of sums go up to whole tiles.
  void add_queries(const sizes& s, const place& p, const float*, float* sums, const view&, bool adds) const {
    if (!adds) clear<W>(sums, up_to(p.queries, kBlock));
    gc_attention::mix<W>(p, s.width, gradients, k_pairs, sums);
  }

 private:
  registers own;
};

template <long W>
struct operands_of<W, gc_bf16> {
  typedef tile_operands<W> of_result;
  typedef tile_gradients<W> of_gradients;
};

}  // namespace gc_attention
#endif
