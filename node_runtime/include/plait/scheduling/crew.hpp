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

#ifdef __linux__
#include <sys/prctl.h>
#endif

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
    wake_on_time();
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
      worker.looks.fetch_add(1, std::memory_order_relaxed);
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
  // After a sleep of kLongSleepNs a worker goes to sleep again at once, until it has been woken so
  // often within less: to look for work all the time between two records of a slow stream took a
  // third of a core at 1,000 records a second.
  static constexpr int kTiredSpins = 4, kTiredYields = 4, kShortSleeps = 8;
  static constexpr int64_t kLongSleepNs = 300'000;
  static constexpr int64_t kPollNs = 20'000, kLingerNs = 2'000'000;
  static constexpr int64_t kDozeNs = 30'000, kSoonNs = 20'000;
  // The bell of a crew of workers is not exact: a ring of the moment in which one lies down may be
  // missed. So the first sleep is short; what was made before it is seen by the look behind it, and
  // the next may be long.
  static constexpr int64_t kNapNs = 2'000'000, kLongNapNs = 100'000'000, kDueNs = 50'000'000;

  // A thread's sleep ends when it was asked to, not up to 50 us later.
  static void wake_on_time() {
#ifdef __linux__
    ::prctl(PR_SET_TIMERSLACK, 1UL);
#endif
  }

  void wait(Worker& worker, int idle) {
    const bool dedicated = threading_ == Threading::Dedicated;
    const bool tired = worker.short_sleeps < kShortSleeps;
    const int spins = tired ? kTiredSpins : dedicated ? kDedicatedSpins : kSpins;
    const int yields = tired ? kTiredYields : dedicated ? kDedicatedYields : kYields;
    if (worker.barred && threading_ == Threading::Dynamic && !network_) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(kDozeNs));
    } else if (idle < spins) {
      cpu_relax();
    } else if (idle < spins + yields || soon()) {
      std::this_thread::yield();
    } else {
      worker.sleeps.fetch_add(1, std::memory_order_relaxed);
      const int64_t began = now_ns();
      worker.cpu.rests(began);
      park(worker);
      const bool slept_long = now_ns() - began >= kLongSleepNs;
      if (slept_long) {
        worker.short_sleeps = 0;
      } else if (tired) {
        ++worker.short_sleeps;
      }
    }
  }

  // Whether a source wants to be asked again sooner than parking would be worth.
  bool soon() const { return next_due() - now_ns() < kSoonNs; }
  int64_t next_due() const {
    int64_t due = INT64_MAX;
    for (const auto* s : sources_) {
      const int64_t d = s->wakes_ns();
      if (d > 0) due = std::min(due, d);
    }
    return due;
  }

  void park(Worker& worker) {
    Bell::Nap nap(bell);
    if (finder->sweep(worker) != 0) return;
    const bool exact = threading_ != Threading::Dynamic;
    if (sleep(worker, nap, exact ? kLongNapNs : kNapNs) || exact || worker.barred) return;
    if (worker.leaves() || finder->sweep(worker) != 0 || worker.barred) return;
    long_sleepers_.fetch_add(1, std::memory_order_relaxed);
    sleep(worker, nap, kLongNapNs);
    long_sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  // At most so long, and until a source is due. Whether something ended it before.
  bool sleep(Worker& worker, Bell::Nap& nap, int64_t most) {
    const int64_t due = next_due();
    if (due != INT64_MAX) most = std::min(most, std::clamp<int64_t>(due - now_ns(), 0, kDueNs));
    if (network_ && !polling_.exchange(true, std::memory_order_acquire)) {
      // One worker waits for the links, the others for it.
      const bool moved = network_->poll(most);
      polling_.store(false, std::memory_order_release);  // pairs with the exchange
      // What came may keep this one long: another waits for the links meanwhile.
      if (moved && long_sleepers_.load(std::memory_order_relaxed) > 0) bell.ring();
      return moved || nap.rung();
    }
    return nap.sleep(most, [&] { return worker.leaves(); });
  }

  const Threading threading_;
  const std::vector<Stage*> stages_;
  std::vector<SourceStage*> sources_;
  bool python_ = false;
  Shared& shared_;
  Network* network_ = nullptr;
  std::atomic<bool> polling_{false};        // a worker waits for the links
  std::atomic<uint32_t> long_sleepers_{0};  // a hint
};

}  // namespace plait
