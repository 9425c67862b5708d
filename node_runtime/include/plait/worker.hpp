// Worker: what one thread of the engine owns; Shared: what all of them share.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "plait/events.hpp"
#include "plait/histogram.hpp"
#include "plait/network.hpp"
#include "plait/program.hpp"

namespace plait {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Names the calling thread; at most 15 letters.
inline void name_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

// The engine's common ground. Everything here may be touched by any worker.
struct Shared {
  explicit Shared(size_t nodes) : counts(nodes) {}

  std::vector<Counts> counts;  // by operator

  // Held by the one worker that runs Python code, so that no second worker waits for the
  // interpreter's lock.
  std::atomic<bool> python_busy{false};
  std::atomic<bool> aborting{false};  // leave at once; what is in flight is dropped
  std::atomic<bool> stopping{false};  // sources end at the next epoch; what was read is delivered
  Network* network = nullptr;         // set before the start; null: this is the only node
  std::atomic<uint32_t> sinks_open{0};
  std::atomic<int64_t> delivered{0};

  void wake() {
    // seq_cst pairs with the seq_cst increment in park: either we see the sleeper or it sees our
    // push.
    if (sleepers.load(std::memory_order_seq_cst) != 0) {
      std::lock_guard<std::mutex> hold(sleep_lock);
      ++signals;
      sleep.notify_one();
      if (network) network->wake();
    }
  }
  void wake_all() {
    std::lock_guard<std::mutex> hold(sleep_lock);
    ++signals;
    sleep.notify_all();
    finished.notify_all();
    if (network) network->wake();
  }

  // A failure came to a sink in its order. The sources stop; sinks that do not depend on it get
  // what was read.
  void note_failure(const Failure& failure) {
    std::lock_guard<std::mutex> hold(end_lock);
    const Letter& l = failure.letter;
    const auto place = std::make_tuple(l.epoch, l.source, l.row, l.node);
    if (!error || place < std::make_tuple(error->epoch, error->source, error->row, error->node)) {
      error = std::make_unique<Letter>(l);
    }
    // On several nodes all stop at an epoch that they agree on.
    if (!network) stopping.store(true, std::memory_order_release);  // pairs with the sources'
  }
  // A failure outside the order (a sink cannot be written): everything ends now.
  void fail(const Failure& failure) {
    note_failure(failure);
    aborting.store(true, std::memory_order_release);  // pairs with the workers' acquire
    wake_all();
  }
  void add_letters(std::vector<Letter>& more) {
    std::lock_guard<std::mutex> hold(end_lock);
    for (auto& letter : more) letters.push_back(std::move(letter));
  }
  void sink_ended() {
    if (sinks_open.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      aborting.store(true, std::memory_order_release);  // nothing is left to do
      wake_all();
    }
  }

  std::mutex end_lock;
  std::unique_ptr<Letter> error;
  std::vector<Letter> letters;

  std::mutex sleep_lock;
  std::condition_variable sleep, finished;
  uint64_t signals = 0;  // under sleep_lock: a sleeper leaves when it changes
  std::atomic<uint32_t> sleepers{0};
};

// The runtime itself failed in or near operator `node`; no record is to blame.
inline Failure runtime_failure(uint32_t node, const std::exception& error) {
  Failure failure;
  failure.letter.node = node;
  failure.letter.row = -1;
  failure.letter.message = std::string("the runtime failed: ") + error.what();
  return failure;
}

struct Worker {
  Worker(unsigned id_, unsigned workers_, Shared& shared_)
      : id(id_), workers(workers_), name("plait-w" + std::to_string(id_)), shared(shared_) {}

  const unsigned id;
  const unsigned workers;
  const std::string name;  // of its thread
  Shared& shared;
  Workspace workspace;
  ErrorRows errors;
  std::vector<RowFailure> failures;
  std::vector<uint8_t> mask;
  std::vector<uint32_t> rows;
  Histogram latency;
};

}  // namespace plait
