// Kernels of casts between numbers, of times, and of calls to compiled functions.
//
// A float that int64 cannot hold fails its row, and so does a time that cannot be rounded down;
// every other cast here always succeeds. Times are
// microseconds since 1970 in UTC, negative before. Pure functions of a chunk: any thread, nothing
// blocks.
#pragma once

#include <cstdint>

#include "plait/columns/casts.hpp"
#include "plait/core/dispatch.hpp"
#include "plait/kernels/number.hpp"
#include "plait/kernels/program.hpp"

namespace plait {

struct ToFloat {
  PLAIT_INLINE static double of(int64_t a) { return double(a); }
  PLAIT_INLINE static double of(uint8_t a) { return double(a); }
};
struct ToInt {
  PLAIT_INLINE static int64_t of(uint8_t a) { return a; }
};
struct ToBool {
  template <class T>
  PLAIT_INLINE static uint8_t of(T a) {
    return uint8_t(a != 0);
  }
};

inline void cast_f64_i64(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  int64_t* o = c.out<int64_t>(in);
  for (int64_t i = 0; i < c.n; ++i) {
    const auto value = float_to_int(a.as<double>()[i]);
    if (!value && a.ok(i)) {
      char text[kPrintRoom];
      c.fail(i, RowError::OutOfRange, {text, size_t(print_float(a.as<double>()[i], text))});
    }
    o[i] = value.value_or(0);
  }
  c.set(in, o, c.valid_of(in, a));
}

struct Year {
  static int64_t of(int64_t us) { return civil(split_time(us).days).year; }
};
struct Month {
  static int64_t of(int64_t us) { return civil(split_time(us).days).month; }
};
struct Day {
  static int64_t of(int64_t us) { return civil(split_time(us).days).day; }
};
struct Hour {
  static int64_t of(int64_t us) { return split_time(us).of_day / 3'600'000'000; }
};
struct Minute {
  static int64_t of(int64_t us) { return split_time(us).of_day / 60'000'000 % 60; }
};
struct Second {
  static int64_t of(int64_t us) { return split_time(us).of_day / 1'000'000 % 60; }
};

struct LoopTruncate {
  PLAIT_INLINE static bool run(const int64_t* __restrict a, uint64_t m, int shift, int64_t d,
                               int64_t* __restrict o, int64_t n) {
    bool bad = false;
    for (int64_t i = 0; i < n; ++i) {
      o[i] = Mul::of(magic_div(a[i], m, shift), d);
      bad |= o[i] > a[i];
    }
    return bad;
  }
};
// Rounds down to a multiple of `value` microseconds (positive) since 1970.
inline void truncate(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  int64_t* o = c.out<int64_t>(in);
  if (in.magic.power_of_two >= 0) {
    dispatch<LoopVC<BitAnd, int64_t, int64_t>>(a.as<int64_t>(), -in.value, o, c.n);
  } else {
    const bool bad = dispatch<LoopTruncate>(a.as<int64_t>(), in.magic.multiplier, in.magic.shift,
                                            in.value, o, c.n);
    for (int64_t i = 0; bad && i < c.n; ++i) {  // the multiple below is less than an int64 can be
      if (o[i] <= a.as<int64_t>()[i] || !a.ok(i)) continue;
      c.fail(i, RowError::Overflow, "truncate(" + std::to_string(a.as<int64_t>()[i]) + ")");
    }
  }
  c.set(in, o, c.valid_of(in, a));
}

// A compiled function of vectors; the row is computed also where an argument is null, and then is
// null.
template <class R>
void call(Context& c, const Instr& in) {
  auto& pointers = c.ws.pointers;
  pointers.clear();
  uint8_t* valid = nullptr;
  for (const int arg : in.args) {
    const Vec& v = c.vec(arg);
    pointers.push_back(v.data);
    if (!v.valid) continue;
    if (!valid) {
      valid = c.valid_out(in);
      std::memcpy(valid, v.valid, size_t(c.n));
    } else {
      for (int64_t i = 0; i < c.n; ++i) valid[i] &= v.valid[i];
    }
  }
  R* o = c.out<R>(in);
  in.function(pointers.data(), c.n, o);
  c.set(in, o, valid);
}

}  // namespace plait
