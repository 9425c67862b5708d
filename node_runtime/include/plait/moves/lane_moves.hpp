// LaneMoves: one lane's bins on their way to and from other nodes (Megaphone's S).
//
// Where the lane meets a new layout it ships the bins that go, and stays there until the bins that
// come are in. Many bins go one by one as the link takes them: their bytes would else fill memory
// that was never used before, which costs more than the link. A bin that was copied ahead is
// followed by its difference only. In between it takes in copies as they come, and says now and
// then how large its state is. `expect`, `ready`, `bytes` and `keys`: any thread; all else belongs
// to the holder of the lane; nothing waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/control.hpp"
#include "plait/keyed/keyed_state.hpp"
#include "plait/moves/state_moves.hpp"

namespace plait {

class LaneMoves {
 public:
  LaneMoves(const KeyedPlan& plan, uint32_t op, uint32_t lane, KeyedState& state, StateMoves& moves)
      : plan_(plan),
        op_(op),
        bins_(1u << (plan.bin_bits - plan.lane_bits)),
        first_(lane * bins_),
        state_(state),
        moves_(moves) {}

  // As last said.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t keys() const { return keys_.load(std::memory_order_relaxed); }

  // Those of these bins that are of this lane will come, with about so many keys each.
  void expect(const std::vector<uint32_t>& bins, uint64_t keys) {
    std::lock_guard<std::mutex> hold(lock_);
    coming_.clear();
    std::copy_if(bins.begin(), bins.end(), std::back_inserter(coming_),
                 [this](uint32_t bin) { return owns(bin); });
    keys_coming_ = keys;
    ++told_;
    expects_.store(true, std::memory_order_release);  // pairs with pass
  }
  // Whether memory is made ready for what was expected last.
  bool ready() const { return !expects_.load(std::memory_order_acquire); }  // pairs with make_ready

  // Takes in what came ahead, and passes a layout: false as long as a bin it brings is missing, or
  // one it takes is here.
  bool pass(const Batch& batch) {
    // Acquire pairs with the release in expect.
    if (expects_.load(std::memory_order_acquire)) make_ready();
    uint32_t bin = 0;
    MovedBin copy;
    if (moves_.take_copy(op_, first_, first_ + bins_, bin, copy)) put_copy(bin, copy);
    if (!batch.control || batch.control->kind != Control::Kind::Layout) return true;
    Control& c = *batch.control;
    if (passing_ != &c) {
      passing_ = &c;
      note(c);
    }
    give(c);
    if (!missing_.empty()) install(c);
    if (!missing_.empty()) return false;
    if (!going_.empty()) return false;
    forget_copies(c);
    copy_ahead(c);
    say_size();
    passing_ = nullptr;
    return true;
  }

  void say_size() {
    uint64_t keys = 0, filled = 0;
    for (uint32_t bin = first_; bin < first_ + bins_; ++bin) {
      const uint64_t here = state_.bin_keys(bin);
      keys += here;
      filled += here > 0;
    }
    bytes_.store(int64_t(keys * plan_.words * 8), std::memory_order_relaxed);
    // Keys fall into bins by chance: three deviations above the mean, few bins have more.
    const double mean = filled ? double(keys) / double(filled) : 0;
    keys_.store(uint64_t(mean + 3 * std::sqrt(mean)), std::memory_order_relaxed);
  }

 private:
  bool owns(uint32_t bin) const { return bin - first_ < bins_; }
  bool keyless() const { return plan_.key_types.empty(); }

  void make_ready() {
    std::vector<uint32_t> coming;
    uint64_t keys = 0, told = 0;
    {
      std::lock_guard<std::mutex> hold(lock_);
      coming.swap(coming_);
      keys = keys_coming_ * coming.size();
      told = told_;
    }
    state_.prepare(coming, keys);
    moves_.populate(state_.untouched());
    std::lock_guard<std::mutex> hold(lock_);
    // Release pairs with ready: what is to be populated is known to be by then.
    if (told == told_) expects_.store(false, std::memory_order_release);
  }
  // What a layout takes from this lane and brings to it.
  void note(const Control& c) {
    missing_.clear();
    going_.clear();
    each_move(c, op_, keyless(), first_, bins_, [&](uint32_t bin, uint32_t from, uint32_t to) {
      if (from == moves_.here()) going_.emplace_back(bin, to);
      if (to == moves_.here()) missing_.push_back(bin);
    });
  }
  // Ships what goes, as far as the links to the new owners take it.
  void give(const Control& c) {
    uint32_t full = moves_.here();  // a node that takes no more now
    std::erase_if(going_, [&](auto move) {
      const auto [bin, to] = move;
      if (to == full) return false;
      if (moves_.unsent_bytes(to) > kUnsentBytes) {
        full = to;
        return false;
      }
      const bool copied = state_.tracked(bin) && c.before->copied(bin, to);
      Bytes bytes = copied ? state_.take_difference(bin) : state_.take_bin(bin);
      ship(to, bin, c.epoch, copied ? MoveKind::Difference : MoveKind::Whole, std::move(bytes));
      return true;
    });
  }
  // Copies that came to nothing.
  void forget_copies(const Control& c) {
    if (keyless()) return;
    for (auto [bin, to] : c.before->copies) {
      if (owns(bin) && state_.tracked(bin) && !c.layout->copied(bin, to)) state_.untrack(bin);
    }
  }
  // Copies what will go soon. Not before all that comes is in: a copy that is made without that has
  // no keys, and could reach the old owner before it has given the bin away.
  void copy_ahead(const Control& c) {
    const uint32_t here = moves_.here();
    if (keyless()) return;
    for (auto [bin, to] : c.layout->copies) {
      if (!owns(bin) || c.layout->owners[bin] != here || to == here || state_.tracked(bin)) {
        continue;  // not ours, or on its way since an earlier layout
      }
      state_.track(bin);
      ship(to, bin, c.epoch, MoveKind::Copy, state_.copy_bin(bin));
    }
  }
  void ship(uint32_t to, uint32_t bin, uint64_t epoch, MoveKind kind, Bytes bytes) {
    const uint8_t* data = bytes.bytes.data();
    moves_.ship(to, op_, bin, {epoch, kind, std::move(bytes.bytes), data, bytes.size});
  }
  // Takes in what has come of the bins that are missing.
  void install(Control& c) {
    const uint32_t from = keyless() ? 0 : first_, to = keyless() ? 1 : first_ + bins_;
    uint32_t bin = 0;
    MovedBin m;
    while (moves_.take_any(op_, from, to, c.epoch, bin, m)) {
      if (m.kind == MoveKind::Copy) {
        put_copy(bin, m);
        continue;
      }
      if (m.kind == MoveKind::Whole) state_.discard_bin(bin);  // a copy that came to nothing
      const auto size = size_t(m.size);
      const std::string why = m.kind == MoveKind::Whole ? state_.put_bin(m.data, size)
                                                        : state_.apply_difference(m.data, size);
      if (!why.empty()) c.refuse("bin " + std::to_string(bin) + ": " + why);
      moves_.installed(m.size);
      const auto found = std::lower_bound(missing_.begin(), missing_.end(), bin);
      if (found != missing_.end() && *found == bin) missing_.erase(found);
    }
  }
  void put_copy(uint32_t bin, const MovedBin& m) {
    state_.discard_bin(bin);                       // an older copy
    (void)state_.put_bin(m.data, size_t(m.size));  // if it is damaged, its difference is refused
    moves_.moved_bytes.fetch_add(m.size, std::memory_order_relaxed);
  }

  const KeyedPlan& plan_;
  const uint32_t op_, bins_, first_;  // bins of the lane, and the first of them
  KeyedState& state_;
  StateMoves& moves_;
  static constexpr int64_t kUnsentBytes = 4 << 20;
  Control* passing_ = nullptr;                        // the layout that is being passed
  std::vector<uint32_t> missing_;                     // bins it still waits for, ascending
  std::vector<std::pair<uint32_t, uint32_t>> going_;  // bins still to be shipped, and to whom
  std::atomic<int64_t> bytes_{0};
  std::atomic<uint64_t> keys_{0};  // that nearly every bin stays below
  std::atomic<bool> expects_{false};
  std::mutex lock_;
  std::vector<uint32_t> coming_;
  uint64_t keys_coming_ = 0, told_ = 0;
};

}  // namespace plait
