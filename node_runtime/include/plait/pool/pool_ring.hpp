// PoolRing: a ring of slots in memory that the engine's process shares with its worker processes.
//
// The owner (the engine's process) writes a batch into the slot of the next serial and marks it
// filled; a worker process claims a filled slot by compare-and-swap, reads the batch in place, and
// writes the outcome behind it; the owner takes the outcome out and frees the slot. The state of a
// slot is one word (serial, worker, kind), so a process that dies leaves it in a known state: what
// a dead worker had claimed goes back to filled. The memory is a memfd: nothing is left when the
// last process is gone.
//
// Threads: any thread of the owner may reserve, publish and collect; each worker process has one
// thread. No thread spins: one that finds nothing sleeps on a futex, and is woken only if it said
// that it sleeps. Full: try_reserve gives -1, because the slot of the next serial is not free. A
// batch or an outcome that is larger than its slot goes to an extent after the ring: a range of the
// same file that is used once, and given back to the system when the slot is freed. A slot may be
// pinned: only one of the workers may claim it, which does so in the order of the serials. A worker
// shows at which row of which function it is, so that the one it died on can be named (Poison).
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "plait/core/futex.hpp"
#include "plait/pool/ring_slot.hpp"

namespace plait {

class PoolRing {
 public:
  // A ring of its own; the file goes when the last process that has it is gone.
  static PoolRing make(uint32_t slots, int64_t slot_bytes, uint32_t workers) {
    const int fd = memfd_create("plait-pool", MFD_CLOEXEC);
    if (fd < 0) throw std::runtime_error(std::string("shared memory: ") + std::strerror(errno));
    const int64_t data = pages(int64_t(sizeof(RingHead)) + slots * int64_t(sizeof(RingSlot)) +
                               workers * int64_t(sizeof(RingWorker)));
    const int64_t each = pages(slot_bytes);
    if (ftruncate(fd, data + slots * each) != 0) {
      ::close(fd);
      throw std::runtime_error(std::string("shared memory: ") + std::strerror(errno));
    }
    RingView view(fd, 0, data + slots * each);
    auto* head = new (view.data()) RingHead();
    head->slots = slots;
    head->workers = workers;
    head->slot_bytes = each;
    head->data = data;
    head->end.store(data + slots * each, std::memory_order_relaxed);
    PoolRing ring(fd, std::move(view));
    for (uint32_t i = 0; i < slots; ++i) new (&ring.slot(i)) RingSlot();
    for (uint32_t i = 0; i < workers; ++i) new (&ring.worker(i)) RingWorker();
    return ring;
  }
  // The ring behind a descriptor that came from its owner; takes the descriptor over.
  static PoolRing open(int fd) {
    RingView first(fd, 0, kRingPage);
    const auto* head = reinterpret_cast<const RingHead*>(first.data());
    if (head->magic != kRingMagic) throw std::runtime_error("this is no ring of plait's");
    return PoolRing(fd, RingView(fd, 0, head->data + head->slots * head->slot_bytes));
  }
  PoolRing(PoolRing&& o) noexcept : fd_(std::exchange(o.fd_, -1)), view_(std::move(o.view_)) {}
  ~PoolRing() {
    if (fd_ >= 0) ::close(fd_);
  }

  RingHead& head() const { return *reinterpret_cast<RingHead*>(view_.data()); }
  RingSlot& slot(uint32_t i) const {
    return reinterpret_cast<RingSlot*>(view_.data() + sizeof(RingHead))[i];
  }
  RingWorker& worker(uint32_t i) const {
    return reinterpret_cast<RingWorker*>(&slot(head().slots))[i];
  }
  int fd() const { return fd_; }

  // The owner's side. The slot of the next serial, or -1: it is not free yet.
  [[nodiscard]] int try_reserve() {
    std::lock_guard<std::mutex> hold(reserving_);
    const uint64_t serial = head().tail.load(std::memory_order_relaxed);  // written under the lock
    const uint32_t i = uint32_t(serial % head().slots);
    // Acquire pairs with free: whoever emptied the slot is done with it.
    if (slot(i).reserved.load(std::memory_order_acquire)) return -1;
    slot(i).reserved.store(1, std::memory_order_relaxed);      // under the lock
    head().tail.store(serial + 1, std::memory_order_release);  // pairs with try_claim
    slot(i).attempts = slot(i).poisons = 0;
    return int(i);
  }
  // Memory for the batch of a reserved slot.
  uint8_t* input(uint32_t i, int64_t size, RingView& view) {
    return place(i, slot(i).in, slot(i).beyond[0], 0, size, view);
  }
  // `pin`: 1 + the worker it is for; 0: any.
  void publish(uint32_t i, uint32_t program, uint32_t pin = 0) {
    RingSlot& s = slot(i);
    s.program = program;
    s.pin.store(pin, std::memory_order_relaxed);  // published by the state
    s.without_rows = 0;
    const SlotState state{serial_of(i), 0, SlotKind::Filled};
    s.state.store(state.word(), std::memory_order_release);  // pairs with try_claim
    rouse(1, pin);
  }
  // A reserved slot that is not used after all, or one whose outcome was taken out.
  void free(uint32_t i) {
    RingSlot& s = slot(i);
    for (Extent& e : s.beyond) {
      if (e.offset) {
        fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, e.offset, pages(e.size));
      }
      e = Extent();
    }
    const SlotState state{serial_of(i), 0, SlotKind::Free};
    s.state.store(state.word(), std::memory_order_relaxed);
    s.reserved.store(0, std::memory_order_release);  // pairs with try_reserve
  }
  SlotState state(uint32_t i) const {
    return SlotState::of(slot(i).state.load(std::memory_order_acquire));  // pairs with finish
  }
  bool any_done() const {
    for (uint32_t i = 0; i < head().slots; ++i) {
      if (state(i).kind == SlotKind::Done) return true;
    }
    return false;
  }
  // Sleeps until a worker says that something is done, somebody calls `ring`, or the time is over.
  void wait_done(int64_t timeout_ns) {
    RingHead& h = head();
    // seq_cst pairs with `ring`: either it sees that we sleep, or we see what it has done.
    h.waiting.store(1, std::memory_order_seq_cst);
    const uint32_t seen = h.done.load(std::memory_order_seq_cst);
    if (!any_done()) futex_wait(h.done, seen, timeout_ns);
    h.waiting.store(0, std::memory_order_relaxed);
  }
  void ring() {
    head().done.fetch_add(1, std::memory_order_seq_cst);
    if (head().waiting.load(std::memory_order_seq_cst)) futex_wake(head().done, INT_MAX);
  }
  // Names the row that a dead worker was at, so that the next one leaves it out. False: it was at
  // none, or too many were named.
  bool name_poison(uint32_t i, uint32_t dead, const std::string& how) {
    RingSlot& s = slot(i);
    const uint64_t at = worker(dead).at.load(std::memory_order_relaxed);  // it writes no more
    const bool pinned = s.pin.load(std::memory_order_relaxed) != 0;       // state: its user decides
    if (pinned || at == kNowhere || s.poisons == RingSlot::kPoisons) return false;
    Poison& poison = s.poison[s.poisons++];
    poison.row = uint32_t(at);
    poison.step = uint32_t(at >> 32);
    const char* where = poison.row == kWholeBatch ? "its batch" : "this record";
    std::snprintf(poison.why, sizeof poison.why, "the worker process %.60s on %s, %u times",
                  how.c_str(), where, s.attempts);
    s.attempts = 0;
    return true;
  }
  // A worker is dead: calls `again(slot)` for what it had claimed, and puts it back to filled if
  // that says so.
  template <class Again>
  void reclaim(uint32_t dead, Again&& again) {
    worker(dead).asleep.store(0, std::memory_order_relaxed);
    for (uint32_t i = 0; i < head().slots; ++i) {
      SlotState was = state(i);
      if (was.kind != SlotKind::Claimed || was.worker != dead) continue;
      ++slot(i).attempts;
      if (!again(i)) continue;
      was.kind = SlotKind::Filled;
      slot(i).state.store(was.word(), std::memory_order_release);  // pairs with try_claim
    }
    worker(dead).at.store(kNowhere, std::memory_order_relaxed);
    rouse(INT_MAX);
  }
  void close() {
    head().closing.store(1, std::memory_order_seq_cst);
    rouse(INT_MAX);
  }

  // A worker's side. The slot it has claimed, or -1.
  [[nodiscard]] int try_claim(uint32_t worker_) {
    const uint32_t n = head().slots;
    const uint64_t tail = head().tail.load(std::memory_order_acquire);  // pairs with try_reserve
    for (uint64_t serial = tail > n ? tail - n : 0; serial < tail; ++serial) {
      const uint32_t i = uint32_t(serial % n);
      uint64_t word = slot(i).state.load(std::memory_order_acquire);  // pairs with publish
      SlotState state = SlotState::of(word);
      if (state.kind != SlotKind::Filled || state.serial != serial) continue;
      if (!is_for(i, worker_)) continue;
      state.kind = SlotKind::Claimed;
      state.worker = worker_;
      // acq_rel: the batch came by publish; the owner sees who has it.
      if (slot(i).state.compare_exchange_strong(word, state.word(), std::memory_order_acq_rel)) {
        return int(i);
      }
    }
    return -1;
  }
  bool closing() const { return head().closing.load(std::memory_order_seq_cst) != 0; }
  // Sleeps until something may be there to claim, the ring closes, or the time is over.
  void wait_filled(uint32_t worker_, int64_t timeout_ns) {
    // seq_cst pairs with rouse: either it sees that we sleep, or we see what it has filled.
    worker(worker_).asleep.store(1, std::memory_order_seq_cst);
    const uint32_t seen = head().filled.load(std::memory_order_seq_cst);
    if (!any_filled(worker_) && !closing()) {
      futex_wait(head().filled, seen, timeout_ns, bit(worker_ + 1));
    }
    worker(worker_).asleep.store(0, std::memory_order_relaxed);
  }
  // The batch of a claimed slot.
  const uint8_t* given(uint32_t i, RingView& view) { return seen(slot(i).in, view); }
  // Memory for the outcome of a claimed slot.
  uint8_t* output(uint32_t i, int64_t size, RingView& view) {
    const Extent& in = slot(i).in;
    const int64_t used = slot(i).beyond[0].offset ? 0 : in.size + kCacheLine;
    return place(i, slot(i).out, slot(i).beyond[1], used, size, view);
  }
  void finish(uint32_t i, uint32_t worker_) {
    const SlotState state{serial_of(i), worker_, SlotKind::Done};
    slot(i).state.store(state.word(), std::memory_order_release);  // pairs with state
    ring();
  }
  // The outcome of a slot that is done.
  const uint8_t* outcome(uint32_t i, RingView& view) { return seen(slot(i).out, view); }

 private:
  PoolRing(int fd, RingView view) : fd_(fd), view_(std::move(view)) {}

  static int64_t pages(int64_t size) { return (size + kRingPage - 1) / kRingPage * kRingPage; }

  // Of a slot that is reserved or claimed: the one of its serials that is below the tail.
  uint64_t serial_of(uint32_t i) const {
    const uint64_t tail = head().tail.load(std::memory_order_relaxed), n = head().slots;
    const uint64_t last = (tail - 1) / n * n + i;
    return last < tail ? last : last - n;
  }
  bool any_filled(uint32_t worker_) const {
    for (uint32_t i = 0; i < head().slots; ++i) {
      if (state(i).kind == SlotKind::Filled && is_for(i, worker_)) return true;
    }
    return false;
  }
  // Of a slot that was seen as filled. If it has been used again since, the pin may be another one:
  // then the claim fails, or the futex has changed.
  bool is_for(uint32_t i, uint32_t worker_) const {
    const uint32_t pin = slot(i).pin.load(std::memory_order_relaxed);
    return !pin || pin == worker_ + 1;
  }
  // What worker `pin` - 1 sleeps with; 0: any of them.
  static uint32_t bit(uint32_t pin) { return pin ? 1u << ((pin - 1) % 32) : kAnyBit; }
  void rouse(int workers, uint32_t pin = 0) {
    head().filled.fetch_add(1, std::memory_order_seq_cst);  // pairs with wait_filled
    for (uint32_t i = 0; i < head().workers; ++i) {
      if (pin && pin != i + 1) continue;
      if (worker(i).asleep.load(std::memory_order_seq_cst)) {
        // Several may sleep with the same bit, and the right one must be among the woken.
        const bool shared = pin && head().workers > 32;
        return futex_wake(head().filled, shared ? INT_MAX : workers, bit(pin));
      }
    }
  }
  // Room for `size` bytes and a line of slack: in the slot from `used` on, or in an extent.
  uint8_t* place(uint32_t i, Extent& at, Extent& beyond, int64_t used, int64_t size,
                 RingView& view) {
    used = (used + int64_t(kCacheLine) - 1) / int64_t(kCacheLine) * int64_t(kCacheLine);
    at.size = size;
    if (used + size + int64_t(kCacheLine) <= head().slot_bytes) {
      at.offset = head().data + i * head().slot_bytes + used;
      return view_.data() + at.offset;
    }
    const int64_t whole = pages(size + int64_t(kCacheLine));
    at.offset = head().end.fetch_add(whole, std::memory_order_relaxed);
    beyond = {at.offset, whole};  // before it is there: if this process dies, it is given back
    if (fallocate(fd_, 0, at.offset, whole) != 0) {
      throw std::runtime_error(std::string("shared memory: ") + std::strerror(errno));
    }
    view = RingView(fd_, at.offset, whole);
    return view.data();
  }
  // A block of the file in memory. Its slack is readable too.
  const uint8_t* seen(const Extent& at, RingView& view) {
    const int64_t ring = head().data + head().slots * head().slot_bytes;
    if (at.offset >= head().data && at.size >= 0 && at.offset + at.size <= ring) {
      return view_.data() + at.offset;
    }
    if (at.offset < ring || at.offset % kRingPage || at.size < 0) {
      throw std::runtime_error("a slot of shared memory is damaged");
    }
    view = RingView(fd_, at.offset, pages(at.size + int64_t(kCacheLine)));
    return view.data();
  }

  int fd_;
  RingView view_;
  std::mutex reserving_;  // the owner's
};

}  // namespace plait
