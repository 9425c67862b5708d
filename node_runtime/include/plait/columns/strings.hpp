// Functions of one text: case, length, white space, search, UTF-8 checks.
//
// Lower and upper case go character by character, by a table that Python fills once (so both sides
// use the same Unicode version) before the first program that needs it is built; afterwards it is
// only read. Texts of ASCII alone take a path without the table. Any thread may call anything but
// `CaseTable::fill`; nothing blocks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/core/dispatch.hpp"

namespace plait {

inline bool is_ascii(const char* s, int64_t n) {
  uint64_t seen = 0, word = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::memcpy(&word, s + i, 8);
    seen |= word;
  }
  for (; i < n; ++i) seen |= uint8_t(s[i]);
  return (seen & 0x8080808080808080u) == 0;
}

template <bool kUpper>
void ascii_case(const char* s, int64_t n, char* o) {
  const uint8_t first = kUpper ? 'a' : 'A';
  for (int64_t i = 0; i < n; ++i) {
    const auto c = uint8_t(s[i]);
    o[i] = char(c ^ (uint8_t(uint8_t(c - first) < 26) << 5));
  }
}

// Bytes of the UTF-8 sequence that starts with `lead`; the text is known to be valid.
inline int utf8_size(uint8_t lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

inline uint32_t utf8_code(const char* s, int size) {
  const auto* u = reinterpret_cast<const uint8_t*>(s);
  switch (size) {
    case 1:
      return u[0];
    case 2:
      return uint32_t(u[0] & 0x1F) << 6 | (u[1] & 0x3F);
    case 3:
      return uint32_t(u[0] & 0x0F) << 12 | uint32_t(u[1] & 0x3F) << 6 | (u[2] & 0x3F);
    default:
      return uint32_t(u[0] & 0x07) << 18 | uint32_t(u[1] & 0x3F) << 12 |
             uint32_t(u[2] & 0x3F) << 6 | (u[3] & 0x3F);
  }
}

// What each character becomes, for the characters that change. Two levels: 256 characters a page.
class CaseTable {
 public:
  static CaseTable& lower() {
    static CaseTable table;
    return table;
  }
  static CaseTable& upper() {
    static CaseTable table;
    return table;
  }

  bool filled() const { return !pages_.empty(); }
  // Once, by one thread, before any use.
  void fill(const std::vector<std::pair<uint32_t, std::string>>& changes) {
    pages_.assign(0x1100, 0);
    cells_.assign(256, 0);  // page 0: nothing changes
    becomes_.assign(1, "");
    for (const auto& [code, text] : changes) {
      uint32_t& page = pages_[code >> 8];
      if (page == 0) {
        page = uint32_t(cells_.size() >> 8);
        cells_.resize(cells_.size() + 256, 0);
      }
      cells_[page << 8 | (code & 255)] = uint32_t(becomes_.size());
      becomes_.push_back(text);
      const int64_t from = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      growth_ = std::max(growth_, (int64_t(text.size()) + from - 1) / from);
    }
  }
  // A text of n bytes becomes at most n * growth() bytes.
  int64_t growth() const { return growth_; }

  int64_t convert(const char* s, int64_t n, char* o) const {
    char* to = o;
    for (int64_t i = 0; i < n;) {
      const int size = utf8_size(uint8_t(s[i]));
      const uint32_t code = utf8_code(s + i, size);
      const uint32_t cell = cells_[pages_[code >> 8] << 8 | (code & 255)];
      if (cell) {
        const std::string& text = becomes_[cell];
        std::memcpy(to, text.data(), text.size());
        to += text.size();
      } else {
        std::memcpy(to, s + i, size_t(size));
        to += size;
      }
      i += size;
    }
    return to - o;
  }

 private:
  std::vector<uint32_t> pages_, cells_;
  std::vector<std::string> becomes_;
  int64_t growth_ = 1;
};

struct LoopCountCharacters {
  PLAIT_INLINE static int64_t run(const char* s, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += int8_t(s[i]) >= -64;  // not a continuation byte
    return count;
  }
};
inline int64_t count_characters(const char* s, int64_t n) {
  if (n >= 64) return dispatch<LoopCountCharacters>(s, n);
  int64_t continuations = 0, i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t word;
    std::memcpy(&word, s + i, 8);
    continuations += std::popcount((word >> 7) & ~(word >> 6) & 0x0101010101010101u);
  }
  for (int64_t k = i; k < n; ++k) continuations += int8_t(s[k]) < -64;
  return n - continuations;
}

inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

inline std::string_view strip(std::string_view s) {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

inline bool contains(std::string_view s, std::string_view part) {
#if defined(_GNU_SOURCE)
  // Linear in the worst case, but slower to start than a search for the first byte.
  if (s.size() >= 256 && !part.empty())
    return memmem(s.data(), s.size(), part.data(), part.size()) != nullptr;
#endif
  return s.find(part) != std::string_view::npos;
}

// Valid UTF-8 as Python takes it: shortest forms only, no surrogates, up to U+10FFFF.
inline bool is_utf8(const char* text, int64_t n) {
  const auto* s = reinterpret_cast<const uint8_t*>(text);
  if (is_ascii(text, n)) return true;
  for (int64_t i = 0; i < n;) {
    const uint8_t c = s[i];
    if (c < 0x80) {
      ++i;
      continue;
    }
    if (c < 0xC2 || c > 0xF4) return false;
    const int size = utf8_size(c);
    if (i + size > n) return false;
    for (int k = 1; k < size; ++k)
      if ((s[i + k] & 0xC0) != 0x80) return false;
    const uint32_t code = utf8_code(text + i, size);
    if ((size == 3 && code < 0x800) || (size == 4 && (code < 0x10000 || code > 0x10FFFF)))
      return false;
    if (code >= 0xD800 && code < 0xE000) return false;
    i += size;
  }
  return true;
}

}  // namespace plait
