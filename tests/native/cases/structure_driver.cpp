// Reads operations from standard input and prints each answer: the native side of the property
// tests. The first word of the input names the structure and its sizes; one line an operation.
//
// A callback can call back into the structure (`nest`), which shows in one thread what a second
// worker would meet: a flag that is taken, a partition that is being worked on.

#include <cstdint>
#include <cstdio>
#include <deque>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "check.hpp"
#include "plait/core/histogram.hpp"
#include "plait/queues/hybrid_queue.hpp"
#include "plait/queues/locked_reorder_buffer.hpp"
#include "plait/queues/mpmc_ring.hpp"
#include "plait/queues/reorder_buffer.hpp"
#include "plait/queues/spsc_ring.hpp"

namespace plait::testing {
namespace {

using Words = std::istringstream;

template <class Ring>
void drive_ring(Words& header) {
  std::size_t capacity = 0;
  header >> capacity;
  Ring ring(capacity);
  for (std::string line; std::getline(std::cin, line);) {
    Words words(line);
    std::string name;
    std::uint64_t value = 0;
    words >> name;
    if (name == "push") {
      words >> value;
      std::printf("%d\n", ring.try_push(value) ? 1 : 0);
    } else if (name == "pop") {
      if (ring.try_pop(value)) {
        std::printf("%llu\n", static_cast<unsigned long long>(value));
      } else {
        std::printf("-\n");
      }
    } else {
      std::printf("%zu\n", ring.size_approx());
    }
  }
}

// `credit n`: how many items downstream takes before it is full. `nest s`: the next item that is
// taken sends serial s from inside the callback (not for the locked buffer).
template <class Buffer>
void drive_reorder(Words& header) {
  std::size_t capacity = 0;
  std::uint64_t first = 0;
  header >> capacity >> first;
  Buffer buffer(capacity, first);
  std::deque<std::uint64_t> items;
  std::uint64_t credit = 0;
  std::vector<std::uint64_t> nested;
  std::string trace;
  const auto item_of = [&](std::uint64_t serial) {
    items.push_back(serial);
    return &items.back();
  };
  const auto sink = [&](auto& self, std::uint64_t* item) -> bool {
    if (credit == 0) return false;
    --credit;
    trace += " " + std::to_string(*item);
    if (!nested.empty()) {
      const std::uint64_t serial = nested.back();
      nested.pop_back();
      const bool added = buffer.send(serial, item_of(serial),
                                     [&](std::uint64_t* inner) { return self(self, inner); });
      trace += added ? "+" : "!";
    }
    return true;
  };
  const auto send = [&](std::uint64_t* item) { return sink(sink, item); };
  for (std::string line; std::getline(std::cin, line);) {
    Words words(line);
    std::string name;
    std::uint64_t value = 0;
    words >> name >> value;
    bool result = true;
    trace.clear();
    if (name == "add") result = buffer.try_add(value, item_of(value));
    if (name == "send") result = buffer.send(value, item_of(value), send);
    if (name == "pending") buffer.send_pending(send);
    if (name == "credit") credit = value;
    if (name == "nest") nested.push_back(value);
    std::printf("%d %llu %d:%s\n", result ? 1 : 0, static_cast<unsigned long long>(buffer.next()),
                buffer.ready() ? 1 : 0, trace.c_str());
  }
}

// `consume max n1 n2 ...`: while the first item is being operated on, consume(n1) is called from
// inside, while the second n2, and so on in the order in which items begin.
void drive_hybrid(Words& header) {
  std::size_t partitions = 0;
  std::size_t capacity = 0;
  header >> partitions >> capacity;
  HybridQueue<std::uint64_t> queue(partitions, capacity);
  std::deque<std::uint64_t> items;
  std::deque<std::size_t> nested;
  std::string trace;
  const auto operate = [&](auto& self, std::size_t partition, std::uint64_t* item) -> void {
    trace += " " + std::to_string(partition) + "/" + std::to_string(*item);
    if (nested.empty()) return;
    const std::size_t inner = nested.front();
    nested.pop_front();
    trace += "(";
    const auto again = [&](std::size_t p, std::uint64_t* i) { self(self, p, i); };
    trace += std::to_string(queue.consume(1, again, inner)) + ")";
  };
  for (std::string line; std::getline(std::cin, line);) {
    Words words(line);
    std::string name;
    std::size_t first = 0;
    words >> name >> first;
    trace.clear();
    nested.clear();
    std::size_t result = 0;
    if (name == "add") {
      std::uint64_t value = 0;
      words >> value;
      items.push_back(value);
      result = queue.try_add(first, &items.back()) ? 1 : 0;
    } else {
      for (std::size_t inner = 0; words >> inner;) nested.push_back(inner);
      const auto begin = [&](std::size_t p, std::uint64_t* i) { operate(operate, p, i); };
      result = queue.consume(0, begin, first);
    }
    std::printf("%zu %zu:%s\n", result, queue.size_approx(), trace.c_str());
  }
}

// `record value count` goes to the second histogram; `merge` adds the second to the first, which is
// asked.
void drive_histogram() {
  auto whole = std::make_unique<Histogram>();
  auto part = std::make_unique<Histogram>();
  for (std::string line; std::getline(std::cin, line);) {
    Words words(line);
    std::string name;
    words >> name;
    if (name == "record") {
      std::uint64_t value = 0;
      std::uint64_t count = 0;
      words >> value >> count;
      part->record(value, count);
    } else if (name == "merge") {
      whole->merge(*part);
      part = std::make_unique<Histogram>();
    }
    std::printf("%llu %llu %a", static_cast<unsigned long long>(whole->count()),
                static_cast<unsigned long long>(whole->max()), whole->mean());
    for (const double percent : {0.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
      std::printf(" %llu", static_cast<unsigned long long>(whole->percentile(percent)));
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace plait::testing

int main() {
  using namespace plait;
  using namespace plait::testing;
  std::string line;
  CHECK(std::getline(std::cin, line));
  Words header(line);
  std::string name;
  header >> name;
  if (name == "spsc") {
    drive_ring<SpscRing<std::uint64_t>>(header);
  } else if (name == "mpmc") {
    drive_ring<MpmcRing<std::uint64_t>>(header);
  } else if (name == "reorder") {
    drive_reorder<ReorderBuffer<std::uint64_t>>(header);
  } else if (name == "locked") {
    drive_reorder<LockedReorderBuffer<std::uint64_t>>(header);
  } else if (name == "hybrid") {
    drive_hybrid(header);
  } else {
    CHECK(name == "histogram");
    drive_histogram();
  }
  return 0;
}
