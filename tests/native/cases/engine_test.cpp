// The engine without Python: a table through a filter and a count by key into a sink, in order.
//
// Every queue, both reorder buffers, small rings and many workers, with snapshots and bins that are
// taken out and put back while records flow, and workers that come and go. The answer is that of a
// plain loop, row for row; a snapshot, and what is written behind a mark, holds exactly the counts
// of the rows before it.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
// The kernels use 128-bit integers, which the standard does not have.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "plait/engine/builder.hpp"
#pragma GCC diagnostic pop

namespace {

using namespace plait;

constexpr int64_t kEpochRows = 16;
constexpr unsigned kBinBits = 4;
constexpr uint32_t kCount = 2;  // the operator that keeps state

struct Setting {
  unsigned workers;
  unsigned lane_bits;
  int queue;
  bool locked;
  bool ordered;
  uint32_t batches;
  const char* scheduler;
  const char* threading = "dynamic";
  bool changing = false;  // workers come and go, and so do the limits of stages
};

// The next stage: the model is the same for all, or each has another one.
StageSpec next(const Engine& engine, const Setting& s, const char* name) {
  const std::string model = s.threading;
  const size_t n = engine.stages().size();
  const bool mixed = model == "mixed";
  const Threading threading = model == "manual" || (mixed && n % 3 == 1)      ? Threading::Manual
                              : model == "dedicated" || (mixed && n % 3 == 2) ? Threading::Dedicated
                                                                              : Threading::Dynamic;
  return {name, threading, mixed ? uint32_t(n / 4) : 0, s.ordered};
}

Batch table_of(int64_t rows) {
  Batch batch;
  batch.length = rows;
  for (int c = 0; c < 2; ++c) {
    Column column;
    column.type = Type::Int64;
    column.length = rows;
    column.data_owner = BufferRef::make(8 * rows);
    column.data = column.data_owner.data();
    auto* values = column.data_owner.as<int64_t>();
    // Half of the rows have one key.
    for (int64_t i = 0; i < rows; ++i) values[i] = c == 1 ? i : i % 2 ? 7 : i * 31 % 97;
    batch.columns.push_back(std::move(column));
  }
  return batch;
}

int64_t at(const Column& column, int64_t row) {
  return reinterpret_cast<const int64_t*>(column.data)[row];
}

// The key and the running count of each row that passes, as a plain loop has them.
std::vector<std::pair<int64_t, int64_t>> plain_loop(const Batch& table, int64_t rows) {
  std::map<int64_t, int64_t> counts;
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t i = 0; i < rows; ++i) {
    if (at(table.columns[1], i) % 3 == 0) continue;
    const int64_t key = at(table.columns[0], i);
    out.emplace_back(key, ++counts[key]);
  }
  return out;
}

// A function outside the engine: the rows whose value is no multiple of three.
void not_of_three(void*, const Batch& in, CallOutcome& outcome) {
  for (int64_t i = 0; i < in.length; ++i) {
    if (at(in.columns[1], i) % 3 != 0) outcome.origin.push_back(uint32_t(i));
  }
  outcome.out.length = int64_t(outcome.origin.size());
  for (const Column& c : in.columns) {
    outcome.out.columns.push_back(take(c, outcome.origin.data(), outcome.out.length));
  }
}

const std::vector<Type> kTypes = {Type::Int64, Type::Int64};

std::unique_ptr<CallOperator> call_of(uint32_t op, CallOperator::Function function,
                                      void* context = nullptr) {
  return std::make_unique<CallOperator>(op, OnError::Fail, function, context, kTypes);
}

struct Job {
  std::unique_ptr<Engine> engine;
  uint32_t sink = 0;
};

Job job_of(const Setting& s, const Batch& table) {
  Job job;
  job.engine = std::make_unique<Engine>(4, 1, s.workers, s.scheduler, 50'000.0);
  Builder builder(*job.engine);
  builder.limits.batches = s.batches;
  builder.limits.locked_reorder = s.locked;
  Engine& engine = *job.engine;
  const uint32_t source = builder.table_source({.stage = next(engine, s, "table"),
                                                .op = 0,
                                                .source = 0,
                                                .types = kTypes,
                                                .epoch_records = kEpochRows},
                                               {table}, 0);
  const uint32_t filter = builder.parallel_stage(
      {.stage = next(engine, s, "filter"), .operators = operators_of(call_of(1, not_of_three))});
  const uint32_t keyed =
      builder.keyed_stage({.stage = next(engine, s, "count"),
                           .op = kCount,
                           .plan = std::make_shared<KeyedPlan>(KeyedPlan::make(
                               {0}, {Type::Int64}, {AggregateSpec{}}, kBinBits, s.lane_bits)),
                           .queue = QueueKind(s.queue),
                           .before = operators_of(std::make_unique<NanKeyFilter>(
                               kCount, OnError::Fail, std::vector<uint32_t>()))});
  job.sink = builder.sink_stage({.stage = next(engine, s, "sink"), .op = 3, .keep = true});
  builder.connect(source, filter, 0);
  builder.connect(filter, keyed, 0);
  builder.connect(keyed, job.sink, 0);
  for (uint32_t i = 0; i < 4; ++i) builder.last_op(i, i);
  return job;
}

std::shared_ptr<Control> item(Control::Kind kind) {
  auto control = std::make_shared<Control>();
  control->kind = kind;
  control->op = kCount;
  return control;
}

// Puts bins into an engine that has not started, and says how many keys came with them.
void restore(Engine& engine, const std::vector<Control::Bin>& bins) {
  auto put = item(Control::Kind::Put);
  put->put = bins;
  engine.control_now(*put);
  CHECK(put->errors.empty());
}

// Suspends and resumes workers, and limits stages, as long as it lives.
class Changer {
 public:
  Changer(Engine& engine, bool wanted) {
    if (!wanted) return;
    thread_ = std::thread([this, &engine] {
      for (unsigned i = 0; !over_.load(std::memory_order_acquire); ++i) {
        engine.set_level(i * 7 % 5);
        engine.set_stage_limit(i % engine.stages().size(), i % 3);
        const unsigned active = engine.shared.levels.active();
        CHECK(active >= 1 && active <= 4);
        std::this_thread::yield();
      }
    });
  }
  ~Changer() {
    over_.store(true, std::memory_order_release);
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

std::vector<std::pair<int64_t, int64_t>> output_of(const Job& job) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const Batch& batch : kept_of(*job.engine, job.sink)) {
    for (int64_t i = 0; i < batch.length; ++i) {
      out.emplace_back(at(batch.columns[0], i), at(batch.columns[1], i));
    }
  }
  return out;
}

void finish(Engine& engine) {
  while (!engine.wait(1'000'000'000)) {
  }
  engine.join();
  CHECK(!engine.shared.error);
}

// The rest of the table behind a snapshot gives the rest of the output, with any number of lanes.
void check_resumed(const Setting& s, const Batch& table, const Control& snapshot) {
  const int64_t from = snapshot.positions[0];
  Setting other = s;
  other.lane_bits = s.lane_bits == kBinBits ? 0 : s.lane_bits + 1;
  Batch rest = table;
  for (Column& c : rest.columns) c = c.slice(from, table.length - from);
  rest.length = table.length - from;
  Job job = job_of(other, rest);
  restore(*job.engine, snapshot.collected);
  job.engine->start();
  finish(*job.engine);
  const auto all = plain_loop(table, table.length);
  const auto before = plain_loop(table, from);
  auto got = output_of(job);
  std::vector<std::pair<int64_t, int64_t>> want(all.begin() + int64_t(before.size()), all.end());
  if (!s.ordered) {
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
  }
  CHECK(got == want);
}

// Snapshots as fast as they come; bytes that are no bins are refused and change nothing.
void run_job(const Setting& s, int64_t rows) {
  const Batch table = table_of(rows);
  Job job = job_of(s, table);
  Engine& engine = *job.engine;
  std::vector<std::shared_ptr<Control>> snapshots, refused;
  engine.start();
  Changer changer(engine, s.changing);
  for (int i = 0; i < 40; ++i) {
    auto snapshot = item(Control::Kind::Snapshot);
    if (!engine.schedule(snapshot)) break;
    snapshots.push_back(snapshot);
    auto put = item(Control::Kind::Put);
    put->put.push_back({kCount, uint32_t(i) % (1u << kBinBits), "damaged"});
    if (engine.schedule(put)) refused.push_back(put);
    if (!engine.wait_control(*snapshot, 60'000'000'000)) break;
  }
  finish(engine);
  auto got = output_of(job);
  auto want = plain_loop(table, rows);
  if (!s.ordered) {
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
  }
  CHECK(got == want);
  for (const auto& put : refused) {
    CHECK(put->arrived.load(std::memory_order_acquire) == 1);
    CHECK(put->errors.size() == 1);
  }
  for (const auto& snapshot : snapshots) {
    CHECK(snapshot->arrived.load(std::memory_order_acquire) == 1);
    CHECK(snapshot->errors.empty());
  }
  if (!snapshots.empty()) check_resumed(s, table, *snapshots[snapshots.size() / 2]);
}

// Marks whose state is written behind them while the workers go on, most of them only what changed
// since the one before: put together they are the state at the last one. Some are left to lie.
void run_marked(const Setting& s, int64_t rows) {
  const Batch table = table_of(rows);
  Job job = job_of(s, table);
  Engine& engine = *job.engine;
  std::map<uint32_t, std::string> bins;
  std::vector<int64_t> positions;
  uint64_t since = 0;
  engine.start();
  for (uint64_t number = 1; number < 60; ++number) {
    auto mark = item(Control::Kind::Snapshot);
    mark->mark = true;
    mark->number = number;
    mark->since = since;
    if (!engine.schedule(mark) || !engine.wait_control(*mark, 60'000'000'000)) break;
    since = 0;
    if (number % 7 == 3) continue;
    CHECK(engine.save(*mark, 60'000'000'000));
    CHECK(mark->errors.empty());
    if (mark->partial.empty()) bins.clear();
    for (const auto& bin : mark->collected) bins[bin.bin] = bin.bytes;
    uint32_t op, bin;
    BufferRef bytes;
    int64_t size;
    while (mark->take_late(op, bin, bytes, size)) {
      CHECK(op == kCount && size > 0);
      bins[bin] = std::string(reinterpret_cast<const char*>(bytes.data()), size_t(size));
    }
    positions = mark->positions;
    since = number;
  }
  finish(engine);
  if (positions.empty()) return;
  Control last;
  last.positions = positions;
  for (const auto& [bin, bytes] : bins) last.collected.push_back({kCount, bin, bytes});
  check_resumed(s, table, last);
}

// Two sources, each forked into what the filter passes and all rows, and the three streams united:
// by epoch, by source, by row, then by input. Snapshots and the end meet all paths at the same
// boundary.
void run_union(const Setting& s, int64_t rows) {
  const Batch tables[] = {table_of(rows), table_of(rows / 2)};
  Engine engine(6, 2, s.workers, s.scheduler, 50'000.0);
  Builder builder(engine);
  builder.limits.batches = s.batches;
  builder.limits.locked_reorder = s.locked;
  const auto source = [&](const char* name, uint32_t number) {
    return builder.table_source({.stage = next(engine, s, name),
                                 .op = number,
                                 .source = number,
                                 .types = kTypes,
                                 .epoch_records = kEpochRows},
                                {tables[number]}, 0);
  };
  const uint32_t first = source("first", 0), second = source("second", 1);
  const uint32_t filter = builder.parallel_stage(
      {.stage = next(engine, s, "filter"), .operators = operators_of(call_of(2, not_of_three))});
  const uint32_t both =
      builder.union_stage({.stage = next(engine, s, "union"), .op = 3, .carries = {{0}, {0}, {1}}});
  const StageSpec ends = next(engine, s, "sink");
  const uint32_t sink = builder.sink_stage({.stage = ends, .op = 4, .keep = true});
  const uint32_t other = builder.sink_stage({.stage = ends, .op = 5, .keep = true});
  builder.connect(first, filter, 0);
  builder.connect(filter, both, 0);
  builder.connect(first, both, 1);
  builder.connect(second, both, 2);
  builder.connect(second, other, 0);
  builder.connect(both, sink, 0);
  for (uint32_t i = 0; i < 6; ++i) builder.last_op(i, i);
  engine.start();
  for (int i = 0; i < 20; ++i) {
    auto snapshot = item(Control::Kind::Snapshot);
    if (!engine.schedule(snapshot) || !engine.wait_control(*snapshot, 60'000'000'000)) break;
    // Every source is at the same boundary, or over.
    for (int t = 0; t < 2; ++t) {
      const int64_t at_most = std::min(int64_t(snapshot->epoch) * kEpochRows, tables[t].length);
      CHECK(snapshot->positions[size_t(t)] <= at_most);
    }
  }
  finish(engine);
  std::vector<int64_t> want, got;
  for (int64_t epoch = 0; epoch * kEpochRows < rows; ++epoch) {
    for (int t = 0; t < 2; ++t) {
      const int64_t end = std::min((epoch + 1) * kEpochRows, tables[t].length);
      for (int64_t i = epoch * kEpochRows; i < end; ++i) {
        want.push_back(i);
        if (t == 0 && i % 3 != 0) want.push_back(i);
      }
    }
  }
  for (const Batch& batch : kept_of(engine, sink)) {
    for (int64_t i = 0; i < batch.length; ++i) got.push_back(at(batch.columns[1], i));
  }
  CHECK(got == want);
  int64_t passed = 0;
  for (const Batch& batch : kept_of(engine, other)) passed += batch.length;
  CHECK(passed == tables[1].length);
}

// Workers inside the function, and the most there were at a time.
struct Crowd {
  std::atomic<int> inside{0}, most{0};
};
void crowded(void* context, const Batch& in, CallOutcome& outcome) {
  auto& crowd = *static_cast<Crowd*>(context);
  const int now = crowd.inside.fetch_add(1) + 1;
  int most = crowd.most.load();
  while (most < now && !crowd.most.compare_exchange_weak(most, now)) {
  }
  std::this_thread::yield();
  not_of_three(nullptr, in, outcome);
  crowd.inside.fetch_sub(1);
}

// No more workers are in a stage than its limit says, whatever the scheduler.
void limit_stage(const char* scheduler, uint32_t limit, int64_t rows) {
  const Batch table = table_of(rows);
  Crowd crowd;
  Engine engine(3, 1, 4, scheduler, 50'000.0);
  Builder builder(engine);
  const uint32_t source = builder.table_source(
      {.stage = {"table"}, .types = kTypes, .epoch_records = kEpochRows}, {table}, 0);
  const uint32_t filter = builder.parallel_stage(
      {.stage = {"filter"}, .operators = operators_of(call_of(1, crowded, &crowd))});
  const uint32_t sink = builder.sink_stage({.stage = {"sink"}, .op = 2, .keep = true});
  builder.connect(source, filter, 0);
  builder.connect(filter, sink, 0);
  for (uint32_t i = 0; i < 3; ++i) builder.last_op(i, i);
  engine.set_stage_limit(filter, limit);
  engine.start();
  finish(engine);
  int64_t passed = 0;
  for (const Batch& batch : kept_of(engine, sink)) passed += batch.length;
  CHECK(passed == int64_t(plain_loop(table, rows).size()));
  CHECK(crowd.most.load() >= 1 && crowd.most.load() <= int(limit));
}

// The engine ends in the middle of its work, from another thread, and every thread comes home.
void abort_job(const Setting& s, int64_t rows) {
  const Batch table = table_of(rows);
  Job job = job_of(s, table);
  job.engine->start();
  Changer changer(*job.engine, s.changing);
  std::thread other([&] { job.engine->abort(); });
  while (!job.engine->left(1'000'000'000)) {
  }
  other.join();
  job.engine->join();
}

void run_all(const Setting& s, int64_t rows) {
  plait::testing::story() = std::string("queue ") + std::to_string(s.queue) + ", locked " +
                            std::to_string(s.locked) + ", workers " + std::to_string(s.workers) +
                            ", scheduler " + s.scheduler + ", threading " + s.threading + ": ";
  run_job(s, rows);
  run_marked(s, rows);
  Setting unordered = s;
  unordered.ordered = false;
  if (!s.locked) run_job(unordered, rows / 4);
  if (s.queue == 0) run_union(s, rows / 2);
  abort_job(s, rows);
  Setting changing = s;
  changing.changing = true;
  run_job(changing, rows / 4);
  abort_job(changing, rows);
}

}  // namespace

int main(int argc, char** argv) {
  const auto rows = int64_t(plait::testing::argument(argc, argv, 4000));
  const char* schedulers[] = {"ct",     "lru",       "et",          "lp",           "qst",
                              "random", "max_queue", "min_latency", "least_recent", "max_running"};
  int run = 0;
  for (int queue = 0; queue < 4; ++queue) {
    for (const bool locked : {false, true}) {
      for (unsigned workers = 1; workers <= 4; ++workers, ++run) {
        Setting s{workers,           unsigned(run) % 4,   queue, locked, true,
                  run % 2 ? 2u : 8u, schedulers[run % 10]};
        run_all(s, rows);
        if (s.scheduler != schedulers[1]) {
          s.scheduler = schedulers[1];
          run_all(s, rows / 2);
        }
      }
      const char* models[] = {"manual", "dedicated", "mixed"};
      for (unsigned m = 0; m < 3; ++m, ++run) {
        run_all({1 + m, m, queue, locked, true, m % 2 ? 2u : 8u, schedulers[m % 2], models[m]},
                rows / 2);
      }
    }
  }
  for (const char* scheduler : {"ct", "lru", "random"}) {
    for (uint32_t limit = 1; limit <= 3; ++limit) limit_stage(scheduler, limit, rows / 2);
  }
  std::printf("%d settings\n", run);
  return 0;
}
