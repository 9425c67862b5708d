// Shared: what all workers of an engine share: counts, the turn for Python, how the run ends.
//
// Any worker may touch anything here, at any time; what needs a lock takes it inside and holds it
// briefly. The run ends when every sink has ended, when a failure stops it, or when it is aborted;
// each worker then finds its own flag set (Worker::leaves).
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
#include <utility>
#include <vector>

#include "plait/columns/counts.hpp"
#include "plait/columns/failure.hpp"
#include "plait/columns/keeps.hpp"
#include "plait/workers/bell.hpp"
#include "plait/workers/network.hpp"
#include "plait/workers/worker_levels.hpp"

namespace plait {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Names the calling thread; at most 15 letters.
inline void name_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

struct Shared {
  explicit Shared(size_t operators, unsigned workers = 1) : counts(operators), levels(workers) {}

  CountSets counts;     // by operator
  Keeps keeps;          // how much of each query is kept
  WorkerLevels levels;  // which workers of the dynamic stages take part

  // Held by the one worker that runs Python code, so that no second worker waits for the
  // interpreter's lock.
  std::atomic<bool> python_busy{false};
  // Leave at once; what is in flight is dropped. Workers read their own copy (Worker::leave).
  std::atomic<bool> aborting{false};
  std::atomic<bool> failing{false};   // it is a failure that stops them
  std::atomic<bool> stopping{false};  // sources end at the next epoch; what was read is delivered
  Network* network = nullptr;         // set before the start; null: this is the only node
  std::atomic<uint32_t> sinks_open{0};
  std::atomic<int64_t> delivered{0};

  // Something came from outside (another node) that any crew may have waited for.
  void wake() {
    for (Bell* bell : bells) bell->ring();
  }
  void wake_all() {
    {
      std::lock_guard<std::mutex> hold(watch_lock);
      watch.notify_all();
    }
    for (Bell* bell : bells) bell->ring_all();
    levels.wake();
  }
  // Ends everything now.
  void end() {
    aborting.store(true, std::memory_order_release);  // pairs with Engine::finished
    {
      std::lock_guard<std::mutex> hold(end_lock);
      // Pairs with the workers' acquire. Each has its own flag, so that looking at it costs no line
      // that others write.
      for (auto* leave : leaves) leave->store(true, std::memory_order_release);
    }
    wake_all();
  }
  void add_worker(std::atomic<bool>& leave) {
    std::lock_guard<std::mutex> hold(end_lock);
    leaves.push_back(&leave);
    if (aborting.load(std::memory_order_acquire)) leave.store(true, std::memory_order_release);
  }

  // A failure came to a sink in its order. The sources stop; sinks that do not depend on it get
  // what was read.
  void note_failure(const Failure& failure) {
    std::lock_guard<std::mutex> hold(end_lock);
    const Letter& l = failure.letter;
    const auto place = std::make_tuple(l.epoch, l.source, l.row, l.op);
    if (!error || place < std::make_tuple(error->epoch, error->source, error->row, error->op)) {
      error = std::make_unique<Letter>(l);
    }
    // On several nodes all stop at an epoch that they agree on.
    if (network) return;
    failing.store(true, std::memory_order_release);
    stopping.store(true, std::memory_order_release);  // pairs with the sources'
  }
  // A failure outside the order (a sink cannot be written): everything ends now.
  void fail(const Failure& failure) {
    note_failure(failure);
    end();
  }
  void add_letters(std::vector<Letter>& more) {
    std::lock_guard<std::mutex> hold(end_lock);
    for (auto& letter : more) letters.push_back(std::move(letter));
  }
  void sink_ended() {
    if (sinks_open.fetch_sub(1, std::memory_order_acq_rel) == 1) end();  // nothing is left to do
  }

  std::mutex end_lock;
  std::unique_ptr<Letter> error;
  std::vector<Letter> letters;
  std::vector<std::atomic<bool>*> leaves;  // of all workers; under end_lock

  std::vector<Bell*> bells;         // of all crews; from the start on
  std::vector<Bell*> python_bells;  // of the crews that may wait for Python's turn, if several

  std::mutex watch_lock;
  std::condition_variable watch;  // for who waits outside: the end, or a control item's arrival
};

// The runtime itself failed in or near operator `op`; no record is to blame.
inline Failure runtime_failure(uint32_t op, const std::exception& error) {
  Failure failure;
  failure.letter.op = op;
  failure.letter.row = -1;
  failure.letter.kind = FailureKind::Internal;
  failure.letter.message = std::string("the runtime failed: ") + error.what();
  if (dynamic_cast<const TooMuchText*>(&error)) {
    failure.letter.kind = FailureKind::Text;
    failure.letter.message = error.what();
  }
  return failure;
}

}  // namespace plait
