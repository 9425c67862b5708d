// The rows of two nodes apart and together again by a bit for each row, four rows a step with AVX2,
// eight with AVX-512.
//
// As lane_mask.hpp, with the bits as they travel: 64 rows a word. Callers ask have_lane_mask()
// first. Pure functions: any thread; nothing waits.
#pragma once

#include <bit>
#include <cstdint>

#include "plait/columns/lane_mask.hpp"

namespace plait {

#ifdef PLAIT_LANE_MASK
#define PLAIT_ROWS8 __attribute__((target("avx512f,avx512dq,avx512vl,bmi,bmi2,popcnt")))

// Eight rows a step. Of an expansion that is less than half of the time: the places of the next
// values come from counts of bits, and not from where the values before them ended.
inline bool have_rows8() {
  static const bool have = __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("popcnt");
  return have;
}

namespace row_bits_detail {
// Whole words, as long as both sides have values for any word. Moves p0 and p1; returns the rows.
PLAIT_ROWS8 inline int64_t expand_words(const uint64_t*& p0, const uint64_t* end0,
                                        const uint64_t*& p1, const uint64_t* end1,
                                        const uint64_t* words, int64_t n, uint64_t* out) {
  int64_t r = 0;
  for (; r + 64 <= n && end0 - p0 >= 64 && end1 - p1 >= 64; r += 64) {
    const uint64_t word = words[r / 64];
    for (int k = 0; k < 64; k += 8) {
      const auto m = __mmask8(word >> k);
      const int ones = std::popcount(word & ((uint64_t(1) << k) - 1));
      const __m512i zeros =
          _mm512_maskz_expand_epi64(__mmask8(~m), _mm512_loadu_si512(p0 + k - ones));
      const __m512i both = _mm512_mask_expand_epi64(zeros, m, _mm512_loadu_si512(p1 + ones));
      _mm512_storeu_si512(out + r + k, both);
    }
    const int ones = std::popcount(word);
    p1 += ones;
    p0 += 64 - ones;
  }
  return r;
}

// A bit for each key of whole words: the place, 0 or 1, of the bin of its hash. `places` has one
// more than there are bins.
PLAIT_ROWS8 inline int64_t side_words(const uint64_t* keys, int64_t n, uint64_t salt,
                                      unsigned shift, const uint16_t* places, uint64_t* words) {
  const __m512i salts = _mm512_set1_epi64(int64_t(salt));
  const __m512i golden = _mm512_set1_epi64(int64_t(kGolden));
  const __m128i by = _mm_cvtsi32_si128(int(shift));
  const __m256i lowest = _mm256_set1_epi32(1);
  // The forms without a mask start from values that gcc 12 takes for uninitialised.
  const __m256i none = _mm256_setzero_si256();
  const __mmask8 all = 0xFF;
  int64_t r = 0;
  for (; r + 64 <= n; r += 64) {
    uint64_t word = 0;
    for (int k = 0; k < 64; k += 8) {
      const __m512i key = _mm512_xor_si512(_mm512_loadu_si512(keys + r + k), salts);
      const __m512i bin = _mm512_maskz_srl_epi64(all, _mm512_mullo_epi64(key, golden), by);
      const __m256i place = _mm512_mask_i64gather_epi32(none, all, bin, places, 2);
      word |= uint64_t(_mm256_test_epi32_mask(place, lowest)) << k;
    }
    words[r / 64] = word;
  }
  return r;
}
}  // namespace row_bits_detail

// The values of the rows whose bit is 0 and of those whose bit is 1, in row order. Both outputs
// have room for 4 values beyond their end.
__attribute__((target("avx2"))) inline void compress_bits(const uint64_t* values, int64_t n,
                                                          const uint64_t* words, uint64_t* p0,
                                                          uint64_t* p1) {
  int64_t r = 0;
  for (; r + 4 <= n; r += 4) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + r));
    const unsigned m = unsigned(words[r / 64] >> (r % 64)) & 15;
    lane_mask_detail::compress4(v, m, p0, p1);
  }
  for (; r < n; ++r) *((words[r / 64] >> (r % 64) & 1) ? p1 : p0)++ = values[r];
}

// The inverse: `zeros` values at p0 and n - zeros at p1; nothing beyond them is read, and nothing
// beyond `n` written.
__attribute__((target("avx2"))) inline void expand_bits(const uint64_t* p0, int64_t zeros,
                                                        const uint64_t* p1, const uint64_t* words,
                                                        int64_t n, uint64_t* out) {
  const uint64_t *end0 = p0 + zeros, *end1 = p1 + (n - zeros);
  int64_t r = 0;
  if (have_rows8()) r = row_bits_detail::expand_words(p0, end0, p1, end1, words, n, out);
  for (; p0 + 4 <= end0 && p1 + 4 <= end1; r += 4) {
    const unsigned m = unsigned(words[r / 64] >> (r % 64)) & 15;
    lane_mask_detail::expand4(m, p0, p1, out + r);
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

// A bit for each row: the place, 0 or 1, of the bin of its key's hash, (key ^ salt) * kGolden.
// `places` has one more than there are bins. Returns how many are 1.
inline int64_t key_sides(const uint64_t* keys, int64_t n, uint64_t salt, unsigned shift,
                         const uint16_t* places, uint64_t* words) {
  int64_t r = 0, ones = 0;
#ifdef PLAIT_LANE_MASK
  if (have_rows8()) r = row_bits_detail::side_words(keys, n, salt, shift, places, words);
#endif
  const auto place = [&](int64_t i) {
    return uint64_t(places[((keys[i] ^ salt) * kGolden) >> shift]);
  };
  for (; r + 64 <= n; r += 64) {
    uint64_t part[4] = {};  // four sums that do not wait for each other
    for (int64_t i = 0; i < 16; ++i) {
      for (int64_t k = 0; k < 4; ++k) part[k] |= place(r + 16 * k + i) << i;
    }
    words[r / 64] = part[0] | part[1] << 16 | part[2] << 32 | part[3] << 48;
  }
  if (r < n) words[r / 64] = 0;
  for (; r < n; ++r) words[r / 64] |= place(r) << (r % 64);
  for (int64_t w = 0; w < (n + 63) / 64; ++w) ones += std::popcount(words[w]);
  return ones;
}

}  // namespace plait
