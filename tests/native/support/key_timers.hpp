// A state by key with timers, the same on both sides of the ring: it serves the messages of a lane,
// and stands in for Python in the engine.
//
// Rows are (key, value, time). A value is added to the sum of its key, and a sum that three does
// not divide makes a row (key, sum) at once. With timers each row sets one, which makes (key, -sum)
// when it is due: before the first row that is taken at such a watermark, or behind the row itself
// if that is reached already. Negative values go wrong, at once or where their timer is due: see
// below.
#pragma once

#include <compare>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "pool_samples.hpp"

namespace plait::testing {

class KeyTimers {
 public:
  static constexpr int64_t kBad = -1, kLeaves = -2, kBadTimer = -3, kTimerLeaves = -4;

  unsigned bin_bits = 0;
  bool stops = false;   // with the policy fail: nothing behind a failed row
  bool timers = false;  // else rows set none

  // What becomes of rows, and of the timers that are due before and behind them.
  struct Made {
    std::vector<int64_t> keys, sums, times;
    std::vector<uint64_t> places;
    std::vector<uint32_t> origin;
    std::vector<RowFailure> failures;
    RowFailure stop;
    Emitter::Order at{};
    bool stopped = false, fatal = false;

    void add(int64_t key, int64_t sum, Emitter::Order order, uint32_t row) {
      keys.push_back(key);
      sums.push_back(sum);
      times.push_back(order.time);
      places.push_back(order.place);
      origin.push_back(row);
    }
    void end(const char* why, Emitter::Order where, bool fatal_) {
      stop = {0, why};
      at = where;
      stopped = true;
      fatal = fatal_;
    }
    Batch rows() const {
      Batch out;
      out.length = int64_t(keys.size());
      out.columns = {column_of(keys), column_of(sums)};
      return out;
    }
  };

  // `order`, `watermarks`: of each row, or null; see ProcessUnit.
  Made take(const std::vector<Column>& in, int64_t length, uint64_t base, const uint32_t* order,
            const int64_t* watermarks, int64_t watermark) {
    Made made;
    for (uint32_t i = 0; i < length; ++i) {
      if (timers) fire(watermarks[i], made);
      if (made.stopped) return made;
      const int64_t key = in[0].i64()[i], value = in[1].i64()[i], time = in[2].i64()[i];
      const Emitter::Order at{kAtOnce, base + (order ? order[i] : i)};
      if (value == kBad) {
        made.failures.push_back({i, "bad"});
        if (stops) return made;
        continue;
      }
      if (value == kLeaves) {
        made.end("left", at, true);
        return made;
      }
      Key& state = bins_[bin_of(key)][key];
      state.sum += value < 0 ? 1 : value;
      if (timers) state.due.insert({time + (value < 0 ? 5 : 3 * value), at.place, value});
      if (state.sum % 3) made.add(key, state.sum, at, i);
      if (timers) fire(watermarks[i], made, &at);
      if (made.stopped) return made;
    }
    if (timers) fire(watermark, made);
    return made;
  }
  // When the first timer is due.
  int64_t next_timer() const {
    int64_t next = kAllTime;
    for (const auto& [bin, keys] : bins_) {
      for (const auto& [key, state] : keys) {
        if (!state.due.empty()) next = std::min(next, state.due.begin()->due);
      }
    }
    return next;
  }

  std::vector<uint32_t> bins() const {
    std::vector<uint32_t> found;
    for (const auto& [bin, keys] : bins_) found.push_back(bin);
    return found;
  }
  std::string copy_bin(uint32_t bin) const {
    std::string bytes;
    const auto found = bins_.find(bin);
    if (found != bins_.end()) {
      for (const auto& [key, state] : found->second) {
        add(bytes, {key, state.sum, int64_t(state.due.size())});
        for (const Timer& t : state.due) add(bytes, {t.due, int64_t(t.place), t.value});
      }
    }
    return bytes + kWhole;
  }
  std::string take_bin(uint32_t bin) {
    std::string bytes = copy_bin(bin);
    bins_.erase(bin);
    return bytes;
  }
  // Why it is refused; empty: it is in.
  std::string put_bin(uint32_t bin, const std::string& bytes) {
    const std::string name = "bin " + std::to_string(bin);
    if (bytes.empty() || bytes.back() != kWhole) return name + " is damaged";
    if (bins_.count(bin)) return name + " is here already";
    Keys keys;
    for (size_t at = 0; at + 1 < bytes.size();) {
      int64_t head[3], timer[3];
      read(bytes, at, head);
      Key& state = keys[head[0]];
      state.sum = head[1];
      for (int64_t n = 0; n < head[2]; ++n) {
        read(bytes, at, timer);
        state.due.insert({timer[0], uint64_t(timer[1]), timer[2]});
      }
    }
    if (!keys.empty()) bins_[bin] = std::move(keys);
    return {};
  }
  void clear() { bins_.clear(); }

  // What a worker does with a message of its lane.
  void serve(PoolWorker& worker) {
    const LaneMessage m = worker.message();
    LaneStep step;
    step.step.outcome.one_to_one = true;
    if (m.has_rows()) {
      const bool unit = m.what == LaneDo::Unit;
      CHECK(unit == timers && (!unit || m.unit.told));
      answer(take(m.columns, m.length, m.unit.base, unit ? m.order.data() : nullptr,
                  unit ? m.watermarks.data() : nullptr, m.unit.watermark),
             m.length, step);
    } else if (m.what == LaneDo::Put) {
      put_all(m.put, step.told);
    } else {
      for (uint32_t bin : m.all ? bins() : m.bins) {
        if (m.what == LaneDo::Take) {
          step.told.bins.push_back({bin, take_bin(bin)});
        } else if (bins_.count(bin)) {
          step.told.bins.push_back({bin, copy_bin(bin)});
        }
      }
    }
    step.told.next_timer = next_timer();
    worker.answer(step);
  }

 private:
  struct Timer {
    int64_t due;
    uint64_t place;
    int64_t value;
    auto operator<=>(const Timer&) const = default;
  };
  struct Key {
    int64_t sum = 0;
    std::set<Timer> due;
  };
  using Keys = std::map<int64_t, Key>;
  static constexpr char kWhole = 'w';

  uint32_t bin_of(int64_t key) const {
    return uint32_t(top_bits(hash_fixed(uint64_t(key), Type::Int64), bin_bits));
  }
  // `behind`: the record behind which they fire, because it set them for a time gone by.
  void fire(int64_t watermark, Made& made, const Emitter::Order* behind = nullptr) {
    for (;;) {
      Key* first = nullptr;
      int64_t of = 0;
      for (auto& [bin, keys] : bins_) {
        for (auto& [key, state] : keys) {
          if (state.due.empty() || state.due.begin()->due > watermark) continue;
          if (first && *first->due.begin() < *state.due.begin()) continue;
          first = &state;
          of = key;
        }
      }
      if (!first) return;
      const Timer timer = *first->due.begin();
      first->due.erase(first->due.begin());
      const Emitter::Order at = behind ? *behind : Emitter::Order{timer.due, timer.place};
      if (timer.value == kBadTimer) return made.end("bad timer", at, false);
      if (timer.value == kTimerLeaves) return made.end("the timer left", at, true);
      made.add(of, -first->sum, at, 0);
    }
  }
  void answer(Made&& made, int64_t length, LaneStep& step) const {
    CallOutcome& o = step.step.outcome;
    o.out = made.rows();
    o.failures = std::move(made.failures);
    o.one_to_one = timers || o.out.length == length;
    if (timers) {
      step.told.times = std::move(made.times);
      step.told.places = std::move(made.places);
    } else if (!o.one_to_one) {
      o.origin = std::move(made.origin);
    }
    step.told.stopped = made.stopped;
    step.told.fatal = made.fatal;
    step.told.stopped_at = made.at;
    step.stop = made.stop.message;
  }
  void put_all(const std::vector<LaneBin>& put, LaneTold& told) {
    std::vector<uint32_t> in;
    for (const LaneBin& b : put) {
      told.refused = put_bin(b.bin, b.bytes);
      if (told.refused.empty()) {
        in.push_back(b.bin);
        continue;
      }
      told.bins.push_back({b.bin, {}});
      for (uint32_t bin : in) bins_.erase(bin);
      return;
    }
  }
  static void add(std::string& bytes, std::initializer_list<int64_t> numbers) {
    for (int64_t n : numbers) bytes.append(reinterpret_cast<const char*>(&n), sizeof n);
  }
  static void read(const std::string& bytes, size_t& at, int64_t (&numbers)[3]) {
    CHECK(at + sizeof numbers < bytes.size());
    std::memcpy(numbers, bytes.data() + at, sizeof numbers);
    at += sizeof numbers;
  }

  std::map<uint32_t, Keys> bins_;  // none is empty
};

}  // namespace plait::testing
