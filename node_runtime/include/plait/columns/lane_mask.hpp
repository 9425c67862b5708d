// Two lanes' rows apart and together again by a bitmap, four rows a step with AVX2.
//
// compress2 writes the values of lane 0 and of lane 1, in row order, to two arrays; expand2 is its
// inverse. Bit r % 4 of mask[r / 4] is row r's lane. All arrays need room for 4 values beyond their
// end. Pure functions: any thread. Callers ask have_lane_mask() first; elsewhere the split keeps
// row numbers instead.
#pragma once

#include <cstdint>

#include "plait/columns/key_hash.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define PLAIT_LANE_MASK 1
#include <immintrin.h>
#endif

namespace plait {

#ifdef PLAIT_LANE_MASK
namespace lane_mask_detail {
struct alignas(32) Shuffles {
  // kept[m]: the values whose bit is set, moved to the front. spread[m]: the front values, moved to
  // the set bits.
  uint32_t kept[16][8] = {}, spread[16][8] = {};
  uint8_t count[16] = {};
  constexpr Shuffles() {
    for (uint32_t m = 0; m < 16; ++m) {
      uint32_t n = 0;
      for (uint32_t bit = 0; bit < 4; ++bit) {
        spread[m][2 * bit] = 2 * n;
        spread[m][2 * bit + 1] = 2 * n + 1;
        if (!(m >> bit & 1)) continue;
        kept[m][2 * n] = 2 * bit;
        kept[m][2 * n + 1] = 2 * bit + 1;
        ++n;
      }
      count[m] = uint8_t(n);
    }
  }
};
inline constexpr Shuffles kShuffles;

#define PLAIT_ROWS4 __attribute__((target("avx2"), always_inline)) inline

PLAIT_ROWS4 __m256i shuffled(__m256i values, const uint32_t (&by)[8]) {
  return _mm256_permutevar8x32_epi32(values,
                                     _mm256_load_si256(reinterpret_cast<const __m256i*>(by)));
}
// Four values apart: those whose bit in m is 0 go to p0, the others to p1.
PLAIT_ROWS4 void compress4(__m256i v, unsigned m, uint64_t*& p0, uint64_t*& p1) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p0), shuffled(v, kShuffles.kept[m ^ 15]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p1), shuffled(v, kShuffles.kept[m]));
  const unsigned ones = kShuffles.count[m];
  p1 += ones;
  p0 += 4 - ones;
}
// And together again.
PLAIT_ROWS4 void expand4(unsigned m, const uint64_t*& p0, const uint64_t*& p1, uint64_t* out) {
  const __m256i bits = _mm256_setr_epi64x(1, 2, 4, 8);
  const __m256i v0 =
      shuffled(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p0)), kShuffles.spread[m ^ 15]);
  const __m256i v1 =
      shuffled(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p1)), kShuffles.spread[m]);
  const __m256i in1 =
      _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(int64_t(m)), bits), bits);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_blendv_epi8(v0, v1, in1));
  const unsigned ones = kShuffles.count[m];
  p1 += ones;
  p0 += 4 - ones;
}
}  // namespace lane_mask_detail

inline bool have_lane_mask() {
  static const bool have = __builtin_cpu_supports("avx2");
  return have;
}

// Hashes fixed-width keys, (key ^ salt) * kGolden, and writes each lane's hashes; the lane is the
// top bit. Gives how many rows lane 1 has. kCanonical: the keys are doubles, -0.0 becomes 0.0.
template <bool kCanonical>
__attribute__((target("avx2"))) inline uint32_t hash_compress2(const uint64_t* keys, int64_t n,
                                                               uint64_t salt, uint8_t* mask,
                                                               uint64_t* lane0, uint64_t* lane1) {
  const __m256i salts = _mm256_set1_epi64x(int64_t(salt));
  const __m256i low = _mm256_set1_epi64x(int64_t(kGolden & 0xFFFFFFFF));
  const __m256i high = _mm256_set1_epi64x(int64_t(kGolden >> 32));
  uint64_t *p0 = lane0, *p1 = lane1;
  int64_t r = 0;
  for (; r + 4 <= n; r += 4) {
    __m256i k = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + r));
    if constexpr (kCanonical) {
      k = _mm256_castpd_si256(_mm256_add_pd(_mm256_castsi256_pd(k), _mm256_setzero_pd()));
    }
    k = _mm256_xor_si256(k, salts);
    const __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(k, high),
                                           _mm256_mul_epu32(_mm256_srli_epi64(k, 32), low));
    const __m256i h = _mm256_add_epi64(_mm256_mul_epu32(k, low), _mm256_slli_epi64(cross, 32));
    const unsigned m = unsigned(_mm256_movemask_pd(_mm256_castsi256_pd(h)));
    mask[r / 4] = uint8_t(m);
    lane_mask_detail::compress4(h, m, p0, p1);
  }
  unsigned m = 0;
  for (int64_t i = r; i < n; ++i) {
    const uint64_t bits = kCanonical ? canonical_double(keys[i]) : keys[i];
    const uint64_t h = (bits ^ salt) * kGolden;
    const unsigned lane = unsigned(h >> 63);
    *(lane ? p1 : p0)++ = h;
    m |= lane << (i - r);
  }
  if (r < n) mask[r / 4] = uint8_t(m);
  return uint32_t(p1 - lane1);
}

__attribute__((target("avx2"))) inline void compress2(const uint64_t* values, int64_t n,
                                                      const uint8_t* mask, uint64_t* p0,
                                                      uint64_t* p1) {
  int64_t r = 0;
  for (; r + 4 <= n; r += 4) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + r));
    lane_mask_detail::compress4(v, mask[r / 4], p0, p1);
  }
  for (int64_t i = r; i < n; ++i) *((mask[r / 4] >> (i - r) & 1) ? p1 : p0)++ = values[i];
}

__attribute__((target("avx2"))) inline void expand2(const uint64_t* p0, const uint64_t* p1,
                                                    const uint8_t* mask, int64_t n, uint64_t* out) {
  int64_t r = 0;
  for (; r + 4 <= n; r += 4) {
    lane_mask_detail::expand4(mask[r / 4], p0, p1, out + r);
  }
  for (int64_t i = r; i < n; ++i) out[i] = *((mask[r / 4] >> (i - r) & 1) ? p1 : p0)++;
}
#else
inline bool have_lane_mask() { return false; }
template <bool kCanonical>
uint32_t hash_compress2(const uint64_t*, int64_t, uint64_t, uint8_t*, uint64_t*, uint64_t*) {
  return 0;
}
inline void compress2(const uint64_t*, int64_t, const uint8_t*, uint64_t*, uint64_t*) {}
inline void expand2(const uint64_t*, const uint64_t*, const uint8_t*, int64_t, uint64_t*) {}
#endif

}  // namespace plait
