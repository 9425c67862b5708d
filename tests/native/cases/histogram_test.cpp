// The histogram against exact answers, and a reader beside the writer: argv[1] values.

#include "plait/core/histogram.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"

namespace plait::testing {
namespace {

void edges() {
  Histogram empty;
  CHECK(empty.count() == 0 && empty.percentile(99) == 0 && empty.max() == 0 && empty.mean() == 0);
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    CHECK(Histogram::bucket_of(Histogram::upper_edge(bucket)) == bucket);
    if (bucket > 0) CHECK(Histogram::bucket_of(Histogram::upper_edge(bucket - 1) + 1) == bucket);
  }
  Histogram one;
  one.record(~std::uint64_t{0});
  CHECK(one.percentile(0) == ~std::uint64_t{0} && one.percentile(100) == ~std::uint64_t{0});
}

void precision(std::uint64_t count) {
  auto whole = std::make_unique<Histogram>();
  auto half = std::make_unique<Histogram>();
  std::vector<std::uint64_t> values;
  std::uint64_t state = 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values.push_back((state >> 33) >> (state % 30));
    (i % 2 == 0 ? *whole : *half).record(values.back());
  }
  whole->merge(*half);
  std::sort(values.begin(), values.end());
  CHECK(whole->count() == count && whole->max() == values.back());
  double sum = 0;
  for (const std::uint64_t value : values) sum += static_cast<double>(value);
  CHECK(std::abs(whole->mean() - sum / static_cast<double>(count)) <= 1e-9 * sum);
  for (const double percent : {0.0, 1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
    const double share = std::ceil(percent / 100.0 * static_cast<double>(count));
    const std::uint64_t exact = values[share < 1 ? 0 : static_cast<std::size_t>(share) - 1];
    const std::uint64_t got = whole->percentile(percent);
    CHECK(got >= exact && got - exact <= exact / 32);
  }
}

void concurrent_reader(std::uint64_t count) {
  auto written = std::make_unique<Histogram>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < count; ++i) written->record(i, 2);
    stop.store(true, std::memory_order_release);
  });
  std::uint64_t last = 0;
  while (!stop.load(std::memory_order_acquire)) {
    auto merged = std::make_unique<Histogram>();
    merged->merge(*written);
    CHECK(merged->count() >= last && merged->count() <= 2 * count);
    last = merged->count();
  }
  writer.join();
  CHECK(written->count() == 2 * count && written->max() == count - 1);
}

}  // namespace
}  // namespace plait::testing

int main(int argc, char** argv) {
  using namespace plait::testing;
  const std::uint64_t count = argument(argc, argv, 100'000);
  edges();
  precision(count);
  concurrent_reader(count);
  return 0;
}
