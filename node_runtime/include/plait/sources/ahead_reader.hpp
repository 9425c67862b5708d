// AheadReader: reads a source as far ahead as a TimeSlicer needs to know its times, and gives the
// rows of each epoch.
//
// A table is read where it is; the rows of any other origin wait in the order they were polled,
// at most those of a slice and of one poll more. For the holder of the source's flag.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "plait/sources/computed_times.hpp"
#include "plait/sources/polled_rows.hpp"
#include "plait/sources/time_slicer.hpp"

namespace plait {

// By which time the order of several sources goes: a column of the source, or, `computed`, an
// expression over its columns.
struct SliceTime {
  ProjectOperator::Item time;
  bool computed = false;
  int64_t max_jump = 0;  // how far a record may move it
};

class AheadReader {
 public:
  // `most`: rows of a poll; `limit`: rows after which the source ends, -1: none.
  AheadReader(TimeSlicer& slicer, size_t source, Origin& origin, const SliceTime& time,
              int64_t most, int64_t limit)
      : slicer_(slicer),
        source_(source),
        origin_(origin),
        column_(int(time.time.from)),
        most_(most),
        limit_(limit < 0 ? INT64_MAX : limit),
        anywhere_(origin.has_times()) {
    if (time.computed) computed_ = std::make_unique<ComputedTimes>(time.time, origin);
    if (!anywhere_) return;
    const int64_t rows = std::min(limit_, origin.rows());
    if (computed_) {
      slicer.read_from(source, *computed_, column_, rows, false);
    } else {
      slicer.read_from(source, origin, column_, rows, true);
    }
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
  std::vector<int64_t> slices_before(uint64_t epoch) { return slicer_.state_before(epoch); }
  // Where the origin has to be opened to go on, as its own number of that position, and how many
  // rows from there on were given already. -1: at the row that is next.
  std::pair<int64_t, int64_t> position() {
    if (anywhere_ || !keeps_positions) return {-1, 0};
    if (pieces_.empty()) return {origin_.position(), skip_};
    return {pieces_.front().position, pieces_.front().at};
  }
  // Before the start: so many rows were given before, and `skip` of them come again.
  void start_at(int64_t rows, int64_t skip) {
    read_ = rows;
    skip_ = skip;
  }
  bool keeps_positions = false;
  bool everywhere() const { return slicer_.everywhere(); }
  // How it failed, if a unit says so.
  const Polled& failure() const { return failure_; }

  // `count` rows of a unit from its row `from` on, at least one.
  void rows(const TimeSlicer::Unit& unit, int64_t from, int64_t count, Polled& out) {
    if (anywhere_) return origin_.slice(unit.base + from, count, out);
    take_polled(pieces_, count, out);
  }

 private:
  // Polls once. False: the origin waits.
  bool read(int64_t& wait_ns) {
    Polled polled;
    const int64_t most = std::min(most_, limit_ - read_ + skip_);
    const int64_t position = keeps_positions && !anywhere_ ? origin_.position() : -1;
    if (most > 0) origin_.poll(most, polled);  // else: End
    switch (polled.kind) {
      case Polled::Kind::Rows:
        add(std::move(polled), position);
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
  void add(Polled&& polled, int64_t position) {
    PolledRows piece;
    piece.position = position;
    piece.rows = polled.batch.length + int64_t(polled.bad.size());
    std::vector<int64_t> times(size_t(piece.rows), kNoTime);
    size_t bad = 0;
    const int64_t* good = polled.batch.length == 0 ? nullptr
                          : computed_              ? computed_->of(polled.batch)
                                                   : polled.batch.columns[size_t(column_)].i64();
    for (int64_t row = 0; row < piece.rows; ++row) {
      if (bad < polled.bad.size() && int64_t(polled.bad[bad].row) == row) {
        ++bad;
      } else {
        times[size_t(row)] = *good++;
      }
    }
    piece.at = std::min(skip_, piece.rows);
    skip_ -= piece.at;
    while (piece.bad < polled.bad.size() && int64_t(polled.bad[piece.bad].row) < piece.at) {
      ++piece.bad;
    }
    const int64_t given = piece.at, fresh = piece.rows - given;
    read_ += fresh;
    if (fresh == 0) return;
    piece.polled = std::move(polled);
    pieces_.push_back(std::move(piece));
    slicer_.feed(source_, times.data() + given, fresh);
  }

  TimeSlicer& slicer_;
  const size_t source_;
  Origin& origin_;
  const int column_;
  const int64_t most_, limit_;
  const bool anywhere_;
  int64_t read_ = 0, skip_ = 0;
  std::unique_ptr<ComputedTimes> computed_;
  std::deque<PolledRows> pieces_;
  Polled failure_;
};

}  // namespace plait
