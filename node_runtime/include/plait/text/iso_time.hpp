// Times from the usual forms of ISO 8601, to microseconds since 1970 in UTC, as Python reads them.
//
// YYYY-MM-DD, with T or a space and HH:MM, with :SS, with a fraction of any length (digits beyond
// the sixth are left out), with Z, +HH:MM or -HH:MM; without a zone it is UTC. Anything else is
// `false`, also what is no time at all: the caller asks Python, which knows more forms. A pure
// function: any thread, nothing blocks.
#pragma once

#include <cstdint>

#include "plait/columns/casts.hpp"

namespace plait {

namespace iso_detail {
inline bool digit(uint8_t c) { return uint8_t(c - '0') < 10; }
inline bool two(const uint8_t* p, int64_t& to) {
  if (!digit(p[0]) || !digit(p[1])) return false;
  to = (p[0] - '0') * 10 + (p[1] - '0');
  return true;
}
}  // namespace iso_detail

// 16 bytes must be readable from the end of the text on.
inline bool read_iso_time(const uint8_t* p, int64_t size, int64_t& us) {
  using iso_detail::digit;
  using iso_detail::two;
  const uint8_t* end = p + size;
  int64_t century, year, month, day, hour = 0, minute = 0, second = 0, micro = 0, offset_s = 0;
  if (size < 10 || !two(p, century) || !two(p + 2, year) || p[4] != '-' || !two(p + 5, month) ||
      p[7] != '-' || !two(p + 8, day))
    return false;
  year += century * 100;
  if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month))
    return false;
  p += 10;
  if (p < end) {
    if ((*p != 'T' && *p != ' ') || end - p < 6) return false;
    if (!two(p + 1, hour) || p[3] != ':' || !two(p + 4, minute)) return false;
    p += 6;
    if (end - p >= 3 && *p == ':') {
      if (!two(p + 1, second)) return false;
      p += 3;
      if (end - p >= 2 && (*p == '.' || *p == ',') && digit(p[1])) {
        int digits = 0;
        for (++p; p < end && digit(*p); ++p, ++digits)
          if (digits < 6) micro = micro * 10 + (*p - '0');
        for (; digits < 6; ++digits) micro *= 10;
      }
    }
    if (hour > 23 || minute > 59 || second > 59) return false;
    if (p < end && *p == 'Z') {
      ++p;
    } else if (end - p == 6 && (*p == '+' || *p == '-')) {
      int64_t hours, minutes;
      if (!two(p + 1, hours) || p[3] != ':' || !two(p + 4, minutes) || hours > 23 || minutes > 59)
        return false;
      offset_s = (hours * 60 + minutes) * (*p == '-' ? -60 : 60);
      p += 6;
    }
    if (p != end) return false;
  }
  const int64_t seconds = hour * 3600 + minute * 60 + second - offset_s;
  us = days_of(year, month, day) * kDay + seconds * 1'000'000 + micro;
  return us >= kFirstTime && us <= kLastTime;
}

}  // namespace plait
