// Matrix products over strided operands, and the sum of their splits.
#pragma once

GC_DEVICE long long gc_batch_offset(const gc_matrix_words& view, const int (&batch)[4], int index) {
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
                                  const gc_matmul_words& w) {
  typedef typename Tile::T T;
  const gc_place p = gc_place_of<Tile>(w.tiling);
  const gc_matrix_source<T, kDirectionA> source_a = {
      (const T*)a + gc_batch_offset(w.a, w.batch, p.batch), w.a.row, w.a.column, w.tiling.m, w.a.packed != 0, w.a.along_k != 0};
  const gc_matrix_source<T, kDirectionB> source_b = {
      (const T*)b + gc_batch_offset(w.b, w.batch, p.batch), w.b.column, w.b.row, w.tiling.n, w.b.packed != 0, w.b.along_k != 0};
  gc_accumulate(tile, shared, source_a, source_b, p.m0, p.n0, p.k_begin, p.k_end);
  return p;
}

template <class Tile, int kDirectionA, int kDirectionB>
GC_DEVICE void gc_matmul(typename Tile::Shared& shared, const void* a, const void* b, void* c, void* workspace,
                         const gc_matmul_words& w) {
  typedef typename Tile::T T;
  Tile tile;
  const gc_place p = gc_matmul_tile<Tile, kDirectionA, kDirectionB>(tile, shared, a, b, w);
  gc_strided_columns<T> columns = {(T*)c + gc_batch_offset(w.c, w.batch, p.batch), w.c.column, w.tiling.n};
  long long row_stride = w.c.row;
  int packs = w.c.packed;
  if (w.tiling.partial) {
    // Where a sum has the result's type, it only goes elsewhere: one piece of code stores both.
    if constexpr (!gc_same<T, typename Tile::V>) return gc_store_partial(tile, p, w.tiling, workspace);
    else columns = gc_partial_sums<Tile>(p, w.tiling, workspace);
    row_stride = w.tiling.n;
    packs = gc_partial_packs(w.tiling);
  }
  gc_store_tile<T, true, true>(tile, p, columns, row_stride, w.tiling.m, packs);
}

// The same with an epilogue in place of the stores; sums are whole.
template <class Tile, int kDirectionA, int kDirectionB, class Epilogue>
GC_DEVICE void gc_matmul_epilogue(typename Tile::Shared& shared, const void* a, const void* b, const gc_matmul_words& w,
                                  const Epilogue& epilogue) {
  Tile tile;
  const gc_place p = gc_matmul_tile<Tile, kDirectionA, kDirectionB>(tile, shared, a, b, w);
  tile.each_in_rows(p.m0, p.n0, gc_epilogue_store<Epilogue>{epilogue, (long long)p.batch * w.tiling.m, w.tiling.m, w.tiling.n});
}

template <class V>
GC_DEVICE V gc_sum_of_splits(const void* workspace, long long element, const gc_sum_words& w) {
  const V* from = (const V*)((const char*)workspace + w.workspace_offset) + element;
  double sum = 0;
  for (int s = 0; s < w.splits; ++s) sum += from[s * w.elements];
  return (V)sum;
}

// With an epilogue over rows of so many columns.
template <class V, class Epilogue>
GC_DEVICE void gc_sum_splits_epilogue(const void* workspace, const gc_sum_words& w, int columns, const Epilogue& epilogue) {
  const long long element = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (element < w.elements) epilogue(element / columns, (int)(element % columns), gc_sum_of_splits<V>(workspace, element, w));
}

// Where the result of a partial sum lies. Most results can be counted in 32 bits, in which a division takes a fifth of the time.
template <class Count>
GC_DEVICE long long gc_offset_of(Count element, const gc_sum_words& w) {
  long long offset = w.offset;
#pragma unroll
  for (int d = 5; d >= 0; --d) {
    if (w.extents[d] == 1) continue;
    const Count outer = element / (Count)w.extents[d];
    offset += (long long)(element - outer * (Count)w.extents[d]) * w.strides[d];
    element = outer;
  }
  return offset;
}

template <class T, class V>
GC_DEVICE void gc_sum_splits(void* result, const void* workspace, const gc_sum_words& w) {
  const long long element = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= w.elements) return;
  const long long offset = w.elements <= 0x7fffffff ? gc_offset_of((unsigned)element, w) : gc_offset_of(element, w);
  gc_put(((T*)result)[offset], gc_sum_of_splits<V>(workspace, element, w));
}
