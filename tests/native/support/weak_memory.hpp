// A small model of relaxed, acquire and release: loads that may return old values.
//
// Each location keeps all values written to it, in order. Each fiber has a view: the oldest value
// of each location that it may still read. A release write carries its writer's view along, an
// acquire read takes that view over, and a read-modify-write always acts on the newest value and
// hands on the views it found (the release sequence). Writes of one location never change places,
// so this allows fewer behaviours than C++ does: what it finds is a fault, what it passes is not a
// proof.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "explorer.hpp"

namespace plait::testing {

inline constexpr std::size_t kMaxLocations = 96;
using View = std::array<std::uint32_t, kMaxLocations>;

inline void join(View& into, const View& from) {
  for (std::size_t i = 0; i < kMaxLocations; ++i) into[i] = std::max(into[i], from[i]);
}

inline bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

inline bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

// The fibers' views and the numbers of the locations alive. One scenario at a time.
class Views {
 public:
  static Views& instance() {
    static Views views;
    return views;
  }

  std::size_t open() {
    // All locations of a scenario are gone before the next one's are made.
    if (alive_++ == 0) {
      used_ = 0;
      newest_ = {};
      for (View& view : views_) view = {};
    }
    CHECK(used_ < kMaxLocations);
    return used_++;
  }

  void close() { --alive_; }

  void wrote(std::size_t location, std::uint32_t index) { newest_[location] = index; }

  // The running fiber's view; outside of a run the newest of everything, which fibers then inherit.
  View& mine() {
    const std::size_t fiber = Explorer::current();
    if (fiber == Explorer::kMaxFibers) {
      for (View& view : views_) join(view, newest_);
    }
    return fiber == Explorer::kMaxFibers ? newest_ : views_[fiber];
  }

 private:
  std::array<View, Explorer::kMaxFibers> views_{};
  View newest_{};
  std::size_t used_ = 0;
  std::size_t alive_ = 0;
};

// One location with the interface of std::atomic.
template <class T>
class WeakAtomic {
 public:
  WeakAtomic() : WeakAtomic(T{}) {}
  explicit WeakAtomic(T value) : location_(Views::instance().open()) {
    writes_.push_back({value, {}});
  }
  ~WeakAtomic() { Views::instance().close(); }

  WeakAtomic(const WeakAtomic&) = delete;
  WeakAtomic& operator=(const WeakAtomic&) = delete;

  T load(std::memory_order order) const {
    Explorer::point();
    View& view = Views::instance().mine();
    const auto newest = static_cast<std::uint32_t>(writes_.size() - 1);
    std::uint32_t index = newest;
    // Mostly the newest, so that waiting ends.
    if (view[location_] < newest && Explorer::one_in(3)) {
      index -= static_cast<std::uint32_t>(Explorer::below(newest - view[location_] + 1));
    }
    view[location_] = index;
    if (acquires(order)) join(view, writes_[index].view);
    return writes_[index].value;
  }

  void store(T value, std::memory_order order) {
    Explorer::point();
    write(value, order, {});
  }

  T exchange(T value, std::memory_order order) {
    return modify(order, [&](T) { return value; });
  }

  T fetch_add(T value, std::memory_order order) {
    return modify(order, [&](T old) { return static_cast<T>(old + value); });
  }

  T fetch_sub(T value, std::memory_order order) {
    return modify(order, [&](T old) { return static_cast<T>(old - value); });
  }

  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             [[maybe_unused]] std::memory_order failure) {
    Explorer::point();
    const T newest = writes_.back().value;
    if (newest != expected || Explorer::one_in(16)) {
      Views::instance().mine()[location_] = static_cast<std::uint32_t>(writes_.size() - 1);
      expected = newest;
      return false;
    }
    act(desired, success);
    return true;
  }

 private:
  struct Write {
    T value;
    View view;
  };

  template <class Change>
  T modify(std::memory_order order, Change change) {
    Explorer::point();
    const T old = writes_.back().value;
    act(change(old), order);
    return old;
  }

  void act(T value, std::memory_order order) {
    const View found = writes_.back().view;
    if (acquires(order)) join(Views::instance().mine(), found);
    write(value, order, found);
  }

  void write(T value, std::memory_order order, View carried) {
    Views& views = Views::instance();
    View& view = views.mine();
    const auto index = static_cast<std::uint32_t>(writes_.size());
    view[location_] = index;
    views.wrote(location_, index);
    if (releases(order)) join(carried, view);
    carried[location_] = index;
    writes_.push_back({value, carried});
  }

  const std::size_t location_;
  std::vector<Write> writes_;
};

}  // namespace plait::testing
