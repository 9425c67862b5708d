// JoinState: what all joins share: keys and their records, and bins that go and come.
//
// An operator adds keys and records, links and forgets them; JoinState writes a bin's keys and
// records as bytes and reads them back, checking all of them before it changes anything. What is
// due by time is the operator's: `entered` tells it of a record that came with a bin, `leaving` of
// bins that go. One thread at a time: the holder of the lane; never waits.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "plait/groups/key_codec.hpp"
#include "plait/joins/join_bytes.hpp"
#include "plait/joins/join_index.hpp"
#include "plait/joins/join_record.hpp"
#include "plait/joins/packed_row.hpp"
#include "plait/joins/record_arena.hpp"
#include "plait/time/lane_operator.hpp"

namespace plait {

class JoinState : public LaneOperator {
 public:
  JoinState(const TimedSpec& spec, unsigned lane)
      : spec_(spec),
        lane_(lane),
        keys_(spec),
        index_(keys_.wide()),
        bin_keys_(size_t(1) << (spec.bin_bits - spec.lane_bits)) {
    expected_.bin_bits = uint16_t(spec.bin_bits);
    expected_.fingerprint = join_fingerprint(spec);
  }

  uint64_t bin_keys(uint32_t bin) const override { return bin_keys_[bin & bin_mask()]; }
  int64_t byte_size() const override { return int64_t(arena_.used() + index_.byte_size()); }

  std::vector<Bytes> copy_bins(std::span<const uint32_t> bins) const override {
    std::vector<std::vector<const JoinKey*>> found(bins.size());
    each_of(bins, [&](size_t i, JoinKey* key) { found[i].push_back(key); });
    std::vector<Bytes> all(bins.size());
    for (size_t i = 0; i < bins.size(); ++i) {
      if (!found[i].empty()) all[i] = write(bins[i], found[i]);
    }
    return all;
  }

  void drop_bins(std::span<const uint32_t> bins) override {
    std::vector<JoinKey*> gone;
    std::vector<uint8_t> leaves(bin_keys_.size());
    for (uint32_t bin : bins) leaves[bin & bin_mask()] = 1;
    each_of(bins, [&](size_t, JoinKey* key) { gone.push_back(key); });
    if (gone.empty()) return;
    leaving(leaves);
    for (JoinKey* key : gone) {
      for (JoinList& list : key->lists) {
        for (JoinRecord* r = list.head; r;) {
          JoinRecord* next = r->next;
          forget(r);
          r = next;
        }
        list = JoinList();
      }
      settle(key);
    }
  }

  [[nodiscard]] std::string put_bin(uint32_t bin, const uint8_t* data, size_t size) override {
    if (size == 0) return "";
    BinHeader h, expected = expected_;
    expected.bin = bin;
    expected.bin_bits = uint16_t(spec_.bits_put());
    std::string reason = unsealed_bin(BinKind::Join, expected, data, size, h);
    if (!reason.empty()) return reason;
    if (bin >> (spec_.bits_put() - spec_.lane_bits) != lane_) {
      return "bin " + std::to_string(bin) + " is not of lane " + std::to_string(lane_);
    }
    if (!spec_.makes_bins() && bin_keys(bin))
      return "bin " + std::to_string(bin) + " is here already";
    const uint8_t *from = data + sizeof h, *end = data + size;
    if (!read<false>(h, from, end)) return "damaged: no keys of this bin";
    (void)read<true>(h, from, end);
    return "";
  }
  // The records that wait: key, side, time, the columns of the left and of the right.
  void list(int64_t, Emitter& out) override {
    const KeyCodec codec(spec_.types, spec_.key_columns);
    const size_t c = spec_.key_columns.size() + 2;
    each_key([&](JoinKey* key) {
      for (const JoinList& list : key->lists) {
        for (const JoinRecord* r = list.head; r; r = r->next) {
          out.at_once(r->place);
          emit_key(codec, *key, out);
          out.columns[c - 2].word(r->side);
          out.columns[c - 1].word(uint64_t(r->time));
          const size_t other = c + layouts_[0].columns();
          if (r->side == 0) {
            layouts_[0].append(r->body(), out.columns, c);
            layouts_[1].append_nulls(out.columns, other);
          } else {
            layouts_[0].append_nulls(out.columns, c);
            layouts_[1].append(r->body(), out.columns, other);
          }
        }
      }
    });
  }

 protected:
  static void emit_key(const KeyCodec& codec, const JoinKey& key, Emitter& out) {
    codec.emit({key.hash, key.null && !key.size, {key.bytes(), key.size}}, out.columns);
  }
  // The body of a record as bytes, and back. `check` says whether the bytes are one.
  virtual void save(const JoinRecord& r, ByteWriter& to) const {
    to.put_bytes(r.body(), r.body_size());
  }
  [[nodiscard]] virtual bool check(uint32_t side, ByteReader& from) const {
    const char* data;
    uint64_t size;
    return from.get_bytes(data, size) && layouts_[side].fits(data, size);
  }
  virtual JoinRecord* load(uint32_t, ByteReader& from) {
    const char* data = nullptr;
    uint64_t size = 0;
    (void)from.get_bytes(data, size);
    JoinRecord* r = make(size);
    if (size) std::memcpy(r->body(), data, size);
    return r;
  }
  // A record has come with its bin and is in its list.
  virtual void entered(JoinRecord* r) = 0;
  // Bins are about to go: leaves[bin_of(hash)] is 1. The records are still there.
  virtual void leaving(const std::vector<uint8_t>& leaves) = 0;
  // Gives a record's memory back.
  virtual void forget(JoinRecord* r) { arena_.give(r, r->size); }

  size_t bin_mask() const { return bin_keys_.size() - 1; }
  size_t bin_of(uint64_t hash) const { return top_bits(hash, spec_.bin_bits) & bin_mask(); }

  [[gnu::always_inline]] JoinKey* find(const KeyView& v) const {
    return v.null && !keys_.wide() ? null_key_ : index_.find(v);
  }
  // Fetches what rows behind row i need: the slot, then the key, then its first and last records.
  [[gnu::always_inline]] void fetch_ahead(const LaneRows& rows, uint32_t i) const {
    if (i + kAhead < rows.count) index_.prefetch(rows.hashes[i + kAhead]);
    if (i + kAhead / 2 < rows.count) index_.prefetch_key(rows.hashes[i + kAhead / 2]);
    if (i + kAhead / 4 < rows.count) {
      const JoinKey* key = index_.peek(rows.hashes[i + kAhead / 4]);
      if (!key) return;
      for (const JoinList& list : key->lists) {
        if (list.head) __builtin_prefetch(list.head, 1);
      }
    }
  }
  // A key that find() does not find.
  JoinKey* add(const KeyView& v) {
    auto* key = static_cast<JoinKey*>(arena_.take(sizeof(JoinKey) + v.size));
    *key = JoinKey{v.hash, {}, v.size, v.null, 0};
    if (v.size) std::memcpy(key->bytes(), v.data, v.size);
    if (v.null && !keys_.wide()) {
      null_key_ = key;
    } else {
      index_.insert(key);
    }
    ++bin_keys_[bin_of(v.hash)];
    return key;
  }
  // Forgets a key that has no records.
  void settle(JoinKey* key) {
    if (!key->empty()) return;
    if (key == null_key_) {
      null_key_ = nullptr;
    } else {
      index_.erase(key);
    }
    --bin_keys_[bin_of(key->hash)];
    arena_.give(key, sizeof(JoinKey) + key->size);
  }
  // A record without a place in a list.
  JoinRecord* make(size_t body) {
    const size_t size = sizeof(JoinRecord) + body;
    if (size > UINT32_MAX) throw std::length_error("a record of a join exceeds 4 GiB");
    auto* r = static_cast<JoinRecord*>(arena_.take(size));
    r->size = uint32_t(size);
    r->key = nullptr;
    return r;
  }
  template <class Visit>
  void each_key(Visit visit) const {
    index_.each(visit);
    if (null_key_) visit(null_key_);
  }

  static constexpr uint32_t kAhead = 16;

  const TimedSpec spec_;
  const unsigned lane_;
  KeyReader keys_;
  RecordArena arena_;
  JoinIndex index_;
  PackedRow layouts_[2];  // of the records of each side

 private:
  template <class Visit>
  void each_of(std::span<const uint32_t> bins, Visit visit) const {
    std::vector<int64_t> at(bin_keys_.size(), -1);
    bool any = false;
    for (size_t i = 0; i < bins.size(); ++i) {
      at[bins[i] & bin_mask()] = int64_t(i);
      any = any || bin_keys(bins[i]);
    }
    if (!any) return;
    each_key([&](JoinKey* key) {
      const int64_t i = at[bin_of(key->hash)];
      if (i >= 0) visit(size_t(i), key);
    });
  }

  Bytes write(uint32_t bin, const std::vector<const JoinKey*>& keys) const {
    ByteWriter to;
    BinHeader h = expected_;
    h.bin = bin;
    h.count = keys.size();
    for (const JoinKey* key : keys) {
      to.put(key->hash);
      to.put(key->null);
      to.put_bytes(key->bytes(), key->size);
      for (const JoinList& list : key->lists) {
        uint64_t n = 0;
        for (const JoinRecord* r = list.head; r; r = r->next) ++n;
        to.put(n);
        for (const JoinRecord* r = list.head; r; r = r->next) {
          to.put(r->time);
          to.put(r->last);
          to.put(r->place);
          to.put(r->matched);
          save(*r, to);
        }
      }
    }
    return to.seal(h);
  }

  // With kPut false it only looks.
  template <bool kPut>
  [[nodiscard]] bool read(const BinHeader& h, const uint8_t* at, const uint8_t* end) {
    ByteReader from(at, end);
    for (uint64_t i = 0; i < h.count; ++i) {
      KeyView v;
      uint32_t null;
      uint64_t size;
      if (!from.get(v.hash) || !from.get(null) || !from.get_bytes(v.data, size)) return false;
      v.size = uint32_t(size);
      v.null = null;
      JoinKey* key = nullptr;
      if constexpr (kPut) {
        key = add(v);
      } else if (null > 1 || size > UINT32_MAX || top_bits(v.hash, spec_.bits_put()) != h.bin ||
                 !keys_.right_hash(v)) {
        return false;
      }
      uint64_t records = 0;
      for (uint32_t side : {0u, 1u}) {
        uint64_t n;
        if (!from.get(n)) return false;
        records += n != 0;
        for (uint64_t k = 0; k < n; ++k) {
          if (!read_record<kPut>(side, key, from)) return false;
        }
      }
      if (records == 0) return false;
    }
    return from.at_end();
  }
  template <bool kPut>
  [[nodiscard]] bool read_record(uint32_t side, JoinKey* key, ByteReader& from) {
    JoinRecord head;
    if (!from.get(head.time) || !from.get(head.last) || !from.get(head.place) ||
        !from.get(head.matched)) {
      return false;
    }
    if constexpr (kPut) {
      JoinRecord* r = load(side, from);
      r->key = key;
      r->time = head.time;
      r->last = head.last;
      r->place = head.place;
      r->matched = head.matched;
      r->side = uint8_t(side);
      key->lists[side].append(r);
      entered(r);
      return true;
    } else {
      return check(side, from);
    }
  }

  BinHeader expected_;
  std::vector<uint32_t> bin_keys_;  // by the bin's number in the lane
  JoinKey* null_key_ = nullptr;     // of one fixed-width column
};

}  // namespace plait
