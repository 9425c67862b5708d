// StateMoves: bins on their way between the nodes of a job.
//
// A stage that has state ships a bin to its new owner and asks for the bins that come to it; a bin
// is known by operator, number and the epoch from which the new owner has it. A copy sent ahead is
// followed by the difference at that epoch; both come in the order they were sent. Any thread may
// call anything; a short mutex per bin.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "plait/columns/layout.hpp"
#include "plait/core/buffer.hpp"

namespace plait {

enum class MoveKind : uint8_t { Whole, Copy, Difference };

struct MovedBin {
  uint64_t epoch = 0;
  MoveKind kind = MoveKind::Whole;
  BufferRef owner;
  const uint8_t* data = nullptr;
  int64_t size = 0;
};

// A stage with native state, as those who plan ahead see it. Any thread may ask.
class MovingState {
 public:
  virtual ~MovingState() = default;
  virtual uint32_t state_op() const = 0;
  // Keys that nearly every bin here stays below, as the lanes last said.
  virtual uint64_t keys_of_a_bin() const = 0;
  // These bins will come, with about so many keys each: memory is made ready when a lane comes by.
  // What was made ready before and is not used is given back.
  virtual void expect(const std::vector<uint32_t>& bins, uint64_t keys) = 0;
  // Whether all lanes have come by since.
  virtual bool ready() const = 0;
};

class StateMoves {
 public:
  virtual ~StateMoves() = default;
  virtual void add_state(MovingState& state) = 0;
  // Has pages made present before they are used; by a separate thread.
  virtual void populate(std::vector<std::pair<void*, size_t>> pieces) = 0;
  virtual void ship(uint32_t to, uint32_t op, uint32_t bin, MovedBin bytes) = 0;
  // Shipped to a node, and still in this one's memory.
  virtual int64_t unsent_bytes(uint32_t to) = 0;
  virtual uint32_t here() const = 0;

  void arrived(uint32_t op, uint32_t bin, MovedBin bytes) {
    std::lock_guard<std::mutex> hold(lock_);
    // An old copy from a node that has lost the bin since may come behind newer state from another.
    uint64_t& newest = newest_[{op, bin}];
    if (bytes.kind == MoveKind::Copy && bytes.epoch < newest) return;
    newest = std::max(newest, bytes.epoch);
    if (bytes.kind == MoveKind::Copy) copies_.fetch_add(1, std::memory_order_relaxed);
    inbox_[{op, bin}].push_back(std::move(bytes));
  }
  // A bin's state of this epoch, whole or as a difference; a copy of it that is still here comes
  // first.
  bool take(uint32_t op, uint32_t bin, uint64_t epoch, MovedBin& out) {
    return take_any(op, bin, bin + 1, epoch, bin, out);
  }
  // The same of any bin in [from, to): one look at what has come, however many are waited for.
  bool take_any(uint32_t op, uint32_t from, uint32_t to, uint64_t epoch, uint32_t& bin,
                MovedBin& out) {
    std::lock_guard<std::mutex> hold(lock_);
    for (auto it = inbox_.lower_bound({op, from}); it != inbox_.end(); ++it) {
      if (it->first.first != op || it->first.second >= to) return false;
      const bool there = std::any_of(it->second.begin(), it->second.end(), [&](const MovedBin& b) {
        return b.kind != MoveKind::Copy && b.epoch == epoch;
      });
      if (!there) continue;
      bin = it->first.second;
      return pop(it, out);
    }
    return false;
  }
  // A copy that came ahead, of a bin in [from, to).
  bool take_copy(uint32_t op, uint32_t from, uint32_t to, uint32_t& bin, MovedBin& out) {
    if (copies_.load(std::memory_order_relaxed) == 0) return false;  // looked at again soon
    std::lock_guard<std::mutex> hold(lock_);
    for (auto it = inbox_.lower_bound({op, from}); it != inbox_.end(); ++it) {
      if (it->first.first != op || it->first.second >= to) return false;
      if (it->second.front().kind != MoveKind::Copy) continue;
      bin = it->first.second;
      return pop(it, out);
    }
    return false;
  }
  void installed(int64_t bytes) {
    moved_bins.fetch_add(1, std::memory_order_relaxed);
    moved_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }

  std::atomic<int64_t> moved_bins{0}, moved_bytes{0};  // statistics of bins that came in

 private:
  using Inbox = std::map<std::pair<uint32_t, uint32_t>, std::deque<MovedBin>>;

  bool pop(Inbox::iterator at, MovedBin& out) {
    out = std::move(at->second.front());
    at->second.pop_front();
    if (out.kind == MoveKind::Copy) copies_.fetch_sub(1, std::memory_order_relaxed);
    if (at->second.empty()) inbox_.erase(at);
    return true;
  }

  std::mutex lock_;
  Inbox inbox_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> newest_;  // the last epoch that state came of
  std::atomic<int64_t> copies_{0};                            // a hint: written under the lock
};

// The bin of the layout at which an operator without keys counts.
inline uint32_t singleton_bin(uint32_t op, size_t bins) {
  return uint32_t(op * 2654435761u) % uint32_t(bins);
}

// visit(bin, from, to) for those of so many bins of an operator that a layout gives to another
// node, ascending. State without keys is one bin, 0, and goes with singleton_bin.
template <class Item, class Visit>
void each_move(const Item& item, uint32_t op, bool keyless, uint32_t first, uint32_t bins,
               Visit visit) {
  if (item.before == item.layout) return;
  const auto& before = item.before->owners;
  const auto& after = item.layout->owners;
  const uint32_t single = singleton_bin(op, after.size());
  item.layout->each_moved(keyless ? single : first, keyless ? 1 : bins,
                          [&](uint32_t bin) { visit(keyless ? 0 : bin, before[bin], after[bin]); });
}

}  // namespace plait
