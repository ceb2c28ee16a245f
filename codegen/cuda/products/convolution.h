// Convolutions and their gradients: implicit matrix products whose second operand is gathered from an image, and direct sums for
// groups of few channels.
#pragma once

// One axis for one class of positions: where taps start, how many there are, and which weight is the first.
struct gc_axis {
  int start, taps, first;
};
GC_DEVICE gc_axis gc_axis_of(const gc_axis_parameters& a, int position_class) {
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
  const gc_convolution_parameters& launch;
  gc_axis axis[3];
  int classes[3];

  GC_DEVICE gc_window(const gc_convolution_parameters& parameters, int position_class) : launch(parameters) {
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      classes[d] = position_class % launch.axis[d].classes;
      position_class /= launch.axis[d].classes;
      axis[d] = gc_axis_of(launch.axis[d], classes[d]);
    }
  }
  GC_DEVICE bool has_taps() const { return axis[0].taps > 0 && axis[1].taps > 0 && axis[2].taps > 0; }

  GC_DEVICE gc_point position(int index, int count) const {
    if (index >= count) return gc_nowhere();
    gc_point p = {0, {0, 0, 0}};
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const gc_axis_parameters& a = launch.axis[d];
      const int rest = gc_quotient(index, a.by_positions);
      p.at[d] = (index - rest * a.positions) * a.position_step + axis[d].start;
      p.offset += p.at[d] * (int)a.source_stride;
      index = rest;
    }
    p.offset += index * (int)launch.source_image;
    return p;
  }

  template <bool kChannelsLast>
  GC_DEVICE gc_point tap(int index, int count) const {
    if (index >= count) return gc_nowhere();
    gc_point p = {0, {0, 0, 0}};
    if (kChannelsLast) {
      const int rest = gc_quotient(index, launch.by_channels);
      p.offset = (index - rest * launch.channels) * (int)launch.source_channel;
      index = rest;
    }
    bool inside = true;
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const gc_axis_parameters& a = launch.axis[d];
      const int rest = gc_quotient(index, a.by_taps), t = index - rest * a.taps;
      inside = inside && t < axis[d].taps;
      p.at[d] = t * a.tap_step;
      p.offset += p.at[d] * (int)a.source_stride;
      index = rest;
    }
    if (!kChannelsLast) p.offset += index * (int)launch.source_channel;
    return inside ? p : gc_nowhere();
  }

  GC_DEVICE bool meets(const gc_point& p, const gc_point& t) const {
    return (unsigned)(p.at[0] + t.at[0]) < (unsigned)launch.axis[0].source &&
           (unsigned)(p.at[1] + t.at[1]) < (unsigned)launch.axis[1].source &&
           (unsigned)(p.at[2] + t.at[2]) < (unsigned)launch.axis[2].source;
  }
};

// The image as a matrix of taps and positions. Vectors run along the channels where these come last; else one element at a time, so
// that neighbouring threads read neighbouring positions.
template <class T, bool kChannelsLast, bool kTapsAlongK>
struct gc_gather_source {
  static constexpr int kVector = kChannelsLast ? 16 / (int)sizeof(T) : 1;
  const gc_window& window;
  const T* data;
  int extent;  // of n
  bool in_vectors;

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
  GC_DEVICE void load(const Fixed& fixed, int k, int k_end, gc_vector<T, kVector>& to) const {
    const gc_point first = along_k(k, k_end);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to.at[i] = T();
    if (kVector == 1 || in_vectors) {
      if (window.meets(fixed.point, first))
        gc_move_vector(&to, (const gc_vector<T, kVector>*)(data + (fixed.point.offset + first.offset)));
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
  const gc_convolution_parameters& launch;
  bool in_vectors;

  static GC_DEVICE bool runs_along_k() { return true; }
  struct Fixed {
    const T* at;
    bool inside;
  };
  GC_DEVICE const T* element(const Fixed& fixed, int k) const {
    const int image = gc_quotient(k, launch.by_image);
    return fixed.at + image * launch.matrix_image + (k - image * (int)launch.by_image.divisor);
  }
  GC_DEVICE Fixed fix(int m) const { return {data + m * launch.matrix_row, m < launch.tiling.m}; }
  GC_DEVICE void load(const Fixed& fixed, int k, int k_end, gc_vector<T, kVector>& to) const {
    const int count = fixed.inside ? k_end - k : 0;
    if (in_vectors) return gc_load_some(element(fixed, k), 1, count, true, to);
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
    const gc_convolution_parameters& launch = window.launch;
    bool inside = n < count;
    long long offset = 0;
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const gc_axis_parameters& a = launch.axis[d];
      const int rest = gc_quotient(n, a.by_positions), i = (n - rest * a.positions) * a.classes + window.classes[d];
      inside = inside && i < a.result;
      offset += i * a.result_stride;
      n = rest;
    }
    return inside ? data + offset + n * launch.result_image : nullptr;
  }
};

// Forward, and the gradient of the input.
template <class Tile, bool kChannelsLast>
GC_DEVICE void gc_convolution(typename Tile::Shared& shared, const void* first, const void* second, void* result, void* workspace,
                              const gc_convolution_parameters& launch) {
  typedef typename Tile::T T;
  gc_place p = gc_place_of<Tile>(launch.tiling);
  const int group = p.batch % launch.groups;
  const gc_window window(launch, p.batch / launch.groups);
  const bool gradient = launch.axis[0].gradient != 0;
  const T* weights = (const T*)(launch.repacked ? workspace : gradient ? first : second);
  const gc_matrix_source<T, gc_along_k> matrix = {
      weights + p.batch * launch.matrix_group, launch.matrix_row, 1, launch.tiling.m, launch.matrix_in_vectors != 0, true};
  const gc_gather_source<T, kChannelsLast, true> image = {
      window, (const T*)(gradient ? second : first) + group * launch.source_group, launch.tiling.n, launch.source_in_vectors != 0};
  if (!window.has_taps()) p.k_end = p.k_begin;
  Tile tile;
  gc_accumulate(tile, shared, matrix, image, p.m0, p.n0, p.k_begin, p.k_end);
  if (launch.tiling.partial) return gc_store_partial(tile, p, launch.tiling, (char*)workspace + launch.sums_offset);
  const gc_position_columns<T> columns = {window, (T*)result + group * launch.result_group, launch.tiling.n};
  gc_store_tile<T, !kChannelsLast, kChannelsLast>(tile, p, columns, launch.result_channel, launch.tiling.m, launch.vectors);
}

// Always as partial sums: the launch that adds them also brings them into the weight's order.
template <class Tile, bool kChannelsLast>
GC_DEVICE void gc_weight_gradient(typename Tile::Shared& shared, const void* input, const void* output, void* workspace,
                                  const gc_convolution_parameters& launch) {
  typedef typename Tile::T T;
  const gc_place p = gc_place_of<Tile>(launch.tiling);
  const gc_window window(launch, 0);
  const gc_gather_source<T, kChannelsLast, false> image = {window, (const T*)input + p.batch * launch.source_group, launch.tiling.n,
                                                           launch.source_in_vectors != 0};
  const T* gradient = (const T*)output + p.batch * launch.matrix_group;
  Tile tile;
  if constexpr (kChannelsLast) {
    const gc_matrix_source<T, gc_across> matrix = {gradient, 1, launch.matrix_along, launch.tiling.m, launch.matrix_in_vectors != 0,
                                                   false};
    gc_accumulate(tile, shared, matrix, image, p.m0, p.n0, p.k_begin, p.k_end);
  } else {
    const gc_image_source<T> matrix = {gradient, launch, launch.matrix_in_vectors != 0};
    gc_accumulate(tile, shared, matrix, image, p.m0, p.n0, p.k_begin, p.k_end);
  }
  gc_store_partial(tile, p, launch.tiling, (char*)workspace + launch.sums_offset);
}

// The weights as [class, group, m, k], 0 for taps that a class lacks.
template <class T>
GC_DEVICE void gc_repack_weights(const void* first, const void* second, void* workspace, const gc_convolution_parameters& launch) {
  const bool gradient = launch.axis[0].gradient != 0;
  const T* weights = (const T*)(gradient ? first : second);
  const unsigned element = blockIdx.x * blockDim.x + threadIdx.x, row = element / (unsigned)launch.tiling.k;
  if (row >= (unsigned)(launch.tiling.batches * launch.tiling.m)) return;
  const int batch = gc_quotient((int)row, launch.by_rows), m = (int)row - batch * launch.tiling.m;
  const int position_class = launch.groups == 1 ? batch : batch / launch.groups, group = batch - position_class * launch.groups;
  const gc_window window(launch, position_class);
  int k = (int)(element - row * (unsigned)launch.tiling.k), channel = 0;
  if (launch.channels_last) {
    const int outer = gc_quotient(k, launch.by_channels);
    channel = k - outer * launch.channels;
    k = outer;
  }
  bool inside = true;
  long long weight = 0, stride = 1;
#pragma unroll
  for (int d = 2; d >= 0; --d) {
    const int outer = gc_quotient(k, launch.axis[d].by_taps), t = k - outer * launch.axis[d].taps;
    inside = inside && t < window.axis[d].taps;
    weight += (window.axis[d].first + t * launch.axis[d].tap_stride) * stride;
    stride *= launch.axis[d].weights;
    k = outer;
  }
  if (!launch.channels_last) channel = k;
  const long long o = group * (gradient ? launch.channels : launch.tiling.m) + (gradient ? channel : m);
  const long long c = gradient ? m : channel, inputs = gradient ? launch.tiling.m : launch.channels;
  ((T*)workspace)[element] = inside ? weights[(o * inputs + c) * stride + weight] : T();
}

// The weight with its channels last into the workspace, or from there, an element a thread.
template <class T, bool kBack>
GC_DEVICE void gc_pack_weight(const void* weight, void* result, void* workspace, const gc_packing_parameters& launch) {
  const long long packed = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (packed >= launch.elements) return;
  const int channels = (int)launch.by_channels.divisor, taps = (int)launch.by_taps.divisor;
  const int outer = gc_quotient((int)packed, launch.by_channels), channel = (int)packed - outer * channels;
  const int o = gc_quotient(outer, launch.by_taps), tap = outer - o * taps;
  const long long plain = ((long long)o * channels + channel) * taps + tap;
  if (kBack) ((T*)result)[plain] = ((const T*)workspace)[packed];
  else ((T*)workspace)[packed] = ((const T*)weight)[plain];
}

// One result for each thread, for groups of few channels: forward, and the gradient of the input.
template <class T, class V>
GC_DEVICE void gc_direct_convolution(const void* first, const void* second, void* result, const gc_convolution_parameters& launch) {
  const int element = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (element >= launch.tiling.n) return;
  const bool gradient = launch.axis[0].gradient != 0;
  const T* source = (const T*)(gradient ? second : first);
  const T* weights = (const T*)(gradient ? first : second);
  // The element's indices, in the order of the result's memory.
  int rest = element, channel = 0, at[3], position_class = 0;
  if (launch.channels_last) {
    rest = gc_quotient(element, launch.by_result_channels);
    channel = element - rest * (int)launch.by_result_channels.divisor;
  }
#pragma unroll
  for (int d = 2; d >= 0; --d) {
    const int outer = gc_quotient(rest, launch.axis[d].by_positions);
    at[d] = rest - outer * launch.axis[d].result;
    rest = outer;
  }
  if (!launch.channels_last) {
    const int image = gc_quotient(rest, launch.by_result_channels);
    channel = rest - image * (int)launch.by_result_channels.divisor;
    rest = image;
  }
#pragma unroll
  for (int d = 0; d < 3; ++d) position_class = position_class * launch.axis[d].classes + at[d] % launch.axis[d].classes;
  const gc_window window(launch, position_class);
  int start[3];
#pragma unroll
  for (int d = 0; d < 3; ++d) start[d] = at[d] / launch.axis[d].classes * launch.axis[d].position_step + window.axis[d].start;

  const int group = gc_quotient(channel, launch.by_rows), m = channel - group * launch.tiling.m;
  const long long outputs = gradient ? launch.channels : launch.tiling.m, inputs = gradient ? launch.tiling.m : launch.channels;
  const long long area = (long long)launch.axis[0].weights * launch.axis[1].weights * launch.axis[2].weights;
  V sum = 0;
  for (int c = 0; c < launch.channels; ++c) {
    const T* from = source + rest * launch.source_image + group * launch.source_group + c * launch.source_channel;
    const T* by = weights + ((group * outputs + (gradient ? c : m)) * inputs + (gradient ? m : c)) * area;
    for (int t0 = 0; t0 < window.axis[0].taps; ++t0) {
      const int x0 = start[0] + t0 * launch.axis[0].tap_step, r0 = window.axis[0].first + t0 * launch.axis[0].tap_stride;
      if ((unsigned)x0 >= (unsigned)launch.axis[0].source) continue;
      for (int t1 = 0; t1 < window.axis[1].taps; ++t1) {
        const int x1 = start[1] + t1 * launch.axis[1].tap_step, r1 = window.axis[1].first + t1 * launch.axis[1].tap_stride;
        if ((unsigned)x1 >= (unsigned)launch.axis[1].source) continue;
        for (int t2 = 0; t2 < window.axis[2].taps; ++t2) {
          const int x2 = start[2] + t2 * launch.axis[2].tap_step, r2 = window.axis[2].first + t2 * launch.axis[2].tap_stride;
          if ((unsigned)x2 >= (unsigned)launch.axis[2].source) continue;
          const V x = (V)gc_load(
              from[x0 * launch.axis[0].source_stride + x1 * launch.axis[1].source_stride + x2 * launch.axis[2].source_stride]);
          sum += x * (V)gc_load(by[(r0 * launch.axis[1].weights + r1) * launch.axis[2].weights + r2]);
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
                                         const gc_convolution_parameters& launch) {
  constexpr int kRows = 256 / kLanes;
  const int blocks = (launch.tiling.m * launch.groups + kLanes - 1) / kLanes, lane = (int)threadIdx.x % kLanes;
  const int o = (int)blockIdx.x % blocks * kLanes + lane, tap_index = (int)blockIdx.x / blocks % launch.tiling.n;
  const int split = (int)blockIdx.x / blocks / launch.tiling.n, outputs = launch.tiling.m * launch.groups;
  const int k_begin = split * launch.tiling.split_k,
            k_end = launch.tiling.k - k_begin < launch.tiling.split_k ? launch.tiling.k : k_begin + launch.tiling.split_k;
  const gc_window window(launch, 0);
  V sum = 0;
  if (o < outputs) {
    const gc_point tap = window.template tap<false>(tap_index, launch.tiling.n);
    const T* x = (const T*)input + o / launch.tiling.m * launch.source_group + tap.offset;
    const T* y = (const T*)output + o * launch.matrix_row;
    for (int k = k_begin + (int)threadIdx.x / kLanes; k < k_end; k += kRows) {
      const gc_point p = window.position(k, k_end);
      if (!window.meets(p, tap)) continue;
      const int image = gc_quotient(k, launch.by_image);
      sum += (V)gc_load(x[p.offset]) *
             (V)gc_load(y[image * launch.matrix_image + (k - image * (int)launch.by_image.divisor) * launch.matrix_along]);
    }
  }
  sum = gc_combine_column<kLanes, kRows>(sum, gc_combine_sum(), shared);
  if ((int)threadIdx.x < kLanes && o < outputs)
    ((V*)workspace)[((long long)split * launch.tiling.n + tap_index) * outputs + o] = sum;
}
