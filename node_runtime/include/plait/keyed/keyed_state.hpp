// One lane's state of a keyed aggregation.
//
// process() takes the lane's parts in batch order, folds each row into its key's slot and leaves
// the results in the part. A row that does not fit a sum changes nothing and is said to have
// failed: sums are folded first, and if one of a block (of a whole part in the hot loops) did not
// fit, they are taken back and the rows are tried one by one. Bins go out and come in between
// batches (keyed_bins.hpp). All calls belong to the holder of the lane's lock, one at a time;
// nothing here waits. split_by_lane() before and merge_lanes() after need no lock. The lane is the
// partition of the hybrid queue (Fig. 7) of the ordered data-parallel runtime.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plait/keyed/hot_aggregate.hpp"
#include "plait/keyed/merge_lanes.hpp"
#include "plait/keyed/saved_bins.hpp"
#include "plait/keyed/split_by_lane.hpp"

namespace plait {

class KeyedState : public SavedBins {
 public:
  using SavedBins::SavedBins;

  void process(const Batch& batch, SplitBatch& s, unsigned lane) {
    Part& part = s.parts[lane];
    table().even_out(part.n);
    // The hot loops write over the hashes: whoever wants them comes first.
    if (saving()) [[unlikely]]
      save_touched(part.hash, part.n);
    if (dirty_.looks()) [[unlikely]]
      dirty_.note(part.hash, part.n);
    if (tracker_.any()) [[unlikely]]
      tracker_.mark(part.hash, part.n);
    if (s.hot) {
      if (run_hot_plan(plan_, table(), part)) [[unlikely]]
        try_rows(batch, part, lane);
      return;
    }
    for (const AggregateOp& op : plan_.ops) part.results.push_back(make_result(op, part.n));
    if (plan_.wide) {
      run_wide(batch, s, part);
    } else {
      run_narrow(batch, part);
    }
  }

 private:
  void flush(const Batch& batch, Part& part, Block& b) {
    bool misfit = false;
    for (size_t op : plan_.sums) {
      misfit |= run_aggregate(plan_.ops[op], b, batch, part.results[op]);
    }
    if (misfit) [[unlikely]] {
      try_block(batch, part, b);
    } else {
      for (size_t op = 0; op < plan_.ops.size(); ++op) {
        if (plan_.ops[op].checked()) continue;
        run_aggregate(plan_.ops[op], b, batch, part.results[op]);
      }
    }
    b.from += b.n;
    b.n = 0;
  }

  // Whether a row fits all sums as they are; if not it has failed.
  bool fits(const uint64_t* slot, const Batch& batch, uint32_t row, Part& part) {
    std::string why;
    for (size_t op : plan_.sums) {
      if (fits_sum(plan_.ops[op], slot, batch, row, why)) continue;
      part.failed.push_back({row, std::move(why)});
      return false;
    }
    return true;
  }

  // A block whose sums have been folded and did not fit, once more, row by row. The first row of a
  // key fits always, so no slot is left without rows.
  [[gnu::noinline, gnu::cold]] void try_block(const Batch& batch, Part& part, const Block& b) {
    for (uint32_t i = 0; i < b.n; ++i) {
      --b.slots[i][1];
      for (size_t op : plan_.sums) take_off_sum(plan_.ops[op], b.slots[i], batch, b.rows[i]);
    }
    Block one;
    one.n = 1;
    for (uint32_t i = 0; i < b.n; ++i) {
      one.from = b.from + i;
      if (!fits(b.slots[i], batch, b.rows[i], part)) {
        for (size_t op = 0; op < plan_.ops.size(); ++op) no_result(part.results[op], op, one.from);
        continue;
      }
      one.slots[0] = b.slots[i];
      one.rows_seen[0] = ++b.slots[i][1];
      one.rows[0] = b.rows[i];
      for (size_t op = 0; op < plan_.ops.size(); ++op) {
        run_aggregate(plan_.ops[op], one, batch, part.results[op]);
      }
    }
  }
  void no_result(LaneResult& of, size_t op, uint32_t at) {
    if (plan_.ops[op].text) {
      of.values.as<uint32_t>()[at] = 0;
    } else {
      of.values.as<uint64_t>()[at] = 0;
    }
    if (of.valid) of.valid.data()[at] = 0;
  }

  // The same for a part of the hot way. Its hashes are gone, and maybe its values: they are made
  // anew from the batch. No key is new to the table any more, so slots do not move.
  [[gnu::noinline, gnu::cold]] void try_rows(const Batch& batch, Part& part, unsigned lane) {
    const AggregateOp& op = plan_.ops[size_t(plan_.hot_op)];
    std::vector<uint64_t> hashes(size_t(batch.length));
    SplitBatch unused;
    split_detail::hash_rows(plan_, batch, unused, hashes.data());
    std::vector<std::pair<uint64_t*, uint32_t>> rows;
    std::unordered_map<uint64_t*, uint64_t> seen;  // rows of a slot before this part
    for (uint32_t row = 0; row < uint32_t(batch.length); ++row) {
      if (plan_.lane_bits && hashes[row] >> (64 - plan_.lane_bits) != lane) continue;
      uint64_t* slot = table().find<0>(hashes[row]);
      rows.push_back({slot, row});
      --seen.try_emplace(slot, slot[1]).first->second;
      take_off_sum(op, slot, batch, row);
    }
    for (uint32_t i = 0; i < uint32_t(rows.size()); ++i) {
      const auto [slot, row] = rows[i];
      part.hash[i] = part.output[i] = 0;
      if (!fits(slot, batch, row, part)) continue;
      part.hash[i] = ++seen[slot];
      add_sum(op, slot, batch, row);
      part.output[i] = slot[op.cell];
    }
    for (const auto& [slot, n] : seen) slot[1] = n;
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
