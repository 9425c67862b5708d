// Layout: who does what from an epoch on; Layouts: all that are known, found by epoch.
//
// A layout is added before any node of the job can reach its epoch (plait/protocol/messages.py has
// the agreement on epochs), so what `at` gives for an epoch never changes once a batch of that
// epoch is here. Any thread may call anything; a short mutex, a few times per batch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace plait {

struct Layout {
  static constexpr int32_t kEveryone = -1;

  uint64_t epoch = 0;
  std::vector<uint32_t> members;  // ascending
  std::vector<uint32_t> owners;   // of each bin
  std::vector<int32_t> readers;   // of each source: a node, or kEveryone: each reads its slice
  std::vector<std::pair<uint32_t, uint32_t>> copies;  // bin -> node that will get it soon; sorted
  int64_t epoch_records = 0;
  int64_t first_row = 0;          // of `epoch`, in sources that everyone reads
  std::vector<uint64_t> keep;     // of each query, as Keeps has it; none: all
  std::vector<uint16_t> places;   // of each bin: its owner's place among the members
  std::vector<uint32_t> moved;    // bins of other owners than in the layout before; ascending
  std::vector<uint32_t> sharers;  // nodes that own bins; ascending

  bool member(uint32_t rank) const {
    return std::binary_search(members.begin(), members.end(), rank);
  }
  bool copied(uint32_t bin, uint32_t to) const {
    return std::binary_search(copies.begin(), copies.end(), std::pair(bin, to));
  }
  // Notes the bins that have moved; few of many mostly.
  void note_moved(const std::vector<uint32_t>& before) {
    constexpr size_t kAtOnce = 64;
    moved.clear();
    for (size_t from = 0; from < owners.size(); from += kAtOnce) {
      const size_t to = std::min(from + kAtOnce, owners.size());
      if (std::memcmp(&owners[from], &before[from], (to - from) * sizeof(uint32_t)) == 0) continue;
      for (size_t i = from; i < to; ++i) {
        if (owners[i] != before[i]) moved.push_back(uint32_t(i));
      }
    }
  }
  // visit(bin) for those of so many bins that have moved, ascending.
  template <class Visit>
  void each_moved(uint32_t first, uint32_t bins, Visit visit) const {
    auto bin = std::lower_bound(moved.begin(), moved.end(), first);
    for (; bin != moved.end() && *bin - first < bins; ++bin) visit(*bin);
  }
  // A bin's copy begins, to a node; the copy to any other one ends.
  void copy_to(uint32_t bin, uint32_t to) {
    end_copy(bin);
    copies.insert(std::lower_bound(copies.begin(), copies.end(), std::pair(bin, to)), {bin, to});
  }
  void end_copy(uint32_t bin) {
    const auto from = std::lower_bound(copies.begin(), copies.end(), std::pair(bin, uint32_t(0)));
    if (from != copies.end() && from->first == bin) copies.erase(from);
  }
  uint16_t place_of(uint32_t rank) const {
    return uint16_t(std::lower_bound(members.begin(), members.end(), rank) - members.begin());
  }
  // The rows of an epoch of a source that everyone reads.
  int64_t row_of(uint64_t e) const { return first_row + int64_t(e - epoch) * epoch_records; }
  // The part of so many rows of an epoch that a node reads: [from, from + count) of them. Nodes
  // that own bins share the rows: one that owns nothing can be lost without a row being lost, and
  // the slices of the others stay as they are when it is dropped.
  std::pair<int64_t, int64_t> slice(uint32_t rank, int64_t rows) const {
    const auto found = std::lower_bound(sharers.begin(), sharers.end(), rank);
    if (found == sharers.end() || *found != rank) return {0, 0};
    const auto n = int64_t(sharers.size());
    const int64_t at = found - sharers.begin();
    const int64_t from = rows * at / n, to = rows * (at + 1) / n;
    return {from, to - from};
  }
  bool shares(uint32_t rank) const {
    return std::binary_search(sharers.begin(), sharers.end(), rank);
  }
  void find_sharers() {
    std::vector<char> owns(members.size() + 1);
    for (size_t i = 0; i < owners.size(); ++i) owns[places[i]] = 1;
    sharers.clear();
    for (size_t place = 0; place < members.size(); ++place) {
      if (owns[place]) sharers.push_back(members[place]);
    }
  }
};

class Layouts {
 public:
  using Ref = std::shared_ptr<const Layout>;

  // In the order of their epochs.
  void add(Layout layout) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!all_.empty()) {
      const Layout& last = *all_.back();
      if (layout.epoch_records == 0) layout.epoch_records = last.epoch_records;
      layout.first_row = last.row_of(layout.epoch);
    } else if (layout.first_row == 0) {  // a node that joins: all epochs so far had as many rows
      layout.first_row = int64_t(layout.epoch) * layout.epoch_records;
    }
    leave_out(layout.members);
    std::sort(layout.copies.begin(), layout.copies.end());
    find_places(layout);
    layout.find_sharers();
    all_.push_back(std::make_shared<Layout>(std::move(layout)));
    version_.fetch_add(1, std::memory_order_release);  // pairs with version
  }
  // The layout in force in an epoch.
  Ref at(uint64_t epoch) const {
    std::lock_guard<std::mutex> hold(lock_);
    return all_[place(epoch)];
  }
  // The one before it, for the state that has to move; the same if it is the first.
  Ref before(uint64_t epoch) const {
    std::lock_guard<std::mutex> hold(lock_);
    const size_t i = place(epoch);
    return all_[i == 0 ? 0 : i - 1];
  }
  Ref last() const {
    std::lock_guard<std::mutex> hold(lock_);
    return all_.back();
  }
  bool any() const {
    std::lock_guard<std::mutex> hold(lock_);
    return !all_.empty();
  }
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

  // A node that owned and read nothing is gone: no node waits for its parts.
  void drop(uint32_t rank) {
    std::lock_guard<std::mutex> hold(lock_);
    dropped_.push_back(rank);
    for (Ref& ref : all_) {
      Layout changed = *ref;
      leave_out(changed.members);
      for (size_t i = 0; i < changed.owners.size(); ++i) {
        changed.places[i] = changed.place_of(changed.owners[i]);
      }
      ref = std::make_shared<Layout>(std::move(changed));
    }
    version_.fetch_add(1, std::memory_order_release);  // pairs with version
  }
  // Forgets what is not needed below an epoch.
  void retire(uint64_t below) {
    std::lock_guard<std::mutex> hold(lock_);
    if (all_.empty()) return;
    const size_t keep = place(below);
    if (keep > 1) all_.erase(all_.begin(), all_.begin() + int64_t(keep) - 1);
  }

 private:
  // Most owners are those of the layout before, and so are their places, among the same members.
  void find_places(Layout& layout) const {
    const Layout* last = all_.empty() ? nullptr : all_.back().get();
    const bool known = last && last->owners.size() == layout.owners.size();
    if (known) layout.note_moved(last->owners);
    if (known && last->members == layout.members) {
      layout.places = last->places;
      for (uint32_t bin : layout.moved) layout.places[bin] = layout.place_of(layout.owners[bin]);
      return;
    }
    layout.places.resize(layout.owners.size() + 1);  // key_sides reads two at once
    for (size_t i = 0; i < layout.owners.size(); ++i) {
      layout.places[i] = layout.place_of(layout.owners[i]);
    }
  }
  size_t place(uint64_t epoch) const {
    size_t i = all_.size() - 1;
    while (i > 0 && all_[i]->epoch > epoch) --i;
    return i;
  }
  void leave_out(std::vector<uint32_t>& members) const {
    for (uint32_t rank : dropped_) std::erase(members, rank);
  }

  mutable std::mutex lock_;
  std::vector<Ref> all_;
  std::vector<uint32_t> dropped_;
  std::atomic<uint64_t> version_{0};
};

}  // namespace plait
