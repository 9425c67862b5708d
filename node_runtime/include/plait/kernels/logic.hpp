// Kernels of comparison, three-valued logic, null handling and choice.
//
// Results of comparison and logic are bytes 0/1. In a comparison only the right operand may be
// constant (the lowering turns the others round). Pure functions of a chunk: any thread, nothing
// blocks.
#pragma once

#include <cstdint>
#include <cstring>

#include "plait/core/dispatch.hpp"
#include "plait/kernels/number.hpp"
#include "plait/kernels/program.hpp"

namespace plait {

struct Eq {
  template <class T>
  PLAIT_INLINE static uint8_t of(T a, T b) {
    return uint8_t(a == b);
  }
  static bool order(int o) { return o == 0; }
};
struct Ne {
  template <class T>
  PLAIT_INLINE static uint8_t of(T a, T b) {
    return uint8_t(a != b);
  }
  static bool order(int o) { return o != 0; }
};
struct Lt {
  template <class T>
  PLAIT_INLINE static uint8_t of(T a, T b) {
    return uint8_t(a < b);
  }
  static bool order(int o) { return o < 0; }
};
struct Le {
  template <class T>
  PLAIT_INLINE static uint8_t of(T a, T b) {
    return uint8_t(a <= b);
  }
  static bool order(int o) { return o <= 0; }
};
struct Gt {
  template <class T>
  PLAIT_INLINE static uint8_t of(T a, T b) {
    return uint8_t(a > b);
  }
  static bool order(int o) { return o > 0; }
};
struct Ge {
  template <class T>
  PLAIT_INLINE static uint8_t of(T a, T b) {
    return uint8_t(a >= b);
  }
  static bool order(int o) { return o >= 0; }
};

inline int compare_text(const Text& a, const Text& b) {
  const int o = std::memcmp(a.data, b.data, size_t(std::min(a.size, b.size)));
  if (o != 0) return o;
  return a.size < b.size ? -1 : int(a.size > b.size);
}
inline bool equal_text(const Text& a, const Text& b) {
  return a.size == b.size && std::memcmp(a.data, b.data, size_t(a.size)) == 0;
}
template <class Op>
void compare_texts(Context& c, const Instr& in) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  uint8_t* o = c.out<uint8_t>(in);
  for (int64_t i = 0; i < c.n; ++i) {
    if constexpr (std::is_same_v<Op, Eq> || std::is_same_v<Op, Ne>) {
      o[i] = uint8_t(equal_text(a.text(i), b.text(i)) == std::is_same_v<Op, Eq>);
    } else {
      o[i] = uint8_t(Op::order(compare_text(a.text(i), b.text(i))));
    }
  }
  c.set(in, o, c.valid_of(in, a, b));
}

// Three-valued: false and null is false, true or null is true. A result is known when both sides
// are, or when one side is known and decides; the value under a known result is right whatever lies
// under a null operand.
template <bool kAnd>
struct LoopKleene {
  PLAIT_INLINE static void run(const uint8_t* __restrict a, const uint8_t* __restrict va,
                               const uint8_t* __restrict b, const uint8_t* __restrict vb,
                               uint8_t* __restrict o, uint8_t* __restrict v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t x = a[i] & va[i], y = b[i] & vb[i];  // known to be true
      const uint8_t no_x = va[i] & (a[i] ^ 1), no_y = vb[i] & (b[i] ^ 1);
      v[i] = (va[i] & vb[i]) | (kAnd ? no_x | no_y : x | y);
      o[i] = kAnd ? x & y : x | y;
    }
  }
};
template <bool kAnd>
void kleene(Context& c, const Instr& in) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  uint8_t* o = c.out<uint8_t>(in);
  const auto *x = a.as<uint8_t>(), *y = b.as<uint8_t>();
  if (!a.valid && !b.valid) {
    using Op = std::conditional_t<kAnd, BitAnd, BitOr>;
    dispatch<LoopVV<Op, uint8_t, uint8_t>>(x, y, o, c.n);
    return c.set(in, o, nullptr);
  }
  static const std::vector<uint8_t> ones(kChunk, uint8_t(1));
  dispatch<LoopKleene<kAnd>>(x, a.valid ? a.valid : ones.data(), y, b.valid ? b.valid : ones.data(),
                             o, c.valid_out(in), c.n);
  c.set(in, o, c.valid_out(in));
}
struct Not {
  PLAIT_INLINE static uint8_t of(uint8_t a) { return a ^ 1; }
};

inline void is_null(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  uint8_t* o = c.out<uint8_t>(in);
  if (a.valid) {
    dispatch<LoopV<Not, uint8_t, uint8_t>>(a.valid, o, c.n);
  } else {
    std::memset(o, 0, size_t(c.n));
  }
  c.set(in, o, nullptr);
}

// o = m ? a : b. The mask is bytes 0/1.
template <class T>
struct LoopChoose {
  PLAIT_INLINE static void run(const uint8_t* __restrict m, const T* __restrict a,
                               const T* __restrict b, T* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const T x = a[i], y = b[i];  // both read, so that the choice is a blend and no branch
      o[i] = m[i] ? x : y;
    }
  }
};
template <class T>
void choose(Context& c, const Instr& in, const uint8_t* mask, const Vec& a, const Vec& b) {
  T* o = c.out<T>(in);
  if constexpr (std::is_same_v<T, Text>) {
    for (int64_t i = 0; i < c.n; ++i) o[i] = mask[i] ? a.text(i) : b.text(i);
  } else {
    dispatch<LoopChoose<T>>(mask, a.as<T>(), b.as<T>(), o, c.n);
  }
  if (!a.valid && !b.valid) return c.set(in, o, nullptr);
  uint8_t* v = c.valid_out(in);
  for (int64_t i = 0; i < c.n; ++i) v[i] = mask[i] ? uint8_t(a.ok(i)) : uint8_t(b.ok(i));
  c.set(in, o, v);
}

// (condition, value, otherwise); a null condition does not match.
template <class T>
void select(Context& c, const Instr& in) {
  const Vec& m = c.vec(in.args[0]);
  const auto* mask = m.as<uint8_t>();
  uint8_t both[kChunk];
  if (m.valid) {
    for (int64_t i = 0; i < c.n; ++i) both[i] = mask[i] & m.valid[i];
    mask = both;
  }
  choose<T>(c, in, mask, c.vec(in.args[1]), c.vec(in.args[2]));
}

template <class T>
void fill_null(Context& c, const Instr& in) {
  const Vec &a = c.vec(in.a()), &b = c.vec(in.b());
  if (a.valid) {
    uint8_t mask[kChunk];
    std::memcpy(mask, a.valid, size_t(c.n));
    return choose<T>(c, in, mask, Vec{a.data, nullptr, a.constant}, b);
  }
  T* o = c.out<T>(in);
  std::memcpy(static_cast<void*>(o), a.data, size_t(c.n) * sizeof(T));
  c.set(in, o, nullptr);
}

// Errors of a part of the expression count only for the rows that use it: `scope_begin` marks,
// `scope_end` drops the errors since the mark of rows whose condition is not true (value 1) or is
// true (value 0).
inline void scope_begin(Context& c, const Instr&) { c.ws.scopes.push_back(c.errors.rows.size()); }
inline void scope_end(Context& c, const Instr& in) {
  const Vec& m = c.vec(in.a());
  auto& rows = c.errors.rows;
  size_t kept = c.ws.scopes.back();
  for (size_t i = kept; i < rows.size(); ++i) {
    const int64_t at = rows[i].row - c.base;
    const bool taken = m.as<uint8_t>()[at] && m.ok(at);
    if (taken == (in.value != 0)) std::swap(rows[kept++], rows[i]);
  }
  rows.erase(rows.begin() + int64_t(kept), rows.end());
  c.ws.scopes.pop_back();
}

}  // namespace plait
