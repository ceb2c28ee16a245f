// Convolutions and their gradients: implicit matrix products whose second operand is gathered from an image, and direct sums for
// groups of few channels.
#pragma once

// One axis for one class of positions: where taps start, how many there are, and which weight is the first.
struct gc_axis {
  int start, taps, first;
};
GC_DEVICE gc_axis gc_axis_of(const gc_axis_words& a, int position_class) {
  if (!a.gradient) return {-a.pad, a.weights, 0};
  for (int r = 0; r < a.tap_stride && r < a.weights; ++r) {
    const int at = position_class + a.pad - r * a.dilation;
    if (at % a.stride == 0) return {at / a.stride, (a.weights - r + a.tap_stride - 1) / a.tap_stride, r};
  }
  return {0, 0, 0};
}

// What a position or a tap adds to a coordinate of the source, and to the offset of its element; images have less than 2^30
// elements.
struct gc_point {
  int offset;
  int at[3];
};
GC_DEVICE gc_point gc_nowhere() { return {0, {-(1 << 30), 0, 0}}; }

struct gc_window {
  const gc_convolution_words& w;
  gc_axis axis[3];
  int classes[3];

  GC_DEVICE gc_window(const gc_convolution_words& words, int position_class) : w(words) {
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      classes[d] = position_class % w.axis[d].classes;
      position_class /= w.axis[d].classes;
      axis[d] = gc_axis_of(w.axis[d], classes[d]);
    }
  }
  GC_DEVICE bool has_taps() const { return axis[0].taps > 0 && axis[1].taps > 0 && axis[2].taps > 0; }

  GC_DEVICE gc_point position(int index, int count) const {
    if (index >= count) return gc_nowhere();
    gc_point p = {0, {0, 0, 0}};
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const gc_axis_words& a = w.axis[d];
      const int rest = gc_quotient(index, a.by_positions);
      p.at[d] = (index - rest * a.positions) * a.position_step + axis[d].start;
      p.offset += p.at[d] * (int)a.source_stride;
      index = rest;
    }
    p.offset += index * (int)w.source_image;
    return p;
  }

  template <bool kChannelsLast>
  GC_DEVICE gc_point tap(int index, int count) const {
    if (index >= count) return gc_nowhere();
    gc_point p = {0, {0, 0, 0}};
    if (kChannelsLast) {
      const int rest = gc_quotient(index, w.by_channels);
      p.offset = (index - rest * w.channels) * (int)w.source_channel;
      index = rest;
    }
    bool inside = true;
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const gc_axis_words& a = w.axis[d];
      const int rest = gc_quotient(index, a.by_taps), t = index - rest * a.taps;
      inside = inside && t < axis[d].taps;
      p.at[d] = t * a.tap_step;
      p.offset += p.at[d] * (int)a.source_stride;
      index = rest;
    }
    if (!kChannelsLast) p.offset += index * (int)w.source_channel;
    return inside ? p : gc_nowhere();
  }

  GC_DEVICE bool meets(const gc_point& p, const gc_point& t) const {
    return (unsigned)(p.at[0] + t.at[0]) < (unsigned)w.axis[0].source &&
           (unsigned)(p.at[1] + t.at[1]) < (unsigned)w.axis[1].source && (unsigned)(p.at[2] + t.at[2]) < (unsigned)w.axis[2].source;
  }
};

// The image as a matrix of taps and positions. Packs run along the channels where these come last; else one element at a time, so
// that neighbouring threads read neighbouring positions.
template <class T, bool kChannelsLast, bool kTapsAlongK>
struct gc_gather_source {
  static constexpr int kVector = kChannelsLast ? 16 / (int)sizeof(T) : 1;
  const gc_window& window;
  const T* data;
  int extent;  // of n
  bool packed;

  static GC_DEVICE bool runs_along_k() { return kChannelsLast == kTapsAlongK; }
  struct Fixed {
    gc_point point;
    int index;
  };
  GC_DEVICE gc_point along_k(int k, int k_end) const {
    return kTapsAlongK ? window.template tap<kChannelsLast>(k, k_end) : window.position(k, k_end);
  }
  GC_DEVICE gc_point along_n(int n) const {
    return kTapsAlongK ? window.position(n, extent) : window.template tap<kChannelsLast>(n, extent);
  }
  GC_DEVICE Fixed fix(int n) const { return {along_n(n), n}; }
  GC_DEVICE void load(const Fixed& fixed, int k, int k_end, gc_pack<T, kVector>& to) const {
    const gc_point first = along_k(k, k_end);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to.at[i] = T();
    if (kVector == 1 || packed) {
      if (window.meets(fixed.point, first))
        gc_move_pack(&to, (const gc_pack<T, kVector>*)(data + (fixed.point.offset + first.offset)));
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const gc_point a = kTapsAlongK ? along_k(k + i, k_end) : first, b = kTapsAlongK ? fixed.point : along_n(fixed.index + i);
        if (window.meets(a, b)) to.at[i] = data[a.offset + b.offset];
      }
    }
  }
};

// Rows that continue from image to image: the gradient of an output with channels first.
template <class T>
struct gc_image_source {
  static constexpr int kVector = 16 / (int)sizeof(T);
  const T* data;
  const gc_convolution_words& w;
  bool packed;

  static GC_DEVICE bool runs_along_k() { return true; }
  struct Fixed {
    const T* at;
    bool inside;
  };
  GC_DEVICE const T* element(const Fixed& fixed, int k) const {
    const int image = gc_quotient(k, w.by_image);
    return fixed.at + image * w.matrix_image + (k - image * (int)w.by_image.divisor);
  }
  GC_DEVICE Fixed fix(int m) const { return {data + m * w.matrix_row, m < w.tiling.m}; }
  GC_DEVICE void load(const Fixed& fixed, int k, int k_end, gc_pack<T, kVector>& to) const {
    const int count = fixed.inside ? k_end - k : 0;
    if (packed) return gc_load_some(element(fixed, k), 1, count, true, to);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      to.at[i] = T();
      if (i < count) to.at[i] = *element(fixed, k + i);
    }
  }
};

// Where the column of a position starts in the result.
template <class T>
struct gc_position_columns {
  const gc_window& window;
  T* data;
  int count;
  GC_DEVICE T* at(int n) const {
    const gc_convolution_words& w = window.w;
    bool inside = n < count;
    long long offset = 0;
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const gc_axis_words& a = w.axis[d];
      const int rest = gc_quotient(n, a.by_positions), i = (n - rest * a.positions) * a.classes + window.classes[d];
      inside = inside && i < a.result;
      offset += i * a.result_stride;
      n = rest;
    }
    return inside ? data + offset + n * w.result_image : nullptr;
  }
};

// Forward, and the gradient of the input.
template <class Tile, bool kChannelsLast>
GC_DEVICE void gc_convolution(typename Tile::Shared& shared, const void* first, const void* second, void* result, void* workspace,
                              const gc_convolution_words& w) {
  typedef typename Tile::T T;
  gc_place p = gc_place_of<Tile>(w.tiling);
  const int group = p.batch % w.groups;
  const gc_window window(w, p.batch / w.groups);
  const bool gradient = w.axis[0].gradient != 0;
  const T* weights = (const T*)(w.repacked ? workspace : gradient ? first : second);
  const gc_matrix_source<T, gc_along_k> matrix = {
      weights + p.batch * w.matrix_group, w.matrix_row, 1, w.tiling.m, w.packed_matrix != 0, true};
  const gc_gather_source<T, kChannelsLast, true> image = {window, (const T*)(gradient ? second : first) + group * w.source_group,
                                                          w.tiling.n, w.packed_source != 0};
  if (!window.has_taps()) p.k_end = p.k_begin;
  Tile tile;
  gc_accumulate(tile, shared, matrix, image, p.m0, p.n0, p.k_begin, p.k_end);
  if (w.tiling.partial) return gc_store_partial(tile, p, w.tiling, (char*)workspace + w.sums_offset);
  const gc_position_columns<T> columns = {window, (T*)result + group * w.result_group, w.tiling.n};
  gc_store_tile<T, !kChannelsLast, kChannelsLast>(tile, p, columns, w.result_channel, w.tiling.m, w.packs);
}

// Always as partial sums: the launch that adds them also brings them into the weight's order.
template <class Tile, bool kChannelsLast>
GC_DEVICE void gc_weight_gradient(typename Tile::Shared& shared, const void* input, const void* output, void* workspace,
                                  const gc_convolution_words& w) {
  typedef typename Tile::T T;
  const gc_place p = gc_place_of<Tile>(w.tiling);
  const gc_window window(w, 0);
  const gc_gather_source<T, kChannelsLast, false> image = {window, (const T*)input + p.batch * w.source_group, w.tiling.n,
                                                           w.packed_source != 0};
  const T* gradient = (const T*)output + p.batch * w.matrix_group;
  Tile tile;
  if constexpr (kChannelsLast) {
    const gc_matrix_source<T, gc_across> matrix = {gradient, 1, w.matrix_along, w.tiling.m, w.packed_matrix != 0, false};
    gc_accumulate(tile, shared, matrix, image, p.m0, p.n0, p.k_begin, p.k_end);
  } else {
    const gc_image_source<T> matrix = {gradient, w, w.packed_matrix != 0};
    gc_accumulate(tile, shared, matrix, image, p.m0, p.n0, p.k_begin, p.k_end);
  }
  gc_store_partial(tile, p, w.tiling, (char*)workspace + w.sums_offset);
}

// The weights as [class, group, m, k], 0 for taps that a class lacks.
template <class T>
GC_DEVICE void gc_repack_weights(const void* first, const void* second, void* workspace, const gc_convolution_words& w) {
  const bool gradient = w.axis[0].gradient != 0;
  const T* weights = (const T*)(gradient ? first : second);
  const unsigned element = blockIdx.x * blockDim.x + threadIdx.x, row = element / (unsigned)w.tiling.k;
  if (row >= (unsigned)(w.tiling.batches * w.tiling.m)) return;
  const int batch = gc_quotient((int)row, w.by_rows), m = (int)row - batch * w.tiling.m;
  const int position_class = w.groups == 1 ? batch : batch / w.groups, group = batch - position_class * w.groups;
  const gc_window window(w, position_class);
  int k = (int)(element - row * (unsigned)w.tiling.k), channel = 0;
  if (w.channels_last) {
    const int outer = gc_quotient(k, w.by_channels);
    channel = k - outer * w.channels;
    k = outer;
  }
  bool inside = true;
  long long weight = 0, stride = 1;
#pragma unroll
  for (int d = 2; d >= 0; --d) {
    const int outer = gc_quotient(k, w.axis[d].by_taps), t = k - outer * w.axis[d].taps;
    inside = inside && t < window.axis[d].taps;
    weight += (window.axis[d].first + t * w.axis[d].tap_stride) * stride;
    stride *= w.axis[d].weights;
    k = outer;
  }
  if (!w.channels_last) channel = k;
  const long long o = group * (gradient ? w.channels : w.tiling.m) + (gradient ? channel : m);
  const long long c = gradient ? m : channel, inputs = gradient ? w.tiling.m : w.channels;
  ((T*)workspace)[element] = inside ? weights[(o * inputs + c) * stride + weight] : T();
}

// One result for each thread, for groups of few channels: forward, and the gradient of the input.
template <class T, class V>
GC_DEVICE void gc_direct_convolution(const void* first, const void* second, void* result, const gc_convolution_words& w) {
  const int element = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (element >= w.tiling.n) return;
  const bool gradient = w.axis[0].gradient != 0;
  const T* source = (const T*)(gradient ? second : first);
  const T* weights = (const T*)(gradient ? first : second);
  // The element's indices, in the order of the result's memory.
  int rest = element, channel = 0, at[3], position_class = 0;
  if (w.channels_last) {
    rest = gc_quotient(element, w.by_result_channels);
    channel = element - rest * (int)w.by_result_channels.divisor;
  }
#pragma unroll
  for (int d = 2; d >= 0; --d) {
    const int outer = gc_quotient(rest, w.axis[d].by_positions);
    at[d] = rest - outer * w.axis[d].result;
    rest = outer;
  }
  if (!w.channels_last) {
    const int image = gc_quotient(rest, w.by_result_channels);
    channel = rest - image * (int)w.by_result_channels.divisor;
    rest = image;
  }
#pragma unroll
  for (int d = 0; d < 3; ++d) position_class = position_class * w.axis[d].classes + at[d] % w.axis[d].classes;
  const gc_window window(w, position_class);
  int start[3];
#pragma unroll
  for (int d = 0; d < 3; ++d) start[d] = at[d] / w.axis[d].classes * w.axis[d].position_step + window.axis[d].start;

  const int group = gc_quotient(channel, w.by_rows), m = channel - group * w.tiling.m;
  const long long outputs = gradient ? w.channels : w.tiling.m, inputs = gradient ? w.tiling.m : w.channels;
  const long long area = (long long)w.axis[0].weights * w.axis[1].weights * w.axis[2].weights;
  V sum = 0;
  for (int c = 0; c < w.channels; ++c) {
    const T* from = source + rest * w.source_image + group * w.source_group + c * w.source_channel;
    const T* by = weights + ((group * outputs + (gradient ? c : m)) * inputs + (gradient ? m : c)) * area;
    for (int t0 = 0; t0 < window.axis[0].taps; ++t0) {
      const int x0 = start[0] + t0 * w.axis[0].tap_step, r0 = window.axis[0].first + t0 * w.axis[0].tap_stride;
      if ((unsigned)x0 >= (unsigned)w.axis[0].source) continue;
      for (int t1 = 0; t1 < window.axis[1].taps; ++t1) {
        const int x1 = start[1] + t1 * w.axis[1].tap_step, r1 = window.axis[1].first + t1 * w.axis[1].tap_stride;
        if ((unsigned)x1 >= (unsigned)w.axis[1].source) continue;
        for (int t2 = 0; t2 < window.axis[2].taps; ++t2) {
          const int x2 = start[2] + t2 * w.axis[2].tap_step, r2 = window.axis[2].first + t2 * w.axis[2].tap_stride;
          if ((unsigned)x2 >= (unsigned)w.axis[2].source) continue;
          const V x = (V)gc_load(from[x0 * w.axis[0].source_stride + x1 * w.axis[1].source_stride + x2 * w.axis[2].source_stride]);
          sum += x * (V)gc_load(by[(r0 * w.axis[1].weights + r1) * w.axis[2].weights + r2]);
        }
      }
    }
  }
  gc_put(((T*)result)[element], sum);
}

// Gradients of kLanes neighbouring weights a block, those of neighbouring output channels: its rows of threads share the positions
// of one split. Partial sums are [split, tap, output channel].
template <class T, class V, int kLanes>
GC_DEVICE void gc_direct_weight_gradient(V* shared, const void* input, const void* output, void* workspace,
                                         const gc_convolution_words& w) {
  constexpr int kRows = 256 / kLanes;
  const int blocks = (w.tiling.m * w.groups + kLanes - 1) / kLanes, lane = (int)threadIdx.x % kLanes;
  const int o = (int)blockIdx.x % blocks * kLanes + lane, tap_index = (int)blockIdx.x / blocks % w.tiling.n;
  const int split = (int)blockIdx.x / blocks / w.tiling.n, outputs = w.tiling.m * w.groups;
  const int k_begin = split * w.tiling.split_k,
            k_end = w.tiling.k - k_begin < w.tiling.split_k ? w.tiling.k : k_begin + w.tiling.split_k;
  const gc_window window(w, 0);
  V sum = 0;
  if (o < outputs) {
    const gc_point tap = window.template tap<false>(tap_index, w.tiling.n);
    const T* x = (const T*)input + o / w.tiling.m * w.source_group + tap.offset;
    const T* y = (const T*)output + o * w.matrix_row;
    for (int k = k_begin + (int)threadIdx.x / kLanes; k < k_end; k += kRows) {
      const gc_point p = window.position(k, k_end);
      if (!window.meets(p, tap)) continue;
      const int image = gc_quotient(k, w.by_image);
      sum +=
          (V)gc_load(x[p.offset]) * (V)gc_load(y[image * w.matrix_image + (k - image * (int)w.by_image.divisor) * w.matrix_along]);
    }
  }
  sum = gc_join_column<kLanes, kRows>(sum, gc_join_sum(), shared);
  if ((int)threadIdx.x < kLanes && o < outputs) ((V*)workspace)[((long long)split * w.tiling.n + tap_index) * outputs + o] = sum;
}
