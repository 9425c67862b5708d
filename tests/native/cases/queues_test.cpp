// Stress of the three partition queues on real threads: argv[1] items. Each partition's state is
// plain memory, so two workers in one partition are a data race as well as a failed check; the role
// of the producer passes between two threads.

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "check.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/queues/hybrid_queue.hpp"
#include "plait/queues/partitioned_queue.hpp"
#include "plait/queues/shared_queue.hpp"
#include "policies.hpp"

namespace plait::testing {
namespace {

struct Item {
  std::uint64_t serial = 0;
};

template <class Queue>
void stress(Queue& queue, std::uint64_t count, std::size_t slice, std::uint64_t hot_percent) {
  constexpr std::size_t kWorkers = 3;
  constexpr std::uint64_t kTurn = 50;
  const std::size_t partitions = queue.partitions();
  std::vector<Item> items(count);
  std::vector<std::uint64_t> added(partitions, 0);
  std::vector<std::uint64_t> next(partitions, 0);
  std::atomic<std::uint64_t> turn{0};
  std::atomic<std::uint64_t> done{0};
  const auto produce = [&](std::uint64_t parity) {
    for (std::uint64_t begin = parity * kTurn; begin < count; begin += 2 * kTurn) {
      // Acquire pairs with the release of turn below: the hand-over of the producer's role.
      Backoff backoff;
      while (turn.load(std::memory_order_acquire) != begin / kTurn) backoff.wait();
      for (std::uint64_t i = begin; i < begin + kTurn && i < count; ++i) {
        const std::uint64_t mixed = i * 0x9E3779B97F4A7C15u >> 33;
        const std::size_t partition = mixed % 100 < hot_percent ? 0 : mixed % partitions;
        items[i].serial = added[partition]++;
        backoff.reset();
        while (!queue.try_add(partition, &items[i])) backoff.wait();
      }
      turn.store(begin / kTurn + 1, std::memory_order_release);
    }
  };
  const auto operate = [&](std::size_t partition, Item* item) {
    CHECK(item->serial == next[partition]);
    ++next[partition];
  };
  std::vector<std::thread> threads;
  threads.emplace_back(produce, 0);
  threads.emplace_back(produce, 1);
  for (std::size_t worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      Backoff backoff;
      while (done.load(std::memory_order_relaxed) < count) {
        const std::size_t processed = queue.consume(worker, operate, slice);
        done.fetch_add(processed, std::memory_order_relaxed);
        if (processed == 0) {
          backoff.wait();
        } else {
          backoff.reset();
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(done.load() == count && queue.size_approx() == 0);
  CHECK(next == added);
}

void run(std::uint64_t count, std::size_t partitions, std::size_t slice, std::uint64_t hot) {
  HybridQueue<Item, TestAtomics> hybrid(partitions, 16);
  stress(hybrid, count, slice, hot);
  PartitionedQueue<Item, TestAtomics> partitioned(partitions, 16, 3);
  stress(partitioned, count, slice, hot);
  SharedQueue<Item, TestAtomics> shared(partitions, 16);
  stress(shared, count, slice, hot);
}

// Two entries of one partition, the second taken from inside the first: it must be delegated.
void delegation() {
  HybridQueue<Item, TestAtomics> queue(2, 4);
  Item items[3] = {{0}, {1}, {2}};
  for (auto& item : items) CHECK(queue.try_add(1, &item));
  CHECK(queue.size_approx() == 3 && queue.entries_approx() == 3);
  std::vector<std::uint64_t> order;
  const auto inner = [](std::size_t, Item*) { CHECK(!"delegated, not operated on here"); };
  const auto outer = [&](std::size_t partition, Item* item) {
    CHECK(partition == 1);
    order.push_back(item->serial);
    if (item->serial == 0) CHECK(queue.consume(1, inner, 1) == 0);
  };
  // One entry is taken, the delegated item is operated on as well, the third stays.
  CHECK(queue.consume(0, outer, 1) == 2 && queue.size_approx() == 1);
  CHECK(queue.consume(0, outer, 1) == 1);
  CHECK((order == std::vector<std::uint64_t>{0, 1, 2}));
}

// Full: nothing is taken, and what was refused fits after one item has gone.
template <class Queue>
void full(Queue& queue, std::size_t room) {
  Item item;
  for (std::size_t i = 0; i < room; ++i) CHECK(queue.try_add(0, &item));
  CHECK(!queue.try_add(0, &item) && queue.size_approx() == room);
  const auto ignore = [](std::size_t, Item*) {};
  CHECK(queue.consume(0, ignore, 1) == 1 && queue.try_add(0, &item));
  CHECK(queue.consume(0, ignore, 100) == room && queue.size_approx() == 0);
}

}  // namespace
}  // namespace plait::testing

int main(int argc, char** argv) {
  using namespace plait;
  using namespace plait::testing;
  const std::uint64_t count = argument(argc, argv, 60'000);
  delegation();
  HybridQueue<Item> hybrid(2, 4);
  full(hybrid, 4);
  PartitionedQueue<Item> partitioned(2, 4, 1);
  full(partitioned, 4);
  SharedQueue<Item> shared(2, 4);
  full(shared, 8);
  run(count, 1, 1, 0);
  run(count, 4, 8, 50);
  run(count, 64, 32, 0);
  return 0;
}
