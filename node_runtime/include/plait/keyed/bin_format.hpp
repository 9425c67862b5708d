// The bytes of a bin's state, or of what changed in it: a header, and the entries after it.
//
// The 56-byte header is the same for every kind of state. It says what the bytes are (magic, with
// the kind as its last letter, and version), of which bin and operator, how many entries and bytes
// follow, of which copy they are part (`base`), and carries a checksum over all of it.
//
// The entries of running aggregates (Whole, Difference) are keys, one after the other: hash, rows
// seen, in wide tables length and bytes of the key, then the cells, a text cell as length and
// bytes; those of narrow plans without texts are the table's slots as they are. In a difference a
// key with 0 rows seen is one that is gone. windows/ and joins/ write their own entries. The bytes
// know nothing of lanes or table sizes. Plain data and pure functions: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plait/core/buffer.hpp"
#include "plait/keyed/keyed_plan.hpp"

namespace plait {

inline constexpr uint32_t kNoText = 0xFFFFFFFF;

// Bytes in pooled memory that can go to a socket as they are.
struct Bytes {
  BufferRef bytes;
  int64_t size = 0;
  const uint8_t* data() const { return bytes.data(); }
  const uint8_t* begin() const { return data(); }
  const uint8_t* end() const { return data() + size; }
  operator std::vector<uint8_t>() const { return {begin(), end()}; }
};

// What the bytes are; the last letter of their magic.
enum class BinKind : char { Whole = 'N', Difference = 'D', Timed = 'T', Join = 'J' };

struct BinHeader {
  static constexpr uint16_t kVersion = 2;
  char magic[4] = {'P', 'L', 'B', mark(BinKind::Whole)};
  uint16_t version = kVersion;
  uint16_t bin_bits = 0;
  uint32_t bin = 0;
  uint32_t has_null = 0;  // 1: the last entry of a narrow bin is the null key
  uint64_t fingerprint = 0;
  uint64_t count = 0;
  uint64_t length = 0;  // of what follows the header
  uint64_t base = 0;    // of a copy that a difference will follow, and of that; 0: a bin by itself
  uint64_t checksum = 0;  // XXH64 of what follows, seeded by that of the header before this field

  static constexpr char mark(BinKind kind) { return char(kind); }
  uint64_t right_checksum(const uint8_t* payload) const {
    return xxh64(payload, length, xxh64(this, offsetof(BinHeader, checksum), 0));
  }
};
static_assert(sizeof(BinHeader) == 56);

// Whether the plan's keys travel as the slots are.
inline bool travels_raw(const KeyedPlan& plan) { return !plan.wide && plan.text_words.empty(); }

// One key of a bin as it lies in the bytes.
struct BinEntry {
  uint64_t hash = 0, rows_seen = 0;
  const char* key = nullptr;
  uint32_t key_size = 0;
  const uint8_t* cells = nullptr;
};

}  // namespace plait
