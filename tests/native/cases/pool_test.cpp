// The ring that worker processes share: random batches there and back, while workers die.
//
// The first part writes random columns of every type, sliced at odd places, as a flat block and
// reads them again. The second runs workers as threads (which is what the sanitizers can see), the
// third as real processes that are killed at random: every batch must come back once and right,
// whatever died, and batches larger than their slot too. The last part gives lanes their messages:
// each lane adds up what it is given, in order, and its sum must survive the death of its worker.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
// The kernels use 128-bit integers, which the standard does not have.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "plait/pool/lane_split.hpp"
#include "plait/pool/pool.hpp"
#include "plait/pool/pool_lanes.hpp"
#include "plait/pool/pool_worker.hpp"
#include "plait/stages/parallel_stage.hpp"
#include "pool_samples.hpp"
#pragma GCC diagnostic pop

namespace {

using namespace plait;
using plait::testing::numbers;
using plait::testing::WorkerThreads;
using Random = std::mt19937_64;

Column random_column(Random& random, Type type, int64_t length, bool nulls) {
  const int64_t whole = length + 20;
  Column c;
  c.type = type;
  c.length = whole;
  if (nulls) {
    c.validity_owner = BufferRef::zeroed(bit_bytes(whole));
    for (int64_t i = 0; i < whole; ++i) {
      if (random() % 3) set_bit(c.validity_owner.data(), i);
    }
    c.validity = c.validity_owner.data();
  }
  if (is_varlen(type)) {
    c.offsets_owner = BufferRef::make(4 * (whole + 1));
    auto* offsets = c.offsets_owner.as<int32_t>();
    offsets[0] = 0;
    for (int64_t i = 0; i < whole; ++i) offsets[i + 1] = offsets[i] + int32_t(random() % 9);
    c.data_owner = BufferRef::make(offsets[whole]);
    for (int32_t i = 0; i < offsets[whole]; ++i) c.data_owner.data()[i] = uint8_t(random());
    c.offsets = offsets;
  } else {
    const int64_t size = type == Type::Bool ? bit_bytes(whole) : 8 * whole;
    c.data_owner = BufferRef::make(size);
    for (int64_t i = 0; i < size; ++i) c.data_owner.data()[i] = uint8_t(random());
  }
  c.data = c.data_owner.data();
  return c.slice(int64_t(random() % 20), length);
}

bool same_value(const Column& a, const Column& b, int64_t i) {
  if (a.valid(i) != b.valid(i)) return false;
  if (!a.valid(i)) return true;
  if (a.type == Type::Bool) return a.boolean(i) == b.boolean(i);
  if (is_varlen(a.type)) {
    return a.size(i) == b.size(i) &&
           std::string(a.bytes(i), size_t(a.size(i))) == std::string(b.bytes(i), size_t(b.size(i)));
  }
  return a.i64()[i] == b.i64()[i];
}

bool same(const std::vector<Column>& a, const std::vector<Column>& b) {
  if (a.size() != b.size()) return false;
  for (size_t k = 0; k < a.size(); ++k) {
    if (a[k].type != b[k].type || a[k].length != b[k].length) return false;
    for (int64_t i = 0; i < a[k].length; ++i) {
      if (!same_value(a[k], b[k], i)) return false;
    }
  }
  return true;
}

std::vector<Column> random_columns(Random& random, int64_t length) {
  std::vector<Column> columns;
  for (int n = int(random() % 6); n >= 0; --n) {
    columns.push_back(random_column(random, Type(random() % 7), length, random() % 2));
  }
  return columns;
}

void flat_blocks(Random& random, unsigned long rounds) {
  for (unsigned long n = 0; n < rounds; ++n) {
    const auto columns = random_columns(random, int64_t(random() % 100));
    const auto given = random_columns(random, columns[0].length);
    auto out = columns;
    if (random() % 2) out.push_back(given[random() % given.size()]);
    FlatWriter size;
    flat_columns(size, out, &given);
    BufferRef block = BufferRef::make(size.used());
    FlatWriter writer(block.data());
    flat_columns(writer, out, &given);
    CHECK(writer.used() == size.used());
    FlatReader reader(block.data(), size.used());
    CHECK(same(read_columns(reader, block, &given), out));
    // A block that is cut off is refused, not read beyond its end.
    if (size.used() > 8) {
      bool refused = false;
      try {
        FlatReader cut(block.data(), int64_t(random() % uint64_t(size.used() - 8)));
        (void)read_columns(cut, block, &given);
      } catch (const std::runtime_error&) {
        refused = true;
      }
      CHECK(refused || out.back().length == 0);
    }
  }
}

// What a worker does: twice the number, the last row fails.
void answer(PoolWorker& worker) {
  const Batch in = worker.batch(false);
  CHECK(in.length > 0);
  std::vector<PoolStep> steps(1);
  CallOutcome& o = steps[0].outcome;
  o.out = numbers(0, in.length - 1);
  for (int64_t i = 0; i + 1 < in.length; ++i) {
    o.out.columns[0].data_owner.as<int64_t>()[i] = 2 * in.columns[0].i64()[i];
    o.origin.push_back(uint32_t(i));
  }
  o.failures.push_back({uint32_t(in.length - 1), "last"});
  steps[0].raised.push_back(std::to_string(in.columns[0].i64()[in.length - 1]));
  worker.finish(steps);
}

int64_t kept(void* context, const std::string& raised) {
  static_cast<std::atomic<int64_t>*>(context)->fetch_add(1);
  return std::stoll(raised);
}

// Sends batches, some larger than a slot, and checks that each comes back once.
struct Sender {
  static constexpr uint32_t kWorkers = 3;
  std::atomic<int64_t> raised{0};
  ParallelStage stage{"stage", StageLimits(), Operators()};
  std::shared_ptr<Pool> pool = std::make_shared<Pool>(8, 1 << 14, kWorkers, kept, &raised);
  std::shared_ptr<PoolOutside> outside = std::make_shared<PoolOutside>(pool, 7, false);
  std::shared_ptr<Returns> returns = std::make_shared<Returns>(stage, 64);
  std::map<uint64_t, std::pair<int64_t, int64_t>> away;  // serial -> first, length
  uint64_t next = 0, back = 0, failed = 0;

  Sender() {
    outside->attach(returns);
    pool->add(outside);
    pool->start();
  }
  void take() {
    Returns::Item item;
    while (returns->take(item)) {
      const auto found = away.find(item.serial);
      CHECK(found != away.end());
      const auto [first, length] = found->second;
      const CallOutcome& o = item.outcome;
      CHECK(!o.fatal);
      if (o.whole) {
        ++failed;
      } else {
        CHECK(o.out.length == length - 1 && int64_t(o.origin.size()) == length - 1);
        for (int64_t i = 0; i + 1 < length; ++i) {
          CHECK(o.out.columns[0].i64()[i] == 2 * (first + i));
        }
        CHECK(o.failures.size() == 1 && o.failures[0].handle == first + length - 1);
      }
      away.erase(found);
      ++back;
    }
  }
  template <class Meanwhile>
  void send(Random& random, uint64_t batches, Meanwhile&& meanwhile) {
    while (back < batches) {
      take();
      meanwhile();
      if (next == batches || away.size() >= 32) {
        std::this_thread::yield();
        continue;
      }
      const int64_t first = int64_t(random() % 1000), large = random() % 10 == 0 ? 4000 : 50;
      const int64_t length = 1 + int64_t(random() % uint64_t(large));
      Batch batch = numbers(first, length);
      CHECK(returns->send(next));
      away[next] = {first, length};
      if (outside->try_submit(next, batch)) {
        ++next;
      } else {
        CHECK(returns->take_back(next));
        away.erase(next);
        std::this_thread::yield();
      }
    }
    CHECK(away.empty());
  }
};

void with_threads(Random& random, uint64_t batches) {
  Sender sender;
  WorkerThreads workers(*sender.pool, Sender::kWorkers, [] {
    return [](PoolWorker& worker) {
      CHECK(worker.program() == 7);
      worker.beat()->fetch_add(1, std::memory_order_relaxed);
      answer(worker);
    };
  });
  sender.send(random, batches, [] {});
  CHECK(sender.failed == 0 && sender.raised.load() == int64_t(batches));
  sender.pool->close();
  workers.join();
}

// A worker dies at a row, as often as it takes until that row is named to the next one.
void die_at(Sender& sender, uint64_t row, size_t named) {
  for (uint32_t n = 0; n < Pool::kTries; ++n) {
    PoolWorker worker(dup(sender.pool->fd()), 1);
    CHECK(worker.claim(10'000'000));
    CHECK(worker.poison().size() == named);
    worker.beat()[1].store(row, std::memory_order_relaxed);
    sender.pool->died(1, "was killed");
  }
}

// Rows that kill are named one by one; a batch with too many of them fails, and so does one whose
// worker was at no row.
void poison() {
  for (const size_t rows : {size_t(2), size_t(RingSlot::kPoisons), size_t(0)}) {
    Sender sender;
    Batch batch = numbers(5, 40);
    CHECK(sender.returns->send(0) && sender.outside->try_submit(0, batch));
    sender.away[0] = {5, 40};
    for (size_t n = 0; n < rows; ++n) die_at(sender, (uint64_t(n) << 32) | (7 + n), n);
    if (rows == 2) {
      PoolWorker worker(dup(sender.pool->fd()), 1);
      CHECK(worker.claim(10'000'000));
      const auto named = worker.poison();
      CHECK(named.size() == 2 && named[1].row == 8 && named[1].step == 1);
      CHECK(named[0].why == std::string("the worker process was killed on this record, 3 times"));
      answer(worker);
    } else {
      die_at(sender, rows ? 39 : kNowhere, rows);
    }
    while (sender.back == 0) {
      sender.take();
      std::this_thread::yield();
    }
    CHECK(sender.failed == (rows == 2 ? 0u : 1u));
    // The next batch in the same slots knows nothing of it.
    for (uint64_t serial = 1; serial <= 8; ++serial) {
      Batch next = numbers(0, 3);
      CHECK(sender.returns->send(serial) && sender.outside->try_submit(serial, next));
      sender.away[serial] = {0, 3};
      PoolWorker worker(dup(sender.pool->fd()), 1);
      CHECK(worker.claim(10'000'000) && worker.poison().empty());
      answer(worker);
    }
    while (sender.back < 9) {
      sender.take();
      std::this_thread::yield();
    }
    sender.pool->close();
  }
}

pid_t worker_process(int fd, uint32_t w) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  PoolWorker worker(dup(fd), w);
  while (!worker.closing()) {
    if (worker.claim(10'000'000)) answer(worker);
  }
  _exit(0);
}

// Only without sanitizers: a process with their threads may not be forked.
void with_processes(Random& random, uint64_t batches) {
  std::vector<pid_t> children(Sender::kWorkers);
  Sender sender;
  for (uint32_t w = 0; w < Sender::kWorkers; ++w) {
    children[w] = worker_process(sender.pool->fd(), w);
  }
  uint64_t kills = 0;
  sender.send(random, batches, [&] {
    if (random() % 400) return;
    const auto w = uint32_t(random() % Sender::kWorkers);
    kill(children[w], SIGKILL);
    waitpid(children[w], nullptr, 0);
    sender.pool->died(w, "killed");
    ++kills;
    children[w] = worker_process(sender.pool->fd(), w);
  });
  sender.pool->close();
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  std::printf("%llu kills, %llu batches failed\n", (unsigned long long)kills,
              (unsigned long long)sender.failed);
}

// The state of a lane: the sum of all rows so far, in one bin.
struct Sum {
  int64_t total = 0;

  void add(const LaneMessage& m) {
    for (int64_t i = 0; i < m.length; ++i) total += m.columns[0].i64()[i];
    if (m.what == LaneDo::Take) total = 0;
    for (const auto& b : m.put) total = std::stoll(b.bytes);
  }
  // What a worker does: the sum behind every row.
  void serve(PoolWorker& worker) {
    const LaneMessage m = worker.message();
    LaneStep step;
    CallOutcome& o = step.step.outcome;
    o.one_to_one = true;
    if (m.what == LaneDo::Copy || m.what == LaneDo::Take) {
      step.told.bins.push_back({0, std::to_string(total)});
    }
    if (m.has_rows()) {
      o.out = numbers(0, m.length);
      int64_t sum = total;
      for (int64_t i = 0; i < m.length; ++i) {
        sum += m.columns[0].i64()[i];
        o.out.columns[0].data_owner.as<int64_t>()[i] = sum;
      }
    }
    add(m);
    step.told.next_timer = total;
    worker.answer(step);
  }
};

// Gives lanes messages, one batch for all of them at a time, and checks every sum.
struct Lanes {
  static constexpr uint32_t kLanes = 3;
  std::atomic<int64_t> raised{0};
  ParallelStage stage{"stage", StageLimits(), Operators()};
  std::shared_ptr<Pool> pool = std::make_shared<Pool>(16, 1 << 14, kLanes, kept, &raised);
  std::shared_ptr<PoolLanes> lanes;
  std::shared_ptr<LaneReturns> returns = std::make_shared<LaneReturns>(stage, 64, kLanes);
  std::vector<int64_t> sums = std::vector<int64_t>(kLanes, 0);
  std::map<uint64_t, std::vector<std::vector<int64_t>>> away;  // serial -> by lane: the sums
  uint64_t next = 0, back = 0;

  explicit Lanes(int64_t most) {
    lanes = std::make_shared<PoolLanes>(pool, 5, kLanes, 3, false, false, most);
    CHECK(lanes->lanes() == kLanes);
    lanes->attach(returns);
    lanes->gone();
    pool->add(lanes);
    pool->start();
  }
  void take() {
    LaneReturns::Item item;
    while (returns->take(item)) {
      const auto found = away.find(item.serial);
      CHECK(found != away.end() && !item.dropped);
      for (uint32_t l = 0; l < kLanes; ++l) {
        const CallOutcome& o = item.answers[l].outcome;
        CHECK(!o.fatal && o.out.length == int64_t(found->second[l].size()));
        for (int64_t i = 0; i < o.out.length; ++i) {
          CHECK(o.out.columns[0].i64()[i] == found->second[l][size_t(i)]);
        }
      }
      away.erase(found);
      ++back;
    }
  }
  std::shared_ptr<LaneMessage> message(Random& random, uint32_t lane) {
    auto m = std::make_shared<LaneMessage>();
    auto& wanted = away[next][lane];
    if (random() % 16 == 0) {
      m->what = LaneDo::Copy;
      m->all = true;
      return m;
    }
    if (random() % 16 == 0) {
      m->what = LaneDo::Put;
      sums[lane] = int64_t(random() % 1000);
      m->put.push_back({0, std::to_string(sums[lane])});
      return m;
    }
    const Batch rows = numbers(int64_t(random() % 1000), 1 + int64_t(random() % 30));
    m->length = rows.length;
    m->columns = rows.columns;
    for (int64_t i = 0; i < rows.length; ++i) {
      wanted.push_back(sums[lane] += rows.columns[0].i64()[i]);
    }
    return m;
  }
  template <class Meanwhile>
  void send(Random& random, uint64_t batches, Meanwhile&& meanwhile) {
    for (; next < batches; ++next) {
      while (away.size() >= 32) {
        take();
        meanwhile();
        std::this_thread::yield();
      }
      away[next].resize(kLanes);
      CHECK(returns->send(next, kLanes, false));
      for (uint32_t l = 0; l < kLanes; ++l) {
        const auto m = message(random, l);
        while (!lanes->try_give(l, next, m, {0})) {
          take();
          meanwhile();
          std::this_thread::yield();
        }
      }
      meanwhile();
    }
    while (back < batches) {
      take();
      meanwhile();
      std::this_thread::yield();
    }
  }
};

void lanes_with_threads(Random& random, uint64_t batches) {
  Lanes lanes(random() % 2 ? 1 : 1 << 20);
  WorkerThreads workers(*lanes.pool, Lanes::kLanes, [] {
    return [sum = Sum()](PoolWorker& worker) mutable {
      CHECK(worker.program() == 5);
      sum.serve(worker);
    };
  });
  lanes.send(random, batches, [&] { (void)lanes.lanes->due(0, 1, 1); });
  lanes.pool->close();
  workers.join();
}

// The answers to two copies come in any order; the later one counts.
void copies_in_any_order() {
  for (const bool older_last : {false, true}) {
    LaneLog log(1 << 20);
    LaneMessage copy;
    copy.what = LaneDo::Copy;
    copy.all = true;
    auto rows = std::make_shared<LaneMessage>();
    const uint64_t first = log.add(std::make_shared<LaneMessage>(copy)), between = log.add(rows);
    const uint64_t second = log.add(std::make_shared<LaneMessage>(copy));
    LaneTold older, newer;
    older.bins.push_back({0, "older"});
    newer.bins.push_back({0, "newer"});
    log.answered(between, *rows, LaneTold());
    if (!older_last) log.answered(first, copy, older);
    log.answered(second, copy, newer);
    if (older_last) log.answered(first, copy, older);
    FlatWriter size;
    log.write(size);
    BufferRef block = BufferRef::make(size.used());
    FlatWriter out(block.data());
    log.write(out);
    FlatReader in(block.data(), size.used());
    const auto bins = read_bins(in);
    CHECK(bins.size() == 1 && bins[0].bytes == "newer" && in.get<int64_t>() == 0);
  }
}

pid_t lane_process(Pool& pool, uint32_t w) {
  const int restore = pool.restore_fd(w);
  const int64_t size = restore < 0 ? 0 : lseek(restore, 0, SEEK_END);
  const pid_t pid = fork();
  if (pid != 0) {
    if (restore >= 0) close(restore);
    return pid;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  PoolWorker worker(dup(pool.fd()), w);
  Sum sum;
  if (restore >= 0) {
    LaneRestore again(restore, size);
    LaneMessage message;
    while (again.next()) {
      for (const auto& b : again.bins()) sum.total = std::stoll(b.bytes);
      while (again.next_message(message)) sum.add(message);
    }
  }
  while (!worker.closing()) {
    if (worker.claim(10'000'000)) sum.serve(worker);
  }
  _exit(0);
}

void lanes_with_processes(Random& random, uint64_t batches) {
  Lanes lanes(random() % 2 ? 1 : 3000);
  std::vector<pid_t> children(Lanes::kLanes);
  std::vector<int> deaths(Lanes::kLanes, 0);
  for (uint32_t w = 0; w < Lanes::kLanes; ++w) children[w] = lane_process(*lanes.pool, w);
  uint64_t kills = 0, seen = 0;
  lanes.send(random, batches, [&] {
    // A third death without a batch in between could be the end of one.
    if (lanes.back < seen + 3 || random() % 200) return;
    const auto w = uint32_t(random() % Lanes::kLanes);
    kill(children[w], SIGKILL);
    waitpid(children[w], nullptr, 0);
    CHECK(lanes.pool->died(w, "killed") == 0);
    ++kills;
    seen = lanes.back;
    children[w] = lane_process(*lanes.pool, w);
  });
  lanes.pool->close();
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  std::printf("%llu kills of lanes\n", (unsigned long long)kills);
  CHECK(kills > 0);
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long rounds = plait::testing::argument(argc, argv, 1000);
  const unsigned long processes = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  const unsigned long seed = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : std::random_device()();
  std::printf("seed %lu\n", seed);
  plait::testing::story() = "seed " + std::to_string(seed) + ": ";
  Random random(seed);
  flat_blocks(random, rounds);
  with_threads(random, rounds);
  poison();
  copies_in_any_order();
  lanes_with_threads(random, rounds);
  if (processes) with_processes(random, processes);
  if (processes) lanes_with_processes(random, processes);
  return 0;
}
