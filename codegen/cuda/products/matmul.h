// Matrix products over strided operands, and the sum of their splits.
#pragma once

GC_DEVICE long long gc_batch_offset(const gc_matrix_parameters& view, const int (&batch)[4], int index) {
  long long offset = view.offset;
#pragma unroll
  for (int d = 3; d >= 0; --d) {
    offset += index % batch[d] * view.batch_strides[d];
    index /= batch[d];
  }
  return offset;
}

// The sums of this block's tile, and where it lies.
template <class Tile, int kDirectionA, int kDirectionB>
GC_DEVICE gc_place gc_matmul_tile(Tile& tile, typename Tile::Shared& shared, const void* a, const void* b,
                                  const gc_matmul_parameters& launch) {
  typedef typename Tile::T T;
  const gc_place p = gc_place_of<Tile>(launch.tiling);
  const gc_matrix_source<T, kDirectionA> source_a = {(const T*)a + gc_batch_offset(launch.a, launch.batch, p.batch),
                                                     launch.a.row,
                                                     launch.a.column,
                                                     launch.tiling.m,
                                                     launch.a.in_vectors != 0,
                                                     launch.a.along_k != 0};
  const gc_matrix_source<T, kDirectionB> source_b = {(const T*)b + gc_batch_offset(launch.b, launch.batch, p.batch),
                                                     launch.b.column,
                                                     launch.b.row,
                                                     launch.tiling.n,
                                                     launch.b.in_vectors != 0,
                                                     launch.b.along_k != 0};
  gc_accumulate(tile, shared, source_a, source_b, p.m0, p.n0, p.k_begin, p.k_end);
  return p;
}

template <class Tile, int kDirectionA, int kDirectionB>
GC_DEVICE void gc_matmul(typename Tile::Shared& shared, const void* a, const void* b, void* c, void* workspace,
                         const gc_matmul_parameters& launch) {
  typedef typename Tile::T T;
  Tile tile;
  const gc_place p = gc_matmul_tile<Tile, kDirectionA, kDirectionB>(tile, shared, a, b, launch);
  gc_strided_columns<T> columns = {(T*)c + gc_batch_offset(launch.c, launch.batch, p.batch), launch.c.column, launch.tiling.n};
  long long row_stride = launch.c.row;
  int vectors = launch.c.in_vectors;
  if (launch.tiling.partial) {
    // Where a sum has the result's type, it only goes elsewhere: one piece of code stores both.
    if constexpr (!gc_same<T, typename Tile::V>) return gc_store_partial(tile, p, launch.tiling, workspace);
    else columns = gc_partial_sums<Tile>(p, launch.tiling, workspace);
    row_stride = launch.tiling.n;
    vectors = gc_partial_vectors(launch.tiling);
  }
  gc_store_tile<T, true, true>(tile, p, columns, row_stride, launch.tiling.m, vectors);
}

// The same with an epilogue in place of the stores; sums are whole.
template <class Tile, int kDirectionA, int kDirectionB, class Epilogue>
GC_DEVICE void gc_matmul_epilogue(typename Tile::Shared& shared, const void* a, const void* b, const gc_matmul_parameters& launch,
                                  const Epilogue& epilogue) {
  Tile tile;
  const gc_place p = gc_matmul_tile<Tile, kDirectionA, kDirectionB>(tile, shared, a, b, launch);
  tile.each_in_rows(p.m0, p.n0,
                    gc_epilogue_store<Epilogue>{epilogue, (long long)p.batch * launch.tiling.m, launch.tiling.m, launch.tiling.n});
}

template <class V>
GC_DEVICE V gc_sum_of_splits(const void* workspace, long long element, const gc_sum_parameters& launch) {
  const V* from = (const V*)((const char*)workspace + launch.workspace_offset) + element;
  double sum = 0;
  for (int s = 0; s < launch.splits; ++s) sum += from[s * launch.elements];
  return (V)sum;
}

// With an epilogue over rows of so many columns.
template <class V, class Epilogue>
GC_DEVICE void gc_sum_splits_epilogue(const void* workspace, const gc_sum_parameters& launch, int columns,
                                      const Epilogue& epilogue) {
  const long long element = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (element < launch.elements)
    epilogue(element / columns, (int)(element % columns), gc_sum_of_splits<V>(workspace, element, launch));
}

// Where the result of a partial sum lies. Most results can be counted in 32 bits, in which a division takes a fifth of the time.
template <class Count>
GC_DEVICE long long gc_offset_of(Count element, const gc_sum_parameters& launch) {
  long long offset = launch.offset;
#pragma unroll
  for (int d = 5; d >= 0; --d) {
    if (launch.extents[d] == 1) continue;
    const Count outer = element / (Count)launch.extents[d];
    offset += (long long)(element - outer * (Count)launch.extents[d]) * launch.strides[d];
    element = outer;
  }
  return offset;
}

template <class T, class V>
GC_DEVICE void gc_sum_splits(void* result, const void* workspace, const gc_sum_parameters& launch) {
  const long long element = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= launch.elements) return;
  const long long offset = launch.elements <= 0x7fffffff ? gc_offset_of((unsigned)element, launch) : gc_offset_of(element, launch);
  gc_put(((T*)result)[offset], gc_sum_of_splits<V>(workspace, element, launch));
}
