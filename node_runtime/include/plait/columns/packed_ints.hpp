// PackedInts: a 64-bit column as the low bytes of its values, where all agree in the bits above
// them.
//
// Counts, small numbers and times of one epoch travel in 1, 2 or 4 bytes instead of 8. Whether they
// agree is one OR over the column, and a glance at its first rows ends it early for those that do
// not. Pure functions over memory of the caller: any thread; nothing waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "plait/core/dispatch.hpp"

namespace plait {

struct PackedInts {
  int64_t width = 8;   // bytes of a value
  uint64_t above = 0;  // the bits above them, in their place

  // On the wire: 8, 4, 2, 1 bytes are 0 to 3.
  uint64_t code() const { return width == 8 ? 0 : width == 4 ? 1 : width == 2 ? 2 : 3; }
  static PackedInts of_code(uint64_t code) { return {int64_t(8) >> code, 0}; }
};

struct LoopDiffer {
  PLAIT_INLINE static uint64_t run(const uint64_t* v, int64_t n) {
    const uint64_t first = v[0];
    uint64_t bits = 0;
    for (int64_t i = 0; i < n; ++i) bits |= v[i] ^ first;
    return bits;
  }
};

// How narrow n > 0 values can be. Few values are not worth it.
inline PackedInts choose_packing(const uint64_t* v, int64_t n) {
  constexpr int64_t kGlance = 64;
  if (n < kGlance || LoopDiffer::run(v, kGlance) >> 32) return {};
  const uint64_t bits = dispatch<LoopDiffer>(v, n);
  if (bits >> 32) return {};
  const int64_t width = bits >> 16 ? 4 : bits >> 8 ? 2 : 1;
  return {width, v[0] >> (8 * width) << (8 * width)};
}

template <class T>
struct LoopNarrow {
  PLAIT_INLINE static void run(const uint64_t* __restrict from, T* __restrict to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = T(from[i]);
  }
};
template <class T>
struct LoopNarrowRows {
  PLAIT_INLINE static void run(const uint64_t* __restrict from, const uint32_t* __restrict rows,
                               T* __restrict to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = T(from[rows[i]]);
  }
};
template <class T>
struct LoopWiden {
  PLAIT_INLINE static void run(const T* __restrict from, uint64_t above, uint64_t* __restrict to,
                               int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = above | from[i];
  }
};

// The low bytes of the given rows (null: the first n).
inline void pack_ints(const uint64_t* from, const uint32_t* rows, int64_t n,
                      const PackedInts& narrow, uint8_t* to) {
  const auto write = [&]<class T>(T* out) {
    if (rows) {
      dispatch<LoopNarrowRows<T>>(from, rows, out, n);
    } else {
      dispatch<LoopNarrow<T>>(from, out, n);
    }
  };
  if (narrow.width == 4) return write(reinterpret_cast<uint32_t*>(to));
  if (narrow.width == 2) return write(reinterpret_cast<uint16_t*>(to));
  write(to);
}

inline void unpack_ints(const uint8_t* from, int64_t n, const PackedInts& narrow, uint64_t* to) {
  if (narrow.width == 4) {
    dispatch<LoopWiden<uint32_t>>(reinterpret_cast<const uint32_t*>(from), narrow.above, to, n);
  } else if (narrow.width == 2) {
    dispatch<LoopWiden<uint16_t>>(reinterpret_cast<const uint16_t*>(from), narrow.above, to, n);
  } else {
    dispatch<LoopWiden<uint8_t>>(from, narrow.above, to, n);
  }
}

}  // namespace plait
