// LastNLane: aggregates over the last n records of each key: with every record, or with every n-th
// (windows of rows).
//
// Results come at the place of the record that completes them. Time plays no part, unless the keys
// have a ttl (time_to_live.hpp). All calls belong to the holder of the lane; never waits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plait/groups/group_bins.hpp"
#include "plait/groups/group_table.hpp"
#include "plait/time/lane_operator.hpp"
#include "plait/time/time_to_live.hpp"
#include "plait/windows/last_rows.hpp"

namespace plait {

class LastNLane : public LaneOperator {
 public:
  explicit LastNLane(const TimedSpec& spec)
      : each_(spec.kind == TimedSpec::Kind::Last),
        size_(uint64_t(each_ ? spec.k : spec.size)),
        every_(uint64_t(each_ ? 1 : spec.every)),
        time_(spec.time),
        ttl_(spec.ttl),
        key_columns_(spec.key_columns),
        plan_(spec, 2, false),
        last_(plan_, size_),
        key_word_(plan_.keys.wide() ? 2 : -1),
        rows_word_(plan_.keys.wide() ? 3 : 2),
        time_word_(spec.ttl ? rows_word_ + 1 : -1),
        table_plan_(without_results(spec), unsigned(rows_word_ + (spec.ttl ? 2 : 1)), false),
        table_(table_plan_, key_word_, false),
        scratch_(plan_.words, 0),
        bin_keys_(size_t(1) << (spec.bin_bits - spec.lane_bits), 0) {
    const bool timed = time_word_ < 0 || (time_ >= 0 && ttl_.good());
    const bool good = size_ > 0 && every_ > 0 && size_ <= uint64_t(1) << 40 && timed;
    if (!good) throw std::invalid_argument("a window of rows has at least one");
  }
  ~LastNLane() override {
    table_.each([&](uint64_t* slot, uint64_t) { drop(slot); });
  }

  void process(const LaneRows& rows, Emitter& out) override {
    plan_.keys.bind(rows.batch);
    made_.clear();
    for (uint32_t i = 0; i < rows.count; ++i) {
      if (i + kAsk < rows.count) table_.prefetch(rows.hashes[i + kAsk]);
      const uint32_t row = rows.row(i);
      const Key key = plan_.keys.of_row(rows.hashes[i], row);
      uint64_t* slot = table_.obtain(key, rows.place(i));
      if (!slot[1]) {
        slot[rows_word_] = reinterpret_cast<uint64_t>(new LastRows());
        slot[1] = 1;
        ++bin_keys_[plan_.bin_in_lane(plan_.bin(key.hash))];
      }
      LastRows& last = *of(slot);
      const bool gone = time_word_ >= 0 && forgotten(slot, rows, i);
      if (gone) {
        last.drop(last_);
        last = LastRows();
      }
      if (!last.fits(last_, rows.batch, row, out.failed)) continue;
      if (time_word_ >= 0) live(slot, time_of(rows, i), last.total() == 0);
      last.add(last_, rows.batch, row);
      const uint64_t n = last.total();
      if (each_ || (n >= size_ && n % every_ == 0)) {
        out.at_once(rows.place(i));
        made_.push_back(row);
        add_results(last, out);
      }
    }
    for (size_t k = 0; k < key_columns_.size(); ++k) {
      const Column& key = rows.batch.columns[size_t(key_columns_[k])];
      out.columns[k].copy(key, made_.data(), made_.size());
    }
  }
  void advance(int64_t, int64_t watermark, Emitter&) override {
    if (!ttl_.sweeps(watermark)) return;
    table_.each([&](uint64_t* slot, uint64_t) {
      if (!ttl_.over(int64_t(slot[time_word_]), watermark)) return;
      --bin_keys_[plan_.bin_in_lane(plan_.bin(slot[0]))];
      drop(slot);
    });
    table_.erase_where(
        [&](const uint64_t* slot) { return ttl_.over(int64_t(slot[time_word_]), watermark); });
  }

  uint64_t bin_keys(uint32_t bin) const override { return bin_keys_[plan_.bin_in_lane(bin)]; }
  int64_t byte_size() const override {
    size_t n = table_.byte_size();
    table_.each([&](const uint64_t* slot, uint64_t) { n += of(slot)->bytes(); });
    return int64_t(n);
  }
  std::vector<Bytes> copy_bins(std::span<const uint32_t> bins) const override {
    const GroupBins wanted(plan_, bins);
    std::vector<GroupWriter> writers(bins.size());
    table_.each([&](const uint64_t* slot, uint64_t place) {
      if (!wanted.has(slot[0])) return;
      GroupWriter& to = writers[wanted.of(slot[0])];
      write_group_key(to, plan_, table_.key(slot), place);
      if (time_word_ >= 0) to.word(slot[time_word_]);
      of(slot)->write(last_, to);
      to.counted();
    });
    return wanted.finish(writers);
  }
  void drop_bins(std::span<const uint32_t> bins) override {
    const GroupBins gone(plan_, bins);
    table_.each([&](uint64_t* slot, uint64_t) {
      if (gone.has(slot[0])) drop(slot);
    });
    table_.erase_if([&](uint64_t hash) { return gone.has(hash); });
    for (uint32_t bin : bins) bin_keys_[plan_.bin_in_lane(bin)] = 0;
  }
  std::string put_bin(uint32_t bin, const uint8_t* data, size_t size) override {
    return read_group_bin(
        plan_, bin, bin_keys(bin) != 0, data, size, "the last records",
        [&](GroupReader& in) { read(in, bin); }, [&] { drop_bins(std::span(&bin, 1)); });
  }
  void list(int64_t, Emitter& out) override {
    table_.each([&](const uint64_t* slot, uint64_t place) {
      out.at_once(place);
      plan_.keys.emit(table_.key(slot), out.columns);
      add_results(*of(slot), out);
    });
  }

 private:
  static constexpr uint32_t kAsk = 16;  // rows that are asked for ahead

  static TimedSpec without_results(TimedSpec spec) {
    spec.aggregates.clear();
    return spec;
  }
  LastRows* of(const uint64_t* slot) const { return reinterpret_cast<LastRows*>(slot[rows_word_]); }
  void drop(uint64_t* slot) {
    of(slot)->drop(last_);
    delete of(slot);
  }
  // Behind the columns of the key.
  void add_results(const LastRows& last, Emitter& out) {
    std::fill(scratch_.begin(), scratch_.end(), 0);
    last.results(plan_, last_, scratch_.data());
    size_t c = key_columns_.size();
    for (const GroupOp& op : plan_.ops) emit_result(op, scratch_.data(), out.columns[c++]);
    drop_cells(plan_, scratch_.data());
  }
  int64_t time_of(const LaneRows& rows, uint32_t i) const {
    return clamp_time(rows.batch.columns[size_t(time_)].i64()[rows.row(i)]);
  }
  // Whether the records of a key were forgotten before row i comes.
  bool forgotten(const uint64_t* slot, const LaneRows& rows, uint32_t i) const {
    return of(slot)->total() != 0 &&
           ttl_.over(int64_t(slot[time_word_]), std::max(time_of(rows, i), rows.at(i)));
  }
  // Takes the time of a row; `fresh`: it is the first of its key.
  void live(uint64_t* slot, int64_t t, bool fresh) {
    slot[time_word_] = uint64_t(fresh ? t : std::max(t, int64_t(slot[time_word_])));
  }
  void read(GroupReader& in, uint32_t bin) {
    uint64_t place = 0;
    const Key key = read_group_key(in, plan_, bin, place);
    if (!in.ok()) return;
    uint64_t* slot = table_.obtain(key, place);
    if (slot[1]) return in.fail();
    slot[rows_word_] = reinterpret_cast<uint64_t>(new LastRows());
    slot[1] = 1;
    ++bin_keys_[plan_.bin_in_lane(plan_.bin(key.hash))];
    if (time_word_ >= 0) {
      slot[time_word_] = in.word();
      if (int64_t(slot[time_word_]) != clamp_time(int64_t(slot[time_word_]))) return in.fail();
    }
    of(slot)->read(last_, in);
  }

  const bool each_;
  const uint64_t size_, every_;
  const int time_;
  TimeToLive ttl_;
  const std::vector<int> key_columns_;
  GroupPlan plan_;
  const LastPlan last_;
  const int key_word_, rows_word_, time_word_;  // -1: there is none
  const GroupPlan table_plan_;
  GroupTable table_;
  std::vector<uint64_t> scratch_;   // the cells of the results being made
  std::vector<uint32_t> made_;      // the rows of the batch with a result
  std::vector<uint64_t> bin_keys_;  // by the bin's number in the lane
};

}  // namespace plait
