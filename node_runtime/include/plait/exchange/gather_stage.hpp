// GatherStage: the receiving side of an exchange: one batch for each unit (epoch, source), its rows
// from all nodes in order.
//
// Parts of a node come in the order of units; a unit is complete when every member of the layout of
// its epoch has sent its part. A control item or the end is complete when all members have it next.
// After a failure nothing goes on, and a node whose stream has failed sends nothing more: what
// comes is let go as it comes, so that no sender waits for credit and no branch beside this one
// stands still. What waits here is bounded by the senders' credit. Any thread may bring parts (a
// mutex); one worker at a time merges and hands on.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plait/columns/merge_parts.hpp"
#include "plait/exchange/exchange.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/stages/stage_impl.hpp"

namespace plait {

class GatherStage final : public Stage, public Inlet {
 public:
  // `sources`: those whose records come here, ascending. `unique`: no two rows have the same tag.
  // `tags`: an operator after it looks at them. `index`: rows are numbered here, as their subs.
  GatherStage(std::string name, const StageLimits& limits, uint32_t channel, uint32_t op,
              std::vector<uint32_t> sources, bool unique, bool tags, bool index, Wire& wire)
      : Stage(std::move(name), limits),
        channel_(channel),
        op_(op),
        sources_(std::move(sources)),
        unique_(unique),
        tags_(tags),
        index_(index),
        wire_(wire) {}

  uint32_t max_workers() const override { return 1; }
  // The own route stage waits when this node itself does not keep up.
  bool room(uint32_t) const override {
    const int64_t waiting = own_waiting_.load(std::memory_order_relaxed);
    return waiting < int64_t(kLeast) || (waiting < int64_t(kWindow) &&
                                         own_bytes_.load(std::memory_order_relaxed) < kWindowBytes);
  }
  bool releasable() const override { return false; }
  bool pending() const override { return waiting_.load(std::memory_order_acquire) > 0; }
  int64_t front_ns() const override {
    return pending() ? front_ns_.load(std::memory_order_relaxed) : 0;
  }
  bool runnable() const override {
    if (waiting_.load(std::memory_order_acquire) <= 0) return false;
    return failed() || (outputs_have_room() && complete());
  }
  void push(Batch&& batch, uint32_t /*input*/) override {
    take_part(wire_.here(), std::move(batch));
  }
  void take_part(uint32_t from, Batch&& part) override {
    stats.waiting_records.fetch_add(part.length, std::memory_order_relaxed);
    {
      std::lock_guard<std::mutex> hold(lock_);
      if (!pending()) front_ns_.store(part.ingest_ns, std::memory_order_relaxed);
      if (from == wire_.here()) {
        own_waiting_.fetch_add(1, std::memory_order_relaxed);
        own_bytes_.fetch_add(part.byte_size(), std::memory_order_relaxed);
      }
      inputs_[from].parts.push_back(std::move(part));
      waiting_.fetch_add(1, std::memory_order_release);  // pairs with runnable
    }
    came();
  }
  void start_at(uint64_t epoch) override {
    std::lock_guard<std::mutex> hold(lock_);
    epoch_ = epoch;
  }

  int64_t run(Worker& worker, int64_t records) override {
    if (!runnable() || busy_.exchange(true, std::memory_order_acquire)) return 0;
    int64_t done = 0;
    std::vector<Batch> parts;
    try {
      while (!failed() && done < records && outputs_have_room() && next_unit(parts)) {
        done += 1 + emit(parts, worker);
        parts.clear();
        if (worker.slice_over()) break;
      }
      if (failed()) done += let_go();
    } catch (const std::exception& error) {
      worker.shared.fail(runtime_failure(op_, error));
    }
    busy_.store(false, std::memory_order_release);  // pairs with the exchange above
    if (done) room_made(worker);
    return done;
  }

 private:
  struct Input {
    std::deque<Batch> parts;
    uint64_t consumed = 0, credited = 0;
    int64_t bytes = 0;  // consumed and not credited
  };

  // The nodes whose parts the next unit has; under the lock. A node that is not a member any more
  // finishes alone.
  const std::vector<uint32_t>& expected() const {
    const uint64_t version = wire_.layouts().version();
    if (!layout_ || version != version_ || epoch_ != looked_at_) {
      layout_ = wire_.layouts().at(epoch_);
      version_ = version;
      looked_at_ = epoch_;
    }
    return layout_->member(wire_.here()) ? layout_->members : alone_;
  }
  bool complete() const {
    std::lock_guard<std::mutex> hold(lock_);
    return complete_locked();
  }
  bool complete_locked() const {
    if (!wire_.layouts().any()) return false;
    for (uint32_t rank : expected()) {
      auto found = inputs_.find(rank);
      if (found == inputs_.end() || found->second.parts.empty()) return false;
    }
    return true;
  }

  bool next_unit(std::vector<Batch>& parts) {
    std::vector<std::pair<uint32_t, uint64_t>> credits;
    {
      std::lock_guard<std::mutex> hold(lock_);
      if (!complete_locked()) return false;
      for (uint32_t rank : expected()) {
        Input& input = inputs_[rank];
        parts.push_back(take_front(rank, input));
        if (rank == wire_.here()) {
          own_ = parts.size() - 1;
        } else if (input.consumed - input.credited >= kCreditEvery || input.bytes >= kCreditBytes) {
          input.credited = input.consumed;
          input.bytes = 0;
          credits.emplace_back(rank, input.consumed);
        }
      }
      if (!is_marker(parts[own_])) {
        if (++at_ == sources_.size()) {
          at_ = 0;
          ++epoch_;
        }
      }
    }
    for (auto [rank, consumed] : credits) wire_.send_credit(rank, channel_, consumed);
    return true;
  }
  // Under the lock.
  Batch take_front(uint32_t rank, Input& input) {
    Batch part = std::move(input.parts.front());
    input.parts.pop_front();
    if (!input.parts.empty()) {
      front_ns_.store(input.parts.front().ingest_ns, std::memory_order_relaxed);
    }
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    const int64_t bytes = part.byte_size();
    if (rank == wire_.here()) {
      own_waiting_.fetch_sub(1, std::memory_order_relaxed);
      own_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    }
    ++input.consumed;
    input.bytes += bytes;
    return part;
  }
  // Behind a failure: whatever has come goes, and its senders have their credit back.
  int64_t let_go() {
    int64_t done = 0;
    std::vector<std::pair<uint32_t, uint64_t>> credits;
    {
      std::lock_guard<std::mutex> hold(lock_);
      for (auto& [rank, input] : inputs_) {
        while (!input.parts.empty()) {
          const int64_t records = take_front(rank, input).length;
          stats.waiting_records.fetch_sub(records, std::memory_order_relaxed);
          stats.records_in.fetch_add(records, std::memory_order_relaxed);
          done += 1 + records;
        }
        if (rank == wire_.here() || input.credited == input.consumed) continue;
        input.credited = input.consumed;
        credits.emplace_back(rank, input.consumed);
      }
    }
    for (auto [rank, consumed] : credits) wire_.send_credit(rank, channel_, consumed);
    return done;
  }
  // Relaxed: a stage that has failed stays so, and its holder knows by itself.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  static bool is_marker(const Batch& b) { return b.control || b.end; }

  int64_t emit(std::vector<Batch>& parts, Worker& worker) {
    int64_t records = 0;
    for (const Batch& p : parts) {
      records += p.length;
      if (is_marker(p) != is_marker(parts[own_]) || p.epoch != parts[own_].epoch ||
          (!is_marker(p) && p.source != parts[own_].source)) {
        throw std::logic_error("the nodes are not in step at epoch " + std::to_string(p.epoch) +
                               ", here " + std::to_string(parts[own_].epoch));
      }
    }
    stats.waiting_records.fetch_sub(records, std::memory_order_relaxed);
    stats.records_in.fetch_add(records, std::memory_order_relaxed);
    if (is_marker(parts[own_])) {
      hand_on(std::move(parts[own_]), worker);
      return 0;
    }
    Batch out;
    out.same_unit(parts[own_]);
    guarded(out, op_, [&] { out = merged(parts); });  // their texts may be too much for one unit
    if (out.failure) failed_.store(true, std::memory_order_relaxed);
    stats.records_out.fetch_add(out.length, std::memory_order_relaxed);
    hand_on(std::move(out), worker);
    return records;
  }

  Batch merged(std::vector<Batch>& parts) {
    std::shared_ptr<Failure> failure;
    std::shared_ptr<std::vector<Letter>> letters;
    for (const Batch& p : parts) {
      if (p.failure && (!failure || place_of(*p.failure) < place_of(*failure))) failure = p.failure;
      if (!p.letters) continue;
      if (!letters) letters = std::make_shared<std::vector<Letter>>();
      letters->insert(letters->end(), p.letters->begin(), p.letters->end());
    }
    if (letters) put_in_order(*letters);
    if (failure) {
      for (Batch& p : parts) {
        p.spread_tags();
        cut(p, place_of(*failure));
      }
    }
    const Batch& own = parts[own_];
    Batch unit;
    unit.same_unit(own);
    for (const Batch& p : parts) join_unit(unit, p);
    unit.reach = join_reaches(parts);
    int64_t ingest_ns = own.ingest_ns;
    std::vector<Batch> filled;
    // A node that has no rows of an event-time operator may have sent others without halves.
    const bool halves = std::any_of(parts.begin(), parts.end(),
                                    [](const Batch& p) { return p.length && p.halves; });
    for (Batch& p : parts) {
      if (p.length == 0) continue;
      ingest_ns = filled.empty() ? p.ingest_ns : std::min(ingest_ns, p.ingest_ns);
      if (halves) p.split_halves();
      filled.push_back(std::move(p));
    }
    Batch out = filled.empty()       ? std::move(parts[own_])
                : filled.size() == 1 ? std::move(filled[0])
                                     : merge_parts(filled, unique_, tags_);
    if (out.bits && (out.length == 0 || !bits_will_do())) out.spread_tags();
    if (index_) index_rows(out);
    out.same_unit(unit);
    out.ingest_ns = ingest_ns;
    out.letters = letters;
    out.failure = failure && index_ ? last(*failure) : failure;
    return out;
  }
  // How far each origin of time is, from what the nodes have of it. What is whole all nodes have.
  std::vector<OriginReach> join_reaches(const std::vector<Batch>& parts) const {
    std::vector<OriginReach> out;
    for (const OriginReach& one : parts[own_].reach) {
      if (one.reach->whole) out.push_back(one);
    }
    const auto known = [&](uint32_t origin) {
      return std::any_of(out.begin(), out.end(), [&](const auto& o) { return o.origin == origin; });
    };
    for (const Batch& p : parts) {
      for (const OriginReach& one : p.reach) {
        if (known(one.origin)) continue;
        std::vector<ReachRef> reaches;
        for (const Batch& q : parts) reaches.push_back(q.reach_from(one.origin));
        out.push_back({one.origin, join_reach(std::move(reaches))});
      }
    }
    return out;
  }
  // What all nodes know of a unit together: a node that does not read the source knows nothing of
  // its rows.
  static void join_unit(Batch& unit, const Batch& part) {
    if (std::pair(part.rows, part.base) > std::pair(unit.rows, unit.base)) {
      unit.rows = part.rows;
      unit.base = part.base;
    }
    unit.flow = std::min(unit.flow, part.flow);
    unit.stamp = std::max(unit.stamp, part.stamp);
  }
  // Whether no stage up to the next exchange looks at single tags.
  bool bits_will_do() {
    if (!asked_) {
      asked_ = true;
      bits_will_do_ = std::all_of(outputs_.begin(), outputs_.end(),
                                  [](const Output& o) { return o.stage->takes_bits(); });
    }
    return bits_will_do_;
  }
  // Row and half, and order among the records of that.
  using Place = std::tuple<int64_t, bool, int64_t, uint64_t>;
  static Place place_of(const Failure& failure) {
    const Letter& letter = failure.letter;
    return {letter.row, letter.half, letter.time, letter.sub};
  }
  // Behind all rows, whose order is another now.
  static std::shared_ptr<Failure> last(const Failure& failure) {
    auto made = std::make_shared<Failure>(failure);
    made->letter.time = std::numeric_limits<int64_t>::max();
    made->letter.sub = std::numeric_limits<uint64_t>::max();
    return made;
  }
  // Letters of one operator; those of several are put in order of their operators.
  static void put_in_order(std::vector<Letter>& letters) {
    std::stable_sort(letters.begin(), letters.end(), [](const Letter& a, const Letter& b) {
      return std::tie(a.row, a.half, a.op, a.time, a.sub) <
             std::tie(b.row, b.half, b.op, b.time, b.sub);
    });
  }
  // What comes behind a failed record is not delivered; of the failed record itself, what its own
  // node put before it (rows of one tag that were made before the failure).
  static void cut(Batch& batch, const Place& failed) {
    const bool own = batch.failure && place_of(*batch.failure) == failed;
    int64_t n = 0;
    for (; n < batch.length; ++n) {
      const Place at{batch.row_number(n), batch.half(n), batch.times ? batch.times[n] : kNoTime,
                     batch.subs ? batch.subs[n] : 0};
      if (failed < at || (at == failed && !own)) break;
    }
    truncate(batch, n);
  }

  const uint32_t channel_, op_;
  const std::vector<uint32_t> sources_;
  const bool unique_, tags_, index_;
  Wire& wire_;
  const std::vector<uint32_t> alone_{wire_.here()};
  std::atomic<bool> failed_{false};            // a failure went on; set under busy_
  size_t own_ = 0;                             // this node's place among the parts; under busy_
  bool asked_ = false, bits_will_do_ = false;  // under busy_

  mutable std::mutex lock_;
  std::map<uint32_t, Input> inputs_;
  uint64_t epoch_ = 0;  // of the next unit, and its source
  size_t at_ = 0;
  mutable Layouts::Ref layout_;
  mutable uint64_t version_ = 0, looked_at_ = 0;
  std::atomic<int64_t> waiting_{0}, own_waiting_{0}, own_bytes_{0}, front_ns_{0};
  std::atomic<bool> busy_{false};
};

}  // namespace plait
