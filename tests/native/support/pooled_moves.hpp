// A stage with its state in the pool whose bins are taken, put, shipped and brought back while it
// runs, against the same stage with the state in the engine.
//
// The job with the pool runs first; what is done to it, at which epochs, and what that gave is
// written down. Then the job runs once more with the state in the engine from its first row to its
// last, the same is done at the same epochs, and everything is the same: rows, dead letters,
// counts, the failure that ends it, bytes of bins, refusals. Bins that were shipped come back by a
// later layout; whatever rows have made of them meanwhile is taken away at the same epoch.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "key_timers.hpp"

namespace plait::testing {

using Random = std::mt19937_64;
using Bins = std::map<uint32_t, std::string>;
inline const std::string kBroke = "the pool broke";

// Where bins go and come from: a node beside this one that only keeps them.
class Mirror final : public StateMoves {
 public:
  void add_state(MovingState&) override {}
  void populate(std::vector<std::pair<void*, size_t>>) override {}
  int64_t unsent_bytes(uint32_t) override { return 0; }
  uint32_t here() const override { return 0; }
  void ship(uint32_t to, uint32_t op, uint32_t bin, MovedBin moved) override {
    CHECK(to == 1 && op == 1 && moved.kind == MoveKind::Whole);
    std::lock_guard<std::mutex> hold(lock_);
    const bool first = shipped_[moved.epoch]
                           .emplace(bin, std::string(reinterpret_cast<const char*>(moved.data),
                                                     size_t(moved.size)))
                           .second;
    CHECK(first);
  }
  void bring(uint64_t epoch, uint32_t bin, const std::string& bytes) {
    BufferRef owner = BufferRef::make(int64_t(bytes.size()));
    std::memcpy(owner.data(), bytes.data(), bytes.size());
    const uint8_t* data = owner.data();
    arrived(1, bin, {epoch, MoveKind::Whole, std::move(owner), data, int64_t(bytes.size())});
  }
  Bins shipped(uint64_t epoch) {
    std::lock_guard<std::mutex> hold(lock_);
    return shipped_[epoch];
  }

 private:
  std::mutex lock_;
  std::map<uint64_t, Bins> shipped_;  // by the epoch of the layout
};

struct MovesSetting {
  uint64_t workers, lanes, pool_workers, slots, batches, epoch_rows, rows, keys, log_bytes;
  int64_t out_of_order;
  unsigned bin_bits;
  bool timers, here, locked, breaks;
  OnError on_error;
  std::vector<int64_t> wrong;  // values of rows that go wrong
  Threading threading;

  explicit MovesSetting(Random& random) {
    auto one_of = [&](auto... values) {
      const std::common_type_t<decltype(values)...> all[] = {values...};
      return all[random() % sizeof...(values)];
    };
    workers = 1 + random() % 3;
    lanes = 1 + random() % 3;
    pool_workers = 1 + random() % 3;
    slots = one_of(2, 3, 8);
    batches = one_of(2, 4, 16);
    epoch_rows = 1 + random() % 40;
    rows = random() % 1200;
    keys = 1 + random() % 40;
    log_bytes = one_of(1, 5000, 1 << 20);
    out_of_order = int64_t(random() % 30);
    bin_bits = unsigned(random() % 5);
    timers = random() % 4 != 0;
    here = random() % 2;
    locked = random() % 2;
    breaks = random() % 8 == 0;
    on_error = one_of(OnError::Fail, OnError::Skip, OnError::DeadLetter);
    threading = one_of(Threading::Dynamic, Threading::Dynamic, Threading::Manual);
    if (random() % 2) {
      const std::vector<int64_t> ways = {KeyTimers::kBad, KeyTimers::kLeaves, KeyTimers::kBadTimer,
                                         KeyTimers::kTimerLeaves};
      for (uint64_t n = 1 + random() % 6; n > 0; --n) wrong.push_back(ways[random() % 4]);
    }
  }
};

class MovesJob {
 public:
  MovesJob(const MovesSetting& setting, Batch rows, bool pooled)
      : s_(setting),
        pool_(std::make_shared<Pool>(uint32_t(s_.slots), 1 << 12, uint32_t(s_.pool_workers), kept,
                                     nullptr)),
        lanes_(std::make_shared<PoolLanes>(pool_, 0, uint32_t(s_.lanes), s_.bin_bits,
                                           !pooled || s_.here, s_.timers, int64_t(s_.log_bytes))),
        engine_(3, 1, unsigned(s_.workers), "ct", 50'000.0),
        state_(no_state()) {
    pool_->add(lanes_);
    build(std::move(rows));
    pool_->start();
    threads_ = std::make_unique<WorkerThreads>(*pool_, uint32_t(s_.pool_workers), [&] {
      return [state = no_state()](PoolWorker& w) mutable { state.serve(w); };
    });
  }
  ~MovesJob() {
    engine_.abort();
    engine_.join();
    pool_->close();
    threads_->join();
  }

  Engine& engine() { return engine_; }
  Mirror& mirror() { return mirror_; }
  void go() { lanes_->go(); }
  void breaks() {
    if (!lanes_->wanted()) return;
    threads_->stuck.store(true, std::memory_order_relaxed);
    pool_->broke(kBroke);
  }

  using Row = std::tuple<int64_t, int64_t, int64_t>;  // number, key, sum
  std::vector<Row> rows() const {
    std::vector<Row> out;
    for (const Batch& b : kept_of(engine_, sink_)) {
      for (int64_t i = 0; i < b.length; ++i) {
        out.emplace_back(b.row_number(i), b.columns[0].i64()[i], b.columns[1].i64()[i]);
      }
    }
    return out;
  }
  using Place = std::tuple<uint64_t, int64_t, std::string>;
  static Place place_of(const Letter& l) { return {l.epoch, l.row, l.message}; }
  std::vector<Place> letters() const {
    std::vector<Place> out;
    for (const Letter& l : engine_.shared.letters) out.push_back(place_of(l));
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  static int64_t kept(void*, const std::string&) { return -1; }
  KeyTimers no_state() const {
    KeyTimers state;
    state.bin_bits = s_.bin_bits;
    state.stops = s_.on_error == OnError::Fail;
    state.timers = s_.timers;
    return state;
  }
  void build(Batch rows) {
    const std::vector<Type> in(3, Type::Int64), out(2, Type::Int64);
    Builder b(engine_);
    b.limits.batches = uint32_t(s_.batches);
    b.limits.locked_reorder = s_.locked;
    const auto named = [&](const char* name) { return StageSpec{name, s_.threading}; };
    const uint32_t source = b.table_source(
        {.stage = named("table"), .types = in, .epoch_records = int64_t(s_.epoch_rows)},
        {std::move(rows)}, 0);
    b.event_time(0, 2, 0);
    b.last_op(source, 0);
    auto keys =
        std::make_shared<KeyedPlan>(KeyedPlan::make({0}, {Type::Int64}, {}, s_.bin_bits, 0));
    PythonState state{.control = control,
                      .hand_over = hand_over,
                      .context = this,
                      .lanes = lanes_,
                      .keys = std::move(keys)};
    uint32_t stage;
    if (s_.timers) {
      auto plan = std::make_shared<TimedPlan>();
      plan->origins = std::make_shared<const std::vector<TimedOrigin>>(
          1, TimedOrigin{true, true, s_.out_of_order, int64_t(1) << 40});
      stage = b.process_stage({.stage = named("timers"),
                               .op = 1,
                               .on_error = s_.on_error,
                               .function = unit,
                               .types = out,
                               .plan = plan,
                               .state = std::move(state)});
    } else {
      stage =
          b.state_stage({.stage = named("sums"),
                         .call = std::make_unique<CallOperator>(1, s_.on_error, batch, this, out),
                         .state = std::move(state)});
    }
    b.connect(source, stage, 0);
    b.last_op(stage, 1);
    dynamic_cast<PythonStateStage&>(*engine_.stages()[stage]).moves(mirror_, false);
    sink_ = b.sink_stage({.stage = named("sink"), .op = 2, .keep = true});
    b.connect(stage, sink_, 0);
    b.last_op(sink_, 2);
  }

  // In place of Python in the engine's process.
  static void unit(void* context, const ProcessUnit& u, ProcessOutcome& o) {
    MovesJob& job = *static_cast<MovesJob*>(context);
    CHECK(!job.gone_);
    auto made = job.state_.take(u.rows->columns, u.rows->length, u.base, u.order, u.watermarks,
                                u.watermark);
    o.next_timer = job.state_.next_timer();
    if (made.fatal) {
      o.fatal = true;
      o.failures.push_back(std::move(made.stop));
      return;
    }
    o.out = made.rows();
    o.times = std::move(made.times);
    o.places = std::move(made.places);
    o.failures = std::move(made.failures);
    o.stopped = made.stopped;
    o.timer = std::move(made.stop);
    o.timer_order = made.at;
  }
  static void batch(void* context, const Batch& in, CallOutcome& o) {
    MovesJob& job = *static_cast<MovesJob*>(context);
    CHECK(!job.gone_);
    auto made = job.state_.take(in.columns, in.length, 0, nullptr, nullptr, kNoTime);
    if (made.fatal) {
      o = fatal_outcome(made.stop.message);
      return;
    }
    o.out = made.rows();
    o.failures = std::move(made.failures);
    o.one_to_one = o.out.length == in.length;
    if (!o.one_to_one) o.origin = std::move(made.origin);
  }
  static void control(void* context, Control& c) {
    MovesJob& job = *static_cast<MovesJob*>(context);
    CHECK(!job.gone_);
    if (c.kind == Control::Kind::Snapshot) {
      for (uint32_t bin : job.state_.bins()) c.collect({1, bin, job.state_.copy_bin(bin)});
    } else if (c.kind == Control::Kind::Take && c.op == 1) {
      for (uint32_t bin : c.bins) c.collect({1, bin, job.state_.take_bin(bin)});
    } else if (c.kind == Control::Kind::Put) {
      for (const auto& bin : c.put) {
        std::string why = job.state_.put_bin(bin.bin, bin.bytes);
        if (!why.empty()) return c.refuse(std::move(why));
      }
    }
  }
  static void hand_over(void* context, Control& c) {
    MovesJob& job = *static_cast<MovesJob*>(context);
    control(context, c);
    job.state_.clear();
    job.gone_ = true;
  }

  const MovesSetting& s_;
  Mirror mirror_;
  const std::shared_ptr<Pool> pool_;
  const std::shared_ptr<PoolLanes> lanes_;
  Engine engine_;
  KeyTimers state_;
  bool gone_ = false;
  uint32_t sink_ = 0;
  std::unique_ptr<WorkerThreads> threads_;
};

}  // namespace plait::testing
