// Tensor cores that round f32 to TF32, part of the texts of such kernels alone: from sm_80 on.
#pragma once

#ifndef GC_TF32
#define GC_TF32

// 10 bits behind the point, halves rounded away from zero.
GC_DEVICE float gc_tf32(float x) {
#ifdef __CUDA_ARCH__
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __int_as_float((int)bits);
#else
  return gcomp_shim::tf32(x);
#endif
}
// A vector on its way into shared memory.
template <int kVector>
GC_DEVICE void gc_put_tf32(float* to, const gc_vector<float, kVector>& vector) {
  gc_vector<float, kVector> rounded;
#pragma unroll
  for (int i = 0; i < kVector; ++i) rounded.at[i] = gc_tf32(vector.at[i]);
  gc_move_vector((gc_vector<float, kVector>*)to, &rounded);
}
// sums[16, 8] += a[16, 8] * b[8, 8], elements in TF32.
GC_DEVICE void gc_mma_tf32(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  gcomp_shim::mma_tf32(sums, a, b);
#endif
}

#endif
