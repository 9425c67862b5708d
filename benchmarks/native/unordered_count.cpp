// The running count by key without an engine and without order, over keys from a file.
//
// Run: unordered_count KEYS ROWS THREADS VARIANT [RESULTS]
// KEYS holds int64 keys, replayed until ROWS rows are counted. VARIANT private: each thread counts
// its own part of the rows in a table of its own (counts within its part). VARIANT by_lane: each
// thread reads all rows and counts the keys of its part of the hash space (counts over all rows).
// Table, hash and prefetch are those of the engine; every row's result is written to a block of
// 4,096 rows that is used again, as a batch would be, or with RESULTS to that file. Prints the
// seconds of a first pass over ROWS rows from an empty table, those of a second one, and the
// processor time of both.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "plait/keyed/keyed_state.hpp"

namespace {

using namespace plait;
using Clock = std::chrono::steady_clock;
constexpr int64_t kBlock = 4096;

std::vector<uint64_t> read_keys(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<uint64_t> keys(size_t(file.tellg()) / 8);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(keys.data()), std::streamsize(keys.size() * 8));
  return keys;
}

inline uint64_t count_one(StateTable& table, uint64_t h) {
  uint64_t* slot = table.find<2>(h);
  const uint64_t seen = ++slot[1];
  slot[0] = h;
  if (seen == 1) [[unlikely]]
    table.inserted(h);
  return seen;
}

void count_block(StateTable& table, const uint64_t* keys, int64_t n, uint64_t* out) {
  table.even_out(uint32_t(n));
  int64_t i = 0;
  for (; i + int64_t(kAhead) < n; ++i) {
    table.prefetch<2>(keys[i + int64_t(kAhead)] * kGolden);
    out[i] = count_one(table, keys[i] * kGolden);
  }
  for (; i < n; ++i) out[i] = count_one(table, keys[i] * kGolden);
}

// Gathers the rows of one lane without branches, then counts them.
struct LaneCounter {
  unsigned lane, lane_bits;
  std::vector<uint64_t> hash = std::vector<uint64_t>(kBlock + 1);
  std::vector<uint32_t> row = std::vector<uint32_t>(kBlock + 1);

  void operator()(StateTable& table, const uint64_t* keys, int64_t n, uint64_t* out) {
    uint32_t m = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t h = keys[i] * kGolden;
      hash[m] = h;
      row[m] = uint32_t(i);
      m += top_bits(h, lane_bits) == lane;
    }
    table.even_out(m);
    for (uint32_t i = 0; i < m; ++i) {
      if (i + kAhead < m) table.prefetch<2>(hash[i + kAhead]);
      out[row[i]] = count_one(table, hash[i]);
    }
  }
};

// Gives the rows `from` to `to` of the replay to `count`, in blocks that do not cross the end of
// the keys.
template <class Count>
void scan(const std::vector<uint64_t>& keys, int64_t from, int64_t to, uint64_t* results,
          Count&& count) {
  std::vector<uint64_t> block(kBlock);
  const int64_t size = int64_t(keys.size());
  for (int64_t row = from; row < to;) {
    const int64_t at = row % size;
    const int64_t n = std::min({kBlock, to - row, size - at});
    count(keys.data() + at, n, results ? results + row : block.data());
    row += n;
  }
}

// Of all threads of the process.
double cpu_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

double pass(const std::vector<uint64_t>& keys, int64_t rows, unsigned threads, bool by_lane,
            std::vector<std::unique_ptr<StateTable>>& tables, uint64_t* results) {
  const unsigned lane_bits = unsigned(std::bit_width(threads - 1));
  std::atomic<unsigned> waiting{threads};
  std::atomic<bool> go{false};
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      StateTable& table = *tables[t];
      LaneCounter lane{t, lane_bits};
      waiting.fetch_sub(1, std::memory_order_release);  // pairs with the main thread's acquire
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      if (by_lane) {
        scan(keys, 0, rows, results,
             [&](const uint64_t* k, int64_t n, uint64_t* out) { lane(table, k, n, out); });
      } else {
        scan(keys, rows * t / threads, rows * (t + 1) / threads, results,
             [&](const uint64_t* k, int64_t n, uint64_t* out) { count_block(table, k, n, out); });
      }
    });
  }
  while (waiting.load(std::memory_order_acquire)) std::this_thread::yield();
  const auto began = Clock::now();
  go.store(true, std::memory_order_release);  // pairs with the threads' acquire
  for (auto& t : running) t.join();
  return std::chrono::duration<double>(Clock::now() - began).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::vector<uint64_t> keys = read_keys(argv[1]);
  const int64_t rows = std::atoll(argv[2]);
  const unsigned threads = unsigned(std::atoi(argv[3]));
  const bool by_lane = std::string(argv[4]) == "by_lane";
  std::vector<uint64_t> results(argc > 5 ? size_t(rows) : 0);
  uint64_t* out = argc > 5 ? results.data() : nullptr;
  std::vector<std::unique_ptr<StateTable>> tables;
  for (unsigned t = 0; t < threads; ++t) {
    const unsigned bits = by_lane ? unsigned(std::bit_width(threads - 1)) : 0;
    tables.push_back(std::make_unique<StateTable>(2, bits, KeyedPlan::kMaxSegmentBits));
  }
  const double began = cpu_seconds();
  const double first = pass(keys, rows, threads, by_lane, tables, out);
  if (argc > 5) {
    std::ofstream file(argv[5], std::ios::binary);
    file.write(reinterpret_cast<const char*>(results.data()), std::streamsize(rows * 8));
    return 0;
  }
  const double second = pass(keys, rows, threads, by_lane, tables, nullptr);
  std::printf("%.9f %.9f %.9f\n", first, second, cpu_seconds() - began);
}
