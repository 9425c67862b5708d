// PoolUser: one stage's way to the pool, as the pool sees it.
//
// The pool gives it the outcomes of what it gave, says when there is room again, when worker
// processes died on a batch, and when nothing comes any more. Any thread may call anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "plait/columns/batch.hpp"
#include "plait/columns/flat_block.hpp"
#include "plait/pool/lane_message.hpp"
#include "plait/pool/pool_outcome.hpp"

namespace plait {

class Pool;

// What is in the ring, as its owner knows it.
struct Away {
  uint64_t serial = 0;  // of the stage
  Batch batch;          // as it went, if it is of a stage without state
  uint32_t lane = 0;    // if it is of a lane: its message, with its number there
  uint64_t number = 0;
  std::shared_ptr<const LaneMessage> message;
  std::string died;  // not empty: how worker processes died on its rows; it goes on without them
};

class PoolUser : public std::enable_shared_from_this<PoolUser> {
 public:
  virtual ~PoolUser() = default;
  // What a worker process said; `block` is its alone.
  virtual void outcome(const Away& away, const BufferRef& block, int64_t size,
                       const Keep& keep) = 0;
  // So much processor time was used for it, in a worker process and here.
  virtual void spent_cpu(int64_t ns) = 0;
  // Worker processes died on it. True: it is given again, without rows.
  virtual bool poison(Away& away, const std::string& why) = 0;
  // There may be room again.
  virtual void room() = 0;
  // Nothing comes back any more.
  virtual void broke(const std::string& why, FailureKind kind) = 0;
  // Whether the workers of the engine run the operators themselves, until `go` has come about.
  virtual bool here() const = 0;
  virtual void go() = 0;
  // Why it cannot go; empty: it can, or it was not tried.
  virtual std::string why_here() const { return {}; }
  // The same, and they need nothing of the pool.
  virtual bool is_here() const = 0;
  // What a new process of this worker is to do first; false: nothing.
  virtual bool restores(uint32_t /*worker*/, FlatWriter& /*out*/) const { return false; }

 private:
  friend class Pool;
  std::atomic<bool> refused_{false};  // it waits for room
};

}  // namespace plait
