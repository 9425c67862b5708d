// Conversions of one value between text, numbers and times; the formats are Python's.
//
// Parsing accepts exactly what the language says (no white space, no underscores, ASCII digits) and
// reports failure; printing writes into a caller's buffer of kPrintRoom bytes and returns the
// length. Independent of the locale. Pure functions: any thread, nothing blocks.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace plait {

inline constexpr int64_t kPrintRoom = 48;

inline std::optional<int64_t> parse_int(std::string_view s) {
  if (!s.empty() && s[0] == '+') {
    s.remove_prefix(1);
    if (!s.empty() && s[0] == '-') return std::nullopt;
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size() || s.empty()) return std::nullopt;
  return value;
}

inline bool same_word(std::string_view s, std::string_view lower) {
  if (s.size() != lower.size()) return false;
  for (size_t i = 0; i < s.size(); ++i)
    if ((s[i] | 0x20) != lower[i]) return false;
  return true;
}

// The number of decimal digits before the point of a literal that is too large or too small, to
// tell which.
inline bool is_huge(std::string_view s) {
  int64_t point = 0, exponent = 0;
  bool seen_point = false, seen_digit = false;
  size_t i = 0;
  for (; i < s.size() && (s[i] | 0x20) != 'e'; ++i) {
    if (s[i] == '.') {
      seen_point = true;
      continue;
    }
    seen_digit |= s[i] != '0';
    if (seen_digit && !seen_point) ++point;
    if (!seen_digit && seen_point) --point;
  }
  if (i < s.size()) {
    const bool negative = s[++i] == '-';
    if (s[i] == '-' || s[i] == '+') ++i;
    for (; i < s.size() && exponent < 1'000'000'000'000; ++i)
      exponent = exponent * 10 + (s[i] - '0');
    if (negative) exponent = -exponent;
  }
  return point + exponent > 0;
}

inline std::optional<double> parse_float(std::string_view s) {
  bool negative = false;
  if (!s.empty() && (s[0] == '+' || s[0] == '-')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  if (s.empty()) return std::nullopt;
  double value = 0;
  if (same_word(s, "inf") || same_word(s, "infinity")) {
    value = std::numeric_limits<double>::infinity();
  } else if (same_word(s, "nan")) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (!(s[0] == '.' || (s[0] >= '0' && s[0] <= '9'))) return std::nullopt;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (end != s.data() + s.size() || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range)
      value = is_huge(s) ? std::numeric_limits<double>::infinity() : 0.0;
  }
  return negative ? -value : value;
}

// Truncates toward zero; fails for nan, infinities and what int64 cannot hold.
inline std::optional<int64_t> float_to_int(double x) {
  if (!(x >= -9223372036854775808.0 && x < 9223372036854775808.0)) return std::nullopt;
  return int64_t(x);
}

inline int64_t print_int(int64_t x, char* o) { return std::to_chars(o, o + kPrintRoom, x).ptr - o; }

// Python's repr: shortest digits that give the same float; plain from 1e-4 to below 1e16, else with
// an exponent.
inline int64_t print_float(double x, char* o) {
  char* to = o;
  if (std::isnan(x)) return std::memcpy(to, "nan", 3), 3;
  if (std::signbit(x)) *to++ = '-';
  if (std::isinf(x)) return std::memcpy(to, "inf", 3), to + 3 - o;
  x = std::fabs(x);
  char text[kPrintRoom];
  const char* end = std::to_chars(text, text + sizeof text, x, std::chars_format::scientific).ptr;
  char digits[32];
  int count = 0, exponent = 0;
  const char* p = text;
  for (; p < end && *p != 'e'; ++p)
    if (*p != '.') digits[count++] = *p;
  if (p < end) std::from_chars(p[1] == '+' ? p + 2 : p + 1, end, exponent);
  if (exponent < -4 || exponent >= 16) {
    *to++ = digits[0];
    if (count > 1) {
      *to++ = '.';
      std::memcpy(to, digits + 1, size_t(count - 1));
      to += count - 1;
    }
    *to++ = 'e';
    *to++ = exponent < 0 ? '-' : '+';
    const int size = std::abs(exponent);
    if (size < 10) *to++ = '0';
    return std::to_chars(to, o + kPrintRoom, size).ptr - o;
  }
  if (exponent < 0) {
    *to++ = '0';
    *to++ = '.';
    for (int i = 1; i < -exponent; ++i) *to++ = '0';
    std::memcpy(to, digits, size_t(count));
    return to + count - o;
  }
  for (int i = 0; i <= exponent; ++i) *to++ = i < count ? digits[i] : '0';
  *to++ = '.';
  if (count <= exponent + 1) *to++ = '0';
  for (int i = exponent + 1; i < count; ++i) *to++ = digits[i];
  return to - o;
}

struct Civil {
  int64_t year;
  int month, day;
};
struct TimeOfDay {
  int64_t days;
  int64_t of_day;  // microseconds since midnight
};

inline constexpr int64_t kDay = 86'400'000'000;
inline constexpr int64_t kFirstTime = -719'162 * kDay;      // 0001-01-01
inline constexpr int64_t kLastTime = 2'932'897 * kDay - 1;  // 9999-12-31, its last microsecond

inline TimeOfDay split_time(int64_t us) {
  int64_t days = us / kDay, rest = us % kDay;
  if (rest < 0) {
    rest += kDay;
    --days;
  }
  return {days, rest};
}

// The date of a day number since 1970, by whole cycles of 400 years counted from a 1 March.
inline Civil civil(int64_t days) {
  const int64_t shifted = days + 719'468;  // days since 0000-03-01
  const int64_t cycle = (shifted >= 0 ? shifted : shifted - 146'096) / 146'097;
  const int64_t in_cycle = shifted - cycle * 146'097;
  const int64_t year_of_cycle =
      (in_cycle - in_cycle / 1'460 + in_cycle / 36'524 - in_cycle / 146'096) / 365;
  const int64_t day_of_year =
      in_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
  const int64_t march_month = (5 * day_of_year + 2) / 153;
  const int day = int(day_of_year - (153 * march_month + 2) / 5 + 1);
  const int month = int(march_month < 10 ? march_month + 3 : march_month - 9);
  return {cycle * 400 + year_of_cycle + (month <= 2), month, day};
}

// The other way round, for the years 1 and up.
inline int64_t days_of(int64_t year, int64_t month, int64_t day) {
  const int64_t y = year - (month <= 2);  // not negative: years are 1 and up
  const int64_t cycle = y / 400, of_cycle = y - cycle * 400;
  const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return cycle * 146'097 + of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year - 719'468;
}

inline int64_t days_in_month(int64_t year, int64_t month) {
  if (month == 2) return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

// "YYYY-MM-DDTHH:MM:SS.ffffffZ"
inline int64_t print_time(int64_t us, char* o) {
  const TimeOfDay at = split_time(us);
  const Civil date = civil(at.days);
  char* to = o;
  const auto number = [&to](int64_t x, int width) {
    for (int i = width - 1; i >= 0; --i, x /= 10) to[i] = char('0' + x % 10);
    to += width;
  };
  int64_t year = date.year;
  if (year < 0) {
    *to++ = '-';
    year = -year;
  }
  number(year, year > 99'999 ? 6 : year > 9'999 ? 5 : 4);
  const int64_t seconds = at.of_day / 1'000'000;
  const int64_t parts[] = {date.month, date.day, seconds / 3600, seconds / 60 % 60, seconds % 60};
  const char before[] = {'-', '-', 'T', ':', ':'};
  for (int i = 0; i < 5; ++i) {
    *to++ = before[i];
    number(parts[i], 2);
  }
  *to++ = '.';
  number(at.of_day % 1'000'000, 6);
  *to++ = 'Z';
  return to - o;
}

}  // namespace plait
