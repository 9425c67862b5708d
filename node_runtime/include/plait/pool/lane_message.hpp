// What goes to a worker process that has the state of a lane, and what it answers.
//
// Rows and units change the state and are answered with what they made; Copy, Take and Put move
// bins out and in. Messages of a lane are done in the order in which they were given. The process
// writes a LaneStep, the engine reads a LaneAnswer. Nothing here is shared between threads.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plait/pool/pool_outcome.hpp"
#include "plait/time/emitter.hpp"

namespace plait {

enum class LaneDo : uint8_t { Rows, Unit, Copy, Take, Put };

struct LaneBin {
  uint32_t bin = 0;
  std::string bytes;
};

// When a unit is: see ProcessUnit. `told`: it has the place of each row.
struct LaneUnit {
  uint64_t base = 0;
  int64_t watermark = 0, behind = 0, now = 0, clock = 0;
  bool told = false;
};

struct LaneMessage {
  LaneDo what = LaneDo::Rows;
  int64_t length = 0;
  std::vector<Column> columns;  // Rows, Unit: the lane's rows
  LaneUnit unit;
  std::vector<uint32_t> order;      // of each row of a unit, if told
  std::vector<int64_t> watermarks;  // when each row of a unit is taken
  std::vector<uint32_t> bins;       // Copy, Take
  bool all = false;                 // Copy: all bins that have state
  std::vector<LaneBin> put;

  bool changes() const { return what != LaneDo::Copy; }
  bool has_rows() const { return what == LaneDo::Rows || what == LaneDo::Unit; }
  int64_t byte_size() const {
    int64_t n = 128 + int64_t(4 * (order.size() + bins.size()) + 8 * watermarks.size());
    for (const auto& c : columns) n += c.byte_size();
    for (const auto& b : put) n += 64 + int64_t(b.bytes.size());
    return n;
  }
};

template <class T>
void flat_numbers(FlatWriter& out, const std::vector<T>& numbers) {
  out.put(int64_t(numbers.size()));
  out.bytes(numbers.data(), int64_t(sizeof(T) * numbers.size()));
}
template <class T>
std::vector<T> read_numbers(FlatReader& in) {
  std::vector<T> numbers(size_t(in.count(sizeof(T))));
  if (numbers.empty()) return numbers;
  const auto size = int64_t(sizeof(T) * numbers.size());
  std::memcpy(numbers.data(), in.bytes(size), size_t(size));
  return numbers;
}
inline void flat_bins(FlatWriter& out, const std::vector<LaneBin>& bins) {
  out.put(int64_t(bins.size()));
  for (const auto& b : bins) {
    out.put(b.bin);
    out.text(b.bytes);
  }
}
inline std::vector<LaneBin> read_bins(FlatReader& in) {
  std::vector<LaneBin> bins(size_t(in.count(12)));
  for (auto& b : bins) {
    b.bin = in.get<uint32_t>();
    b.bytes = in.text();
  }
  return bins;
}

// `rows` false: as if the message had none.
inline void flat_message(FlatWriter& out, const LaneMessage& m, bool rows = true) {
  out.put(m.what);
  out.put(m.all);
  out.put(m.unit);
  out.put(rows ? m.length : 0);
  flat_numbers(out, rows ? m.order : std::vector<uint32_t>());
  flat_numbers(out, rows ? m.watermarks : std::vector<int64_t>());
  flat_numbers(out, m.bins);
  flat_bins(out, m.put);
  std::vector<Column> none;
  for (const auto& c : m.columns) none.push_back(c.slice(0, 0));
  flat_columns(out, rows ? m.columns : none);
}

// Its columns are views of the block at `owner`; empty: the caller keeps it.
inline LaneMessage read_message(FlatReader& in, const BufferRef& owner) {
  LaneMessage m;
  m.what = in.get<LaneDo>();
  m.all = in.get<bool>();
  m.unit = in.get<LaneUnit>();
  m.length = in.get<int64_t>();
  m.order = read_numbers<uint32_t>(in);
  m.watermarks = read_numbers<int64_t>(in);
  m.bins = read_numbers<uint32_t>(in);
  m.put = read_bins(in);
  m.columns = read_columns(in, owner);
  return m;
}

// What is told of a message beside the rows that it made.
struct LaneTold {
  std::vector<int64_t> times;    // Unit: of each row that was made: kAtOnce, or that of its timer
  std::vector<uint64_t> places;  // Unit: of each row; both ascending together
  int64_t next_timer = kAllTime, next_timeout = kAllTime;  // the first timers that are pending
  int64_t timers = 0;                                      // that are pending
  bool stopped = false;         // a timer failed, or, if `fatal`, something else ended the run
  bool fatal = false;           // then no row of the batch goes on, whatever the policy
  Emitter::Order stopped_at{};  // its time and place; of a row of Rows: kAtOnce and its number
  std::vector<LaneBin> bins;    // Copy, Take; Put: the first that was refused
  std::string refused;          // Copy, Take, Put: why it was not done
};

// As the worker process has it.
struct LaneStep {
  PoolStep step;
  LaneTold told;
  std::string stop, stop_raised;  // if it stopped
};

// As the engine has it.
struct LaneAnswer {
  CallOutcome outcome;
  LaneTold told;
  RowFailure stop;   // if it stopped
  std::string died;  // not empty: how worker processes died on its rows, all of which fail
};

inline void flat_answer(FlatWriter& out, const LaneStep& s, const std::vector<Column>& given) {
  flat_outcome(out, {s.step}, given);
  const LaneTold& t = s.told;
  flat_numbers(out, t.times);
  flat_numbers(out, t.places);
  out.put(t.next_timer);
  out.put(t.next_timeout);
  out.put(t.timers);
  out.put(t.stopped);
  out.put(t.fatal);
  out.put(t.stopped_at);
  flat_bins(out, t.bins);
  out.text(t.refused);
  out.text(s.stop);
  out.text(s.stop_raised);
}

inline LaneAnswer read_answer(FlatReader& in, const BufferRef& owner,
                              const std::vector<Column>& given, const Keep& keep) {
  LaneAnswer a;
  a.outcome = read_outcome(in, owner, given, keep);
  LaneTold& t = a.told;
  t.times = read_numbers<int64_t>(in);
  t.places = read_numbers<uint64_t>(in);
  t.next_timer = in.get<int64_t>();
  t.next_timeout = in.get<int64_t>();
  t.timers = in.get<int64_t>();
  t.stopped = in.get<bool>();
  t.fatal = in.get<bool>();
  t.stopped_at = in.get<Emitter::Order>();
  t.bins = read_bins(in);
  t.refused = in.text();
  a.stop.message = in.text();
  const std::string raised = in.text();
  if (!raised.empty()) a.stop.handle = keep(raised);
  return a;
}

}  // namespace plait
