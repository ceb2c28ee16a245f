// The updates of a scatter, as a block has them that owns their destinations: listed in the order in which they come, then sorted
// by destination. Places and counts are whole numbers, so nothing here depends on which thread is first.
#pragma once

// Appends the updates of a stretch whose key is not negative, update base + (warp * kEach + k) * 32 + lane being key k of a thread,
// and returns how many are listed then. `counts` holds kThreads / 32 values.
template <int kThreads, int kEach>
GC_DEVICE int gc_list_updates(const int (&keys)[kEach], int base, int listed, int* places, unsigned short* listed_keys,
                              int* counts) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned votes[kEach];
  int own = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    votes[k] = __ballot_sync(0xffffffffu, keys[k] >= 0);
    own += __popc(votes[k]);
  }
  if (lane == 0) counts[warp] = own;
  __syncthreads();
  int at = listed;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) at += counts[w];
    listed += counts[w];
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    if (keys[k] >= 0) {
      const int entry = at + __popc(votes[k] & ((1u << lane) - 1u));
      places[entry] = base + (warp * kEach + k) * 32 + lane;
      listed_keys[entry] = (unsigned short)keys[k];
    }
    at += __popc(votes[k]);
  }
  __syncthreads();
  return listed;
}

// Sorts the entries of a list by key: `order` gets their numbers, entries of one key as they are listed, and starts[key] how many
// come before the first of a key, for keys up to kKeys. `tallies` holds kKeys values for each warp.
template <int kThreads, int kKeys>
GC_DEVICE void gc_sort_updates(const unsigned short* keys, int count, unsigned short* order, int* starts, int* tallies) {
  constexpr int kWarps = kThreads / 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int share = (count + kThreads - 1) / kThreads * 32, begin = warp * share,
            end = begin + share < count ? begin + share : count;
  const unsigned before = (1u << lane) - 1u;
  int* const tally = tallies + warp * kKeys;
  for (int i = (int)threadIdx.x; i < kWarps * kKeys; i += kThreads) tallies[i] = 0;
  __syncthreads();
  for (int i = begin; i < end; i += 32) {
    const int key = i + lane < end ? keys[i + lane] : kKeys;
    const unsigned peers = __match_any_sync(0xffffffffu, key);
    if (key < kKeys && (peers & before) == 0) tally[key] += __popc(peers);
    __syncwarp();
  }
  __syncthreads();
  // How many entries of a key the warps before have, and how many there are.
  for (int key = (int)threadIdx.x; key < kKeys; key += kThreads) {
    int total = 0;
    for (int w = 0; w < kWarps; ++w) {
      const int entries = tallies[w * kKeys + key];
      tallies[w * kKeys + key] = total;
      total += entries;
    }
    starts[key] = total;
  }
  __syncthreads();
  if (warp == 0) {
    int total = 0;
    for (int first = 0; first < kKeys; first += 32) {
      const int entries = first + lane < kKeys ? starts[first + lane] : 0;
      int sum = entries;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_sync(0xffffffffu, sum, (lane - distance) & 31);
        if (lane >= distance) sum += other;
      }
      if (first + lane < kKeys) starts[first + lane] = total + sum - entries;
      total += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (lane == 0) starts[kKeys] = total;
  }
  __syncthreads();
  for (int i = begin; i < end; i += 32) {
    const int key = i + lane < end ? keys[i + lane] : kKeys;
    const unsigned peers = __match_any_sync(0xffffffffu, key);
    if (key < kKeys) order[starts[key] + tally[key] + __popc(peers & before)] = (unsigned short)(i + lane);
    __syncwarp();
    if (key < kKeys && (peers & before) == 0) tally[key] += __popc(peers);
    __syncwarp();
  }
  __syncthreads();
}
