// The canonical typed hash of a key; its Python twin is key_hash.py.
//
// A key's bin is the top bits of this hash on every node, so it may never change. One fixed-width
// column: a multiplication that is one to one, so the hash is the key's identity and tables need
// not store the key; one string or bytes column: XXH64 of its bytes; several columns: XXH64 of an
// encoding that is equal exactly when the keys are. `1`, `1.0` and `true` hash apart; -0.0 is 0.0;
// NaN is not a key (see nan_key_rows); null is one. Pure functions: any thread, no waiting.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/core/xxh64.hpp"

namespace plait {

inline constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

// Indexed by Type. Object is never a key.
inline constexpr uint64_t kSalt[] = {
    0,  // Int64
    0x910A2DEC89025CC1,
    0x975835DE1C9756CF,
    0x1D0B14E4DB018FED,
    0x6E73E372E2338ACB,
    0xC91F66B33BD2B49D,
    0,
};
inline constexpr uint64_t kNullHash[] = {
    0x93C5B3E9DFF51D03,
    0x5AF3C4F0D9F0B7E1,
    0xC2D1A86F3E917B45,
    0x2F8E07B5641DCA99,
    0x78B94D12A5E3F06B,
    0xE61C935A07D84F27,
    0,
};
inline constexpr uint64_t salt(Type t) { return kSalt[size_t(t)]; }
inline constexpr uint64_t null_hash(Type t) { return kNullHash[size_t(t)]; }

inline constexpr uint64_t top_bits(uint64_t h, unsigned bits) {
  return bits ? h >> (64 - bits) : 0;
}

inline uint64_t canonical_double(uint64_t bits) {
  return std::bit_cast<uint64_t>(std::bit_cast<double>(bits) + 0.0);
}
inline uint64_t hash_fixed(uint64_t bits, Type t) { return (bits ^ salt(t)) * kGolden; }
inline uint64_t hash_bytes(const char* data, size_t size, Type t) {
  return xxh64(data, size, salt(t));
}

// The 64 bits of value i of a fixed-width column, canonical as a key.
inline uint64_t key_bits(const Column& c, int64_t i) {
  if (c.type == Type::Bool) return c.boolean(i);
  uint64_t bits;
  std::memcpy(&bits, c.data + 8 * i, 8);
  return c.type == Type::Float64 ? canonical_double(bits) : bits;
}

// Appends row i of several key columns: per column the type, whether it is null, then 8 bytes or
// length and bytes.
inline void encode_key(const std::vector<const Column*>& columns, int64_t i,
                       std::vector<uint8_t>& out) {
  for (const Column* c : columns) {
    const bool null = !c->valid(i);
    const bool text = is_varlen(c->type);
    const uint32_t size = text && !null ? uint32_t(c->size(i)) : 0;
    const size_t at = out.size();
    out.resize(at + 2 + (null ? 0 : text ? 4 + size_t(size) : 8));
    uint8_t* p = out.data() + at;
    *p++ = uint8_t(c->type);
    *p++ = null;
    if (null) continue;
    if (text) {
      std::memcpy(p, &size, 4);
      if (size) std::memcpy(p + 4, c->bytes(i), size);
    } else {
      const uint64_t bits = key_bits(*c, i);
      std::memcpy(p, &bits, 8);
    }
  }
}

}  // namespace plait
