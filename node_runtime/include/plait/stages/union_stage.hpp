// UnionStage: a union. Its inputs' batches of one epoch and source become one batch, rows by row
// number, then by input.
//
// Each input's batches come in the order (epoch, source); a unit (epoch, source) is complete when
// every input that carries that source has it at its head. The inputs are buffered without a bound:
// sources are kept in step (Epochs) and every other queue is bounded, so what waits here is bounded
// too, and no branch can block another for ever. Any stage may push its input at any time (a
// mutex); one worker at a time merges.
#pragma once

#include <algorithm>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "plait/columns/merge_parts.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/stages/stage_impl.hpp"

namespace plait {

class UnionStage final : public Stage {
 public:
  // `carries[i]` are the sources that reach input i, ascending.
  // `sub_bits`: how wide the inputs' subs are at most; -1: this is the only node.
  UnionStage(std::string name, const StageLimits& limits, uint32_t op,
             std::vector<std::vector<uint32_t>> carries, int sub_bits = -1)
      : Stage(std::move(name), limits),
        op_(op),
        carries_(std::move(carries)),
        sub_bits_(sub_bits),
        inputs_(carries_.size()) {
    for (const auto& sources : carries_) {
      sources_.insert(sources_.end(), sources.begin(), sources.end());
    }
    std::sort(sources_.begin(), sources_.end());
    sources_.erase(std::unique(sources_.begin(), sources_.end()), sources_.end());
  }
  uint32_t max_workers() const override { return 1; }
  bool room(uint32_t) const override { return true; }
  bool releasable() const override { return false; }
  bool pending() const override { return waiting_.load(std::memory_order_acquire) > 0; }
  int64_t front_ns() const override {
    return pending() ? front_ns_.load(std::memory_order_relaxed) : 0;
  }
  bool runnable() const override {
    return waiting_.load(std::memory_order_acquire) > 0 && outputs_have_room();
  }

  void push(Batch&& batch, uint32_t input) override {
    stats.waiting_records.fetch_add(batch.length, std::memory_order_relaxed);
    std::lock_guard<std::mutex> hold(lock_);
    if (!pending()) front_ns_.store(batch.ingest_ns, std::memory_order_relaxed);
    inputs_[input].push_back(std::move(batch));
    waiting_.fetch_add(1, std::memory_order_release);  // pairs with runnable
  }

  int64_t run(Worker& worker, int64_t records) override {
    if (!runnable() || busy_.exchange(true, std::memory_order_acquire)) return 0;
    int64_t done = 0;
    std::vector<Batch> parts;
    try {
      while (done < records && outputs_have_room() && next_unit(parts)) {
        done += 1 + emit(parts, worker);
        parts.clear();
        if (worker.slice_over()) break;
      }
    } catch (const std::exception& error) {
      worker.shared.fail(runtime_failure(op_, error));
    }
    busy_.store(false, std::memory_order_release);  // pairs with the exchange above
    if (done) room_made(worker);
    return done;
  }

 private:
  // Takes the heads of the next unit, if they are all here.
  bool next_unit(std::vector<Batch>& parts) {
    std::lock_guard<std::mutex> hold(lock_);
    const uint32_t source = sources_[at_];
    bool marker = false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const bool carries = carried(i, source);
      if (carries && inputs_[i].empty()) return false;
      if (carries && is_marker(inputs_[i].front())) marker = true;
    }
    if (marker) {  // at this boundary every input has the marker next
      for (auto& input : inputs_) {
        if (input.empty()) return false;
      }
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!marker && !carried(i, source)) continue;
      parts.push_back(std::move(inputs_[i].front()));
      inputs_[i].pop_front();
      if (!inputs_[i].empty()) {
        front_ns_.store(inputs_[i].front().ingest_ns, std::memory_order_relaxed);
      }
      waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    if (!marker) at_ = (at_ + 1) % sources_.size();
    return true;
  }
  bool carried(size_t input, uint32_t source) const {
    return std::binary_search(carries_[input].begin(), carries_[input].end(), source);
  }
  static bool is_marker(const Batch& b) { return b.control || b.end; }

  int64_t emit(std::vector<Batch>& parts, Worker& worker) {
    int64_t records = 0;
    for (const auto& p : parts) records += p.length;
    stats.waiting_records.fetch_sub(records, std::memory_order_relaxed);
    stats.records_in.fetch_add(records, std::memory_order_relaxed);
    if (failed_) return records;
    std::shared_ptr<Failure> failure;
    size_t failed_at = 0;
    auto letters = std::make_shared<std::vector<Letter>>();
    for (size_t i = 0; i < parts.size(); ++i) {
      const Batch& p = parts[i];
      if (p.failure && (!failure || place_of(*p.failure) < place_of(*failure))) {
        failure = p.failure;
        failed_at = i;
      }
      if (p.letters) letters->insert(letters->end(), p.letters->begin(), p.letters->end());
    }
    for (size_t i = 0; failure && i < parts.size(); ++i) {
      cut(parts[i], place_of(*failure), i <= failed_at);
    }
    std::vector<Batch> filled;
    Batch unit;
    unit.same_unit(parts[0]);
    for (const auto& p : parts) join_unit(unit, p);
    int64_t ingest_ns = parts[0].ingest_ns;
    for (const auto& p : parts) ingest_ns = std::min(ingest_ns, p.ingest_ns);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].length == 0) continue;
      if (sub_bits_ >= 0) mark(parts[i], i);
      filled.push_back(std::move(parts[i]));
    }
    even_halves(filled);
    Batch out;
    out.same_unit(unit);
    guarded(out, op_, [&] {  // the texts of all parts may be too much for one
      out = filled.size() > 1    ? merge_parts(filled, false)
            : filled.size() == 1 ? std::move(filled[0])
                                 : std::move(parts[failed_at]);
    });
    if (broken(out)) failure = out.failure;
    out.same_unit(unit);
    out.ingest_ns = ingest_ns;
    out.letters = letters->empty() ? nullptr : letters;
    if (failure && sub_bits_ >= 0) {  // marked like the rows; others may hold it as it was
      failure = std::make_shared<Failure>(*failure);
      failure->letter.sub |= uint64_t(failed_at) << sub_bits_;
    }
    out.failure = failure;
    failed_ = failure != nullptr;
    Counts::add(worker.shared.counts.of(op_, out.epoch).in, records);
    Counts::add(worker.shared.counts.of(op_, out.epoch).out, out.length);
    stats.records_out.fetch_add(out.length, std::memory_order_relaxed);
    hand_on(std::move(out), worker);
    return records;
  }
  // On several nodes: equal rows of two inputs may be on two nodes, so they carry their input.
  void mark(Batch& batch, size_t input) const {
    BufferRef subs = BufferRef::make(8 * batch.length);
    const uint64_t above = uint64_t(input) << sub_bits_;
    for (int64_t i = 0; i < batch.length; ++i) {
      subs.as<uint64_t>()[i] = above | (batch.subs ? batch.subs[i] : 0);
    }
    batch.subs = subs.as<uint64_t>();
    batch.subs_owner = std::move(subs);
  }
  using Place = std::pair<int64_t, bool>;  // row and half
  static Place place_of(const Failure& failure) {
    return {failure.letter.row, failure.letter.half};
  }
  // Keeps the rows before a failed record, and those of the record itself if they are `also` to be
  // kept: what comes behind it is not delivered.
  static void cut(Batch& batch, const Place& failed, bool also) {
    int64_t n = 0;
    for (; n < batch.length; ++n) {
      const Place at{batch.row_number(n), batch.half(n)};
      if (at > failed || (at == failed && !also)) break;
    }
    truncate(batch, n);
  }
  // On several nodes an input that was not exchanged may know nothing of the unit's rows here.
  static void join_unit(Batch& unit, const Batch& part) {
    if (std::pair(part.rows, part.base) > std::pair(unit.rows, unit.base)) {
      unit.rows = part.rows;
      unit.base = part.base;
    }
    unit.stamp = std::max(unit.stamp, part.stamp);
    for (const OriginReach& one : part.reach) {
      const auto known = std::find_if(unit.reach.begin(), unit.reach.end(), [&](const auto& other) {
        return other.origin == one.origin;
      });
      if (known == unit.reach.end()) {
        unit.reach.push_back(one);
      } else if (one.reach->whole) {
        known->reach = one.reach;
      }
    }
  }

  const uint32_t op_;
  const std::vector<std::vector<uint32_t>> carries_;
  const int sub_bits_;
  std::vector<uint32_t> sources_;
  size_t at_ = 0;
  bool failed_ = false;  // under busy_
  std::mutex lock_;
  std::vector<std::deque<Batch>> inputs_;
  std::atomic<int64_t> waiting_{0}, front_ns_{0};
  std::atomic<bool> busy_{false};
};

}  // namespace plait
