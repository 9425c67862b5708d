// The body of Stage (stage.hpp has its protocol).
#pragma once

#include <utility>

#include "plait/queues/free_list.hpp"
#include "plait/stages/stage.hpp"
#include "plait/workers/worker.hpp"

namespace plait {

inline Stage::Stage(std::string name_, const StageLimits& limits)
    : name(std::move(name_)), limits_(limits), slots_(new Slot[limits.batches]) {
  if (!limits.ordered) return;
  if (limits.locked_reorder) {
    locked_ = std::make_unique<LockedReorderBuffer<Slot>>(limits.batches);
  } else {
    nonblocking_ = std::make_unique<ReorderBuffer<Slot>>(limits.batches);
  }
}

inline void Stage::push(Batch&& batch, uint32_t /*input*/) {
  const uint64_t serial = pushed_.load(std::memory_order_relaxed);  // only the pusher writes it
  Slot& s = slot(serial);
  s.serial = serial;
  s.records = batch.length;
  s.bytes = batch.byte_size();
  s.since_ns.store(batch.ingest_ns ? batch.ingest_ns : now_ns(), std::memory_order_relaxed);
  s.batch = std::move(batch);
  stats.waiting_records.fetch_add(s.records, std::memory_order_relaxed);
  stats.waiting_bytes.fetch_add(s.bytes, std::memory_order_relaxed);
  pushed_.store(serial + 1, std::memory_order_release);  // pairs with pushed() in try_claim
  if (!room(0)) {
    worklist_full(stats, now_ns());
    note_room();  // it may have been emptied meanwhile
  }
}

inline int64_t Stage::full_ns() {
  const int64_t since = stats.full_since.load(std::memory_order_relaxed);
  // Full, and yet there is room: whoever made it did not see the mark.
  if (since && room(0)) stats.full_since.store(0, std::memory_order_relaxed);
  const int64_t until_now = since && !room(0) ? std::max<int64_t>(0, now_ns() - since) : 0;
  return stats.full_ns.load(std::memory_order_relaxed) + until_now;
}

inline int64_t Stage::front_ns() const {
  const uint64_t end = pushed(), claim = claimed();
  const uint64_t first = claim < end ? claim : released();
  return first < end
             ? slots_[first & (limits_.batches - 1)].since_ns.load(std::memory_order_relaxed)
             : 0;
}

inline void Stage::came() {
  if (list) list->add(*this);
  if (bell) bell->ring();
}

inline Slot* Stage::try_claim(uint64_t in_flight) {
  uint64_t serial = claimed_.load(std::memory_order_relaxed);
  do {
    if (serial >= pushed() || serial - released() >= in_flight) return nullptr;
    // acq_rel: whoever asks claimed() sees this claim; the slot's content came by pushed().
  } while (!claimed_.compare_exchange_weak(serial, serial + 1, std::memory_order_acq_rel,
                                           std::memory_order_relaxed));
  return &slot(serial);
}

inline void Stage::finish(Slot& s, Worker& worker) {
  if (nonblocking_) {
    // The ring never holds more than the buffer's capacity, so the serial always fits.
    (void)nonblocking_->try_add(s.serial, &s);
  } else if (locked_) {
    (void)locked_->send(s.serial, &s, [&](Slot* ready) { return send(ready, worker); });
    room_made(worker);
    return;
  } else {
    s.done.store(true, std::memory_order_release);  // pairs with release_unordered
  }
  try_release(worker);
}

inline void Stage::note_room() {
  if (stats.full_since.load(std::memory_order_relaxed) && room(0)) {
    worklist_has_room(stats, now_ns());
  }
}

inline bool Stage::try_release(Worker& worker) {
  const bool moved = release(worker);
  if (moved) room_made(worker);
  return moved;
}

// A loop, not a recursion: a job may have thousands of stages in a row.
inline void Stage::room_made(Worker& worker) {
  note_room();
  auto& freed = worker.freed;
  freed.assign(before_.begin(), before_.end());
  while (!freed.empty()) {
    Stage& stage = *freed.back();
    freed.pop_back();
    if (stage.release(worker)) {
      freed.insert(freed.end(), stage.before_.begin(), stage.before_.end());
    }
    // It may be a source, or have been refused just now: its own crew looks again.
    if (stage.bell && stage.bell != worker.bell) stage.bell->ring();
  }
}

inline bool Stage::release(Worker& worker) {
  bool moved = false;
  auto hand = [&](Slot* ready) {
    const bool sent = send(ready, worker);
    moved |= sent;
    return sent;
  };
  if (nonblocking_) {
    if (nonblocking_->ready()) nonblocking_->send_pending(hand);
  } else if (locked_) {
    if (locked_->ready()) locked_->send_pending(hand);
  } else {
    moved = release_unordered(worker);
  }
  return moved;
}

inline bool Stage::send(Slot* s, Worker& worker) {
  if (!can_send()) return false;
  Batch batch = std::move(s->batch);
  s->batch = Batch();
  stats.waiting_records.fetch_sub(s->records, std::memory_order_relaxed);
  stats.waiting_bytes.fetch_sub(s->bytes, std::memory_order_relaxed);
  stats.records_out.fetch_add(batch.length, std::memory_order_relaxed);
  if (failed_.load(std::memory_order_relaxed)) return true;  // relaxed: under the release flag
  if (batch.failure) failed_.store(true, std::memory_order_relaxed);
  pass(*s, std::move(batch), worker);
  return true;
}

inline void Stage::pass(Slot& /*slot*/, Batch&& batch, Worker& worker) {
  if (outputs_.empty()) {
    arrive(batch, worker);
  } else {
    hand_on(std::move(batch), worker);
  }
}

inline void Stage::arrive(Batch& batch, Worker& worker) {
  Shared& shared = worker.shared;
  if (batch.letters) shared.add_letters(*batch.letters);
  if (batch.failure) shared.note_failure(*batch.failure);
  if (batch.control && !batch.end) {
    batch.control->arrived.fetch_add(1, std::memory_order_acq_rel);
    shared.wake_all();
  }
  if (batch.end || batch.failure) shared.sink_ended();
}

inline void Stage::hand_on(Batch&& batch, Worker& worker) {
  if (outputs_.size() > 1) {
    Counts::add(worker.shared.counts.of(last_op, batch.epoch).copied,
                batch.length * int64_t(outputs_.size() - 1));
    for (size_t i = 1; i < outputs_.size(); ++i) {
      Batch copy = batch;
      copy.letters.reset();  // letters ride with the first branch only
      outputs_[i].stage->push(std::move(copy), outputs_[i].input);
      outputs_[i].stage->came();
    }
  }
  outputs_[0].stage->push(std::move(batch), outputs_[0].input);
  outputs_[0].stage->came();
}

// Without order: whatever is done goes, except that control items, failures and the end wait for
// all that came before them.
inline bool Stage::release_unordered(Worker& worker) {
  bool moved = false;
  while (unordered_ready()) {
    // Acquire pairs with the release at the end of this loop: the last holder's slots and outputs.
    if (releasing_.exchange(true, std::memory_order_acquire)) return moved;
    bool any = false;
    uint64_t first = released_.load(std::memory_order_relaxed);
    const uint64_t end = claimed();
    for (uint64_t serial = first; serial < end; ++serial) {
      Slot& s = slot(serial);
      if (!s.done.load(std::memory_order_acquire)) continue;  // pairs with finish
      const bool special = s.batch.control || s.batch.failure || s.batch.end;
      if (special && serial != first) break;
      if (!send(&s, worker)) break;
      any = true;
      s.done.store(false, std::memory_order_relaxed);
      s.handed_on = true;
      while (first < end && slot(first).handed_on) slot(first++).handed_on = false;
      released_.store(first, std::memory_order_release);  // pairs with released() in room
    }
    releasing_.store(false, std::memory_order_release);
    moved |= any;
    if (!any) return moved;
  }
  return moved;
}

inline bool Stage::unordered_ready() const {
  const uint64_t end = claimed();
  for (uint64_t serial = released_.load(std::memory_order_acquire); serial < end; ++serial) {
    if (slots_[serial & (limits_.batches - 1)].done.load(std::memory_order_acquire)) return true;
  }
  return false;
}

}  // namespace plait
