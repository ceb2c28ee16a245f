// Random numbers by counter: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Four 32-bit
// words are a pure function of key and counter, so any thread can draw any element's number again.
#pragma once

GC_DEVICE uint4 gc_philox(unsigned long long key, uint4 counter) {
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p0 = 0xd2511f53ull * counter.x, p1 = 0xcd9e8d57ull * counter.z;
    counter = uint4{(unsigned)(p1 >> 32) ^ counter.y ^ k0, (unsigned)p1, (unsigned)(p0 >> 32) ^ counter.w ^ k1, (unsigned)p0};
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return counter;
}

// Uniform in [0, 1) from the upper 24 bits of a word.
GC_DEVICE float gc_uniform(unsigned word) { return (float)(word >> 8) * 0x1p-24f; }

// The number of random_uniform: words of the key and counter are the low halves of 64-bit operands.
GC_DEVICE float gc_philox_uniform(long long seed, long long step, long long op, long long sample, long long element) {
  const uint4 words =
      gc_philox((unsigned long long)seed, uint4{(unsigned)(element / 4), (unsigned)sample, (unsigned)step, (unsigned)op});
  const int word = (int)(element % 4);
  return gc_uniform(word == 0 ? words.x : word == 1 ? words.y : word == 2 ? words.z : words.w);
}
