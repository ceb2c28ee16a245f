// The registers of AMX in memory, and TDPBF16PS as Intel's instruction set reference writes it down. Compiled into tests, and put
// as text before kernels that are compiled at run time: nothing is included.
#pragma once

namespace gc_tile {

struct InMemory {
  struct Tile {
    alignas(64) unsigned char row[16][64];

    float& sum(int i, int j) { return reinterpret_cast<float*>(row[i])[j]; }
    float element(int i, int j) const {
      unsigned short bits;
      __builtin_memcpy(&bits, row[i] + 2 * j, 2);
      return flushed(__builtin_bit_cast(float, static_cast<unsigned>(bits) << 16));
    }
  };
  static Tile& tile(int number) {
    static thread_local Tile tiles[8];
    return tiles[number];
  }
  static float flushed(float value) { return __builtin_fabsf(value) < __FLT_MIN__ ? __builtin_copysignf(0, value) : value; }

  template <int T>
  static void zero() {
    tile(T) = {};
  }
  template <int T>
  static void load(const void* from, long bytes) {
    for (int i = 0; i < 16; ++i) __builtin_memcpy(tile(T).row[i], static_cast<const char*>(from) + i * bytes, 64);
  }
  template <int T>
  static void store(void* to, long bytes) {
    for (int i = 0; i < 16; ++i) __builtin_memcpy(static_cast<char*>(to) + i * bytes, tile(T).row[i], 64);
  }
  template <int C, int A, int B>
  static void add_products() {
    const Tile &a = tile(A), &b = tile(B);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) {
        float even = 0, odd = 0;
        for (int pair = 0; pair < 16; ++pair) {
          even = flushed(__builtin_fmaf(a.element(i, 2 * pair), b.element(pair, 2 * j), even));
          odd = flushed(__builtin_fmaf(a.element(i, 2 * pair + 1), b.element(pair, 2 * j + 1), odd));
        }
        float& sum = tile(C).sum(i, j);
        sum = flushed(flushed(sum) + flushed(even + odd));
      }
  }
};

}  // namespace gc_tile
