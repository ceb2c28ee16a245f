// What a product kernel is told of one shape: plain structs of at most 512 bytes that travel as ProductParameters. The header is
// part of the kernels' text and is included by the code that fills them, so the two cannot disagree.
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

// How results may be stored: one by one, or in vectors along a row or along a column of the result.
enum gc_vectors { gc_vectors_none, gc_vectors_rows, gc_vectors_columns };

struct gc_matrix_parameters {
  long long offset, batch_strides[4], row, column;
  int in_vectors, along_k;  // operands: whether vectors of 16 bytes may be read, and their direction; result: gc_vectors
};
struct gc_matmul_parameters {
  gc_tiling tiling;
  int batch[4];
  gc_matrix_parameters a, b, c;
};

// Adds the splits of each result in order. The index of a result, of the given extents, has the partial sums' order.
struct gc_sum_parameters {
  long long elements, offset, strides[6], workspace_offset;  // the last in bytes
  int extents[6], splits;
};

// A weight [o, channels, taps] and the same as [o, taps, channels].
struct gc_packing_parameters {
  long long elements;
  gc_divisor by_channels, by_taps;
};

// A convolution along one axis as products of taps with a source image: the source's coordinate is
// position * position_step + tap * tap_step + start, outside of the source a 0. Forward and for the weights, start is -pad. For an
// input gradient of stride s the positions i fall into s classes, i = s * position + class; each class sees every tap_stride-th
// weight only, and its start depends on it. No coordinate is then divided.
struct gc_axis_parameters {
  int source, positions, taps, weights, result;  // extents; of positions and taps those of the largest class
  int gradient, classes, stride, dilation, pad, tap_stride;
  int position_step, tap_step;
  gc_divisor by_positions, by_taps;
  long long source_stride, result_stride;
};

// A convolution as a matrix product. Positions count as [image, position 0, 1, 2], taps as [channel, tap 0, 1, 2] or, channels
// last, [tap 0, 1, 2, channel]; `channels` are the source's in one group. Forward and input gradient have m = channels of the
// result, n = positions, k = taps; batches = classes * groups. The weight gradient has m = channels of the output, n = taps,
// k = positions. The other operand is a matrix: weights [class, group, m, k], from the workspace where they are repacked, or the
// output's gradient.
struct gc_convolution_parameters {
  gc_tiling tiling;
  gc_axis_parameters axis[3];
  gc_divisor by_channels, by_image, by_rows, by_result_channels;  // by_image: positions of an image; by_rows: m
  int channels, groups, channels_last, repacked, source_in_vectors, matrix_in_vectors, vectors;
  long long source_image, source_channel, source_group;
  long long matrix_row, matrix_along, matrix_image, matrix_group;
  long long result_image, result_channel, result_group;
  long long sums_offset;  // bytes before the partial sums in the workspace
};
