// What a machine can do at most: FLOP/s of fused multiply-adds, and bytes a second of a copy with non-temporal stores, read and
// written ones counted. All threads work at once, each on a core of its own among those that the process may use, and the slowest
// decides; the best of several takes counts.
//
//   g++ -std=c++20 -O2 -pthread -mavx2 -mfma rates.cpp -o rates && ./rates 2      {"fma_gflops": 198.2, "copy_gbytes": 30.1}
//
// With -mavx512f vectors are of 512 bits. bench/cpu/machine.py compiles and runs it.
#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

#ifdef __AVX512F__
using Vector = __m512;
Vector all(float value) { return _mm512_set1_ps(value); }
Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
Vector load(const float* from) { return _mm512_load_ps(from); }
void stream(float* to, Vector value) { _mm512_stream_ps(to, value); }
#else
using Vector = __m256;
Vector all(float value) { return _mm256_set1_ps(value); }
Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
Vector load(const float* from) { return _mm256_load_ps(from); }
void stream(float* to, Vector value) { _mm256_stream_ps(to, value); }
#endif

constexpr std::size_t kLanes = sizeof(Vector) / sizeof(float);
constexpr int kChains = 12;  // a unit takes 4 or 5 cycles for each and there are two of them; 12 and both factors fill 16 registers
constexpr long kRounds = 25'000'000;
constexpr std::size_t kBytes = std::size_t{256} << 20;  // of each array of each thread, beyond any cache
constexpr int kTakes = 6;

float multiply_adds(float factor, float addend) {
  Vector chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = all(static_cast<float>(i));
  const Vector a = all(factor), b = all(addend);
  for (long round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chains[i] = multiply_add(chains[i], a, b);
  }
  Vector sum = all(0);
  for (int i = 0; i < kChains; ++i) sum = multiply_add(chains[i], a, sum);
  float lanes[kLanes];
  std::memcpy(lanes, &sum, sizeof lanes);
  return lanes[0];
}

float* allocate() {
  void* memory = std::aligned_alloc(std::size_t{2} << 20, kBytes);
  if (!memory) std::abort();
  madvise(memory, kBytes, MADV_HUGEPAGE);
  auto* floats = static_cast<float*>(memory);
  std::fill_n(floats, kBytes / sizeof(float), 1.0f);
  return floats;
}

void copy(const float* from, float* to) {
  for (std::size_t i = 0; i < kBytes / sizeof(float); i += 4 * kLanes) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4 * kLanes; j += kLanes) stream(to + i + j, load(from + i + j));
  }
  _mm_sfence();
}

void stay_on_core(int index) {
  cpu_set_t allowed, one;
  sched_getaffinity(0, sizeof allowed, &allowed);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed) && index-- == 0) CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

/// Seconds of the shortest take in which each thread does its work once.
template <class Prepare>
double least_seconds(int threads, const Prepare& prepare) {
  std::barrier gate(threads);
  double least = 1e9;
  const auto member = [&](int index) {
    stay_on_core(index);
    const auto work = prepare();
    for (int take = 0; take < kTakes; ++take) {
      gate.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      work();
      gate.arrive_and_wait();
      if (index == 0) least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  };
  std::vector<std::jthread> others;
  for (int index = 1; index < threads; ++index) others.emplace_back(member, index);
  member(0);
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  if (threads < 1) return std::fprintf(stderr, "usage: rates THREADS\n"), 2;
  const volatile float factor = 0.999f, addend = 0.001f;
  const double computing = least_seconds(threads, [&] {
    return [&] {
      const volatile float kept = multiply_adds(factor, addend);
      static_cast<void>(kept);
    };
  });
  const double copying = least_seconds(threads, [] {
    float *from = allocate(), *to = allocate();
    return [from, to] { copy(from, to); };
  });
  const double flop = 2.0 * kRounds * kChains * kLanes * threads, bytes = 2.0 * kBytes * threads;
  std::printf("{\"fma_gflops\": %.1f, \"copy_gbytes\": %.2f}\n", flop / computing * 1e-9, bytes / copying * 1e-9);
}
