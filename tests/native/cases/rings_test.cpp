// Stress of the two rings on real threads: argv[1] items. Payloads are plain memory, so that a
// wrong order of publication is a data race for ThreadSanitizer.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/queues/mpmc_ring.hpp"
#include "plait/queues/spsc_ring.hpp"
#include "policies.hpp"

namespace plait::testing {
namespace {

using Item = std::unique_ptr<std::uint64_t>;

template <class Ring>
void push(Ring& ring, std::uint64_t value) {
  auto* const raw = new std::uint64_t(value);
  Backoff backoff;
  while (!ring.try_push(raw)) backoff.wait();
}

template <class Ring>
Item pop(Ring& ring) {
  std::uint64_t* raw = nullptr;
  Backoff backoff;
  while (!ring.try_pop(raw)) backoff.wait();
  return Item(raw);
}

void spsc(std::uint64_t items, std::size_t capacity) {
  SpscRing<std::uint64_t*, TestAtomics> ring(capacity);
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < items; ++i) push(ring, i);
  });
  for (std::uint64_t i = 0; i < items; ++i) {
    CHECK(*pop(ring) == i);
    CHECK(ring.size_approx() <= capacity);
  }
  producer.join();
  CHECK(ring.size_approx() == 0);
}

// Each item arrives once, and a consumer sees each producer's items in that producer's order.
void mpmc(std::uint64_t items, std::size_t capacity) {
  constexpr std::uint64_t kThreads = 2;
  MpmcRing<std::uint64_t*, TestAtomics> ring(capacity);
  std::vector<std::vector<std::uint64_t>> got(kThreads);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < items; ++i) push(ring, i * kThreads + t);
    });
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < items; ++i) got[t].push_back(*pop(ring));
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<int> seen(items * kThreads, 0);
  for (const auto& values : got) {
    std::uint64_t least[kThreads] = {};
    for (const std::uint64_t value : values) {
      CHECK(value >= least[value % kThreads]);
      least[value % kThreads] = value + 1;
      ++seen[value];
    }
  }
  for (const int times : seen) CHECK(times == 1);
  CHECK(ring.size_approx() == 0 && ring.can_push());
}

template <class Build>
void refuses(Build build) {
  bool refused = false;
  try {
    build();
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

void edges() {
  SpscRing<int, TestAtomics> one(1);
  int value = 7;
  CHECK(!one.try_pop(value) && value == 7);
  CHECK(one.try_push(1) && !one.try_push(2) && one.size_approx() == 1);
  CHECK(one.try_pop(value) && value == 1 && !one.try_pop(value));
  MpmcRing<int, TestAtomics> two(2);
  CHECK(two.try_push(1) && two.can_push() && two.try_push(2) && !two.can_push());
  CHECK(!two.try_push(3) && two.size_approx() == 2);
  CHECK(two.try_pop(value) && value == 1 && two.can_push());
  CHECK(two.try_pop(value) && value == 2 && !two.try_pop(value));
  refuses([] { SpscRing<int> ring(3); });
  refuses([] { SpscRing<int> ring(0); });
  refuses([] { MpmcRing<int> ring(1); });
}

}  // namespace
}  // namespace plait::testing

int main(int argc, char** argv) {
  using namespace plait::testing;
  const std::uint64_t items = argument(argc, argv, 100'000);
  edges();
  for (const std::size_t capacity : {1, 4, 256}) spsc(items, capacity);
  for (const std::size_t capacity : {2, 4, 256}) mpmc(items / 2, capacity);
  return 0;
}
