// SinkStage: the end of a stream. What it gets is delivered; latency is measured here.
//
// It writes through a function, keeps the rows in memory, or lets them go. A sink that cannot be
// written fails the run at once. Threads and progress: as SerialStage.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/counts.hpp"
#include "plait/columns/failure.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/stages/serial_stage.hpp"
#include "plait/workers/shared.hpp"
#include "plait/workers/worker.hpp"

namespace plait {

class SinkStage final : public SerialStage {
 public:
  // Returns false if the sink failed; `message` says why.
  using Write = bool (*)(void* context, const Batch& batch, std::string& message, int64_t& handle);
  SinkStage(std::string name, const StageLimits& limits, uint32_t op, Write write, void* context)
      : SerialStage(std::move(name), limits), op_(op), write_(write), context_(context) {}

  // What a sink without a write function keeps (if it keeps).
  std::vector<Batch> kept;
  bool keep = false;
  int64_t limit = -1;  // stop the run after so many rows

 protected:
  void process(Batch& batch, Worker& worker) override {
    if (batch.control || batch.end || batch.length == 0) return;
    if (limit >= 0 && delivered_ + batch.length > limit) truncate(batch, limit - delivered_);
    Shared& shared = worker.shared;
    Counts& c = shared.counts[op_];
    Counts::add(c.in, batch.length);
    if (keep) {
      kept.push_back(batch);
    } else if (write_) {
      std::string message;
      int64_t handle = -1;
      if (!write_(context_, batch, message, handle)) {
        Failure failure;
        failure.letter.op = op_;
        failure.letter.message = std::move(message);
        failure.letter.handle = handle;
        failure.letter.row = -1;
        failure.letter.kind = FailureKind::Sink;
        shared.fail(failure);
        return;
      }
    }
    Counts::add(c.out, batch.length);
    delivered_ += batch.length;
    shared.delivered.fetch_add(batch.length, std::memory_order_relaxed);
    const int64_t waited = now_ns() - batch.ingest_ns;
    worker.latency.record(uint64_t(waited > 0 ? waited : 0), uint64_t(batch.length));
    if (limit >= 0 && delivered_ >= limit) shared.end();
  }

 private:
  const uint32_t op_;
  const Write write_;
  void* const context_;
  int64_t delivered_ = 0;
};

}  // namespace plait
