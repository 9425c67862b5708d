// A map of a float64 column without an engine: the rate that expressions and compiled functions are
// measured against.
//
// Run: map PRICES ROWS THREADS [RESULTS]
// PRICES holds float64 values, replayed until ROWS rows are mapped; each thread takes its part of
// the rows and writes the results to a block of 4,096 rows that is used again, or with RESULTS to
// that file. Prints the seconds of the loop.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kBlock = 4096;

std::vector<double> read_values(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<double> values(size_t(file.tellg()) / 8);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), std::streamsize(values.size() * 8));
  return values;
}

// Not inlined: the compiler must not see that nobody reads a block, and drop the loop.
[[gnu::noinline]] void map_block(const double* in, int64_t n, double* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = (in[i] * 0.908 + 2.5) * in[i];
  asm volatile("" : : "r"(out) : "memory");
}

void map_rows(const std::vector<double>& values, int64_t from, int64_t to, double* results) {
  std::vector<double> block(kBlock);
  const int64_t size = int64_t(values.size());
  for (int64_t row = from; row < to;) {
    const int64_t at = row % size;
    const int64_t n = std::min({kBlock, to - row, size - at});
    map_block(values.data() + at, n, results ? results + row : block.data());
    row += n;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::vector<double> values = read_values(argv[1]);
  const int64_t rows = std::atoll(argv[2]), threads = std::atoll(argv[3]);
  std::vector<double> results(argc > 4 ? size_t(rows) : 0);
  double* out = argc > 4 ? results.data() : nullptr;
  std::atomic<int64_t> waiting{threads};
  std::atomic<bool> go{false};
  std::vector<std::thread> running;
  for (int64_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      waiting.fetch_sub(1, std::memory_order_release);  // pairs with the acquire below
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      map_rows(values, rows * t / threads, rows * (t + 1) / threads, out);
    });
  }
  while (waiting.load(std::memory_order_acquire)) std::this_thread::yield();
  const auto began = Clock::now();
  go.store(true, std::memory_order_release);  // pairs with the threads' acquire
  for (auto& t : running) t.join();
  std::printf("%.9f\n", std::chrono::duration<double>(Clock::now() - began).count());
  if (out) {
    std::ofstream file(argv[4], std::ios::binary);
    file.write(reinterpret_cast<const char*>(out), std::streamsize(rows * 8));
  }
}
