// One lane's state of a keyed aggregation.
//
// process() takes the lane's parts in batch order, folds each row into its key's slot and leaves
// the results in the part; bins go out and come in as bytes between batches. All calls belong to
// the holder of the lane's lock, one at a time; nothing here waits. split() before and merge()
// after need no lock (split.hpp, merge.hpp). The lane is the partition of the hybrid queue (Fig. 7)
// of the ordered data-parallel runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/bin_codec.hpp"
#include "plait/hot_aggregate.hpp"
#include "plait/merge.hpp"
#include "plait/split.hpp"

namespace plait {

class KeyedState {
 public:
  // The plan must outlive the state.
  KeyedState(const KeyedPlan& plan, unsigned lane)
      : plan_(plan),
        lane_(lane),
        table_(plan.words, plan.lane_bits, plan.segment_bits),
        null_slot_(plan.words, 0) {}
  KeyedState(const KeyedState&) = delete;
  KeyedState& operator=(const KeyedState&) = delete;
  ~KeyedState() {
    if (plan_.text_words.empty()) return;
    table().each([this](uint64_t* slot) { drop_texts(slot); });
    drop_texts(null_slot_.data());
  }

  void process(const Batch& batch, SplitBatch& s, unsigned lane) {
    Part& part = s.parts[lane];
    if (s.hot) return run_hot_plan(plan_, table(), part);
    for (const AggregateOp& op : plan_.ops) part.results.push_back(make_result(op, part.n));
    if (plan_.wide) {
      run_wide(batch, s, part);
    } else {
      run_narrow(batch, part);
    }
  }

  uint64_t key_count() const { return table().size() + (null_slot_[1] != 0); }

  // Bytes of tables, keys and texts. Walks the keys when there are texts.
  size_t byte_size() {
    size_t n = table_.byte_size();
    if (plan_.text_words.empty()) return n;
    table().each([&](uint64_t* slot) { n += text_bytes(slot); });
    return n + text_bytes(null_slot_.data());
  }

  std::vector<uint8_t> copy_bin(uint32_t bin) {
    BinWriter writer(plan_, bin);
    table().each_of_bin(bin, plan_.bin_bits, [&](uint64_t* slot) { writer.add(slot); });
    if (null_in(bin)) writer.add_null(null_slot_.data());
    return writer.finish();
  }
  std::vector<uint8_t> take_bin(uint32_t bin) {
    std::vector<uint8_t> bytes = copy_bin(bin);
    erase_bin(bin);
    return bytes;
  }

  // Whether the bin holds no key.
  bool empty(uint32_t bin) {
    bool none = !null_in(bin);
    table().each_of_bin(bin, plan_.bin_bits, [&](uint64_t*) { none = false; });
    return none;
  }

  // Empty: the bin is in. Otherwise the reason, and nothing was changed.
  [[nodiscard]] std::string put_bin(const uint8_t* data, size_t size) {
    BinHeader h;
    std::string reason = check_bin(plan_, data, size, h);
    if (!reason.empty()) return reason;
    if (h.bin >> (plan_.bin_bits - plan_.lane_bits) != lane_) {
      return "bin " + std::to_string(h.bin) + " is not of lane " + std::to_string(lane_);
    }
    if (!empty(h.bin)) return "bin " + std::to_string(h.bin) + " is here already";
    BinReader reader(plan_, data + sizeof h, data + size);
    BinEntry e;
    for (uint64_t i = 0; i < h.count && reader.next(e); ++i) {
      const bool null_entry = h.has_null && i + 1 == h.count;
      uint64_t* slot = null_entry   ? null_slot_.data()
                       : plan_.wide ? table_.find(e.hash, e.key, e.key_size)
                                    : table().find<0>(e.hash);
      if (slot[1] != 0) {
        erase_bin(h.bin);
        return "damaged: a key is there twice";
      }
      slot[0] = e.hash;
      slot[1] = e.rows_seen;
      BinReader::fill(plan_, e, slot);
      if (!null_entry) table().inserted(e.hash);
    }
    return "";
  }

 private:
  StateTable& table() { return table_.table(); }
  const StateTable& table() const { return table_.table(); }

  bool null_in(uint32_t bin) const {
    return null_slot_[1] != 0 && top_bits(null_slot_[0], plan_.bin_bits) == bin;
  }
  void drop_texts(uint64_t* slot) {
    for (int w : plan_.text_words) Blob::drop(slot[w]);
  }
  size_t text_bytes(const uint64_t* slot) const {
    size_t n = 0;
    for (int w : plan_.text_words) n += Blob::space(slot[w]);
    return n;
  }
  void erase_bin(uint32_t bin) {
    if (!plan_.text_words.empty()) {
      table().each_of_bin(bin, plan_.bin_bits, [this](uint64_t* slot) { drop_texts(slot); });
    }
    if (plan_.wide) {
      table_.erase_bin(bin, plan_.bin_bits);
    } else {
      table().erase_bin(bin, plan_.bin_bits);
    }
    if (null_in(bin)) {
      drop_texts(null_slot_.data());
      std::fill(null_slot_.begin(), null_slot_.end(), 0);
    }
  }

  void flush(const Batch& batch, Part& part, Block& b) {
    for (size_t op = 0; op < plan_.ops.size(); ++op) {
      run_aggregate(plan_.ops[op], b, batch, part.results[op]);
    }
    b.from += b.n;
    b.n = 0;
  }

  // Counts one row in its slot and adds it to the block. The block is worked off before a table
  // grows, because growing moves the slots; find() gives the slot anew then.
  template <class Find>
  void admit(const Batch& batch, Part& part, Block& b, uint64_t h, uint32_t row, Find find) {
    uint64_t* slot = find();
    if (slot[1]++ == 0) [[unlikely]] {
      slot[0] = h;
      if (table().full_after_one(h)) {
        flush(batch, part, b);
        table().inserted(h);
        slot = find();
      } else {
        table().inserted(h);
      }
    }
    b.slots[b.n] = slot;
    b.rows_seen[b.n] = slot[1];
    b.rows[b.n] = row;
    if (++b.n == Block::kRows) flush(batch, part, b);
  }

  void run_narrow(const Batch& batch, Part& part) {
    const Column* key = nullptr;  // only where it has nulls
    if (!plan_.key_columns.empty()) key = &batch.columns[size_t(plan_.key_columns[0])];
    if (key && !key->validity) key = nullptr;
    Block b;
    for (uint32_t i = 0; i < part.n; ++i) {
      if (i + kAhead < part.n) table().prefetch<0>(part.hash[i + kAhead]);
      const uint64_t h = part.hash[i];
      const uint32_t row = part.row ? part.row[i] : i;
      if (key && !key->valid(row)) {
        null_slot_[0] = h;
        b.slots[b.n] = null_slot_.data();
        b.rows_seen[b.n] = ++null_slot_[1];
        b.rows[b.n] = row;
        if (++b.n == Block::kRows) flush(batch, part, b);
      } else {
        admit(batch, part, b, h, row, [&] { return table().find<0>(h); });
      }
    }
    flush(batch, part, b);
  }

  void run_wide(const Batch& batch, const SplitBatch& s, Part& part) {
    const bool single = plan_.key_types.size() == 1;
    const Column* key = single ? &batch.columns[size_t(plan_.key_columns[0])] : nullptr;
    const char* bytes = single ? nullptr : s.key_bytes.as<char>();
    const uint32_t* offsets = single ? nullptr : s.key_offsets.as<uint32_t>();
    Block b;
    for (uint32_t i = 0; i < part.n; ++i) {
      if (i + kAhead < part.n) table().prefetch<0>(part.hash[i + kAhead]);
      if (i + kAhead / 2 < part.n) table_.prefetch_key(part.hash[i + kAhead / 2]);
      const uint64_t h = part.hash[i];
      const uint32_t row = part.row ? part.row[i] : i;
      const char* data = nullptr;
      uint32_t size = kNullKey;
      if (!single) {
        data = bytes + offsets[row];
        size = offsets[row + 1] - offsets[row];
      } else if (key->valid(row)) {
        data = key->bytes(row);
        size = uint32_t(key->size(row));
      }
      admit(batch, part, b, h, row, [&] { return table_.find(h, data, size); });
    }
    flush(batch, part, b);
  }

  const KeyedPlan& plan_;
  const unsigned lane_;
  WideTable table_;                  // narrow plans use only its slots
  std::vector<uint64_t> null_slot_;  // the null key of a narrow table; rows seen 0 = none
};

}  // namespace plait
