// Kernels of strings and bytes, and casts from and to text.
//
// Texts are views: into the input column, a constant, or the chunk's arena when they were made
// here, so strip and choice copy nothing. A null row has the empty text and does no work. A text
// over the workspace's limit fails its row. Pure functions of a chunk: any thread (with its own
// workspace), nothing blocks.
#pragma once

#include <cstdint>
#include <cstring>

#include "plait/columns/casts.hpp"
#include "plait/columns/strings.hpp"
#include "plait/kernels/find_text.hpp"
#include "plait/kernels/program.hpp"

namespace plait {

inline constexpr Text kEmptyText{"", 0};

// o[i] = f(i, text) where the row is not null.
template <class R, class F>
void each_text(Context& c, const Instr& in, R nothing, F&& f) {
  const Vec& a = c.vec(in.a());
  R* o = c.out<R>(in);
  for (int64_t i = 0; i < c.n; ++i) o[i] = a.ok(i) ? f(i, a.text(i)) : nothing;
  c.set(in, o, c.valid_of(in, a));
}
template <class R, class F>
void each_two_texts(Context& c, const Instr& in, R nothing, F&& f) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  R* o = c.out<R>(in);
  for (int64_t i = 0; i < c.n; ++i)
    o[i] = a.ok(i) && b.ok(i) ? f(i, a.text(i), b.text(i)) : nothing;
  c.set(in, o, c.valid_of(in, a, b));
}

template <bool kUpper>
void change_case(Context& c, const Instr& in) {
  const CaseTable& table = kUpper ? CaseTable::upper() : CaseTable::lower();
  each_text<Text>(c, in, kEmptyText, [&](int64_t i, const Text& t) {
    if (is_ascii(t.data, t.size)) {
      char* o = c.ws.arena.take(t.size);
      ascii_case<kUpper>(t.data, t.size, o);
      return Text{o, t.size};
    }
    const int64_t room = t.size * table.growth();
    char* o = c.ws.arena.take(room);
    const int64_t size = table.convert(t.data, t.size, o);
    c.ws.arena.give_back(room - size);
    if (size <= c.ws.text_limit) return Text{o, size};
    c.fail(i, RowError::TooLong);
    return kEmptyText;
  });
}

inline void strip_text(Context& c, const Instr& in) {
  each_text<Text>(c, in, kEmptyText, [](int64_t, const Text& t) {
    const std::string_view s = strip(t.view());
    return Text{s.data(), int64_t(s.size())};
  });
}
inline void length_str(Context& c, const Instr& in) {
  each_text<int64_t>(c, in, 0,
                     [](int64_t, const Text& t) { return count_characters(t.data, t.size); });
}
inline void length_bytes(Context& c, const Instr& in) {
  each_text<int64_t>(c, in, 0, [](int64_t, const Text& t) { return t.size; });
}
// Whether the texts of a chunk lie behind each other, as those of a column do.
inline bool are_together(const Text* texts, int64_t n) {
  bool together = true;
  for (int64_t i = 1; i < n; ++i)
    together &= texts[i - 1].data + texts[i - 1].size == texts[i].data;
  return together;
}

// One search through all texts of a chunk. An occurrence that goes over the end of a row is none.
inline void mark_rows_with(const Text* texts, int64_t n, std::string_view part, uint8_t* o) {
  const char* begin = texts[0].data;
  const int64_t size = texts[n - 1].data + texts[n - 1].size - begin;
  int64_t row = 0;
  find_each({begin, size_t(size)}, part, [&](int64_t at) {
    while (texts[row].data + texts[row].size <= begin + at) ++row;
    const int64_t end = texts[row].data + texts[row].size - begin;
    if (at + int64_t(part.size()) > end) return at + 1;
    o[row] = 1;
    return end;
  });
}

inline void contains_text(Context& c, const Instr& in) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  const std::string_view part = b.constant ? b.text(0).view() : std::string_view();
  if (a.constant || b.valid || part.empty() || part.size() > size_t(kLongestNeedle) || c.n == 0 ||
      !are_together(a.as<Text>(), c.n)) {
    return each_two_texts<uint8_t>(c, in, 0, [](int64_t, const Text& text, const Text& wanted) {
      return uint8_t(contains(text.view(), wanted.view()));
    });
  }
  uint8_t* o = c.out<uint8_t>(in);
  std::memset(o, 0, size_t(c.n));
  mark_rows_with(a.as<Text>(), c.n, part, o);
  for (int64_t i = 0; a.valid && i < c.n; ++i) o[i] &= a.valid[i];
  c.set(in, o, c.valid_of(in, a));
}
inline void starts_with(Context& c, const Instr& in) {
  each_two_texts<uint8_t>(c, in, 0, [](int64_t, const Text& a, const Text& b) {
    return uint8_t(a.view().starts_with(b.view()));
  });
}
inline void ends_with(Context& c, const Instr& in) {
  each_two_texts<uint8_t>(c, in, 0, [](int64_t, const Text& a, const Text& b) {
    return uint8_t(a.view().ends_with(b.view()));
  });
}
inline void concat(Context& c, const Instr& in) {
  each_two_texts<Text>(c, in, kEmptyText, [&](int64_t i, const Text& a, const Text& b) {
    const int64_t size = a.size + b.size;
    if (size > c.ws.text_limit) {
      c.fail(i, RowError::TooLong);
      return kEmptyText;
    }
    char* o = c.ws.arena.take(size);
    std::memcpy(o, a.data, size_t(a.size));
    std::memcpy(o + a.size, b.data, size_t(b.size));
    return Text{o, size};
  });
}

inline void cast_str_i64(Context& c, const Instr& in) {
  each_text<int64_t>(c, in, 0, [&](int64_t i, const Text& t) {
    const auto value = parse_int(t.view());
    if (!value) c.fail(i, RowError::NotAnInteger, t.view());
    return value.value_or(0);
  });
}
inline void cast_str_f64(Context& c, const Instr& in) {
  each_text<double>(c, in, 0.0, [&](int64_t i, const Text& t) {
    const auto value = parse_float(t.view());
    if (!value) c.fail(i, RowError::NotANumber, t.view());
    return value.value_or(0.0);
  });
}
inline void cast_str_bool(Context& c, const Instr& in) {
  each_text<uint8_t>(c, in, 0, [&](int64_t i, const Text& t) {
    const bool yes = t.view() == "true";
    if (!yes && t.view() != "false") c.fail(i, RowError::NotABool, t.view());
    return uint8_t(yes);
  });
}
inline void cast_bytes_str(Context& c, const Instr& in) {
  each_text<Text>(c, in, kEmptyText, [&](int64_t i, const Text& t) {
    if (is_utf8(t.data, t.size)) return t;
    c.fail(i, RowError::NotUtf8, t.view());
    return kEmptyText;
  });
}

// Prints each value that is not null; `print(value, buffer)` returns the length.
template <class T, int64_t (*kPrint)(T, char*)>
void cast_to_str(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  Text* o = c.out<Text>(in);
  for (int64_t i = 0; i < c.n; ++i) {
    o[i] = kEmptyText;
    if (!a.ok(i)) continue;
    char* to = c.ws.arena.take(kPrintRoom);
    o[i] = Text{to, kPrint(a.as<T>()[i], to)};
    c.ws.arena.give_back(kPrintRoom - o[i].size);
  }
  c.set(in, o, c.valid_of(in, a));
}
// A year that ISO cannot write in four digits fails its row.
inline void cast_time_str(Context& c, const Instr& in) {
  cast_to_str<int64_t, print_time>(c, in);
  const Vec& a = c.vec(in.a());
  for (int64_t i = 0; i < c.n; ++i) {
    const int64_t us = a.as<int64_t>()[i];
    if (!a.ok(i) || (us >= kFirstTime && us <= kLastTime)) continue;
    char text[kPrintRoom];
    c.fail(i, RowError::TimeOutOfRange, {text, size_t(print_int(us, text))});
  }
}
inline int64_t print_bool(uint8_t x, char* o) {
  std::memcpy(o, x ? "true" : "false", 5);
  return x ? 4 : 5;
}

}  // namespace plait
