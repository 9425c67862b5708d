// A stage whose batches are worked on by threads of their own and come back in any order.
//
// The threads take batches at random, refuse when they are full, answer some at once, and fail or
// die where a test says so. The answer is that of a plain loop, row for row, with snapshots in
// flight; a failure ends the run behind exactly the rows before it; an abort and outcomes that
// come too late hurt nobody.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
// The kernels use 128-bit integers, which the standard does not have.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "plait/engine/engine_report.hpp"
#pragma GCC diagnostic pop

namespace {

using namespace plait;

constexpr int64_t kEpochRows = 16;
const std::vector<Type> kTypes = {Type::Int64};

Batch table_of(int64_t rows) {
  Batch batch;
  batch.length = rows;
  Column column;
  column.type = Type::Int64;
  column.length = rows;
  column.data_owner = BufferRef::make(8 * rows);
  column.data = column.data_owner.data();
  for (int64_t i = 0; i < rows; ++i) column.data_owner.as<int64_t>()[i] = i;
  batch.columns.push_back(std::move(column));
  return batch;
}

// What the threads do: row v is let go (multiples of three), fails, or stays.
struct Work {
  int64_t fails = -1;       // the row of this value fails
  int64_t fails_every = 0;  // and the rows of its multiples
  bool stops = false;       // with the policy fail: nothing behind a failed row
  bool failed(int64_t v) const { return v == fails || (fails_every && v % fails_every == 1); }

  CallOutcome operator()(const Batch& in) const {
    CallOutcome o;
    for (int64_t i = 0; i < in.length; ++i) {
      const int64_t v = in.columns[0].i64()[i];
      if (failed(v)) {
        o.failures.push_back({uint32_t(i), "bad", -1, 0});
        if (stops) break;
      } else if (v % 3 != 0) {
        o.origin.push_back(uint32_t(i));
      }
    }
    o.out.length = int64_t(o.origin.size());
    o.out.columns.push_back(take(in.columns[0], o.origin.data(), o.out.length));
    return o;
  }
};

// Threads with room for a few batches, shared by any number of stages.
class Threads {
 public:
  Threads(unsigned threads, size_t room, const Work& work) : room_(room), work_(work) {
    for (unsigned t = 0; t < threads; ++t) {
      threads_.emplace_back([this, t] { serve(t); });
    }
  }
  ~Threads() { end(); }
  // Waits for the threads; what they still had is brought back, or not.
  void end() {
    {
      std::lock_guard<std::mutex> hold(lock_);
      ended_ = true;
    }
    more_.notify_all();
    for (auto& t : threads_) {
      if (t.joinable()) t.join();
    }
  }
  bool try_take(const std::shared_ptr<Returns>& to, uint64_t serial, Batch& batch) {
    std::lock_guard<std::mutex> hold(lock_);
    ++asked_;
    if (asked_ == dies_at) {
      to->broke("the threads died");
      return asked_ % 2;
    }
    if (asked_ % 7 == 3) {  // at once
      CHECK(to->complete(serial, work_(batch)) || dies_at || work_.stops);
      return true;
    }
    if (inbox_.size() >= room_) return false;
    inbox_.push_back({to, serial, std::move(batch)});
    more_.notify_all();
    return true;
  }
  void wait_for_some() {
    std::unique_lock<std::mutex> hold(lock_);
    more_.wait(hold, [this] { return !inbox_.empty(); });
  }

  int64_t dies_at = 0;             // at this batch they die
  std::atomic<bool> stuck{false};  // nothing is brought back

 private:
  struct Given {
    std::shared_ptr<Returns> to;
    uint64_t serial;
    Batch batch;
  };
  void serve(unsigned seed) {
    std::minstd_rand random(seed + 1);
    for (;;) {
      std::unique_lock<std::mutex> hold(lock_);
      more_.wait(hold, [this] { return ended_ || (!inbox_.empty() && !stuck); });
      if (inbox_.empty()) return;
      const size_t at = random() % inbox_.size();
      Given given = std::move(inbox_[at]);
      inbox_.erase(inbox_.begin() + int64_t(at));
      hold.unlock();
      if (random() % 4 == 0) std::this_thread::yield();
      CallOutcome outcome = work_(given.batch);
      given.to->complete(given.serial, std::move(outcome));
      CHECK(!given.to->complete(given.serial, CallOutcome()));  // once only
      std::lock_guard<std::mutex> again(lock_);
      for (auto& other : users_) other->retry();
    }
  }

 public:
  void use(std::shared_ptr<Returns> returns) {
    std::lock_guard<std::mutex> hold(lock_);
    users_.push_back(std::move(returns));
  }

 private:
  const size_t room_;
  const Work work_;
  std::mutex lock_;
  std::condition_variable more_;
  std::vector<Given> inbox_;
  std::vector<std::shared_ptr<Returns>> users_;
  std::vector<std::thread> threads_;
  int64_t asked_ = 0;
  bool ended_ = false;
};

class ThreadsOutside final : public Outside {
 public:
  explicit ThreadsOutside(Threads& threads) : threads_(threads) {}
  void attach(std::shared_ptr<Returns> returns) override {
    returns_ = returns;
    threads_.use(std::move(returns));
  }
  bool try_submit(uint64_t serial, Batch& batch) override {
    return threads_.try_take(returns_, serial, batch);
  }
  void forget_after(uint64_t serial) override { forgotten = std::min(forgotten.load(), serial); }
  std::atomic<uint64_t> forgotten{~uint64_t(0)};

 private:
  Threads& threads_;
  std::shared_ptr<Returns> returns_;
};

struct Setting {
  unsigned workers;
  bool locked, ordered;
  uint32_t batches, in_flight;
  unsigned threads;
  size_t room;
  const char* scheduler;
  Threading threading = Threading::Dynamic;
};

struct Job {
  std::unique_ptr<Engine> engine;
  uint32_t sink = 0;
};

// `stages` deferred stages in a row.
Job job_of(const Setting& s, const Batch& table, Threads& threads, OnError on_error, int stages) {
  Job job;
  job.engine = std::make_unique<Engine>(size_t(stages) + 2, 1, s.workers, s.scheduler, 50'000.0);
  Builder builder(*job.engine);
  builder.limits.batches = s.batches;
  builder.limits.locked_reorder = s.locked;
  const auto named = [&](const char* name) { return StageSpec{name, s.threading, 0, s.ordered}; };
  uint32_t before = builder.table_source(
      {.stage = named("table"), .types = kTypes, .epoch_records = kEpochRows}, {table}, 0);
  builder.last_op(before, 0);
  for (int i = 1; i <= stages; ++i) {
    const uint32_t stage =
        builder.deferred_stage({.stage = named("deferred"),
                                .op = uint32_t(i),
                                .on_error = on_error,
                                .types = kTypes,
                                .outside = std::make_shared<ThreadsOutside>(threads),
                                .in_flight = s.in_flight});
    builder.connect(before, stage, 0);
    builder.last_op(stage, uint32_t(i));
    before = stage;
  }
  job.sink = builder.sink_stage({.stage = named("sink"), .op = uint32_t(stages) + 1, .keep = true});
  builder.connect(before, job.sink, 0);
  builder.last_op(job.sink, uint32_t(stages) + 1);
  return job;
}

std::vector<int64_t> output_of(const Job& job) {
  std::vector<int64_t> out;
  for (const Batch& batch : kept_of(*job.engine, job.sink)) {
    for (int64_t i = 0; i < batch.length; ++i) {
      out.push_back(batch.columns[0].i64()[i]);
      CHECK(batch.row_number(i) == out.back());  // each row keeps its place in the order
    }
  }
  return out;
}

std::vector<int64_t> plain_loop(int64_t rows, const Work& work) {
  std::vector<int64_t> out;
  for (int64_t v = 0; v < rows; ++v) {
    if (work.failed(v)) {
      if (work.stops) break;
    } else if (v % 3 != 0) {
      out.push_back(v);
    }
  }
  return out;
}

void wait(Engine& engine) {
  while (!engine.wait(1'000'000'000)) {
  }
  engine.join();
}

void check_output(const Job& job, const Setting& s, std::vector<int64_t> want) {
  auto got = output_of(job);
  if (!s.ordered) std::sort(got.begin(), got.end());
  CHECK(got == want);
}

// All rows come out in order, and snapshots arrive meanwhile; two stages share the threads.
void run_job(const Setting& s, int64_t rows) {
  const Work work;
  Threads threads(s.threads, s.room, work);
  Job job = job_of(s, table_of(rows), threads, OnError::Fail, 2);
  job.engine->start();
  int arrived = 0;
  for (int i = 0; i < 10; ++i) {
    auto snapshot = std::make_shared<Control>();
    if (!job.engine->schedule(snapshot)) break;
    arrived += job.engine->wait_control(*snapshot, 60'000'000'000);
  }
  wait(*job.engine);
  CHECK(!job.engine->shared.error);
  const auto want = plain_loop(rows, work);
  check_output(job, s, want);
  const auto first = counts_of(*job.engine, 1), second = counts_of(*job.engine, 2);
  CHECK(first[0] == rows && first[1] == int64_t(want.size()) && first[2] == rows - first[1]);
  CHECK(second[0] == first[1] && second[1] == first[1] && second[2] == 0);
}

// Rows that fail leave, are kept as letters, or end the run behind the rows before them.
void run_failing(const Setting& s, int64_t rows, OnError on_error) {
  Work work;
  work.fails_every = on_error == OnError::Fail ? 0 : 5;
  if (on_error == OnError::Fail) work.fails = rows / 2;
  work.stops = on_error == OnError::Fail;
  Threads threads(s.threads, s.room, work);
  Job job = job_of(s, table_of(rows), threads, on_error, 1);
  job.engine->start();
  wait(*job.engine);
  const Shared& shared = job.engine->shared;
  const auto counts = counts_of(*job.engine, 1);
  if (on_error == OnError::Fail) {
    CHECK(shared.error && shared.error->row == work.fails && shared.error->message == "bad");
    if (s.ordered) check_output(job, s, plain_loop(rows, work));
    return;
  }
  CHECK(!shared.error);
  check_output(job, s, plain_loop(rows, work));
  CHECK(counts[3] + counts[4] == (rows + 3) / 5);
  CHECK(shared.letters.size() == size_t(on_error == OnError::DeadLetter ? counts[4] : 0));
  for (const auto& letter : shared.letters) {
    CHECK(letter.record.columns[0].i64()[0] == letter.row);
  }
}

// Those outside die at some batch: the run fails, and what was delivered is a beginning.
void run_dying(const Setting& s, int64_t rows, int64_t at) {
  const Work work;
  Threads threads(s.threads, s.room, work);
  threads.dies_at = at;
  Job job = job_of(s, table_of(rows), threads, OnError::Skip, 1);
  job.engine->start();
  wait(*job.engine);
  CHECK(job.engine->shared.error);
  CHECK(job.engine->shared.error->message == "the threads died");
  const auto got = output_of(job), all = plain_loop(rows, work);
  CHECK(got.size() < all.size());
  if (s.ordered) CHECK(std::equal(got.begin(), got.end(), all.begin()));
}

// The engine ends, and is gone, while batches are outside; they come back to nobody.
void abort_job(const Setting& s, int64_t rows) {
  Threads threads(s.threads, s.room, Work());
  Job job = job_of(s, table_of(rows), threads, OnError::Fail, 2);
  threads.stuck = true;
  job.engine->start();
  threads.wait_for_some();
  std::thread other([&] { job.engine->abort(); });
  while (!job.engine->left(1'000'000'000)) {
  }
  other.join();
  job.engine.reset();
  threads.stuck = false;
  threads.end();
}

}  // namespace

int main(int argc, char** argv) {
  const auto rows = int64_t(plait::testing::argument(argc, argv, 4000));
  const char* schedulers[] = {"ct", "lru", "lp", "qst", "et"};
  const Threading models[] = {Threading::Dynamic, Threading::Dynamic, Threading::Dedicated,
                              Threading::Manual};
  int run = 0;
  for (const bool locked : {false, true}) {
    for (unsigned workers = 1; workers <= 4; ++workers) {
      for (unsigned threads = 1; threads <= 3; ++threads, ++run) {
        const uint32_t batches = run % 2 ? 2 : 16;
        Setting s{workers,
                  locked,
                  true,
                  batches,
                  run % 3 ? batches : 1,
                  threads,
                  size_t(run % 5 + 1),
                  schedulers[run % 5],
                  models[run % 4]};
        plait::testing::story() = "locked " + std::to_string(locked) + ", workers " +
                                  std::to_string(workers) + ", threads " + std::to_string(threads) +
                                  ": ";
        run_job(s, rows);
        for (int policy = 0; policy < 3; ++policy) run_failing(s, rows / 2, OnError(policy));
        run_dying(s, rows, run % 20 + 1);
        abort_job(s, rows);
        if (locked) continue;
        s.ordered = false;
        run_job(s, rows / 4);
        run_failing(s, rows / 4, OnError::Fail);
      }
    }
  }
  std::printf("%d settings\n", run);
  return 0;
}
