// A bin's state as bytes: what moves between nodes and into checkpoints.
//
// A 48-byte header (magic, version, bin, plan fingerprint, count, length, checksum), then the keys
// one after the other: hash, rows seen, in wide tables length and bytes of the key, then the cells,
// a text cell as length and bytes. The bytes know nothing of lanes or table sizes. check_bin()
// reads everything before anything is changed and gives the reason for a refusal. Pure functions
// over bytes: any thread, no waiting.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "plait/aggregates.hpp"
#include "plait/wide_table.hpp"

namespace plait {

inline constexpr uint32_t kNoText = 0xFFFFFFFF;

struct BinHeader {
  char magic[4] = {'P', 'L', 'B', '1'};
  uint16_t version = 1;
  uint16_t bin_bits = 0;
  uint32_t bin = 0;
  uint32_t has_null = 0;  // 1: the last entry of a narrow bin is the null key
  uint64_t fingerprint = 0;
  uint64_t count = 0;
  uint64_t length = 0;  // of what follows the header
  uint64_t checksum =
      0;  // XXH64 of all that follows, seeded by that of the header before this field
};
static_assert(sizeof(BinHeader) == 48);

// One key of a bin as it lies in the bytes.
struct BinEntry {
  uint64_t hash = 0, rows_seen = 0;
  const char* key = nullptr;
  uint32_t key_size = 0;
  const uint8_t* cells = nullptr;
};

class BinWriter {
 public:
  BinWriter(const KeyedPlan& plan, uint32_t bin) : plan_(plan), out_(sizeof(BinHeader)) {
    header_.bin_bits = uint16_t(plan.bin_bits);
    header_.bin = bin;
    header_.fingerprint = plan.fingerprint;
  }

  void add(const uint64_t* slot) {
    ++header_.count;
    if (!plan_.wide && plan_.text_words.empty()) return put(slot, plan_.used_words * 8);
    put(slot, 16);
    if (plan_.wide) {
      const WideTable::Key* key = WideTable::key_of(slot);
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

  std::vector<uint8_t> finish() {
    header_.length = out_.size() - sizeof header_;
    header_.checksum = checksum(header_, out_.data() + sizeof header_);
    std::memcpy(out_.data(), &header_, sizeof header_);
    return std::move(out_);
  }

  static uint64_t checksum(const BinHeader& header, const uint8_t* payload) {
    return xxh64(payload, header.length, xxh64(&header, offsetof(BinHeader, checksum), 0));
  }

 private:
  void put(const void* data, size_t size) {
    const auto* from = static_cast<const uint8_t*>(data);
    out_.insert(out_.end(), from, from + size);
  }
  const KeyedPlan& plan_;
  BinHeader header_;
  std::vector<uint8_t> out_;
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
}  // namespace bin_codec_detail

// Empty when the bytes are a whole, undamaged bin of this plan; else why not.
inline std::string check_bin(const KeyedPlan& plan, const uint8_t* data, size_t size,
                             BinHeader& h) {
  if (size < sizeof h) return "truncated: shorter than a header";
  std::memcpy(&h, data, sizeof h);
  if (std::memcmp(h.magic, BinHeader().magic, 4) != 0) return "not the state of a bin";
  if (h.version != 1) return "version " + std::to_string(h.version) + ", this runtime reads 1";
  if (h.length != size - sizeof h) {
    return "truncated: " + std::to_string(size - sizeof h) + " bytes of " +
           std::to_string(h.length);
  }
  if (h.checksum != BinWriter::checksum(h, data + sizeof h)) return "damaged: wrong checksum";
  if (h.fingerprint != plan.fingerprint) return "of another plan: keys or aggregates differ";
  if (h.bin_bits != plan.bin_bits) {
    return "of a job with 2^" + std::to_string(h.bin_bits) + " bins, this one has 2^" +
           std::to_string(plan.bin_bits);
  }
  if (h.bin >> plan.bin_bits) return "damaged: no such bin";
  if (h.has_null > 1 || h.has_null > h.count) return "damaged: wrong null mark";
  if (h.has_null && (plan.wide || plan.key_types.size() != 1)) return "damaged: wrong null mark";
  BinReader reader(plan, data + sizeof h, data + size);
  BinEntry e;
  for (uint64_t i = 0; i < h.count; ++i) {
    if (!reader.next(e)) return "damaged: an entry is cut short";
    const bool null_entry = h.has_null && i + 1 == h.count;
    if (top_bits(e.hash, plan.bin_bits) != h.bin || e.rows_seen == 0 ||
        !bin_codec_detail::right_hash(plan, e, null_entry)) {
      return "damaged: a key that is not of this bin";
    }
  }
  return reader.at_end() ? "" : "damaged: bytes behind the last entry";
}

}  // namespace plait
