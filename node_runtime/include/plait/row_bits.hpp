// The rows of two nodes apart and together again by a bit for each row, four rows a step with AVX2.
//
// As lane_mask.hpp, with the bits as they travel: 64 rows a word. Callers ask have_lane_mask()
// first. Pure functions: any thread; nothing waits.
#pragma once

#include <cstdint>

#include "plait/lane_mask.hpp"

namespace plait {

#ifdef PLAIT_LANE_MASK
// The values of the rows whose bit is 0 and of those whose bit is 1, in row order. Both outputs
// have room for 4 values beyond their end.
__attribute__((target("avx2"))) inline void compress_bits(const uint64_t* values, int64_t n,
                                                          const uint64_t* words, uint64_t* p0,
                                                          uint64_t* p1) {
  using lane_mask_detail::kShuffles;
  int64_t r = 0;
  for (; r + 4 <= n; r += 4) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + r));
    const unsigned m = unsigned(words[r / 64] >> (r % 64)) & 15;
    const __m256i take0 =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(kShuffles.kept[m ^ 15]));
    const __m256i take1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(kShuffles.kept[m]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p0), _mm256_permutevar8x32_epi32(v, take0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p1), _mm256_permutevar8x32_epi32(v, take1));
    const unsigned ones = kShuffles.count[m];
    p1 += ones;
    p0 += 4 - ones;
  }
  for (; r < n; ++r) *((words[r / 64] >> (r % 64) & 1) ? p1 : p0)++ = values[r];
}

// The inverse: `zeros` values at p0 and n - zeros at p1; nothing beyond them is read, and nothing
// beyond `n` written.
__attribute__((target("avx2"))) inline void expand_bits(const uint64_t* p0, int64_t zeros,
                                                        const uint64_t* p1, const uint64_t* words,
                                                        int64_t n, uint64_t* out) {
  using lane_mask_detail::kShuffles;
  const uint64_t *end0 = p0 + zeros, *end1 = p1 + (n - zeros);
  const __m256i bits = _mm256_setr_epi64x(1, 2, 4, 8);
  int64_t r = 0;
  for (; p0 + 4 <= end0 && p1 + 4 <= end1; r += 4) {
    const unsigned m = unsigned(words[r / 64] >> (r % 64)) & 15;
    const __m256i v0 = _mm256_permutevar8x32_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p0)),
        _mm256_load_si256(reinterpret_cast<const __m256i*>(kShuffles.spread[m ^ 15])));
    const __m256i v1 = _mm256_permutevar8x32_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p1)),
        _mm256_load_si256(reinterpret_cast<const __m256i*>(kShuffles.spread[m])));
    const __m256i in1 =
        _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(int64_t(m)), bits), bits);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + r), _mm256_blendv_epi8(v0, v1, in1));
    const unsigned ones = kShuffles.count[m];
    p1 += ones;
    p0 += 4 - ones;
  }
  for (; r < n; ++r) {
    const bool one = words[r / 64] >> (r % 64) & 1;
    if (one ? p1 == end1 : p0 == end0) return;  // the bits are not as many as the values
    out[r] = *(one ? p1 : p0)++;
  }
}
#else
inline void compress_bits(const uint64_t*, int64_t, const uint64_t*, uint64_t*, uint64_t*) {}
inline void expand_bits(const uint64_t*, int64_t, const uint64_t*, const uint64_t*, int64_t,
                        uint64_t*) {}
#endif

}  // namespace plait
