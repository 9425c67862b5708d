// Explores interleavings of the real reorder buffer and queues: argv[1] seeds, from argv[2] on.
//
// A failure prints the scenario and the seed; `explore_test 1 <seed>` repeats it.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "explored_atomics.hpp"
#include "explorer.hpp"
#include "plait/queues/free_list.hpp"
#include "plait/queues/hybrid_queue.hpp"
#include "plait/queues/locked_reorder_buffer.hpp"
#include "plait/queues/mpmc_ring.hpp"
#include "plait/queues/partitioned_queue.hpp"
#include "plait/queues/reorder_buffer.hpp"
#include "plait/queues/shared_queue.hpp"
#include "plait/queues/spsc_ring.hpp"
#include "policies.hpp"

namespace plait::testing {
namespace {

using Policy = Seeded<ExploredAtomics>;
using Bodies = std::vector<std::function<void()>>;

struct Item {
  std::uint64_t serial = 0;
};

// Takes items in order, one caller at a time; refuses some when `refusals` is not 0.
struct Downstream {
  std::uint64_t next = 0;
  std::uint64_t refusals = 0;
  bool inside = false;

  bool operator()(Item* item) {
    CHECK(!inside);
    inside = true;
    Explorer::point();
    const bool refuse = refusals > 0 && (item->serial + refusals) % 2 == 0;
    if (refuse) {
      --refusals;
    } else {
      CHECK(item->serial == next);
      ++next;
    }
    inside = false;
    return !refuse;
  }
};

template <template <class, class> class Buffer>
void reorder(std::uint64_t seed, std::uint64_t refusals) {
  constexpr std::uint64_t kItems = 7;
  Random random(seed ^ 0x5eed);
  const std::size_t workers = 2 + random.below(3);
  Buffer<Item, Policy> buffer(std::size_t{1} << random.below(3));
  std::vector<Item> items(kItems);
  Downstream downstream{0, refusals};
  Policy::Atomic<std::uint64_t> taken(0);
  const auto sink = [&](Item* item) { return downstream(item); };
  const auto work = [&] {
    for (;;) {
      const std::uint64_t serial = taken.fetch_add(1, std::memory_order_relaxed);
      if (serial >= kItems) return;
      items[serial].serial = serial;
      while (!buffer.send(serial, &items[serial], sink)) Explorer::yield();
    }
  };
  Explorer::run(seed, Bodies(workers, work));
  if (refusals > 0) {
    // A refused head waits for somebody to come back; then everything must go, in order.
    CHECK(downstream.next == kItems || buffer.ready());
    downstream.refusals = 0;
    buffer.send_pending(sink);
  }
  // Nothing that could go may be left behind once no worker is inside.
  CHECK(downstream.next == kItems);
  CHECK(buffer.next() == kItems && !buffer.ready());
}

// One producer, some workers; each partition alone and in order.
template <class Queue>
void partitions(std::uint64_t seed, Queue& queue, std::size_t partition_count) {
  constexpr std::uint64_t kItems = 8;
  struct State {
    std::uint64_t next = 0;
    bool inside = false;
  };
  Random random(seed ^ 0xfeed);
  const std::size_t workers = 2 + random.below(2);
  const std::size_t slice = 1 + random.below(3);
  std::vector<State> states(partition_count);
  std::vector<std::uint64_t> added(partition_count, 0);
  std::vector<Item> items(kItems);
  std::vector<std::size_t> target(kItems);
  for (auto& partition : target) partition = random.below(partition_count);
  Policy::Atomic<std::uint64_t> done(0);
  const auto produce = [&] {
    for (std::uint64_t i = 0; i < kItems; ++i) {
      items[i].serial = added[target[i]]++;
      while (!queue.try_add(target[i], &items[i])) Explorer::yield();
    }
  };
  const auto operate = [&](std::size_t partition, Item* item) {
    State& state = states[partition];
    CHECK(!state.inside);
    state.inside = true;
    Explorer::point();
    CHECK(item->serial == state.next);
    ++state.next;
    state.inside = false;
    done.fetch_add(1, std::memory_order_relaxed);
  };
  Bodies bodies{produce};
  for (std::size_t worker = 0; worker < workers; ++worker) {
    bodies.emplace_back([&, worker] {
      while (done.load(std::memory_order_relaxed) < kItems) {
        if (queue.consume(worker, operate, slice) == 0) Explorer::yield();
      }
    });
  }
  Explorer::run(seed, bodies);
  CHECK(done.load(std::memory_order_relaxed) == kItems);
  CHECK(queue.size_approx() == 0);
  for (std::size_t p = 0; p < partition_count; ++p) CHECK(states[p].next == added[p]);
}

void hybrid(std::uint64_t seed) {
  HybridQueue<Item, Policy> queue(1 + seed % 3, 2);
  partitions(seed, queue, 1 + seed % 3);
}

void partitioned(std::uint64_t seed) {
  PartitionedQueue<Item, Policy> queue(1 + seed % 3, 2, 2);
  partitions(seed, queue, 1 + seed % 3);
}

void shared(std::uint64_t seed) {
  SharedQueue<Item, Policy> queue(1 + seed % 3, 2);
  partitions(seed, queue, 1 + seed % 3);
}

// Two producers, two consumers: each item once, and each producer's items in its order.
void mpmc(std::uint64_t seed) {
  constexpr std::uint64_t kEach = 4;
  MpmcRing<Item*, Policy> ring(2);
  std::vector<Item> items(2 * kEach);
  std::vector<int> seen(2 * kEach, 0);
  Policy::Atomic<std::uint64_t> done(0);
  Bodies bodies;
  for (std::uint64_t producer = 0; producer < 2; ++producer) {
    bodies.emplace_back([&, producer] {
      for (std::uint64_t i = producer * kEach; i < (producer + 1) * kEach; ++i) {
        items[i].serial = i;
        while (!ring.try_push(&items[i])) Explorer::yield();
      }
    });
    bodies.emplace_back([&] {
      std::uint64_t last[2] = {0, 0};
      while (done.load(std::memory_order_relaxed) < 2 * kEach) {
        Item* item = nullptr;
        if (!ring.try_pop(item)) {
          Explorer::yield();
          continue;
        }
        std::uint64_t& before = last[item->serial / kEach];
        CHECK(item->serial + 1 > before);
        before = item->serial + 1;
        ++seen[item->serial];
        done.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  Explorer::run(seed, bodies);
  for (const int times : seen) CHECK(times == 1);
}

void spsc(std::uint64_t seed) {
  constexpr std::uint64_t kItems = 8;
  SpscRing<Item*, Policy> ring(std::size_t{1} << seed % 3);
  std::vector<Item> items(kItems);
  const auto produce = [&] {
    for (std::uint64_t i = 0; i < kItems; ++i) {
      items[i].serial = i;
      while (!ring.try_push(&items[i])) Explorer::yield();
    }
  };
  const auto consume = [&] {
    for (std::uint64_t i = 0; i < kItems; ++i) {
      Item* item = nullptr;
      while (!ring.try_pop(item)) Explorer::yield();
      CHECK(item->serial == i);
    }
  };
  Explorer::run(seed, {produce, consume});
}

// Work that comes to an item is always done, though nobody looks at items that are not listed.
void free_list(std::uint64_t seed) {
  constexpr std::uint64_t kEach = 4;
  struct Work {
    Policy::Atomic<bool> listed{false};
    Policy::Atomic<std::uint64_t> pushed{0}, claimed{0};
  };
  Random random(seed ^ 0xf4ee);
  const std::size_t workers = 1 + random.below(3);
  std::vector<Work> items(1 + random.below(2));
  FreeListOf<Work, Policy> list(items.size());
  Policy::Atomic<std::uint64_t> left(kEach * items.size());
  Bodies bodies;
  for (Work& item : items) {
    bodies.push_back([&] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        item.pushed.store(i + 1, std::memory_order_release);
        list.add(item);
      }
    });
  }
  // If an item were forgotten, this would go on for ever, which the explorer reports.
  const auto work = [&] {
    while (left.load(std::memory_order_acquire) > 0) {
      Work* item = list.take();
      if (!item) {
        Explorer::yield();
        continue;
      }
      const std::uint64_t end = item->pushed.load(std::memory_order_acquire);
      std::uint64_t at = item->claimed.load(std::memory_order_acquire);
      // One at a time, as with a slice that ends.
      const bool done =
          at < end && item->claimed.compare_exchange_weak(at, at + 1, std::memory_order_acq_rel,
                                                          std::memory_order_acquire);
      if (done) left.fetch_sub(1, std::memory_order_acq_rel);
      list.give_back(*item, at + done < end);
    }
  };
  for (std::size_t w = 0; w < workers; ++w) bodies.push_back(work);
  Explorer::run(seed, bodies);
  for (Work& item : items) CHECK(item.claimed.load(std::memory_order_acquire) == kEach);
}

struct Scenario {
  const char* name;
  void (*run)(std::uint64_t);
};

constexpr Scenario kScenarios[] = {
    {"reorder", [](std::uint64_t seed) { reorder<ReorderBuffer>(seed, 0); }},
    {"reorder, downstream full", [](std::uint64_t seed) { reorder<ReorderBuffer>(seed, 3); }},
    {"locked reorder", [](std::uint64_t seed) { reorder<LockedReorderBuffer>(seed, 2); }},
    {"hybrid", hybrid},
    {"partitioned", partitioned},
    {"shared", shared},
    {"mpmc", mpmc},
    {"spsc", spsc},
    {"free list", free_list},
};

}  // namespace
}  // namespace plait::testing

int main(int argc, char** argv) {
  using namespace plait::testing;
  // A structure that finds itself broken aborts: say with which seed.
  std::signal(SIGABRT, [](int) { fail("aborted", __FILE__, __LINE__); });
  const unsigned long seeds = argument(argc, argv, 2000);
  const unsigned long first = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  for (const Scenario& scenario : kScenarios) {
    for (unsigned long seed = first; seed < first + seeds; ++seed) {
      story() = std::string(scenario.name) + ", seed " + std::to_string(seed) + ": ";
      scenario.run(seed);
    }
    std::printf("%s: %lu seeds\n", scenario.name, seeds);
  }
  return 0;
}
