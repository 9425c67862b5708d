// Bytes of texts, 16 at a time, and UTF-8 as Python takes it.
//
// Whoever asks for a block makes sure that 16 bytes can be read there. Pure functions: any thread,
// nothing blocks.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "plait/columns/strings.hpp"
#include "plait/core/dispatch.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace plait {

inline constexpr int kTextBlock = 16;

namespace utf8_detail {
inline constexpr uint64_t kOnes = 0x0101010101010101u, kHighs = 0x8080808080808080u;

// The high bit of the first byte that ends a run of plain text, and maybe of later ones: a borrow
// only ever goes up from a byte that is one.
PLAIT_INLINE uint64_t special_in_word(uint64_t word) {
  const auto zero = [](uint64_t x) { return (x - kOnes) & ~x; };
  const uint64_t control = (word - kOnes * 0x20) & ~word;
  return (zero(word ^ kOnes * '"') | zero(word ^ kOnes * '\\') | control) & kHighs;
}
}  // namespace utf8_detail

// Where the first quote, backslash or control character is among the next 16 bytes; 16: nowhere.
PLAIT_INLINE int first_special(const uint8_t* p) {
#if defined(__SSE2__)
  const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i quote = _mm_cmpeq_epi8(block, _mm_set1_epi8('"'));
  const __m128i slash = _mm_cmpeq_epi8(block, _mm_set1_epi8('\\'));
  const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(block, _mm_set1_epi8(0x1F)), block);
  const int mask = _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), control));
  return std::countr_zero(uint32_t(mask) | 0x10000u);
#else
  static_assert(std::endian::native == std::endian::little);
  uint64_t words[2];
  std::memcpy(words, p, 16);
  const uint64_t low = utf8_detail::special_in_word(words[0]);
  if (low) return std::countr_zero(low) / 8;
  const uint64_t high = utf8_detail::special_in_word(words[1]);
  return high ? 8 + std::countr_zero(high) / 8 : kTextBlock;
#endif
}

// Whether all of n bytes are ASCII; looks at whole blocks, whose rest must be zeros.
PLAIT_INLINE bool is_ascii_in_blocks(const uint8_t* p, int64_t n) {
#if defined(__SSE2__)
  __m128i seen = _mm_setzero_si128();
  for (int64_t i = 0; i < n; i += kTextBlock) {
    seen = _mm_or_si128(seen, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i)));
  }
  return _mm_movemask_epi8(seen) == 0;
#else
  return is_ascii(reinterpret_cast<const char*>(p), (n + 7) / 8 * 8);
#endif
}

// The first byte of what is not UTF-8 (shortest forms, no surrogates, up to U+10FFFF); n if all is.
// Eight zeros must follow.
inline int64_t first_not_utf8(const uint8_t* s, int64_t n) {
  for (int64_t i = 0; i < n;) {
    uint64_t word;
    std::memcpy(&word, s + i, 8);
    if (const uint64_t others = word & utf8_detail::kHighs) {
      i += std::countr_zero(others) / 8;
    } else {
      i += 8;
      continue;
    }
    while (s[i] >= 0x80) {
      uint32_t c;
      std::memcpy(&c, s + i, 4);  // the lead is the lowest byte; masks take what is told of it
      if ((c & 0xC0E0) == 0x80C0 && (c & 0x1E)) {
        i += 2;
      } else if ((c & 0xC0C0F0) == 0x8080E0 && (c & 0x200F) && (c & 0x200F) != 0x200D) {
        i += 3;
      } else if ((c & 0xC0C0C0F8) == 0x808080F0 && (c & 0x3007) &&
                 ((c & 7) < 4 || (c & 0x3007) == 4)) {
        i += 4;
      } else {
        return i;
      }
    }
  }
  return n;
}

// Writes a character, also half of a surrogate pair, which is then not UTF-8.
inline uint8_t* put_utf8(uint8_t* o, uint32_t code) {
  if (code < 0x80) {
    *o++ = uint8_t(code);
  } else if (code < 0x800) {
    *o++ = uint8_t(0xC0 | code >> 6);
    *o++ = uint8_t(0x80 | (code & 0x3F));
  } else {
    if (code < 0x10000) {
      *o++ = uint8_t(0xE0 | code >> 12);
    } else {
      *o++ = uint8_t(0xF0 | code >> 18);
      *o++ = uint8_t(0x80 | (code >> 12 & 0x3F));
    }
    *o++ = uint8_t(0x80 | (code >> 6 & 0x3F));
    *o++ = uint8_t(0x80 | (code & 0x3F));
  }
  return o;
}

}  // namespace plait
