// What a product kernel is told of one shape: plain structs of at most 512 bytes that travel as ProductWords. The header is part of
// the kernels' text and is included by the code that fills them, so the two cannot disagree.
#pragma once

// x / divisor for 0 <= x < 2^31 as a multiplication: x * multiplier >> shift.
struct gc_divisor {
  unsigned divisor, multiplier, shift;
};

// result[m, n] = sum over k of first[m, k] * second[k, n] for each of `batches`, in tiles. Split s adds up k from s * split_k on;
// with more than one split, or where `partial` says so, sums go to the workspace as [split, batch, m, n].
struct gc_tiling {
  int m, n, k, tiles_m, tiles_n, batches, splits, split_k, partial;
};

// How results may be stored: one by one, or in packs along a row or along a column of the result.
enum gc_packs { gc_packs_none, gc_packs_rows, gc_packs_columns };

struct gc_matrix_words {
  long long offset, batch_strides[4], row, column;
  int packed;  // operands: packs of 16 bytes may be read; result: gc_packs
};
struct gc_matmul_words {
  gc_tiling tiling;
  int batch[4];
  gc_matrix_words a, b, c;
};

// Adds the splits of each result in order. The index of a result, of the given extents, has the partial sums' order.
struct gc_sum_words {
  long long elements, offset, strides[6];
  int extents[6], splits;
};

// A convolution along one axis as products of taps with a source image: the source's coordinate is
// position * position_step + tap * tap_step + start. For an input gradient of stride s the positions i fall into s classes,
// i = s * position + class, and each class sees every tap_stride-th weight only; `start` then depends on the class.
struct gc_axis_words {
  int source, positions, taps;  // extents; of positions and taps those of the largest class
  int weights;                  // the kernel's extent
  int classes, stride, dilation, pad, tap_stride, gradient;
  gc_divisor by_positions, by_taps;
  long long source_stride, result_stride;
  int result;  // extent of the result's axis
};
struct gc_convolution_words {
  gc_tiling tiling;
  gc_axis_words axis[3];
  gc_divisor by_channels;
  int channels;    // of the source, in a group
  int rows_total;  // of the weight matrix, over all groups and classes
  int packed_source, packed_matrix, packs;
  long long source_image, source_channel, source_group;            // strides
  long long matrix_row, matrix_image, matrix_along, matrix_group;  // of the other operand
  long long result_image, result_channel, result_group;
};
