// Tensor cores through warp-wide instructions. Where there is no PTX, the emulator's shim gives gcomp_shim::load_matrices and
// gcomp_shim::mma with the layout of registers that the PTX manual documents.
#pragma once

// Texts of products and of attention may stand in one source.
#ifndef GC_MMA
#define GC_MMA

// A place in shared memory, to which bytes can be added: constant ones become part of the instruction that loads from there.
#ifdef __CUDA_ARCH__
typedef unsigned gc_shared_place;
GC_DEVICE gc_shared_place gc_shared_place_of(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
#else
typedef const char* gc_shared_place;
GC_DEVICE gc_shared_place gc_shared_place_of(const void* at) { return (const char*)at; }
#endif

// Four 8 x 8 matrices of 16-bit elements from shared memory: lane l gives the address of row l % 8 of matrix l / 8, and gets of
// each matrix the two neighbours [l / 4][2 * (l % 4)], or with kTransposed the pair [2 * (l % 4)][l / 4] and the row below.
template <bool kTransposed>
GC_DEVICE void gc_load_matrices_at(unsigned (&to)[4], gc_shared_place row) {
#ifdef __CUDA_ARCH__
  if (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
#else
  gcomp_shim::load_matrices(to, row, kTransposed);
#endif
}
template <bool kTransposed>
GC_DEVICE void gc_load_matrices(unsigned (&to)[4], const void* row) {
  gc_load_matrices_at<kTransposed>(to, gc_shared_place_of(row));
}

// sums[16, 8] += a[16, 16] * b[16, 8], sums in f32.
GC_DEVICE void gc_mma(gc_f16, float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifndef __CUDA_ARCH__
  gcomp_shim::mma(sums, a, b, [](unsigned short bits) { return gc_load(gc_f16{bits}); });
#elif __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  // The first two registers of `a` and the first of `b` hold the first 8 of k.
#pragma unroll
  for (int half = 0; half < 2; ++half)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}
// From sm_80 on; code generation takes FMA tiles below.
GC_DEVICE void gc_mma(gc_bf16, float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  gcomp_shim::mma(sums, a, b, [](unsigned short bits) { return gc_load(gc_bf16{bits}); });
#endif
}

#endif
