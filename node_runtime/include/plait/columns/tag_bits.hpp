// TagBits: which rows of a source are in a batch, one bit each, instead of a list of tags.
//
// Exchanges make, send and merge tags in this form: 64 rows a word where a list has 4 bytes a row.
// A batch has either form; `spread` writes the list for those who look at single tags. Plain
// data: any thread; nothing waits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "plait/core/buffer.hpp"

namespace plait {

struct TagBits {
  BufferRef owner;
  const uint64_t* words = nullptr;  // null: the batch has no bits
  int64_t count = 0;                // of words
  uint32_t first = 0;               // the tag of bit 0

  explicit operator bool() const { return words != nullptr; }
  static int64_t words_for(int64_t rows) { return (rows + 63) / 64; }

  uint32_t lowest() const {
    int64_t w = 0;
    while (w + 1 < count && words[w] == 0) ++w;
    return first + uint32_t(w * 64 + (words[w] ? std::countr_zero(words[w]) : 0));
  }
  uint32_t highest() const {
    int64_t w = count - 1;
    while (w > 0 && words[w] == 0) --w;
    return first + uint32_t(w * 64 + (words[w] ? 63 - std::countl_zero(words[w]) : 0));
  }
  // The tag of the i-th row. Looks at all words before it.
  [[gnu::noinline]] uint32_t at(int64_t i) const {
    for (int64_t w = 0; w < count; ++w) {
      const int64_t here = std::popcount(words[w]);
      if (i >= here) {
        i -= here;
        continue;
      }
      uint64_t bits = words[w];
      for (; i > 0; --i) bits &= bits - 1;
      return first + uint32_t(w * 64 + std::countr_zero(bits));
    }
    return first;
  }
  // Calls visit(tag) for each row, ascending.
  template <class Visit>
  void each(Visit visit) const {
    for (int64_t w = 0; w < count; ++w) {
      const uint32_t base = first + uint32_t(w * 64);
      for (uint64_t bits = words[w]; bits; bits &= bits - 1) {
        visit(base + uint32_t(std::countr_zero(bits)));
      }
    }
  }
  // As a list, of so many at most.
  BufferRef spread(int64_t rows) const {
    BufferRef out = BufferRef::make(4 * rows);
    auto* to = out.as<uint32_t>();
    auto* const end = to + rows;
    for (int64_t w = 0; w < count && to < end; ++w) {
      const uint32_t base = first + uint32_t(w * 64);
      for (uint64_t bits = words[w]; bits && to < end; bits &= bits - 1) {
        *to++ = base + uint32_t(std::countr_zero(bits));
      }
    }
    return out;
  }
  // Of rows that rise, all below `end`.
  static TagBits of(const uint32_t* rows, int64_t n, int64_t end) {
    TagBits out;
    out.count = words_for(end);
    out.owner = BufferRef::zeroed(8 * out.count);
    out.words = out.owner.as<uint64_t>();
    auto* to = out.owner.as<uint64_t>();
    for (int64_t i = 0; i < n; ++i) to[rows[i] >> 6] |= uint64_t(1) << (rows[i] & 63);
    return out;
  }
  // Sets the same rows in `to`, whose bit 0 is tag `first - shift`; `to` has a word of slack.
  void add_to(uint64_t* to, int64_t shift) const {
    to += shift / 64;
    const unsigned by = unsigned(shift % 64);
    if (by == 0) {
      for (int64_t w = 0; w < count; ++w) to[w] |= words[w];
      return;
    }
    for (int64_t w = 0; w < count; ++w) {
      to[w] |= words[w] << by;
      to[w + 1] |= words[w] >> (64 - by);
    }
  }
};

inline void set_bits(uint64_t* words, int64_t from, int64_t n) {
  for (int64_t i = from; i < from + n;) {
    const int64_t here = std::min<int64_t>(64 - i % 64, from + n - i);
    words[i / 64] |= (here == 64 ? ~uint64_t(0) : (uint64_t(1) << here) - 1) << (i % 64);
    i += here;
  }
}

}  // namespace plait
