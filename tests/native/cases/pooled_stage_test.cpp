// Stages with their state in the pool, in a running engine, with threads in place of processes.
//
// Each round is one job of random size: one or two stages in a row add up by key, the state begins
// in the engine and goes to the lanes at some time, snapshots are taken on the way, and the ring is
// small. The rows that come out are those of a plain loop, in its order, and every snapshot is the
// state between two of its rows. Some rounds have rows that fail, a pool that breaks, or an engine
// that is aborted. Every other round is one of pooled_moves.hpp: state with timers, and bins that
// move. A round is made of its seed alone, up to the timing.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "check.hpp"
// The kernels use 128-bit integers, which the standard does not have.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "plait/engine/engine_report.hpp"
#include "pool_samples.hpp"
#include "pooled_moves_round.hpp"
#pragma GCC diagnostic pop

namespace {

using namespace plait;
using plait::testing::column_of;
using plait::testing::KeySums;
using plait::testing::MovesRound;
using plait::testing::Random;
using plait::testing::WorkerThreads;

const std::vector<Type> kTypes = {Type::Int64, Type::Int64};
constexpr int64_t kHangNs = 60'000'000'000;

enum class End : uint8_t { Whole, Breaks, Aborted };

struct Setting {
  uint64_t stages, workers, lanes, pool_workers, slots, batches, epoch_rows, rows, keys, log_bytes;
  unsigned bin_bits;
  bool locked, here, stays;
  OnError on_error;
  double slice_ns;
  const char* scheduler;
  Threading threading;
  End end;
};

Setting setting_of(Random& random) {
  auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  Setting s{};
  s.stages = 1 + random() % 2;
  s.workers = 1 + random() % 4;
  s.lanes = 1 + random() % 3;
  s.pool_workers = 1 + random() % 3;
  s.slots = one_of(2, 3, 8);
  s.batches = one_of(2, 4, 16);
  s.epoch_rows = 1 + random() % 60;
  s.rows = random() % 3000;
  s.keys = 1 + random() % 50;
  s.log_bytes = one_of(1, 5000, 1 << 20);
  s.bin_bits = unsigned(random() % 6);
  s.locked = random() % 2;
  s.here = random() % 4 != 0;
  s.stays = s.here && random() % 16 == 0;
  s.on_error = one_of(OnError::Fail, OnError::Skip, OnError::DeadLetter);
  s.slice_ns = one_of(500.0, 50'000.0);
  s.scheduler = one_of("ct", "lru", "lp", "qst", "et");
  s.threading =
      one_of(Threading::Dynamic, Threading::Dynamic, Threading::Dedicated, Threading::Manual);
  s.end = one_of(End::Whole, End::Whole, End::Whole, End::Breaks, End::Aborted);
  return s;
}

// The rows in chunks, so that batches have all sizes. With the policy fail at most one fails.
struct Rows {
  std::vector<int64_t> keys, values, numbers;
  int64_t failing = -1;  // the number of the first

  std::vector<Batch> chunks(Random& random) const {
    std::vector<Batch> out;
    for (size_t at = 0; at < keys.size();) {
      const size_t end = std::min(keys.size(), at + 1 + random() % 200);
      auto part = [&](const std::vector<int64_t>& from) {
        return column_of({from.begin() + int64_t(at), from.begin() + int64_t(end)});
      };
      Batch batch;
      batch.length = int64_t(end - at);
      batch.columns = {part(keys), part(values)};
      out.push_back(std::move(batch));
      at = end;
    }
    return out;
  }
};

Rows rows_of(const Setting& s, Random& random) {
  Rows rows;
  const bool fails = random() % 2;
  const size_t only = s.rows ? random() % s.rows : 0;
  for (size_t i = 0; i < s.rows; ++i) {
    const bool bad = fails && (s.on_error == OnError::Fail ? i == only : random() % 50 == 0);
    rows.keys.push_back(int64_t(random() % s.keys));
    rows.values.push_back(bad ? -1 : int64_t(random() % 4));
    rows.numbers.push_back(int64_t(i));
    if (bad && rows.failing < 0) rows.failing = int64_t(i);
  }
  return rows;
}

// What a plain loop makes of the rows before `end`.
Rows plain_loop(const Rows& in, int64_t end, KeySums& state) {
  Rows out;
  for (size_t i = 0; i < in.keys.size() && in.numbers[i] < end; ++i) {
    if (in.values[i] < 0) {
      if (state.stops) break;
      continue;
    }
    const int64_t sum = state.bins[state.bin_of(in.keys[i])][in.keys[i]] += in.values[i];
    if (sum == 0) continue;
    out.keys.push_back(in.keys[i]);
    out.values.push_back(sum);
    out.numbers.push_back(in.numbers[i]);
  }
  return out;
}

// The state of a stage in the engine: in place of Python.
struct Here {
  KeySums state;
  uint32_t node = 0;
  bool stays = false, gone = false;

  static void run(void* context, const Batch& batch, CallOutcome& outcome) {
    Here& here = *static_cast<Here*>(context);
    CHECK(!here.gone);
    outcome = here.state.add(batch.columns, batch.length);
  }
  static void control(void* context, Control& c) {
    Here& here = *static_cast<Here*>(context);
    CHECK(!here.gone && c.kind == Control::Kind::Snapshot);
    for (const auto& [bin, sums] : here.state.bins) {
      c.collect({here.node, bin, KeySums::bytes_of(sums)});
    }
  }
  static void hand_over(void* context, Control& c) {
    Here& here = *static_cast<Here*>(context);
    CHECK(!here.gone);
    if (here.stays) return c.refuse("it stays");
    control(context, c);
    here.state.bins.clear();
    here.gone = true;
  }
};

int64_t kept(void*, const std::string&) { return -1; }

struct Job {
  Setting s;
  Rows rows;
  std::vector<std::unique_ptr<Here>> here;
  std::shared_ptr<Pool> pool;
  std::vector<std::shared_ptr<PoolLanes>> lanes;
  std::unique_ptr<WorkerThreads> threads;
  std::unique_ptr<Engine> engine;
  uint32_t sink = 0;

  explicit Job(Random& random) : s(setting_of(random)), rows(rows_of(s, random)) {
    pool =
        std::make_shared<Pool>(uint32_t(s.slots), 1 << 12, uint32_t(s.pool_workers), kept, nullptr);
    engine =
        std::make_unique<Engine>(s.stages + 2, 1, unsigned(s.workers), s.scheduler, s.slice_ns);
    Builder builder(*engine);
    builder.limits.batches = uint32_t(s.batches);
    builder.limits.locked_reorder = s.locked;
    uint32_t before = builder.table_source(
        {.stage = named("table"), .types = kTypes, .epoch_records = int64_t(s.epoch_rows)},
        rows.chunks(random), 0);
    builder.last_op(before, 0);
    for (uint32_t op = 1; op <= s.stages; ++op) {
      const uint32_t stage = add_stage(builder, op);
      builder.connect(before, stage, 0);
      builder.last_op(stage, op);
      before = stage;
    }
    const auto last = uint32_t(s.stages) + 1;
    sink = builder.sink_stage({.stage = named("sink"), .op = last, .keep = true});
    builder.connect(before, sink, 0);
    builder.last_op(sink, last);
    serve();
  }
  ~Job() {
    engine.reset();
    pool->close();
    threads->join();
  }

  KeySums no_state() const {
    KeySums state;
    state.bin_bits = s.bin_bits;
    state.stops = s.on_error == OnError::Fail;
    return state;
  }
  StageSpec named(const char* name) const { return {name, s.threading}; }
  uint32_t add_stage(Builder& builder, uint32_t op) {
    here.push_back(std::make_unique<Here>(Here{no_state(), op, s.stays}));
    lanes.push_back(std::make_shared<PoolLanes>(pool, op, uint32_t(s.lanes), s.bin_bits, s.here,
                                                false, int64_t(s.log_bytes)));
    pool->add(lanes.back());
    Here* state = here.back().get();
    auto keys = std::make_shared<KeyedPlan>(KeyedPlan::make({0}, {Type::Int64}, {}, s.bin_bits, 0));
    return builder.state_stage(
        {.stage = named("sums"),
         .call = std::make_unique<CallOperator>(op, s.on_error, Here::run, state, kTypes),
         .state = {.control = Here::control,
                   .hand_over = Here::hand_over,
                   .context = state,
                   .lanes = lanes.back(),
                   .keys = std::move(keys)}});
  }
  void serve() {
    pool->start();
    threads = std::make_unique<WorkerThreads>(*pool, uint32_t(s.pool_workers), [&] {
      return [states = std::vector<KeySums>(s.stages + 1, no_state())](PoolWorker& w) mutable {
        states.at(w.program()).serve(w);
      };
    });
  }
  void go() {
    for (auto& one : lanes) one->go();
  }
};

// The snapshot is the state behind the rows that were read before it.
void check_snapshot(const Job& job, Control& c) {
  CHECK(c.errors.empty() && c.positions.size() == 1);
  Rows in = job.rows;
  for (uint32_t node = 1; node <= job.s.stages; ++node) {
    KeySums want = job.no_state();
    std::map<uint32_t, KeySums::Sums> got;
    in = plain_loop(in, c.positions[0], want);
    for (const auto& bin : c.collected) {
      if (bin.op != node) continue;
      CHECK(got.count(bin.bin) == 0);
      got[bin.bin] = KeySums::sums_of(bin.bytes);
    }
    CHECK(got == want.bins);
  }
}

void check_output(const Job& job) {
  const Shared& shared = job.engine->shared;
  Rows want = job.rows;
  for (uint64_t i = 0; i < job.s.stages; ++i) {
    KeySums state = job.no_state();
    want = plain_loop(want, int64_t(job.s.rows), state);
  }
  Rows got;
  for (const Batch& batch : kept_of(*job.engine, job.sink)) {
    for (int64_t i = 0; i < batch.length; ++i) {
      got.keys.push_back(batch.columns[0].i64()[i]);
      got.values.push_back(batch.columns[1].i64()[i]);
      got.numbers.push_back(batch.row_number(i));
    }
  }
  const bool fails = job.s.on_error == OnError::Fail && job.rows.failing >= 0;
  const bool broke = shared.error && shared.error->message == "the pool broke";
  if (broke) CHECK(job.s.end == End::Breaks);
  const bool part = broke || job.s.end == End::Aborted;
  if (part) {
    CHECK(got.keys.size() <= want.keys.size());
    for (auto* list : {&want.keys, &want.values, &want.numbers}) list->resize(got.keys.size());
  }
  CHECK(got.numbers == want.numbers && got.keys == want.keys && got.values == want.values);
  if (part) return;
  CHECK(!!shared.error == fails);
  if (fails) CHECK(shared.error->row == job.rows.failing && shared.error->message == "bad");
  const auto bad = std::count(job.rows.values.begin(), job.rows.values.end(), -1);
  const auto counts = counts_of(*job.engine, 1);
  if (!fails) CHECK(counts[0] == int64_t(job.s.rows) && counts[3] + counts[4] == bad);
}

void pause(Random& random) {
  if (random() % 2) std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
}

// What happens while it runs, in this order: snapshots before and behind the going, then the end.
uint64_t disturb(Job& job, Random& random) {
  const uint64_t snapshots = random() % 6, goes_at = random() % 6;
  std::vector<std::shared_ptr<Control>> taken;
  for (uint64_t i = 0; i < 6; ++i) {
    if (i == goes_at && job.s.here) job.go();
    pause(random);
    if (i >= snapshots) continue;
    auto snapshot = std::make_shared<Control>();
    if (!job.engine->schedule(snapshot)) break;
    taken.push_back(snapshot);
    if (random() % 2) (void)job.engine->wait_control(*snapshot, kHangNs);
  }
  if (job.s.here && random() % 8) job.go();
  pause(random);
  const bool goes = job.lanes[0]->wanted() && !job.s.stays;
  if (job.s.end == End::Breaks && goes) {
    job.threads->stuck.store(true, std::memory_order_relaxed);
    pause(random);
    job.pool->broke("the pool broke");
  }
  if (job.s.end == End::Aborted) job.engine->abort();
  CHECK(job.engine->wait(kHangNs));
  CHECK(job.engine->left(kHangNs));
  job.engine->join();
  uint64_t arrived = 0;
  for (const auto& snapshot : taken) {
    if (snapshot->arrived.load(std::memory_order_acquire) < job.engine->sinks_total) continue;
    if (job.engine->shared.error || job.s.end != End::Whole) continue;
    check_snapshot(job, *snapshot);
    ++arrived;
  }
  return arrived;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long budget_ms = plait::testing::argument(argc, argv, 3000);
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : std::random_device()();
  std::printf("seed %lu\n", seed);
  std::fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(budget_ms);
  uint64_t rounds = 0, snapshots = 0, gone = 0, moves = 0;
  do {
    Random random(seed + rounds);
    plait::testing::story() = "seed " + std::to_string(seed + rounds) + ": ";
    if ((seed + rounds) % 2) {
      moves += MovesRound(random).run();
      ++rounds;
      continue;
    }
    Job job(random);
    job.engine->start();
    snapshots += disturb(job, random);
    check_output(job);
    for (const auto& here : job.here) gone += here->gone;
    ++rounds;
  } while (std::chrono::steady_clock::now() < end);
  std::printf("%llu rounds, %llu snapshots, %llu states gone, %llu control items compared\n",
              (unsigned long long)rounds, (unsigned long long)snapshots, (unsigned long long)gone,
              (unsigned long long)moves);
  return 0;
}
