// Numbers of JSON, and the floats that Python makes of them, bit by bit.
//
// `scan_number` goes over one and keeps its first digits; `float_of` gives its value. Both read up
// to the first byte that is not of a number, so one must follow. Pure functions: any thread,
// nothing blocks.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>

#include "plait/columns/casts.hpp"

namespace plait {

struct JsonNumber {
  const uint8_t* begin = nullptr;
  uint64_t digits = 0;   // all of them as one number, right up to 19
  int64_t count = 0;     // how many, leading zeros too
  int64_t exponent = 0;  // the value is digits * 10^exponent
  bool negative = false, whole = true;
};

namespace json_detail {
inline bool is_digit(uint8_t c) { return uint8_t(c - '0') < 10; }

// Eight digits, of which the first is the lowest byte: pairs, then fours, then all.
inline uint64_t eight_digits(uint64_t digits) {
  const uint64_t pairs = digits * 10 + (digits >> 8);
  return ((pairs & 0x000000FF000000FFu) * (100 + (uint64_t(1'000'000) << 32)) +
          (pairs >> 16 & 0x000000FF000000FFu) * (1 + (uint64_t(10'000) << 32))) >>
         32;
}

// Over the digits at p, eight at a time. How many there are is no branch: it would be guessed
// wrong.
inline const uint8_t* take_digits(const uint8_t* p, uint64_t& digits) {
  static constexpr std::array<uint64_t, 8> tens = {1,      10,      100,       1'000,
                                                   10'000, 100'000, 1'000'000, 10'000'000};
  for (;;) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= 0x3030303030303030u;
    // The high bit of the first byte that is no digit; a carry only ever goes up from one.
    const uint64_t others = ((word + 0x7676767676767676u) | word) & 0x8080808080808080u;
    if (others) {
      const int count = std::countr_zero(others) / 8;
      // Zeros come in before the digits.
      digits = digits * tens[size_t(count)] + eight_digits(word << 8 << (56 - 8 * count));
      return p + count;
    }
    digits = digits * 100'000'000 + eight_digits(word);
    p += 8;
  }
}
}  // namespace json_detail

// Behind the number at p, or null; then `fault` is where it goes wrong. Eight bytes behind the
// number must be readable.
inline const uint8_t* scan_number(const uint8_t* p, JsonNumber& n, const uint8_t*& fault) {
  using namespace json_detail;
  n = JsonNumber();
  n.begin = p;
  n.negative = *p == '-';
  p += n.negative;
  const uint8_t* first = p;
  if (*p == '0') {
    ++p;
  } else {
    p = take_digits(p, n.digits);
  }
  n.count = p - first;
  fault = p;
  if (n.count == 0 || is_digit(*p)) return nullptr;
  if (*p == '.') {
    n.whole = false;
    first = ++p;
    p = take_digits(p, n.digits);
    fault = p;
    if (p == first) return nullptr;
    n.exponent = first - p;
    n.count += p - first;
  }
  if ((*p | 0x20) == 'e') {
    n.whole = false;
    const bool negative = *++p == '-';
    p += negative || *p == '+';
    int64_t exponent = 0;
    first = p;
    for (; is_digit(*p); ++p)
      if (exponent < 1'000'000'000) exponent = exponent * 10 + (*p - '0');
    fault = p;
    if (p == first) return nullptr;
    n.exponent += negative ? -exponent : exponent;
  }
  return p;
}

// What `float()` gives, of ints what `float(int())` does; nothing if no float is as large.
inline std::optional<double> float_of(const JsonNumber& n, const uint8_t* end) {
  static constexpr std::array<double, 23> tens = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const auto signed_ = [&](double value) { return n.negative ? -value : value; };
  if (n.count <= 19) {
    // Of integers the processor rounds like Python; there is no negative zero among them.
    if (n.whole) return n.digits == 0 ? 0.0 : signed_(double(n.digits));
    // Both numbers are exact, so their quotient or product is rounded once.
    if (n.digits <= uint64_t(1) << 53 && n.exponent >= -22 && n.exponent <= 22) {
      const double digits = double(n.digits);
      return signed_(n.exponent < 0 ? digits / tens[size_t(-n.exponent)]
                                    : digits * tens[size_t(n.exponent)]);
    }
  }
  const auto* first = reinterpret_cast<const char*>(n.begin) + n.negative;
  const auto* last = reinterpret_cast<const char*>(end);
  double value = 0;
  if (std::from_chars(first, last, value).ec == std::errc::result_out_of_range) {
    if (is_huge({first, size_t(last - first)})) return std::nullopt;
    value = 0;
  }
  return signed_(value);
}

}  // namespace plait
