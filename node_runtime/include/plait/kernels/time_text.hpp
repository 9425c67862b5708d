// Kernels of `to_timestamp`: texts and numbers become microseconds since 1970 in UTC.
//
// A text is ISO 8601, or in a format of % directives that plait/expr/time_reading.py has checked; a
// text without a zone of its own is local time of the format's zone, which is a fixed offset or a
// table of stretches of local time. What cannot be read fails its row. A TimeFormat is immutable
// once made: any thread may read it, nothing blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/columns/casts.hpp"
#include "plait/kernels/program.hpp"
#include "plait/kernels/text.hpp"

namespace plait {

// The fields of a time as they are read.
struct TimeFields {
  int64_t year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, micro = 0;
  int64_t offset_s = 0;  // east of UTC, if the text has a zone
  bool zoned = false, afternoon = false, twelve = false;
  bool too_fine = false;  // it has digits beyond the sixth that are not 0
};

// Reads a text from its front; every method is false if the text goes on in another way.
class TimeScanner {
 public:
  explicit TimeScanner(std::string_view text) : text_(text) {}

  bool done() const { return at_ == text_.size(); }
  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  // From `least` to `most` digits, as many as there are.
  bool number(int least, int most, int64_t& to) {
    int n = 0;
    for (to = 0; n < most && digit(); ++n) to = to * 10 + (text_[at_++] - '0');
    return n >= least;
  }
  // A fraction of a second, of any number of digits.
  bool fraction(TimeFields& f) {
    int n = 0;
    for (f.micro = 0; digit(); ++n) {
      const int d = text_[at_++] - '0';
      if (n < 6) f.micro = f.micro * 10 + d;
      f.too_fine = f.too_fine || (n >= 6 && d != 0);
    }
    for (int i = n; i < 6; ++i) f.micro *= 10;
    return n > 0;
  }
  // Z, +01, +0100 or +01:00.
  bool zone(TimeFields& f) {
    f.zoned = true;
    if (take('Z')) return true;
    const bool west = next_is('-');
    if (!west && !next_is('+')) return false;
    ++at_;
    int64_t hours = 0, minutes = 0;
    if (!number(2, 2, hours)) return false;
    if (take(':')) {
      if (!number(2, 2, minutes)) return false;
    } else if (digit() && !number(2, 2, minutes)) {
      return false;
    }
    f.offset_s = (hours * 60 + minutes) * (west ? -60 : 60);
    return hours < 24 && minutes < 60;
  }
  // One of some words, in any case; its number.
  template <size_t kWords>
  bool word(const std::array<std::string_view, kWords>& words, int64_t& to) {
    for (size_t w = 0; w < kWords; ++w) {
      const std::string_view here = text_.substr(at_, words[w].size());
      if (here.size() != words[w].size()) continue;
      if (!std::equal(here.begin(), here.end(), words[w].begin(), [](char a, char b) {
            return (a >= 'A' && a <= 'Z' ? char(a + 32) : a) == b;
          }))
        continue;
      at_ += here.size();
      to = int64_t(w);
      return true;
    }
    return false;
  }

 private:
  bool digit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }

  std::string_view text_;
  size_t at_ = 0;
};

class TimeFormat {
 public:
  using Outcome = std::pair<int64_t, std::optional<RowError>>;

  TimeFormat(std::string format, bool iso, bool down, const std::vector<int64_t>& zone, int unit)
      : format_(std::move(format)), iso_(iso), down_(down), unit_(unit) {
    if (unit < 0 || unit > 3) throw std::invalid_argument("no such unit of time");
    if (zone.size() == 1) fixed_ = zone[0];
    if (zone.size() < 2) return;
    if (zone.size() % 3) throw std::invalid_argument("the stretches of a zone have three numbers");
    for (size_t i = 0; i < zone.size(); i += 3) {
      stretches_.push_back({zone[i], zone[i + 1], zone[i + 2]});
    }
  }

  Outcome read(std::string_view text) const {
    TimeFields f;
    TimeScanner scan(text);
    if (!(iso_ ? read_iso(scan, f) : read_format(scan, f)) || !scan.done() || !right(f)) {
      return {0, RowError::NotATime};
    }
    if (f.too_fine && !down_) return {0, RowError::TooFine};
    const int64_t local =
        days_of(f.year, f.month, f.day) * 86'400 + f.hour * 3600 + f.minute * 60 + f.second;
    int64_t offset = f.offset_s;
    if (!f.zoned) {
      const auto [found, error] = offset_at(local);
      if (error) return {0, error};
      offset = found;
    }
    const int64_t us = (local - offset) * 1'000'000 + f.micro;
    if (us < kFirstTime || us > kLastTime) return {0, RowError::OutsideYears};
    return {us, std::nullopt};
  }

  Outcome of_int(int64_t n) const {
    static constexpr std::array<int64_t, 3> kFactors{1'000'000, 1'000, 1};
    int64_t us = 0;
    if (unit_ == 3) {
      us = n / 1000 - (n % 1000 < 0);
      if (n % 1000 && !down_) return {0, RowError::NumberTooFine};
    } else if (__builtin_mul_overflow(n, kFactors[size_t(unit_)], &us)) {
      return {0, RowError::NumberOutsideYears};
    }
    if (us < kFirstTime || us > kLastTime) return {0, RowError::NumberOutsideYears};
    return {us, std::nullopt};
  }
  // To the nearest microsecond, of two as near the even one.
  Outcome of_float(double x) const {
    static constexpr std::array<double, 3> kFactors{1e6, 1e3, 1.0};
    const double us = std::nearbyint(unit_ == 3 ? x / 1000.0 : x * kFactors[size_t(unit_)]);
    const bool near = std::fabs(us) < double(int64_t(1) << 60);  // not nan, and an int64
    if (!near || int64_t(us) < kFirstTime || int64_t(us) > kLastTime) {
      return {0, RowError::NumberOutsideYears};
    }
    return {int64_t(us), std::nullopt};
  }

 private:
  struct Stretch {
    int64_t start, end, offset;  // of local time
  };

  static bool read_iso(TimeScanner& scan, TimeFields& f) {
    if (!scan.number(4, 4, f.year) || !scan.take('-') || !scan.number(2, 2, f.month) ||
        !scan.take('-') || !scan.number(2, 2, f.day))
      return false;
    if (scan.done()) return true;
    if (!scan.take('T') && !scan.take(' ')) return false;
    if (!scan.number(2, 2, f.hour) || !scan.take(':') || !scan.number(2, 2, f.minute)) return false;
    if (scan.take(':')) {
      if (!scan.number(2, 2, f.second)) return false;
      if ((scan.take('.') || scan.take(',')) && !scan.fraction(f)) return false;
    }
    return scan.done() || scan.zone(f);
  }

  bool read_format(TimeScanner& scan, TimeFields& f) const {
    for (size_t i = 0; i < format_.size(); ++i) {
      const bool directive = format_[i] == '%' && format_[++i] != '%';
      if (!(directive ? read_directive(format_[i], scan, f) : scan.take(format_[i]))) return false;
    }
    if (!f.twelve) return true;
    if (f.hour < 1 || f.hour > 12) return false;
    f.hour = f.hour % 12 + (f.afternoon ? 12 : 0);
    return true;
  }
  static bool read_directive(char letter, TimeScanner& scan, TimeFields& f) {
    static constexpr std::array<std::string_view, 12> kShort{
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"};
    static constexpr std::array<std::string_view, 12> kLong{
        "january", "february", "march",     "april",   "may",      "june",
        "july",    "august",   "september", "october", "november", "december"};
    static constexpr std::array<std::string_view, 2> kHalves{"am", "pm"};
    int64_t n = 0;
    switch (letter) {
      case 'Y':
        return scan.number(4, 4, f.year);
      case 'y':
        if (!scan.number(2, 2, f.year)) return false;
        f.year += f.year < 69 ? 2000 : 1900;
        return true;
      case 'm':
        return scan.number(1, 2, f.month);
      case 'b':
      case 'B':
        if (!(letter == 'b' ? scan.word(kShort, n) : scan.word(kLong, n))) return false;
        f.month = n + 1;
        return true;
      case 'd':
        return scan.number(1, 2, f.day);
      case 'I':
        f.twelve = true;
        return scan.number(1, 2, f.hour);
      case 'H':
        return scan.number(1, 2, f.hour);
      case 'M':
        return scan.number(1, 2, f.minute);
      case 'S':
        return scan.number(1, 2, f.second);
      case 'f':
        return scan.fraction(f);
      case 'p':
        if (!scan.word(kHalves, n)) return false;
        f.afternoon = n == 1;
        return true;
      default:
        return scan.zone(f);
    }
  }

  static bool right(const TimeFields& f) {
    return f.year >= 1 && f.month >= 1 && f.month <= 12 && f.day >= 1 &&
           f.day <= days_in_month(f.year, f.month) && f.hour < 24 && f.minute < 60 && f.second < 60;
  }

  // Seconds east of UTC at a local time. Of two stretches the earlier one counts.
  Outcome offset_at(int64_t local) const {
    if (fixed_) return {*fixed_, std::nullopt};
    if (stretches_.empty()) return {0, RowError::NoZone};
    static const int64_t first = days_of(1900, 1, 1) * 86'400, end = days_of(2100, 1, 1) * 86'400;
    if (local < first || local >= end) return {0, RowError::OutsideZone};
    auto at = std::upper_bound(stretches_.begin(), stretches_.end(), local,
                               [](int64_t t, const Stretch& s) { return t < s.start; });
    if (at == stretches_.begin()) return {0, RowError::NoSuchTime};
    --at;
    if (at != stretches_.begin() && local < (at - 1)->end) --at;
    if (local >= at->end) return {0, RowError::NoSuchTime};
    return {at->offset, std::nullopt};
  }

  const std::string format_;
  const bool iso_, down_;
  const int unit_;  // s, ms, us, ns
  std::optional<int64_t> fixed_;
  std::vector<Stretch> stretches_;  // in the order of time
};

inline std::shared_ptr<const TimeFormat> make_time_format(const std::string& format, bool iso,
                                                          bool down,
                                                          const std::vector<int64_t>& zone,
                                                          int unit) {
  return std::make_shared<const TimeFormat>(format, iso, down, zone, unit);
}

inline void to_timestamp_text(Context& c, const Instr& in) {
  each_text<int64_t>(c, in, 0, [&](int64_t i, const Text& t) {
    const auto [us, error] = in.times->read(t.view());
    if (error) c.fail(i, *error, t.view());
    return us;
  });
}

template <class T, class Read, class Print>
void each_time_number(Context& c, const Instr& in, Read read, Print print) {
  const Vec& a = c.vec(in.a());
  int64_t* o = c.out<int64_t>(in);
  for (int64_t i = 0; i < c.n; ++i) {
    o[i] = 0;
    if (!a.ok(i)) continue;
    const T n = a.as<T>()[i];
    const auto [us, error] = read(n);
    o[i] = us;
    if (!error) continue;
    char text[kPrintRoom];
    c.fail(i, *error, {text, size_t(print(n, text))});
  }
  c.set(in, o, c.valid_of(in, a));
}
inline void to_timestamp_int(Context& c, const Instr& in) {
  each_time_number<int64_t>(c, in, [&](int64_t n) { return in.times->of_int(n); }, print_int);
}
inline void to_timestamp_float(Context& c, const Instr& in) {
  each_time_number<double>(c, in, [&](double x) { return in.times->of_float(x); }, print_float);
}

}  // namespace plait
