// A state table whose keys are bytes: slot = {hash, rows seen, key's address, cells...}.
//
// Keys are compared by hash, then by length and bytes; each segment keeps its keys in an arena of
// its own, rebuilt when more than half of it belongs to keys that have left. A null key of a single
// column has the length kNullKey. For one thread at a time (the holder of the lane); never waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "plait/keyed/bin_table.hpp"

namespace plait {

inline constexpr uint32_t kNullKey = 0xFFFFFFFF;

class WideTable {
 public:
  struct StoredKey {
    uint32_t size;
    const char* bytes() const { return reinterpret_cast<const char*>(this) + 4; }
    uint32_t length() const { return size == kNullKey ? 0 : size; }
    bool is(const char* data, uint32_t n) const {
      return size == n && (n == kNullKey || n == 0 || std::memcmp(bytes(), data, n) == 0);
    }
  };

  WideTable(unsigned words, unsigned lane_bits, unsigned segment_bits, unsigned bin_bits)
      : table_(words, lane_bits, segment_bits, bin_bits), arenas_(size_t(1) << segment_bits) {}

  BinTable& table() { return table_; }
  const BinTable& table() const { return table_; }
  static const StoredKey* key_of(const uint64_t* slot) {
    return reinterpret_cast<const StoredKey*>(slot[2]);
  }

  // Asks for the key's bytes when its slot has already come.
  [[gnu::always_inline]] void prefetch_key(uint64_t h) {
    const StateTable::Segment& s = table_.segment(h);
    const uint64_t* slot = s.slots + table_.index(s, h) * table_.words();
    if (slot[0] == h && slot[1]) __builtin_prefetch(key_of(slot));
  }

  // The key's slot, or an empty one into which hash and key were written (rows seen is still 0).
  uint64_t* find(uint64_t h, const char* data, uint32_t size) {
    const StateTable::Segment& s = table_.segment(h);
    const uint64_t words = table_.words();
    for (uint64_t i = table_.index(s, h);; i = (i + 1) & s.mask) {
      uint64_t* slot = s.slots + i * words;
      if (slot[1] == 0) {
        slot[0] = h;
        slot[2] = reinterpret_cast<uint64_t>(arenas_[table_.segment_index(h)].store(data, size));
        return slot;
      }
      if (slot[0] == h && key_of(slot)->is(data, size)) return slot;
    }
  }

  void erase_bin(uint64_t bin, unsigned bin_bits) {
    const uint64_t h = bin_bits ? bin << (64 - bin_bits) : 0;
    KeyArena& arena = arenas_[table_.segment_index(h)];
    table_.each_of_bin(
        bin, [&](uint64_t* slot) { arena.live -= KeyArena::space(key_of(slot)->length()); });
    table_.erase_bin(bin);
    tidy(arena, h);
  }

  // A slot that find() gave, whether its key was there or not.
  void remove(uint64_t* slot) {
    const uint64_t h = slot[0];
    KeyArena& arena = arenas_[table_.segment_index(h)];
    arena.live -= KeyArena::space(key_of(slot)->length());
    if (slot[1] != 0) {
      table_.remove(slot);
    } else {
      std::fill(slot, slot + table_.words(), 0);
    }
    tidy(arena, h);
  }

  size_t byte_size() const {
    size_t n = table_.byte_size();
    for (const KeyArena& a : arenas_) n += a.total;
    return n;
  }

 private:
  struct KeyArena {
    std::vector<std::unique_ptr<uint64_t[]>> chunks;
    char* at = nullptr;
    size_t left = 0, next = 512;
    size_t live = 0, total = 0;  // bytes of keys in use, bytes of all chunks

    static size_t space(uint32_t length) { return (size_t(length) + 4 + 7) / 8 * 8; }
    const StoredKey* store(const char* data, uint32_t size) {
      const uint32_t length = size == kNullKey ? 0 : size;
      const size_t need = space(length);
      if (need > left) {
        const size_t bytes = std::max(need, next);
        if (next < (size_t(256) << 10)) next *= 2;
        chunks.push_back(std::make_unique_for_overwrite<uint64_t[]>(bytes / 8));
        at = reinterpret_cast<char*>(chunks.back().get());
        left = bytes;
        total += bytes;
      }
      char* key = at;
      at += need;
      left -= need;
      live += need;
      std::memcpy(key, &size, 4);
      if (length) std::memcpy(key + 4, data, length);
      return reinterpret_cast<const StoredKey*>(key);
    }
  };

  // Stores the keys of h's segment anew when more than half of its arena is waste.
  void tidy(KeyArena& arena, uint64_t h) {
    if (arena.live * 2 >= arena.total) return;
    KeyArena fresh;
    table_.each(table_.segment(h), [&](uint64_t* slot) {
      const StoredKey* key = key_of(slot);
      slot[2] = reinterpret_cast<uint64_t>(fresh.store(key->bytes(), key->size));
    });
    arena = std::move(fresh);
  }

  BinTable table_;
  std::vector<KeyArena> arenas_;
};

}  // namespace plait
