// Writes and reads the bytes of a bin's state (bin_format.hpp): what moves between nodes and into
// checkpoints.
//
// BinWriter collects keys in pooled memory and seals them; check_bin() reads everything before
// anything is changed and gives the reason for a refusal; BinReader then walks the keys. Nothing
// shared: any thread, no waiting.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "plait/keyed/aggregates.hpp"
#include "plait/keyed/bin_format.hpp"
#include "plait/keyed/sealed_bytes.hpp"
#include "plait/keyed/wide_table.hpp"

namespace plait {

class BinWriter : private SealedBytes {
 public:
  BinWriter(const KeyedPlan& plan, BinKind kind, uint32_t bin, uint64_t base, uint64_t keys)
      : SealedBytes(sizeof(BinHeader) + (keys + 1) * plan.used_words * 8),
        plan_(plan),
        raw_(travels_raw(plan)) {
    header_.magic[3] = BinHeader::mark(kind);
    header_.bin_bits = uint16_t(plan.bin_bits);
    header_.bin = bin;
    header_.base = base;
    header_.fingerprint = plan.fingerprint;
  }

  void add(const uint64_t* slot) {
    ++header_.count;
    if (raw_) return put(slot, plan_.used_words * 8);
    put(slot, 16);
    if (plan_.wide) {
      const WideTable::StoredKey* key = WideTable::key_of(slot);
      put(&key->size, 4);
      put(key->bytes(), key->length());
    }
    size_t text = 0;
    for (unsigned w = unsigned(plan_.first_cell()); w < plan_.used_words; ++w) {
      if (text < plan_.text_words.size() && plan_.text_words[text] == int(w)) {
        ++text;
        Blob* blob = Blob::of(slot[w]);
        const uint32_t size = blob ? blob->size : kNoText;
        put(&size, 4);
        if (blob) put(blob->bytes(), size);
      } else {
        put(slot + w, 8);
      }
    }
  }
  void add_null(const uint64_t* slot) {
    add(slot);
    header_.has_null = 1;
  }
  // An entry that was added to another writer, alone.
  void add_null(BinWriter& other) {
    put(other.begin(), other.size());
    header_.count += other.header_.count;
    header_.has_null = 1;
  }
  // fill(at) writes keys of a raw plan, no more than were announced and one, and returns the end.
  template <class Fill>
  void add_raw(Fill fill) {
    auto* from = reinterpret_cast<uint64_t*>(end());
    const auto words = size_t(fill(from) - from);
    header_.count += words / plan_.used_words;
    wrote(words * 8);
  }

  uint64_t count() const { return header_.count; }
  Bytes finish() { return seal(header_); }

 private:
  const KeyedPlan& plan_;
  const bool raw_;
  BinHeader header_;
};

// Walks the entries between two addresses; never reads beyond the end.
class BinReader {
 public:
  BinReader(const KeyedPlan& plan, const uint8_t* at, const uint8_t* end)
      : plan_(plan), at_(at), end_(end) {}

  [[nodiscard]] bool next(BinEntry& e) {
    if (!get(&e.hash, 8) || !get(&e.rows_seen, 8)) return false;
    if (plan_.wide) {
      if (!get(&e.key_size, 4)) return false;
      e.key = reinterpret_cast<const char*>(at_);
      if (!skip(e.key_size == kNullKey ? 0 : e.key_size)) return false;
    }
    e.cells = at_;
    size_t text = 0;
    for (unsigned w = unsigned(plan_.first_cell()); w < plan_.used_words; ++w) {
      if (text < plan_.text_words.size() && plan_.text_words[text] == int(w)) {
        ++text;
        uint32_t size;
        if (!get(&size, 4) || !skip(size == kNoText ? 0 : size)) return false;
      } else if (!skip(8)) {
        return false;
      }
    }
    return true;
  }
  bool at_end() const { return at_ == end_; }
  size_t left() const { return size_t(end_ - at_); }

  // Writes an entry's cells into a slot whose cells are 0.
  static void fill(const KeyedPlan& plan, const BinEntry& e, uint64_t* slot) {
    const uint8_t* at = e.cells;
    size_t text = 0;
    for (unsigned w = unsigned(plan.first_cell()); w < plan.used_words; ++w) {
      if (text < plan.text_words.size() && plan.text_words[text] == int(w)) {
        ++text;
        uint32_t size;
        std::memcpy(&size, at, 4);
        at += 4;
        if (size == kNoText) continue;
        Blob::assign(slot[w], reinterpret_cast<const char*>(at), size);
        at += size;
      } else {
        std::memcpy(slot + w, at, 8);
        at += 8;
      }
    }
  }

 private:
  bool skip(size_t size) {
    if (size_t(end_ - at_) < size) return false;
    at_ += size;
    return true;
  }
  bool get(void* to, size_t size) {
    if (size_t(end_ - at_) < size) return false;
    std::memcpy(to, at_, size);
    at_ += size;
    return true;
  }
  const KeyedPlan& plan_;
  const uint8_t *at_, *end_;
};

namespace bin_codec_detail {
inline bool right_hash(const KeyedPlan& plan, const BinEntry& e, bool null_entry) {
  if (!plan.wide) return !null_entry || e.hash == null_hash(plan.key_types[0]);
  if (plan.key_types.size() > 1) {
    return e.key_size != kNullKey && e.hash == xxh64(e.key, e.key_size, 0);
  }
  const Type t = plan.key_types[0];
  return e.hash == (e.key_size == kNullKey ? null_hash(t) : hash_bytes(e.key, e.key_size, t));
}

inline constexpr const char* kNotOfBin = "damaged: a key that is not of this bin";
inline constexpr const char* kCutShort = "damaged: an entry is cut short";
inline constexpr const char* kBehind = "damaged: bytes behind the last entry";

inline std::string check_entries(const KeyedPlan& plan, bool whole, const BinHeader& h,
                                 const uint8_t* at, const uint8_t* end) {
  BinReader reader(plan, at, end);
  BinEntry e;
  for (uint64_t i = 0; i < h.count; ++i) {
    if (!reader.next(e)) return kCutShort;
    const bool null_entry = h.has_null && i + 1 == h.count;
    if (top_bits(e.hash, plan.put_bits) != h.bin || (whole && e.rows_seen == 0) ||
        !right_hash(plan, e, null_entry)) {
      return kNotOfBin;
    }
  }
  return reader.at_end() ? "" : kBehind;
}

// The same for raw slots, in one loop without branches.
inline std::string check_slots(const KeyedPlan& plan, bool whole, const BinHeader& h,
                               const uint8_t* at) {
  const uint64_t bytes = plan.used_words * 8;
  if (h.length / bytes < h.count) return kCutShort;
  if (h.length != h.count * bytes) return kBehind;
  uint64_t word[2] = {0, 0}, bad = 0;
  for (uint64_t i = 0; i < h.count; ++i, at += bytes) {
    std::memcpy(word, at, 16);
    bad |= uint64_t(top_bits(word[0], plan.put_bits) != h.bin) | uint64_t(whole && word[1] == 0);
  }
  if (h.has_null) bad |= word[0] != null_hash(plan.key_types[0]);
  return bad ? kNotOfBin : "";
}
}  // namespace bin_codec_detail

// Empty when the bytes are a whole, undamaged bin of this plan, or the difference of one; else why
// not.
inline std::string check_bin(const KeyedPlan& plan, BinKind kind, const uint8_t* data, size_t size,
                             BinHeader& h) {
  using namespace bin_codec_detail;
  std::string why = unsealed(kind, data, size, h);
  if (!why.empty()) return why;
  if (h.fingerprint != plan.fingerprint) return "of another plan: keys or aggregates differ";
  if (why = other_bins(h.bin_bits, plan.put_bits); !why.empty()) return why;
  if (h.bin >> plan.put_bits) return "damaged: no such bin";
  if (h.has_null > 1 || h.has_null > h.count) return "damaged: wrong null mark";
  if (h.has_null && (plan.wide || plan.key_types.size() != 1)) return "damaged: wrong null mark";
  const bool whole = kind == BinKind::Whole;
  return travels_raw(plan) ? check_slots(plan, whole, h, data + sizeof h)
                           : check_entries(plan, whole, h, data + sizeof h, data + size);
}

}  // namespace plait
