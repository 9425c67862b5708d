// One lane's state of a keyed aggregation.
//
// process() takes the lane's parts in batch order, folds each row into its key's slot and leaves
// the results in the part; bins go out and come in between batches (keyed_bins.hpp). All calls
// belong to the holder of the lane's lock, one at a time; nothing here waits. split_by_lane()
// before and merge_lanes() after need no lock. The lane is the partition of the hybrid queue (Fig.
// 7) of the ordered data-parallel runtime.
#pragma once

#include <cstdint>

#include "plait/keyed/hot_aggregate.hpp"
#include "plait/keyed/keyed_bins.hpp"
#include "plait/keyed/merge_lanes.hpp"
#include "plait/keyed/split_by_lane.hpp"

namespace plait {

class KeyedState : public KeyedBins {
 public:
  using KeyedBins::KeyedBins;

  void process(const Batch& batch, SplitBatch& s, unsigned lane) {
    Part& part = s.parts[lane];
    table().even_out(part.n);
    if (tracker_.any()) [[unlikely]]
      tracker_.mark(part.hash, part.n);  // the hot loops write over the hashes
    if (s.hot) return run_hot_plan(plan_, table(), part);
    for (const AggregateOp& op : plan_.ops) part.results.push_back(make_result(op, part.n));
    if (plan_.wide) {
      run_wide(batch, s, part);
    } else {
      run_narrow(batch, part);
    }
  }

 private:
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
};

}  // namespace plait
