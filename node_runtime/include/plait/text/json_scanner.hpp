// One value of JSON at a time: its bytes with room behind them, texts, numbers, what is skipped.
//
// `start` copies a value, so that blocks can be read beyond its end: zeros follow, and no zero is
// part of JSON, so nothing else has to look for the end. Every step takes a place and gives the
// place behind, or null; `fault` says then what is wrong. What is skipped is checked like all else:
// texts, numbers, names that are there twice. Nothing that is given out outlives the next `start`.
// One thread at a time; nothing blocks; recursion ends at 64.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "plait/text/json_fault.hpp"
#include "plait/text/json_number.hpp"
#include "plait/text/utf8.hpp"

namespace plait {

namespace json_detail {
inline constexpr std::array<uint8_t, 256> make_escapes() {
  std::array<uint8_t, 256> escapes{};
  escapes['"'] = '"';
  escapes['\\'] = '\\';
  escapes['/'] = '/';
  escapes['b'] = '\b';
  escapes['f'] = '\f';
  escapes['n'] = '\n';
  escapes['r'] = '\r';
  escapes['t'] = '\t';
  return escapes;
}
// What a letter after a backslash stands for; 0: nothing.
inline constexpr std::array<uint8_t, 256> kEscapes = make_escapes();
}  // namespace json_detail

// No place to go on, and not true.
struct JsonRefused {
  operator const uint8_t*() const { return nullptr; }
  operator bool() const { return false; }
};

class JsonScanner {
 public:
  using Place = const uint8_t*;
  static constexpr int64_t kPad = 64;

  // False if it is not UTF-8.
  bool start(const char* value, int64_t size) {
    if (size > room_) make_room(size);
    std::memcpy(text_.get(), value, size_t(size));
    std::memset(text_.get() + size, 0, kPad);
    end_ = text_.get() + size;
    forget_texts();
    if (is_ascii_in_blocks(text_.get(), size)) return true;
    const int64_t bad = first_not_utf8(text_.get(), size);
    return bad == size || fail(JsonWrong::NotUtf8, text_.get() + bad);
  }

  // What `spare_text` and `name` gave is gone; its memory is enough for every text of a value once.
  void forget_texts() {
    spare_ = spare_memory_.get();
    names_.clear();
  }

  Place begin() const { return text_.get(); }
  Place end() const { return end_; }

  JsonRefused fail(JsonWrong wrong, Place at, Place end = nullptr) {
    fault = {wrong, at, end, -1, {}};
    return {};
  }

  PLAIT_INLINE Place space(Place p) const {
    while (*p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) ++p;
    return p;
  }

  // The text whose first byte is at p. `out` has room for the rest of the value and 16 bytes more,
  // and moves behind what was written; `half`: it has half of a surrogate pair.
  PLAIT_INLINE Place text(Place p, uint8_t*& out, bool& half) {
    uint8_t* o = out;
    for (;;) {
      std::memcpy(o, p, kTextBlock);
      const int plain = first_special(p);
      o += plain;
      p += plain;
      if (plain == kTextBlock) continue;
      if (*p == '"') {
        out = o;
        return p + 1;
      }
      p = escape(p, o, half);
      if (!p) return nullptr;
    }
  }

  // The same into memory of the scanner.
  std::string_view spare_text(Place& p, bool& half) {
    uint8_t* begin = spare_;
    p = text(p, spare_, half);
    return {reinterpret_cast<const char*>(begin), size_t(spare_ - begin)};
  }

  // The name at p, a quote; p moves behind it, or is null.
  std::string_view name(Place& p) {
    if (*p != '"') {
      p = fail(JsonWrong::NoName, p);
      return {};
    }
    bool half = false;
    return spare_text(++p, half);
  }

  // Behind the colon and what space is around it.
  PLAIT_INLINE Place colon(Place p) {
    p = space(p);
    if (*p != ':') return fail(JsonWrong::NoColon, p);
    return space(p + 1);
  }

  // Every name of the object is told, but for those that its reader finds twice by itself.
  void note_name(std::string_view name) { names_.push_back(name); }
  size_t names_noted() const { return names_.size(); }
  void forget_names(size_t from) { names_.resize(from); }
  bool names_differ(size_t from = 0) {
    const auto first = names_.begin() + int64_t(from), last = names_.end();
    if (last - first < 2) return true;
    // Order by size first: most names differ by it.
    std::sort(first, last, [](std::string_view a, std::string_view b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    const auto twice = std::adjacent_find(first, last);
    if (twice == last) return true;
    fail(JsonWrong::Twice, begin());
    fault.name = *twice;
    return false;
  }

  Place number(Place p, JsonNumber& n) {
    Place wrong = nullptr;
    Place after = scan_number(p, n, wrong);
    if (!after) {
      if (*wrong == 'I' && *p == '-' && wrong == p + 1) return fail(JsonWrong::Constant, p);
      return fail(JsonWrong::Number, wrong);
    }
    if (n.whole && n.count > kJsonDigits) return fail(JsonWrong::LongNumber, p);
    return after;
  }

  // Over the value at p, which is in `depth` objects and lists.
  Place skip(Place p, int depth) {
    switch (*p) {
      case '"':
        return skip_text(p + 1);
      case '{':
      case '[':
        if (depth == kJsonDepth) return fail(JsonWrong::Deep, p);
        return *p == '{' ? skip_object(p, depth + 1) : skip_list(p, depth + 1);
      case 't':
        if (std::memcmp(p, "true", 4) == 0) return p + 4;
        break;
      case 'f':
        if (std::memcmp(p, "false", 5) == 0) return p + 5;
        break;
      case 'n':
        if (std::memcmp(p, "null", 4) == 0) return p + 4;
        break;
      case 'N':
        if (std::memcmp(p, "NaN", 3) == 0) return fail(JsonWrong::Constant, p);
        break;
      case 'I':
        if (std::memcmp(p, "Infinity", 8) == 0) return fail(JsonWrong::Constant, p);
        break;
      default:
        JsonNumber n;
        if (*p == '-' || json_detail::is_digit(*p)) return number(p, n);
    }
    return fail(JsonWrong::NoValue, p);
  }

  JsonFault fault;

 private:
  void make_room(int64_t size) {
    room_ = std::max<int64_t>(2 * size, 4096);
    text_.reset(new uint8_t[size_t(room_ + kPad)]);
    spare_memory_.reset(new uint8_t[size_t(room_ + kPad)]);
  }

  Place skip_text(Place p) {
    for (;;) {
      const int plain = first_special(p);
      p += plain;
      if (plain == kTextBlock) continue;
      if (*p == '"') return p + 1;
      uint8_t unused[4];
      uint8_t* o = unused;
      bool half = false;
      p = escape(p, o, half);
      if (!p) return nullptr;
    }
  }

  Place skip_object(Place p, int depth) {
    const size_t before = names_.size();
    p = space(p + 1);
    if (*p == '}') return p + 1;
    for (;;) {
      note_name(name(p));
      if (!p || !(p = colon(p)) || !(p = skip(p, depth))) return nullptr;
      p = space(p);
      if (*p == '}') break;
      if (*p != ',') return fail(JsonWrong::NoComma, p);
      p = space(p + 1);
    }
    if (!names_differ(before)) return nullptr;
    names_.resize(before);
    return p + 1;
  }

  Place skip_list(Place p, int depth) {
    p = space(p + 1);
    if (*p == ']') return p + 1;
    for (;;) {
      if (!(p = skip(p, depth))) return nullptr;
      p = space(p);
      if (*p == ']') return p + 1;
      if (*p != ',') return fail(JsonWrong::NoComma, p);
      p = space(p + 1);
    }
  }

  // What is at p, and ends the run of plain bytes: an escape, or something that must not be.
  [[gnu::noinline]] Place escape(Place p, uint8_t*& o, bool& half) {
    if (*p != '\\') return fail(p >= end_ ? JsonWrong::Open : JsonWrong::Control, p);
    if (p[1] == 'u') return unicode(p, o, half);
    const uint8_t plain = json_detail::kEscapes[p[1]];
    if (!plain) return fail(p + 1 >= end_ ? JsonWrong::Open : JsonWrong::Escape, p);
    *o++ = plain;
    return p + 2;
  }

  Place unicode(Place p, uint8_t*& o, bool& half) {
    uint32_t code = hex_of(p + 2);
    if (code > 0xFFFF) return fail(JsonWrong::Escape, p);
    p += 6;
    if (code >= 0xD800 && code < 0xE000) {
      const uint32_t low = p[0] == '\\' && p[1] == 'u' ? hex_of(p + 2) : 0;
      if (code < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        p += 6;
      } else {
        half = true;
      }
    }
    o = put_utf8(o, code);
    return p;
  }

  // Four digits; more than 0xFFFF if they are not.
  static uint32_t hex_of(Place p) {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t c = p[i], letter = c | 0x20;
      const uint32_t digit = c - '0' < 10 ? c - '0' : letter - 'a' < 6 ? letter - 'a' + 10 : 16;
      if (digit == 16) return 0x10000;
      code = code << 4 | digit;
    }
    return code;
  }

  std::unique_ptr<uint8_t[]> text_, spare_memory_;
  int64_t room_ = -1;
  Place end_ = nullptr;
  uint8_t* spare_ = nullptr;
  std::vector<std::string_view> names_;
};

}  // namespace plait
