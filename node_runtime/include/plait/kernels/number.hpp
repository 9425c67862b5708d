// Kernels of arithmetic on int64 and float64: operand forms vector-vector, vector-constant,
// constant-vector.
//
// int64 wraps around (computed unsigned; checked.hpp fails rows instead); `//` and `%` round down
// as in Python; an integer division by zero fails its row (unless an operand is null) and leaves 0.
// Division by a positive constant is a multiply and a shift. Pure functions of a chunk: any thread,
// nothing blocks.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "plait/core/dispatch.hpp"
#include "plait/kernels/program.hpp"

namespace plait {

template <class Op, class T, class R>
struct LoopVV {
  PLAIT_INLINE static void run(const T* __restrict a, const T* __restrict b, R* __restrict o,
                               int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = Op::of(a[i], b[i]);
  }
};
template <class Op, class T, class R>
struct LoopVC {
  PLAIT_INLINE static void run(const T* __restrict a, T b, R* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = Op::of(a[i], b);
  }
};
template <class Op, class T, class R>
struct LoopCV {
  PLAIT_INLINE static void run(T a, const T* __restrict b, R* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = Op::of(a, b[i]);
  }
};
template <class Op, class T, class R>
struct LoopV {
  PLAIT_INLINE static void run(const T* __restrict a, R* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = Op::of(a[i]);
  }
};

// At most one operand is constant (the lowering sees to it).
template <class Op, class T, class R = T>
void binary(Context& c, const Instr& in) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  R* o = c.out<R>(in);
  if (b.constant) {
    dispatch<LoopVC<Op, T, R>>(a.as<T>(), *b.as<T>(), o, c.n);
  } else if (a.constant) {
    dispatch<LoopCV<Op, T, R>>(*a.as<T>(), b.as<T>(), o, c.n);
  } else {
    dispatch<LoopVV<Op, T, R>>(a.as<T>(), b.as<T>(), o, c.n);
  }
  c.set(in, o, c.valid_of(in, a, b));
}

template <class Op, class T, class R = T>
void unary(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  R* o = c.out<R>(in);
  dispatch<LoopV<Op, T, R>>(a.as<T>(), o, c.n);
  c.set(in, o, c.valid_of(in, a));
}

struct Add {
  PLAIT_INLINE static int64_t of(int64_t a, int64_t b) {
    return int64_t(uint64_t(a) + uint64_t(b));
  }
  PLAIT_INLINE static double of(double a, double b) { return a + b; }
};
struct Sub {
  PLAIT_INLINE static int64_t of(int64_t a, int64_t b) {
    return int64_t(uint64_t(a) - uint64_t(b));
  }
  PLAIT_INLINE static double of(double a, double b) { return a - b; }
};
struct Mul {
  PLAIT_INLINE static int64_t of(int64_t a, int64_t b) {
    return int64_t(uint64_t(a) * uint64_t(b));
  }
  PLAIT_INLINE static double of(double a, double b) { return a * b; }
};
struct TrueDiv {
  PLAIT_INLINE static double of(double a, double b) { return a / b; }
};
struct BitAnd {
  template <class T>
  PLAIT_INLINE static T of(T a, T b) {
    return T(a & b);
  }
};
struct BitOr {
  template <class T>
  PLAIT_INLINE static T of(T a, T b) {
    return T(a | b);
  }
};
struct BitXor {
  template <class T>
  PLAIT_INLINE static T of(T a, T b) {
    return T(a ^ b);
  }
};
struct Neg {
  PLAIT_INLINE static int64_t of(int64_t a) { return int64_t(0 - uint64_t(a)); }
  PLAIT_INLINE static double of(double a) { return -a; }
};
struct Abs {
  PLAIT_INLINE static int64_t of(int64_t a) { return a < 0 ? Neg::of(a) : a; }
  PLAIT_INLINE static double of(double a) { return std::fabs(a); }
};
struct IsNan {
  PLAIT_INLINE static uint8_t of(double a) { return uint8_t(a != a); }
};

struct LoopShl {
  PLAIT_INLINE static void run(const int64_t* __restrict a, int by, int64_t* __restrict o,
                               int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = int64_t(uint64_t(a[i]) << by);
  }
};
// Neither SSE2 nor AVX2 shifts 64 bits arithmetically: shift logically and extend the sign by hand.
struct LoopShr {
  PLAIT_INLINE static void run(const int64_t* __restrict a, int by, int64_t* __restrict o,
                               int64_t n) {
    const uint64_t sign = (uint64_t(1) << 63) >> by;
    for (int64_t i = 0; i < n; ++i) o[i] = int64_t(((uint64_t(a[i]) >> by) ^ sign) - sign);
  }
};
template <class Loop>
void shift(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  int64_t* o = c.out<int64_t>(in);
  dispatch<Loop>(a.as<int64_t>(), int(in.value), o, c.n);
  c.set(in, o, c.valid_of(in, a));
}

// a * value + b with two constants: half the passes of the most common pair.
struct LoopMulAdd {
  PLAIT_INLINE static void run(const int64_t* __restrict a, uint64_t by, uint64_t plus,
                               int64_t* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = int64_t(uint64_t(a[i]) * by + plus);
  }
};
// Two roundings, as of two kernels: the build forbids contraction to a fused multiply-add.
struct LoopMulAddFloat {
  PLAIT_INLINE static void run(const double* __restrict a, double by, double plus,
                               double* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = a[i] * by + plus;
  }
};
inline void mul_add_float(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  double* o = c.out<double>(in);
  dispatch<LoopMulAddFloat>(a.as<double>(), *c.vec(in.args[1]).as<double>(),
                            *c.vec(in.args[2]).as<double>(), o, c.n);
  c.set(in, o, c.valid_of(in, a));
}
inline void mul_add(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  int64_t* o = c.out<int64_t>(in);
  dispatch<LoopMulAdd>(a.as<int64_t>(), uint64_t(*c.vec(in.args[1]).as<int64_t>()),
                       uint64_t(*c.vec(in.args[2]).as<int64_t>()), o, c.n);
  c.set(in, o, c.valid_of(in, a));
}

inline int64_t floor_div(int64_t a, int64_t b) {  // b != 0
  if (b == -1) return Neg::of(a);                 // the one quotient that overflows wraps around
  const int64_t q = a / b;
  return q - int64_t((a % b != 0) & ((a < 0) != (b < 0)));
}
inline int64_t floor_mod(int64_t a, int64_t b) { return Sub::of(a, Mul::of(floor_div(a, b), b)); }

// floor(a / d) by multiplying: for a < 0 it is ~floor(~a / d), and ~a is below 2^63.
PLAIT_INLINE int64_t magic_div(int64_t a, uint64_t multiplier, int shift) {
  const uint64_t sign = uint64_t(a >> 63);
  const uint64_t high = uint64_t((Magic::Wide(uint64_t(a) ^ sign) * multiplier) >> 64) >> shift;
  return int64_t(high ^ sign);
}
struct LoopMagicDiv {
  PLAIT_INLINE static void run(const int64_t* __restrict a, uint64_t m, int shift,
                               int64_t* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = magic_div(a[i], m, shift);
  }
};
struct LoopMagicMod {
  PLAIT_INLINE static void run(const int64_t* __restrict a, uint64_t m, int shift, int64_t d,
                               int64_t* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] = Sub::of(a[i], Mul::of(magic_div(a[i], m, shift), d));
  }
};

// kWrap: the least int64 divided by -1 is itself, instead of an error.
template <bool kMod, bool kWrap = true>
void int_divide(Context& c, const Instr& in) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  int64_t* o = c.out<int64_t>(in);
  const int64_t* x = a.as<int64_t>();
  const int64_t* y = b.as<int64_t>();
  const Magic& m = in.magic;
  if (b.constant && m.power_of_two >= 0) {
    if (kMod) {
      dispatch<LoopVC<BitAnd, int64_t, int64_t>>(x, *y - 1, o, c.n);
    } else {
      dispatch<LoopShr>(x, m.power_of_two, o, c.n);
    }
  } else if (b.constant && m.shift >= 0) {
    if (kMod) {
      dispatch<LoopMagicMod>(x, m.multiplier, m.shift, *y, o, c.n);
    } else {
      dispatch<LoopMagicDiv>(x, m.multiplier, m.shift, o, c.n);
    }
  } else {
    const int64_t xs = !a.constant, ys = !b.constant;
    for (int64_t i = 0; i < c.n; ++i) {
      const int64_t p = x[i * xs], q = y[i * ys];
      if (q == 0) {
        o[i] = 0;
        if (a.ok(i) && b.ok(i)) c.fail(i, kMod ? RowError::ModuloByZero : RowError::DivisionByZero);
      } else {
        o[i] = kMod ? floor_mod(p, q) : floor_div(p, q);
        if (!kMod && !kWrap && q == -1 && p == INT64_MIN && a.ok(i) && b.ok(i)) {
          c.fail(i, RowError::Overflow, std::to_string(p) + " // -1");
        }
      }
    }
  }
  c.set(in, o, c.valid_of(in, a, b));
}

// As Python's, where the divisor is not zero; by zero as IEEE says: nan, or the quotient's
// infinity.
struct FloatMod {
  static double of(double a, double b) {
    const double r = std::fmod(a, b);
    if (r == 0) return std::copysign(0.0, b);
    return (r < 0) != (b < 0) ? r + b : r;
  }
};
struct FloatFloorDiv {
  static double of(double a, double b) {
    if (b == 0) return std::floor(a / b);
    double r = std::fmod(a, b);
    double q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1.0;
    if (q == 0) return std::copysign(0.0, a / b);
    const double down = std::floor(q);
    return q - down > 0.5 ? down + 1.0 : down;
  }
};
template <class Op>
void float_divide(Context& c, const Instr& in) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  double* o = c.out<double>(in);
  const int64_t as = !a.constant, bs = !b.constant;
  for (int64_t i = 0; i < c.n; ++i) o[i] = Op::of(a.as<double>()[i * as], b.as<double>()[i * bs]);
  c.set(in, o, c.valid_of(in, a, b));
}

}  // namespace plait
