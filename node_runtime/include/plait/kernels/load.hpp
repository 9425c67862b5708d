// Kernels that bring columns and constants into registers, and the packing of bits.
//
// 8-byte columns are not copied: the register points into the column. Bits become bytes; a chunk
// whose validity bits are all set counts as one without nulls. Pure functions of a chunk: any
// thread, nothing blocks.
#pragma once

#include <cstdint>
#include <cstring>

#include "plait/kernels/program.hpp"

namespace plait {

static_assert(std::endian::native == std::endian::little, "bit packing reads words of bytes");

// n bits from bit `at` on, as bytes 0/1; returns whether all of them are set.
inline bool unpack_bits(const uint8_t* bits, int64_t at, int64_t n, uint8_t* o) {
  bits += at >> 3;
  const int shift = int(at & 7);
  const int64_t last = (shift + n - 1) >> 3;  // last byte that holds a wanted bit
  bool all = true;
  for (int64_t i = 0; i < n; i += 8) {
    const int64_t k = i >> 3;
    unsigned byte = bits[k] >> shift;
    if (shift && k < last) byte |= unsigned(bits[k + 1]) << (8 - shift);
    byte &= 0xFF;
    const unsigned want = n - i >= 8 ? 0xFFu : (1u << (n - i)) - 1;
    all &= (byte & want) == want;
    const uint64_t spread = (byte * 0x0101010101010101u) & 0x8040201008040201u;
    const uint64_t ones = ((spread + 0x7F7F7F7F7F7F7F7Fu) >> 7) & 0x0101010101010101u;
    if (n - i >= 8) {
      std::memcpy(o + i, &ones, 8);
    } else {
      std::memcpy(o + i, &ones, size_t(n - i));
    }
  }
  return all;
}

// n bytes 0/1 as bits from bit 0 on. Bits beyond n in the last byte are 0.
inline void pack_bits(const uint8_t* bytes, int64_t n, uint8_t* o) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes + i, 8);
    o[i >> 3] = uint8_t((word * 0x0102040810204080u) >> 56);
  }
  if (i < n) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, size_t(n - i));
    o[i >> 3] = uint8_t((word * 0x0102040810204080u) >> 56);
  }
}

inline const uint8_t* load_valid(Context& c, const Instr& in, const Column& column) {
  if (!column.validity) return nullptr;
  uint8_t* v = c.valid_out(in);
  return unpack_bits(column.validity, column.validity_offset + c.base, c.n, v) ? nullptr : v;
}
inline void load_word(Context& c, const Instr& in) {
  const Column& column = c.batch.columns[size_t(in.value)];
  c.set(in, column.i64() + c.base, load_valid(c, in, column));
}
inline void load_bool(Context& c, const Instr& in) {
  const Column& column = c.batch.columns[size_t(in.value)];
  uint8_t* o = c.out<uint8_t>(in);
  unpack_bits(column.data, column.data_offset + c.base, c.n, o);
  c.set(in, o, load_valid(c, in, column));
}
inline void load_text(Context& c, const Instr& in) {
  const Column& column = c.batch.columns[size_t(in.value)];
  Text* o = c.out<Text>(in);
  const char* data = column.data ? reinterpret_cast<const char*>(column.data) : "";
  const int32_t* at = column.offsets + c.base;
  for (int64_t i = 0; i < c.n; ++i) o[i] = Text{data + at[i], at[i + 1] - at[i]};
  c.set(in, o, load_valid(c, in, column));
}

// A constant as a full register, for kernels that take vectors alone.
template <class T>
void spread(Context& c, const Instr& in) {
  T* o = c.out<T>(in);
  const T value = *c.vec(in.a()).as<T>();
  for (int64_t i = 0; i < c.n; ++i) o[i] = value;
  c.set(in, o, nullptr);
}
// Null in every row; texts under a null are empty.
template <class T>
void nulls(Context& c, const Instr& in) {
  T* o = c.out<T>(in);
  for (int64_t i = 0; i < c.n; ++i) {
    if constexpr (std::is_same_v<T, Text>) {
      o[i] = Text{"", 0};
    } else {
      o[i] = T{};
    }
  }
  std::memset(c.valid_out(in), 0, size_t(c.n));
  c.set(in, o, c.valid_out(in));
}

}  // namespace plait
