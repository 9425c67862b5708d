// Origins: where the rows of a source come from.
//
// A source stage polls its origin for the next rows, or, if the rows can be read in any order, asks
// for a slice of them. An origin never waits: it answers with rows, with the time after which to
// ask again, with the end, or with a failure. One worker at a time calls it: the holder of the
// source's flag.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/columns/failure.hpp"
#include "plait/columns/merge_parts.hpp"
#include "plait/workers/shared.hpp"

namespace plait {

// What a source gives when asked.
struct Polled {
  enum class Kind { Rows, Wait, End, Failed } kind = Kind::End;
  Batch batch;  // Rows: columns and length
  // Rows: those that could not be read, ascending; `row` counts the good ones and these. Record k
  // of `records` is what bad[k] was; no columns: nobody asks.
  std::vector<RowFailure> bad;
  Batch records;
  int64_t wait_ns = 0;  // Wait
  int64_t due_ns = 0;   // Rows: when the first of them was due; 0: now
  std::string message;  // Failed
  int64_t handle = -1;
};

// When row 0 of a source with a rate is due is not known yet. A time of the steady clock may be
// negative: the job may be older than this host's clock.
inline constexpr int64_t kNoStart = INT64_MIN;

class Origin {
 public:
  virtual ~Origin() = default;
  virtual void poll(int64_t max_rows, Polled& out) = 0;
  virtual bool python() const { return false; }
  // Whether rows are due at a rate, by the clock; and, before the first is asked for, when this row
  // is. Without that it is due when it is first asked for.
  virtual bool paced() const { return false; }
  virtual void start_at(int64_t /*ns*/, int64_t /*row*/) {}
  // The number under which the outside keeps the present position; -1: the row number is the
  // position.
  virtual int64_t position() { return -1; }
  // How many rows there are for slice() to read anywhere; kNoSlices: it reads only on; kEndless.
  static constexpr int64_t kNoSlices = -2, kEndless = -1;
  virtual int64_t rows() const { return kNoSlices; }
  // The rows [first, first + count), all of them there; or Wait.
  virtual void slice(int64_t /*first*/, int64_t /*count*/, Polled& /*out*/) {}
  // Whether any thread may read the times of its rows at any time, those in a column of timestamps.
  virtual bool has_times() const { return false; }
  // Those of the rows from `first` on, as many of `rows` as lie one behind the other, which is what
  // `rows` is then. They stay as long as the origin.
  virtual const int64_t* times(int /*column*/, int64_t /*first*/, int64_t& /*rows*/) const {
    return nullptr;
  }
};

// What a node has in place of a source that another node reads.
class NoOrigin final : public Origin {
 public:
  void poll(int64_t, Polled&) override {}  // End
};

// A source outside the engine (Python): asked through a function.
class OutsideOrigin final : public Origin {
 public:
  using Poll = void (*)(void* context, int64_t max_rows, Polled& out);
  using Position = int64_t (*)(void* context);
  OutsideOrigin(Poll poll, Position position, void* context)
      : poll_(poll), position_(position), context_(context) {}
  void poll(int64_t max_rows, Polled& out) override { poll_(context_, max_rows, out); }
  int64_t position() override { return position_(context_); }
  bool python() const override { return true; }

 private:
  const Poll poll_;
  const Position position_;
  void* const context_;
};

// Whether the rows of a slice are due at this rate; `start`: when row 0 was, the same on all nodes;
// if it is not known it is found at the first call, as if all rows before had been on time.
inline bool slice_due(double rate, int64_t first, int64_t count, int64_t& start, Polled& out) {
  const int64_t now = now_ns();
  if (start == kNoStart) start = now - int64_t(double(first) * 1e9 / rate);
  const int64_t at = start + int64_t(double(first + count) * 1e9 / rate);
  if (at > now) {
    out.kind = Polled::Kind::Wait;
    out.wait_ns = at - now;
    return false;
  }
  out.due_ns = start + int64_t(double(first + 1) * 1e9 / rate);
  return true;
}

// How many of at most `most` rows are due at this rate, behind `sent` ones; 0: wait. An epoch is at
// least half a millisecond of rows (if there are so many): epochs of single rows would cost more
// than they bring. `start`: when row 0 was due, found at the first call.
inline int64_t rows_due(double rate, int64_t sent, int64_t most, int64_t& start, Polled& out) {
  constexpr double kLeastS = 0.0005;
  const int64_t now = now_ns();
  if (start == kNoStart) start = now;
  const int64_t ready = int64_t(double(now - start) * 1e-9 * rate) - sent;
  const int64_t wanted = std::clamp<int64_t>(int64_t(rate * kLeastS), 1, most);
  if (ready < wanted) {
    out.kind = Polled::Kind::Wait;
    const int64_t at = start + int64_t(double(sent + wanted) * 1e9 / rate);
    out.wait_ns = std::max<int64_t>(1000, at - now);
    return 0;
  }
  out.due_ns = start + int64_t(double(sent + 1) * 1e9 / rate);
  return std::min(most, ready);
}

// How many of the `n` rows from `at` on fit a unit by their texts; at least one.
inline int64_t rows_within(const Batch& from, int64_t at, int64_t n) {
  for (const Column& c : from.columns) {
    if (!is_varlen(c.type)) continue;
    const int32_t* ends = c.offsets + at + 1;
    const int64_t most = c.offsets[at] + TextLimit::unit_bytes();
    if (ends[n - 1] <= most) continue;
    n = std::max<int64_t>(1, std::upper_bound(ends, ends + n, most) - ends);
  }
  return n;
}

// A table in memory, sliced without copying; optionally at a given rate, from its due times.
class TableOrigin final : public Origin {
 public:
  // `first`: the row with which poll begins.
  TableOrigin(std::vector<Batch> chunks, double rate_per_s, int64_t first = 0)
      : chunks_(std::move(chunks)), rate_(rate_per_s), first_(first), sent_(first) {
    int64_t n = 0;
    for (const Batch& chunk : chunks_) {
      starts_.push_back(n);
      n += chunk.length;
    }
    all_ = n;
    if (first > 0 && first < all_) {
      chunk_ = chunk_of(first);
      at_ = first - starts_[chunk_];
    } else if (first >= all_) {
      chunk_ = chunks_.size();
    }
  }

  bool paced() const override { return rate_ > 0; }
  void start_at(int64_t ns, int64_t row) override {
    start_ = ns - int64_t(double(row) * 1e9 / rate_);
  }
  int64_t rows() const override { return all_; }
  void slice(int64_t first, int64_t count, Polled& out) override {
    if (rate_ > 0 && !slice_due(rate_, first, count, start_, out)) return;
    out.kind = Polled::Kind::Rows;
    auto c = chunk_of(first);
    std::vector<Batch> parts;
    for (int64_t left = count; left > 0; ++c) {
      const Batch& from = chunks_[c];
      const int64_t at = first + (count - left) - starts_[c];
      const int64_t n = std::min(left, from.length - at);
      if (n <= 0) continue;
      Batch part;
      part.length = n;
      for (const auto& column : from.columns) part.columns.push_back(column.slice(at, n));
      parts.push_back(std::move(part));
      left -= n;
    }
    out.batch.length = count;
    for (size_t i = 0; i < parts[0].columns.size(); ++i) {
      std::vector<const Column*> columns;
      for (const Batch& part : parts) columns.push_back(&part.columns[i]);
      out.batch.columns.push_back(columns.size() == 1 ? *columns[0]
                                                      : concat_columns(columns, count));
    }
  }

  bool has_times() const override { return rate_ <= 0; }
  const int64_t* times(int column, int64_t first, int64_t& rows) const override {
    const size_t c = chunk_of(first);
    const int64_t at = first - starts_[c];
    rows = std::min(rows, chunks_[c].length - at);
    return chunks_[c].columns[size_t(column)].i64() + at;
  }

  void poll(int64_t max_rows, Polled& out) override {
    if (rate_ > 0 && sent_ < all_) {
      const int64_t most = std::min(max_rows, all_ - sent_);
      max_rows = rows_due(rate_, sent_ - first_, most, start_, out);
      if (max_rows == 0) return;
    }
    while (chunk_ < chunks_.size() && at_ >= chunks_[chunk_].length) {
      ++chunk_;
      at_ = 0;
    }
    if (chunk_ == chunks_.size()) {
      out.kind = Polled::Kind::End;
      return;
    }
    const Batch& from = chunks_[chunk_];
    const int64_t n = rows_within(from, at_, std::min(max_rows, from.length - at_));
    out.kind = Polled::Kind::Rows;
    out.batch.length = n;
    for (const auto& c : from.columns) out.batch.columns.push_back(c.slice(at_, n));
    at_ += n;
    sent_ += n;
  }

 private:
  size_t chunk_of(int64_t row) const {
    return size_t(std::upper_bound(starts_.begin(), starts_.end(), row) - starts_.begin()) - 1;
  }

  std::vector<Batch> chunks_;
  std::vector<int64_t> starts_;  // the row number of each chunk's first row
  int64_t all_ = 0;
  const double rate_;
  const int64_t first_;
  size_t chunk_ = 0;
  int64_t at_ = 0, sent_, start_ = kNoStart;
};

}  // namespace plait
