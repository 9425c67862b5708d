// AheadReader: reads a source as far ahead as a TimeSlicer needs to know its times, and gives the
// rows of each epoch.
//
// A table is read where it is; the rows of any other origin wait in the order they were polled,
// at most those of a slice and of one poll more. For the holder of the source's flag.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "plait/sources/time_slicer.hpp"

namespace plait {

class AheadReader {
 public:
  // `most`: rows of a poll; `limit`: rows after which the source ends, -1: none.
  AheadReader(TimeSlicer& slicer, size_t source, Origin& origin, int column, int64_t most,
              int64_t limit)
      : slicer_(slicer),
        source_(source),
        origin_(origin),
        column_(column),
        most_(most),
        limit_(limit < 0 ? INT64_MAX : limit),
        anywhere_(origin.has_times()) {
    if (anywhere_) slicer.read_from(source, origin, column, std::min(limit_, origin.rows()));
  }

  // Known: the unit; Read: rows were read, ask again; Wait: for the others, or for the origin,
  // which is to be asked again after `wait_ns`.
  TimeSlicer::Answer ask(uint64_t epoch, TimeSlicer::Unit& unit, int64_t& wait_ns) {
    using Answer = TimeSlicer::Answer;
    const Answer answer = slicer_.ask(source_, epoch, unit);
    if (answer != Answer::Read || wait_ns > 0)
      return answer == Answer::Read ? Answer::Wait : answer;
    return read(wait_ns) ? Answer::Read : Answer::Wait;
  }
  // Whether it is worth asking; `due`: the origin may be read.
  bool ready(bool due) const {
    const TimeSlicer::Answer answer = slicer_.hint(source_);
    return answer == TimeSlicer::Answer::Known || (due && answer == TimeSlicer::Answer::Read);
  }
  void skip(uint64_t epoch) { slicer_.skip(epoch); }
  bool everywhere() const { return slicer_.everywhere(); }
  // How it failed, if a unit says so.
  const Polled& failure() const { return failure_; }

  // `count` rows of a unit from its row `from` on, at least one.
  void rows(const TimeSlicer::Unit& unit, int64_t from, int64_t count, Polled& out) {
    if (anywhere_) return origin_.slice(unit.base + from, count, out);
    out.kind = Polled::Kind::Rows;
    std::vector<Batch> good, records;
    for (int64_t n = 0; n < count;) {
      PolledRows& piece = pieces_.front();
      n += piece.take(count - n, n, out, good, records);
      if (piece.at == piece.rows) pieces_.pop_front();
    }
    out.batch = joined(good);
    if (!records.empty()) out.records = joined(records);
  }

 private:
  // Rows of a poll: good and bad ones, of which some are given already.
  struct PolledRows {
    Polled polled;
    int64_t rows = 0, at = 0;
    size_t bad = 0;

    // Gives at most so many, as the rows from number `to` on of `out`.
    int64_t take(int64_t most, int64_t to, Polled& out, std::vector<Batch>& good,
                 std::vector<Batch>& records) {
      if (out.due_ns == 0) out.due_ns = polled.due_ns;
      const int64_t n = std::min(most, rows - at);
      const size_t before = bad;
      for (; bad < polled.bad.size() && int64_t(polled.bad[bad].row) < at + n; ++bad) {
        RowFailure failure = std::move(polled.bad[bad]);
        failure.row = uint32_t(to + (int64_t(failure.row) - at));
        out.bad.push_back(std::move(failure));
      }
      const auto bads = int64_t(bad - before);
      good.push_back(part(polled.batch, at - int64_t(before), n - bads));
      if (bads && !polled.records.columns.empty()) {
        records.push_back(part(polled.records, int64_t(before), bads));
      }
      at += n;
      return n;
    }
  };

  static Batch part(const Batch& of, int64_t from, int64_t count) {
    Batch some;
    some.length = count;
    for (const Column& column : of.columns) some.columns.push_back(column.slice(from, count));
    return some;
  }
  static Batch joined(std::vector<Batch>& parts) {
    if (parts.size() == 1) return std::move(parts[0]);
    Batch all;
    for (const Batch& one : parts) all.length += one.length;
    for (size_t c = 0; c < parts[0].columns.size(); ++c) {
      std::vector<const Column*> columns;
      for (const Batch& one : parts) columns.push_back(&one.columns[c]);
      all.columns.push_back(concat_columns(columns, all.length));
    }
    return all;
  }

  // Polls once. False: the origin waits.
  bool read(int64_t& wait_ns) {
    Polled polled;
    const int64_t most = std::min(most_, limit_ - read_);
    if (most > 0) origin_.poll(most, polled);  // else: End
    switch (polled.kind) {
      case Polled::Kind::Rows:
        add(std::move(polled));
        return true;
      case Polled::Kind::Wait:
        wait_ns = polled.wait_ns;
        return false;
      case Polled::Kind::Failed:
        failure_ = std::move(polled);
        slicer_.end(source_, true);
        return true;
      case Polled::Kind::End:
        slicer_.end(source_, false);
    }
    return true;
  }
  void add(Polled&& polled) {
    PolledRows piece;
    piece.rows = polled.batch.length + int64_t(polled.bad.size());
    std::vector<int64_t> times(size_t(piece.rows), kNoTime);
    size_t bad = 0;
    const int64_t* good =
        polled.batch.length ? polled.batch.columns[size_t(column_)].i64() : nullptr;
    for (int64_t row = 0; row < piece.rows; ++row) {
      if (bad < polled.bad.size() && int64_t(polled.bad[bad].row) == row) {
        ++bad;
      } else {
        times[size_t(row)] = *good++;
      }
    }
    read_ += piece.rows;
    piece.polled = std::move(polled);
    pieces_.push_back(std::move(piece));
    slicer_.feed(source_, times.data(), int64_t(times.size()));
  }

  TimeSlicer& slicer_;
  const size_t source_;
  Origin& origin_;
  const int column_;
  const int64_t most_, limit_;
  const bool anywhere_;
  int64_t read_ = 0;
  std::deque<PolledRows> pieces_;
  Polled failure_;
};

}  // namespace plait
