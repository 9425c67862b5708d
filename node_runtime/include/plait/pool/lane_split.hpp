// The rows of a batch by the lane of the pool that has their key, and their results in row order
// again.
//
// Lanes are ranges of bins, as many as there are worker processes; the hash is that of all keyed
// stages. Pure functions over batches of the caller: any thread; nothing waits.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "plait/columns/flat_block.hpp"
#include "plait/columns/select.hpp"
#include "plait/keyed/split_by_lane.hpp"

namespace plait {

// The rows of each lane, ascending. One lane: no list, it has all of them.
struct LaneRowLists {
  std::vector<std::vector<uint32_t>> rows;
  int64_t count(uint32_t lane, int64_t length) const {
    return rows.size() == 1 ? length : int64_t(rows[lane].size());
  }
  uint32_t row(uint32_t lane, uint32_t i) const { return rows.size() == 1 ? i : rows[lane][i]; }
};

inline uint32_t lane_of_bin(uint32_t bin, uint32_t lanes, unsigned bin_bits) {
  return uint32_t(uint64_t(bin) * lanes >> bin_bits);
}

// `note(lane, bin)` is called for every row of a keyed batch.
template <class Note>
LaneRowLists rows_by_lane(const KeyedPlan& plan, const Batch& batch, uint32_t lanes, Note&& note) {
  LaneRowLists out;
  out.rows.resize(lanes);
  if (plan.key_types.empty()) {
    note(0, 0);
    return out;
  }
  SplitBatch scratch;
  BufferRef hashes = BufferRef::make(8 * batch.length);
  auto* hash = hashes.as<uint64_t>();
  split_detail::hash_rows(plan, batch, scratch, hash);
  for (auto& rows : out.rows) rows.reserve(lanes == 1 ? 0 : size_t(batch.length));
  for (int64_t i = 0; i < batch.length; ++i) {
    const auto bin = plan.bin_bits ? uint32_t(hash[i] >> (64 - plan.bin_bits)) : 0;
    const uint32_t lane = lane_of_bin(bin, lanes, plan.bin_bits);
    note(lane, bin);
    if (lanes > 1) out.rows[lane].push_back(uint32_t(i));
  }
  return out;
}

inline std::vector<Column> columns_of_lane(const Batch& batch, const LaneRowLists& lists,
                                           uint32_t lane) {
  if (lists.rows.size() == 1) return batch.columns;
  std::vector<Column> columns;
  const auto& rows = lists.rows[lane];
  for (const auto& c : batch.columns) columns.push_back(take(c, rows.data(), int64_t(rows.size())));
  return columns;
}

// One row of what a lane has made.
struct Picked {
  uint32_t lane;
  uint32_t row;
};

namespace weave_detail {
template <class Each>
BufferRef bits(const std::vector<Picked>& picks, Each&& each) {
  BufferRef out = BufferRef::zeroed(bit_bytes(int64_t(picks.size())));
  for (size_t i = 0; i < picks.size(); ++i) {
    if (each(picks[i])) set_bit(out.data(), int64_t(i));
  }
  return out;
}
}  // namespace weave_detail

// The picked values of a column of each lane (null: the lane made nothing).
inline Column woven(const std::vector<const Column*>& from, const std::vector<Picked>& picks,
                    Type type) {
  Column out;
  out.type = type;
  out.length = int64_t(picks.size());
  bool nulls = false;
  for (const Column* c : from) nulls = nulls || (c && c->validity);
  if (nulls) {
    out.validity_owner =
        weave_detail::bits(picks, [&](Picked p) { return from[p.lane]->valid(int64_t(p.row)); });
    out.validity = out.validity_owner.data();
  }
  if (type == Type::Bool) {
    out.data_owner =
        weave_detail::bits(picks, [&](Picked p) { return from[p.lane]->boolean(int64_t(p.row)); });
  } else if (is_varlen(type)) {
    out.offsets_owner = BufferRef::make(4 * (out.length + 1));
    auto* offsets = out.offsets_owner.as<int32_t>();
    int64_t total = 0;
    offsets[0] = 0;
    for (size_t i = 0; i < picks.size(); ++i) {
      total += from[picks[i].lane]->size(picks[i].row);
      check_text(total);
      offsets[i + 1] = int32_t(total);
    }
    out.offsets = offsets;
    out.data_owner = BufferRef::make(total);
    auto* to = out.data_owner.as<char>();
    for (size_t i = 0; i < picks.size(); ++i) {
      const Column& c = *from[picks[i].lane];
      std::memcpy(to + offsets[i], c.bytes(picks[i].row), size_t(c.size(picks[i].row)));
    }
  } else {
    out.data_owner = BufferRef::make(8 * out.length);
    auto* to = out.data_owner.as<int64_t>();
    for (size_t i = 0; i < picks.size(); ++i) to[i] = from[picks[i].lane]->i64()[picks[i].row];
  }
  out.data = out.data_owner.data();
  return out;
}

// The picked rows of batches of the same columns, one of each lane.
inline std::vector<Column> woven(const std::vector<const std::vector<Column>*>& lanes,
                                 const std::vector<Picked>& picks) {
  std::vector<Column> columns;
  if (picks.empty()) return columns;
  const size_t width = lanes[picks.front().lane]->size();
  std::vector<const Column*> from(lanes.size());
  for (size_t k = 0; k < width; ++k) {
    for (size_t l = 0; l < lanes.size(); ++l) {
      from[l] = k < lanes[l]->size() ? &(*lanes[l])[k] : nullptr;
    }
    columns.push_back(woven(from, picks, (*lanes[picks.front().lane])[k].type));
  }
  return columns;
}

}  // namespace plait
