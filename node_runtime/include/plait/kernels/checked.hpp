// Kernels of int64 arithmetic that fail the rows whose result int64 cannot hold.
//
// A loop computes the wrapped result and gathers one flag for the whole chunk, which the compiler
// turns into vector code; only a chunk with the flag is looked through for its rows. By a constant
// the operand is compared with the two bounds between which nothing overflows. Rows that are null
// never fail. Pure functions of a chunk: any thread, nothing blocks.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "plait/core/dispatch.hpp"
#include "plait/kernels/number.hpp"
#include "plait/kernels/program.hpp"

namespace plait {

inline constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// `sign` is negative where the result r of a and b is not the true one.
struct CheckedAdd {
  static constexpr char kSign = '+';
  PLAIT_INLINE static int64_t of(int64_t a, int64_t b) { return Add::of(a, b); }
  PLAIT_INLINE static int64_t sign(int64_t a, int64_t b, int64_t r) { return (a ^ r) & (b ^ r); }
  static bool fails(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_add_overflow(a, b, &r);
  }
};
struct CheckedSub {
  static constexpr char kSign = '-';
  PLAIT_INLINE static int64_t of(int64_t a, int64_t b) { return Sub::of(a, b); }
  PLAIT_INLINE static int64_t sign(int64_t a, int64_t b, int64_t r) { return (a ^ b) & (a ^ r); }
  static bool fails(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_sub_overflow(a, b, &r);
  }
};
struct CheckedMul {
  static constexpr char kSign = '*';
  static bool fails(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r);
  }
};

template <class Op>
struct LoopCheckedVV {
  PLAIT_INLINE static bool run(const int64_t* __restrict a, const int64_t* __restrict b,
                               int64_t* __restrict o, int64_t n) {
    int64_t bad = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t r = Op::of(a[i], b[i]);
      bad |= Op::sign(a[i], b[i], r);
      o[i] = r;
    }
    return bad < 0;
  }
};
template <class Op>
struct LoopCheckedVC {
  PLAIT_INLINE static bool run(const int64_t* __restrict a, int64_t b, int64_t* __restrict o,
                               int64_t n) {
    int64_t bad = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t r = Op::of(a[i], b);
      bad |= Op::sign(a[i], b, r);
      o[i] = r;
    }
    return bad < 0;
  }
};
template <class Op>
struct LoopCheckedCV {
  PLAIT_INLINE static bool run(int64_t a, const int64_t* __restrict b, int64_t* __restrict o,
                               int64_t n) {
    int64_t bad = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t r = Op::of(a, b[i]);
      bad |= Op::sign(a, b[i], r);
      o[i] = r;
    }
    return bad < 0;
  }
};
// a * by + plus, false positives none: `low` and `high` bound the a that fit.
struct LoopCheckedMulAdd {
  PLAIT_INLINE static bool run(const int64_t* __restrict a, uint64_t by, uint64_t plus, int64_t low,
                               int64_t high, int64_t* __restrict o, int64_t n) {
    int64_t bad = 0;
    for (int64_t i = 0; i < n; ++i) {
      bad |= -int64_t(a[i] < low) | -int64_t(a[i] > high);
      o[i] = int64_t(uint64_t(a[i]) * by + plus);
    }
    return bad != 0;
  }
};
// The products, and whether one may be too large: the operands have more than 63 bits together.
struct LoopMulWide {
  PLAIT_INLINE static bool run(const int64_t* __restrict a, const int64_t* __restrict b,
                               int64_t* __restrict o, int64_t n) {
    uint64_t x = 0, y = 0;
    for (int64_t i = 0; i < n; ++i) {
      x |= uint64_t(a[i] ^ -int64_t(a[i] < 0));
      y |= uint64_t(b[i] ^ -int64_t(b[i] < 0));
      o[i] = Mul::of(a[i], b[i]);
    }
    return std::bit_width(x) + std::bit_width(y) > 62;
  }
};

// The least and the greatest a with low <= a * by <= high, where low <= 0 <= high.
inline std::pair<int64_t, int64_t> factor_bounds(int64_t by, int64_t low, int64_t high) {
  if (by == 0) return {kLeast, kMost};
  if (by > 0) return {low / by, high / by};
  return {high / by, by == -1 && low == kLeast ? kMost : low / by};
}

// The text of an operation for the error. What commutes is written with the greater operand first,
// since the lowering may have turned it round.
inline std::string operation_text(char sign, int64_t a, int64_t b) {
  if (sign != '-' && a < b) std::swap(a, b);
  return std::to_string(a) + " " + sign + " " + std::to_string(b);
}

template <class Op>
[[gnu::noinline, gnu::cold]] void fail_overflows(Context& c, const Vec& a, const Vec& b) {
  const int64_t as = !a.constant, bs = !b.constant;
  for (int64_t i = 0; i < c.n; ++i) {
    const int64_t x = a.as<int64_t>()[i * as], y = b.as<int64_t>()[i * bs];
    if (a.ok(i) && b.ok(i) && Op::fails(x, y)) {
      c.fail(i, RowError::Overflow, operation_text(Op::kSign, x, y));
    }
  }
}

template <class Op>
void checked(Context& c, const Instr& in) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  int64_t* o = c.out<int64_t>(in);
  const auto *x = a.as<int64_t>(), *y = b.as<int64_t>();
  const bool bad = b.constant   ? dispatch<LoopCheckedVC<Op>>(x, *y, o, c.n)
                   : a.constant ? dispatch<LoopCheckedCV<Op>>(*x, y, o, c.n)
                                : dispatch<LoopCheckedVV<Op>>(x, y, o, c.n);
  if (bad) [[unlikely]]
    fail_overflows<Op>(c, a, b);
  c.set(in, o, c.valid_of(in, a, b));
}

inline void checked_mul(Context& c, const Instr& in) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  int64_t* o = c.out<int64_t>(in);
  const auto *x = a.as<int64_t>(), *y = b.as<int64_t>();
  bool bad = false;
  if (b.constant) {  // a constant is the second (the lowering sees to it)
    const auto [low, high] = factor_bounds(*y, kLeast, kMost);
    bad = dispatch<LoopCheckedMulAdd>(x, uint64_t(*y), uint64_t(0), low, high, o, c.n);
  } else if (dispatch<LoopMulWide>(x, y, o, c.n)) {
    for (int64_t i = 0; i < c.n; ++i) bad |= CheckedMul::fails(x[i], y[i]);
  }
  if (bad) [[unlikely]]
    fail_overflows<CheckedMul>(c, a, b);
  c.set(in, o, c.valid_of(in, a, b));
}

// a * by + plus with constants. `value` 1: it was written as a difference.
inline void checked_mul_add(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  int64_t* o = c.out<int64_t>(in);
  const auto* x = a.as<int64_t>();
  const int64_t by = *c.vec(in.args[1]).as<int64_t>(), plus = *c.vec(in.args[2]).as<int64_t>();
  const auto [low, high] = factor_bounds(by, plus < 0 ? Sub::of(kLeast, plus) : kLeast,
                                         plus > 0 ? Sub::of(kMost, plus) : kMost);
  if (dispatch<LoopCheckedMulAdd>(x, uint64_t(by), uint64_t(plus), low, high, o, c.n))
      [[unlikely]] {
    for (int64_t i = 0; i < c.n; ++i) {
      if (!a.ok(i) || (x[i] >= low && x[i] <= high)) continue;
      const bool product = CheckedMul::fails(x[i], by);
      const int64_t p = Mul::of(x[i], by);
      c.fail(i, RowError::Overflow,
             product    ? operation_text('*', x[i], by)
             : in.value ? operation_text('-', p, Neg::of(plus))
                        : operation_text('+', p, plus));
    }
  }
  c.set(in, o, c.valid_of(in, a));
}

struct LoopAnyLeast {
  PLAIT_INLINE static bool run(const int64_t* __restrict a, int64_t n) {
    int64_t bad = 0;
    for (int64_t i = 0; i < n; ++i) bad |= -int64_t(a[i] == kLeast);
    return bad != 0;
  }
};
// The sign and the amount: only the least int64 has no opposite.
template <class Op, bool kAbs>
void checked_sign(Context& c, const Instr& in) {
  unary<Op, int64_t>(c, in);
  const Vec &a = c.vec(in.a()), &r = c.vec(in.dst);
  if (!dispatch<LoopAnyLeast>(r.as<int64_t>(), c.n)) [[likely]]
    return;
  for (int64_t i = 0; i < c.n; ++i) {
    if (a.as<int64_t>()[i] != kLeast || !a.ok(i)) continue;
    const std::string least = std::to_string(kLeast);
    c.fail(i, RowError::Overflow, (kAbs ? "abs(" : "-(") + least + ")");
  }
}

}  // namespace plait
