// Keeping some rows of a batch: byte mask to row list, gathering columns, filtering with order
// tags.
//
// A filtered batch gets fresh columns and fresh tags; tags compose, so a row keeps its number
// within the source through any chain of filters. A filter that keeps everything touches nothing,
// one that keeps nothing copies nothing. Any thread may call anything on batches it owns; nothing
// blocks.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "plait/columns/batch.hpp"
#include "plait/core/dispatch.hpp"

#if PLAIT_HAS_WIDE
#include <immintrin.h>
#endif

namespace plait {

// How many bytes of a mask of 0/1 are 1.
struct LoopCountMask {
  PLAIT_INLINE static int64_t run(const uint8_t* mask, int64_t n) {
    int64_t total = 0;
    while (n > 0) {
      const int64_t part = n < 1 << 16 ? n : 1 << 16;
      uint32_t sum = 0;
      for (int64_t i = 0; i < part; ++i) sum += mask[i];
      total += sum;
      mask += part;
      n -= part;
    }
    return total;
  }
};
inline int64_t count_mask(const uint8_t* mask, int64_t n) {
  return dispatch<LoopCountMask>(mask, n);
}

inline int64_t mask_rows_plain(const uint8_t* mask, int64_t from, int64_t n, uint32_t* rows) {
  int64_t k = 0;
  for (int64_t i = from; i < n; ++i) {
    rows[k] = uint32_t(i);  // always written, kept only if counted: no branch
    k += mask[i];
  }
  return k;
}

#if PLAIT_HAS_WIDE
// Eight rows at a time: the mask's bits say which of the lanes 0..7 stay (packed by pext), written
// as one vector.
PLAIT_WIDE inline int64_t mask_rows_wide(const uint8_t* mask, int64_t n, uint32_t* rows) {
  int64_t k = 0, i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t word;
    std::memcpy(&word, mask + i, 8);
    const uint64_t lanes = _pext_u64(0x0706050403020100u, word * 0xFF);
    const __m256i index = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(int64_t(lanes)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + k),
                        _mm256_add_epi32(index, _mm256_set1_epi32(int(i))));
    k += __builtin_popcountll(word);
  }
  return k + mask_rows_plain(mask, i, n, rows + k);
}
#endif

// The numbers of the rows whose byte is 1. `rows` has room for n + 8; returns how many there are.
inline int64_t mask_rows(const uint8_t* mask, int64_t n, uint32_t* rows) {
#if PLAIT_HAS_WIDE
  if (cpu_is_wide()) return mask_rows_wide(mask, n, rows);
#endif
  return mask_rows_plain(mask, 0, n, rows);
}

template <class T>
struct LoopGather {
  PLAIT_INLINE static void run(const T* __restrict a, const uint32_t* __restrict rows,
                               T* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = a[rows[i]];
  }
};

inline BufferRef take_bits(const uint8_t* bits, int64_t offset, const uint32_t* rows, int64_t n) {
  BufferRef out = BufferRef::make(bit_bytes(n));
  uint8_t* to = out.data();
  for (int64_t i = 0; i < n; i += 8) {
    unsigned byte = 0;
    const int64_t end = n - i < 8 ? n - i : 8;
    for (int64_t k = 0; k < end; ++k) byte |= unsigned(get_bit(bits, offset + rows[i + k])) << k;
    to[i >> 3] = uint8_t(byte);
  }
  return out;
}

// The values of the given rows (any order, repeats allowed) as a fresh column. With repeats the
// caller sees to it that the texts stay below 2 GiB; a subset of rows always does.
inline Column take(const Column& c, const uint32_t* rows, int64_t n) {
  Column out;
  out.type = c.type;
  out.length = n;
  if (c.validity) {
    out.validity_owner = take_bits(c.validity, c.validity_offset, rows, n);
    out.validity = out.validity_owner.data();
  }
  if (c.type == Type::Bool) {
    out.data_owner = take_bits(c.data, c.data_offset, rows, n);
  } else if (is_fixed64(c.type)) {
    out.data_owner = BufferRef::make(n * 8);
    dispatch<LoopGather<int64_t>>(c.i64(), rows, out.data_owner.as<int64_t>(), n);
  } else {
    out.offsets_owner = BufferRef::make((n + 1) * 4);
    auto* at = out.offsets_owner.as<int32_t>();
    int32_t total = 0;
    for (int64_t i = 0; i < n; ++i) {
      at[i] = total;
      total += int32_t(c.size(rows[i]));
    }
    at[n] = total;
    out.offsets = at;
    out.data_owner = BufferRef::make(total);
    auto* to = out.data_owner.as<char>();
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(to + at[i], c.bytes(rows[i]), size_t(c.size(rows[i])));
  }
  out.data = out.data_owner.data();
  return out;
}

inline void take_subs(Batch& batch, const uint32_t* rows, int64_t n) {
  if (!batch.subs) return;
  BufferRef subs = BufferRef::make(n * 8);
  for (int64_t i = 0; i < n; ++i) subs.as<uint64_t>()[i] = batch.subs[rows[i]];
  batch.subs = subs.as<uint64_t>();
  batch.subs_owner = std::move(subs);
}

// Replaces the batch's rows by the given ones, in that order, tags included.
inline void take_rows(Batch& batch, const uint32_t* rows, int64_t n) {
  batch.spread_tags();
  for (Column& c : batch.columns) c = take(c, rows, n);
  BufferRef tags = BufferRef::make(n * 4);
  if (batch.tags) {
    dispatch<LoopGather<uint32_t>>(batch.tags, rows, tags.as<uint32_t>(), n);
  } else {
    std::memcpy(tags.data(), rows, size_t(n) * 4);
  }
  batch.tags = tags.as<uint32_t>();
  batch.tags_owner = std::move(tags);
  take_subs(batch, rows, n);
  if (batch.times) {
    BufferRef times = BufferRef::make(n * 8);
    for (int64_t i = 0; i < n; ++i) times.as<int64_t>()[i] = batch.times[rows[i]];
    batch.times = times.as<int64_t>();
    batch.times_owner = std::move(times);
  }
  batch.length = n;
}

// Keeps the rows whose byte is 1; returns how many were kept.
inline int64_t filter_batch(Batch& batch, const uint8_t* mask) {
  const int64_t n = batch.length, kept = count_mask(mask, n);
  if (kept == n) return n;
  BufferRef rows = BufferRef::make((n + 8) * 4);
  mask_rows(mask, n, rows.as<uint32_t>());
  take_rows(batch, rows.as<uint32_t>(), kept);
  return kept;
}

}  // namespace plait
