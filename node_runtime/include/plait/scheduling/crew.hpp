// Crew: stages, and the threads that run them and nothing else.
//
// The threads of a crew look for work among its stages (Finder), and when there is none spin
// briefly, yield, then sleep until its bell is rung or one of its sources is due. Where all that is
// left needs Python, which one thread at a time may run, it dozes and no bell is rung for it: who
// has the turn makes a batch at a time, and to wake others for each costs more than they do. A job
// in the dynamic model is one crew of several workers; in the dedicated model each stage is a crew
// of one thread; a manual region is a crew of one thread. The crew of the dynamic stages also
// serves the links to other nodes. Threads: `work` by each of its threads; the rest before they
// start.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "plait/scheduling/finder.hpp"
#include "plait/sources/source_stage.hpp"

namespace plait {

class Crew {
 public:
  Crew(Threading threading, std::vector<Stage*> stages, Shared& shared)
      : threading_(threading), stages_(std::move(stages)), shared_(shared) {
    for (Stage* stage : stages_) {
      stage->bell = &bell;
      python_ |= stage->needs_python();
      if (auto* source = dynamic_cast<SourceStage*>(stage)) sources_.push_back(source);
    }
    if (threading == Threading::Dynamic) bell.network = network_ = shared.network;
    bell.exact = threading != Threading::Dynamic;  // see kNapNs
  }

  void work(Worker& worker) {
    worker.bell = &bell;
    int idle = 0;
    int64_t polled = 0;
    WorkerLevels* levels = threading_ == Threading::Dynamic ? &shared_.levels : nullptr;
    while (!worker.leaves()) {
      if (levels && levels->suspended(worker.id)) {
        bell.ring();  // what it was woken for is another's now
        levels->rest(worker.id, [&] { return worker.leaves(); });
        continue;
      }
      if (network_ && (idle || now_ns() - polled > kPollNs)) {
        if (network_->poll(0)) idle = 0;
        polled = now_ns();
      }
      if (finder->find(worker) != 0) {
        idle = 0;
      } else {
        wait(worker, ++idle);
      }
    }
    // The other nodes may still need what this one has sent.
    while (network_ && worker.id == 0 && !network_->closed()) network_->poll(kLingerNs);
  }

  const std::vector<Stage*>& stages() const { return stages_; }
  const std::vector<SourceStage*>& sources() const { return sources_; }
  bool python() const { return python_; }

  Bell bell;
  std::unique_ptr<Finder> finder;  // before the threads start

 private:
  static constexpr int kSpins = 64, kYields = 256;
  // Threads of the dedicated model are many, and each waits for its neighbours.
  static constexpr int kDedicatedSpins = 8, kDedicatedYields = 8;
  static constexpr int64_t kPollNs = 20'000, kLingerNs = 2'000'000;
  static constexpr int64_t kDozeNs = 30'000;
  // A crew of workers looks again soon, so its bell need not be exact; one of many threads is exact
  // and sleeps long.
  static constexpr int64_t kNapNs = 2'000'000, kLongNapNs = 100'000'000, kDueNs = 50'000'000;

  void wait(Worker& worker, int idle) {
    const bool dedicated = threading_ == Threading::Dedicated;
    const int spins = dedicated ? kDedicatedSpins : kSpins;
    const int yields = dedicated ? kDedicatedYields : kYields;
    if (worker.barred && threading_ == Threading::Dynamic && !network_) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(kDozeNs));
    } else if (idle < spins) {
      cpu_relax();
    } else if (idle < spins + yields || soon()) {
      std::this_thread::yield();
    } else {
      park(worker);
    }
  }

  // Whether a source wants to be asked again sooner than parking would be worth.
  bool soon() const { return next_due() - now_ns() < 100'000; }
  int64_t next_due() const {
    int64_t due = INT64_MAX;
    for (const auto* s : sources_) {
      const int64_t d = s->due_ns();
      if (d > 0) due = std::min(due, d);
    }
    return due;
  }

  void park(Worker& worker) {
    Bell::Nap nap(bell);
    if (finder->sweep(worker) != 0) return;
    const int64_t due = next_due();
    const int64_t most = due != INT64_MAX ? std::clamp<int64_t>(due - now_ns(), 0, kDueNs)
                         : threading_ == Threading::Dynamic ? kNapNs
                                                            : kLongNapNs;
    if (network_ && !polling_.exchange(true, std::memory_order_acquire)) {
      network_->poll(most);  // one worker waits for the links, the others for it
      polling_.store(false, std::memory_order_release);  // pairs with the exchange
      return;
    }
    nap.sleep(most, [&] { return worker.leaves(); });
  }

  const Threading threading_;
  const std::vector<Stage*> stages_;
  std::vector<SourceStage*> sources_;
  bool python_ = false;
  Shared& shared_;
  Network* network_ = nullptr;
  std::atomic<bool> polling_{false};  // a worker waits for the links
};

}  // namespace plait
