// Keeps: how much of each query is kept, by epoch.
//
// A plan is added before any source can emit its epoch (under the lock of the epochs, or by a
// layout that all nodes have agreed on), so what `at` gives for an epoch never changes once a batch
// of that epoch is here. Any thread may call anything; a short mutex, once for each batch and
// shedder, and none as long as nothing was ever shed. Plans are few (one at a decision), and all
// stay for the result.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace plait {

// Of each query (a sink, in the order of the graph): its records with a hash below this are kept.
using Thresholds = std::vector<uint64_t>;
inline constexpr uint64_t kKeepAll = UINT64_MAX;

struct KeepPlan {
  uint64_t epoch = 0;     // from here on
  Thresholds thresholds;  // none: everything is kept

  // What the greediest of some queries wants.
  uint64_t most(const std::vector<uint32_t>& queries) const {
    uint64_t most = thresholds.empty() ? kKeepAll : 0;
    for (uint32_t query : queries) {
      most = std::max(most, query < thresholds.size() ? thresholds[query] : kKeepAll);
    }
    return most;
  }
};

class Keeps {
 public:
  using Ref = std::shared_ptr<const KeepPlan>;

  // In the order of the epochs. One that changes nothing is no plan.
  void add(uint64_t epoch, const Thresholds& thresholds) {
    std::lock_guard<std::mutex> hold(lock_);
    const Thresholds none;
    if ((all_.empty() ? none : all_.back()->thresholds) == thresholds) return;
    if (!all_.empty() && all_.back()->epoch == epoch) all_.pop_back();
    all_.push_back(std::make_shared<KeepPlan>(KeepPlan{epoch, thresholds}));
    // Whoever has a batch of the plan's epoch got it through the lock of the epochs or a queue.
    any_.store(true, std::memory_order_relaxed);
  }
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // The plan of an epoch; null: everything is kept.
  Ref at(uint64_t epoch) const {
    std::lock_guard<std::mutex> hold(lock_);
    for (auto plan = all_.rbegin(); plan != all_.rend(); ++plan) {
      if ((*plan)->epoch <= epoch) return (*plan)->thresholds.empty() ? nullptr : *plan;
    }
    return nullptr;
  }
  std::vector<KeepPlan> all() const {
    std::lock_guard<std::mutex> hold(lock_);
    std::vector<KeepPlan> plans;
    for (const Ref& plan : all_) plans.push_back(*plan);
    return plans;
  }

 private:
  mutable std::mutex lock_;
  std::vector<Ref> all_;
  std::atomic<bool> any_{false};
};

}  // namespace plait
