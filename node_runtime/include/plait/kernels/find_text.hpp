// Where a short text occurs in a long one, 64 bytes at a time.
//
// A place counts only if its first and last byte are those of the text; the bytes between are
// compared there alone. The text may be at most kLongestNeedle bytes long, so that the worst input
// costs a bounded time a byte. Pure functions: any thread, nothing blocks.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "plait/core/dispatch.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace plait {

inline constexpr int64_t kLongestNeedle = 32;

namespace find_detail {
inline constexpr int64_t kBlock = 64;

// The bit of each of the 64 bytes from p on that is `first` and has `last` so far behind it.
PLAIT_INLINE uint64_t candidates(const char* p, int64_t behind, char first, char last) {
  uint64_t found = 0;
#if defined(__SSE2__)
  const __m128i firsts = _mm_set1_epi8(first), lasts = _mm_set1_epi8(last);
  for (int i = 0; i < 64; i += 16) {
    const auto* at = reinterpret_cast<const __m128i*>(p + i);
    const auto* end = reinterpret_cast<const __m128i*>(p + i + behind);
    const __m128i both = _mm_and_si128(_mm_cmpeq_epi8(_mm_loadu_si128(at), firsts),
                                       _mm_cmpeq_epi8(_mm_loadu_si128(end), lasts));
    found |= uint64_t(uint32_t(_mm_movemask_epi8(both))) << i;
  }
#else
  static_assert(std::endian::native == std::endian::little);
  constexpr uint64_t kOnes = 0x0101010101010101u, kLow = 0x7F7F7F7F7F7F7F7Fu;
  for (int i = 0; i < 64; i += 8) {
    uint64_t at, end;
    std::memcpy(&at, p + i, 8);
    std::memcpy(&end, p + i + behind, 8);
    const uint64_t other = (at ^ kOnes * uint8_t(first)) | (end ^ kOnes * uint8_t(last));
    const uint64_t zero = ~(((other & kLow) + kLow) | other | kLow) >> 7;
    found |= ((zero * 0x0102040810204080u) >> 56) << i;
  }
#endif
  return found;
}
}  // namespace find_detail

// Calls `hit(at)` for the occurrences in ascending order; it returns from where to look on, behind
// `at`. The needle has 1 to kLongestNeedle bytes.
template <class Hit>
PLAIT_INLINE void find_each(std::string_view text, std::string_view needle, Hit&& hit) {
  using find_detail::kBlock;
  const auto behind = int64_t(needle.size()) - 1;
  const int64_t ends = int64_t(text.size()) - behind;  // no occurrence begins here or later
  const char first = needle.front(), last = needle.back();
  const auto is_there = [&](int64_t at) PLAIT_INLINE_LAMBDA {
    return behind < 2 || !std::memcmp(text.data() + at + 1, needle.data() + 1, size_t(behind - 1));
  };
  int64_t i = 0;
  while (i + kBlock <= ends) {
    uint64_t found = find_detail::candidates(text.data() + i, behind, first, last);
    int64_t next = i + kBlock;
    while (found) {
      const int64_t at = i + std::countr_zero(found);
      found &= found - 1;
      if (!is_there(at)) continue;
      const int64_t on = hit(at);
      if (on >= next) {
        next = on;
        break;
      }
      found &= ~uint64_t(0) << (on - i);
    }
    i = next;
  }
  while (i < ends) {
    const auto* at =
        static_cast<const char*>(std::memchr(text.data() + i, first, size_t(ends - i)));
    if (!at) return;
    i = at - text.data();
    i = at[behind] == last && is_there(i) ? hit(i) : i + 1;
  }
}

}  // namespace plait
