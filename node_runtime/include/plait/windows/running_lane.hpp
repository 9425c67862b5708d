// RunningLane: running aggregates by key whose state is forgotten: one result for every record, at
// its place.
//
// A record that is later than the last of its key by more than the ttl, or comes when the watermark
// is, begins anew. Memory of forgotten keys is given back whenever the watermark has gone on by
// half a ttl: until then they are there and count as gone. All calls belong to the holder of the
// lane; never waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "plait/groups/group_bins.hpp"
#include "plait/groups/group_fold.hpp"
#include "plait/groups/group_table.hpp"
#include "plait/time/lane_operator.hpp"
#include "plait/time/time_to_live.hpp"

namespace plait {

class RunningLane : public LaneOperator {
 public:
  explicit RunningLane(const TimedSpec& spec)
      : time_(spec.time),
        ttl_(spec.ttl),
        key_columns_(spec.key_columns),
        plan_(spec, KeyCodec(spec.types, spec.key_columns).wide() ? 4 : 3, false),
        key_word_(plan_.keys.wide() ? 2 : -1),
        time_word_(plan_.keys.wide() ? 3 : 2),
        table_(plan_, key_word_, false),
        bin_keys_(size_t(1) << (spec.bin_bits - spec.lane_bits), 0) {
    if (time_ < 0 || !ttl_.good()) throw std::invalid_argument("a ttl needs an event time");
  }

  void process(const LaneRows& rows, Emitter& out) override {
    plan_.keys.bind(rows.batch);
    const int64_t* times = rows.batch.columns[size_t(time_)].i64();
    made_.clear();
    for (uint32_t i = 0; i < rows.count; ++i) {
      if (i + kAsk < rows.count) table_.prefetch(rows.hashes[i + kAsk]);
      const uint32_t row = rows.row(i);
      const Key key = plan_.keys.of_row(rows.hashes[i], row);
      uint64_t* slot = table_.obtain(key, rows.place(i));
      const int64_t t = clamp_time(times[row]);
      if (!slot[1]) {
        ++bin_keys_[plan_.bin_in_lane(plan_.bin(key.hash))];
        slot[time_word_] = uint64_t(t);
      } else if (is_over(int64_t(slot[time_word_]), t, rows, i)) {
        forget(slot);
        slot[time_word_] = uint64_t(t);
      } else if (!fits_sums(plan_, slot, rows.batch, row, out.failed)) {
        continue;
      }
      slot[time_word_] = uint64_t(std::max(t, int64_t(slot[time_word_])));
      ++slot[1];
      if (!plan_.counts_only) fold_row(slot, rows, i, out);
      out.at_once(rows.place(i));
      made_.push_back(row);
      size_t c = key_columns_.size();
      for (const GroupOp& op : plan_.ops) emit_result(op, slot, out.columns[c++]);
    }
    for (size_t k = 0; k < key_columns_.size(); ++k) {
      const Column& key = rows.batch.columns[size_t(key_columns_[k])];
      out.columns[k].copy(key, made_.data(), made_.size());
    }
  }
  void advance(int64_t, int64_t watermark, Emitter&) override {
    if (!ttl_.sweeps(watermark)) return;
    table_.erase_where([&](const uint64_t* slot) {
      if (!ttl_.over(int64_t(slot[time_word_]), watermark)) return false;
      --bin_keys_[plan_.bin_in_lane(plan_.bin(slot[0]))];
      return true;
    });
  }

  uint64_t bin_keys(uint32_t bin) const override { return bin_keys_[plan_.bin_in_lane(bin)]; }
  int64_t byte_size() const override { return int64_t(table_.byte_size()); }
  std::vector<Bytes> copy_bins(std::span<const uint32_t> bins) const override {
    const GroupBins wanted(plan_, bins);
    std::vector<GroupWriter> writers(bins.size());
    table_.each([&](const uint64_t* slot, uint64_t place) {
      if (!wanted.has(slot[0])) return;
      GroupWriter& to = writers[wanted.of(slot[0])];
      write_group_key(to, plan_, table_.key(slot), place);
      to.word(slot[1]);
      to.word(slot[time_word_]);
      write_cells(plan_, slot, to);
      to.counted();
    });
    return wanted.finish(writers);
  }
  void drop_bins(std::span<const uint32_t> bins) override {
    const GroupBins gone(plan_, bins);
    table_.erase_where([&](const uint64_t* slot) { return gone.has(slot[0]); });
    for (uint32_t bin : bins) bin_keys_[plan_.bin_in_lane(bin)] = 0;
  }
  std::string put_bin(uint32_t bin, const uint8_t* data, size_t size) override {
    return read_group_bin(
        plan_, bin, bin_keys(bin) != 0, data, size, "the state",
        [&](GroupReader& in) { read(in, bin); }, [&] { drop_bins(std::span(&bin, 1)); });
  }
  void list(int64_t, Emitter& out) override {
    table_.each([&](const uint64_t* slot, uint64_t place) {
      out.at_once(place);
      plan_.keys.emit(table_.key(slot), out.columns);
      size_t c = key_columns_.size();
      for (const GroupOp& op : plan_.ops) emit_result(op, slot, out.columns[c++]);
    });
  }

 private:
  static constexpr uint32_t kAsk = 16;  // rows that are asked for ahead

  // Whether a key's last time is too long ago for row i of the lane, whose time is t.
  bool is_over(int64_t last, int64_t t, const LaneRows& rows, uint32_t i) const {
    if (ttl_.over(last, t)) return true;
    return ttl_.over(last, rows.clock.end()) && ttl_.over(last, rows.at(i));
  }
  void fold_row(uint64_t* slot, const LaneRows& rows, uint32_t i, Emitter& out) {
    block_.slots[0] = slot;
    block_.seen[0] = slot[1];
    block_.rows[0] = rows.row(i);
    block_.places[0] = rows.place(i);
    block_.n = 1;
    fold_block(plan_, rows.batch, block_, out.failed);
  }
  void forget(uint64_t* slot) {
    drop_cells(plan_, slot);
    slot[1] = 0;
    std::fill(slot + plan_.first_cell, slot + plan_.used_words, 0);
  }
  void read(GroupReader& in, uint32_t bin) {
    uint64_t place = 0;
    const Key key = read_group_key(in, plan_, bin, place);
    const uint64_t seen = in.word(), time = in.word();
    if (!in.ok() || seen == 0 || int64_t(time) != clamp_time(int64_t(time))) return in.fail();
    uint64_t* slot = table_.obtain(key, place);
    if (slot[1]) return in.fail();
    slot[1] = seen;
    slot[time_word_] = time;
    ++bin_keys_[plan_.bin_in_lane(plan_.bin(key.hash))];
    read_cells(plan_, slot, in);
  }

  const int time_;
  TimeToLive ttl_;
  const std::vector<int> key_columns_;
  GroupPlan plan_;
  const int key_word_, time_word_;
  GroupTable table_;
  GroupBlock block_;
  std::vector<uint32_t> made_;      // the rows of the batch with a result
  std::vector<uint64_t> bin_keys_;  // by the bin's number in the lane
};

}  // namespace plait
