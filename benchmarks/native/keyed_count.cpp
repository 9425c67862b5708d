// The running count by key without an engine: the rates an ordered engine is measured against.
//
// Build: g++ -std=c++20 -O3 -mavx2 -pthread -I node_runtime/include
// benchmarks/native/keyed_count.cpp -o keyed_count Run: ./keyed_count [rows] [threads]
// [repetitions] [batch rows] [segment bits] Every variant writes, for each input row, how often its
// key has been seen. Same table, hash and prefetch everywhere:
//   private: each thread takes its part of the input and has a table of its own; unordered, nothing
//   shared. by_lane: each thread reads the whole input and works on the keys of its half of the
//   hash space. stages:  split, process and merge of a keyed stage, one thread, 1 and 2 lanes; also
//   the cost of each in ns a row.
// One JSON line for each key set and variant: million rows a second, median of the repetitions.
// "cold": from an empty table, growth included; "warm": the same input once more.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "plait/keyed/keyed_state.hpp"

namespace {

using namespace plait;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

struct Options {
  int64_t rows = 20'000'000, batch = 4096;
  unsigned threads = 2, repetitions = 3, segment_bits = KeyedPlan::kMaxSegmentBits;
};

std::vector<uint64_t> make_keys(int64_t rows, uint64_t distinct) {
  std::mt19937_64 random(7);
  std::vector<uint64_t> keys(static_cast<size_t>(rows));
  for (auto& k : keys) k = random() % distinct;
  return keys;
}

void on_threads(unsigned threads, const std::function<void(unsigned)>& work) {
  std::vector<std::thread> others;
  for (unsigned t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (auto& t : others) t.join();
}

inline uint64_t count_one(StateTable& table, uint64_t h) {
  uint64_t* slot = table.find<2>(h);
  const uint64_t seen = ++slot[1];
  slot[0] = h;
  if (seen == 1) [[unlikely]]
    table.inserted(h);
  return seen;
}

void count_private(StateTable& table, const uint64_t* keys, int64_t n, uint64_t* out) {
  table.even_out(uint32_t(n));
  int64_t i = 0;
  for (; i + int64_t(kAhead) < n; ++i) {
    table.prefetch<2>(keys[i + int64_t(kAhead)] * kGolden);
    out[i] = count_one(table, keys[i] * kGolden);
  }
  for (; i < n; ++i) out[i] = count_one(table, keys[i] * kGolden);
}

// Gathers the rows of one lane from a block without branches, then counts them.
void count_lane(StateTable& table, unsigned lane, unsigned lane_bits, const uint64_t* keys,
                int64_t n, uint64_t* out) {
  constexpr int64_t kBlock = 4096;
  std::vector<uint64_t> hash(kBlock + 1);
  std::vector<uint32_t> row(kBlock + 1);
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t size = std::min(kBlock, n - from);
    uint32_t m = 0;
    for (int64_t i = 0; i < size; ++i) {
      const uint64_t h = keys[from + i] * kGolden;
      hash[m] = h;
      row[m] = uint32_t(i);
      m += top_bits(h, lane_bits) == lane;
    }
    table.even_out(m);
    for (uint32_t i = 0; i < m; ++i) {
      if (i + kAhead < m) table.prefetch<2>(hash[i + kAhead]);
      out[from + row[i]] = count_one(table, hash[i]);
    }
  }
}

struct Rate {
  double cold = 0, warm = 0;
};

// Runs `pass` twice on fresh state made by `prepare`, as often as asked; medians in M rows/s.
Rate measure(const Options& o, const std::function<void()>& prepare,
             const std::function<void()>& pass) {
  std::vector<double> cold, warm;
  for (unsigned r = 0; r < o.repetitions; ++r) {
    prepare();
    for (auto* rates : {&cold, &warm}) {
      const auto from = Clock::now();
      pass();
      rates->push_back(double(o.rows) / seconds_since(from) / 1e6);
    }
  }
  std::sort(cold.begin(), cold.end());
  std::sort(warm.begin(), warm.end());
  return {cold[cold.size() / 2], warm[warm.size() / 2]};
}

void print(const char* keys, const std::string& variant, unsigned threads, Rate rate,
           const std::string& more = "") {
  std::printf(
      "{\"keys\": \"%s\", \"variant\": \"%s\", \"threads\": %u, \"cold_m_per_s\": %.1f, "
      "\"warm_m_per_s\": %.1f%s}\n",
      keys, variant.c_str(), threads, rate.cold, rate.warm, more.c_str());
  std::fflush(stdout);
}

void run_private(const Options& o, const char* name, unsigned threads,
                 const std::vector<uint64_t>& keys, std::vector<uint64_t>& out) {
  std::vector<std::unique_ptr<StateTable>> tables;
  const auto prepare = [&] {
    tables.clear();
    for (unsigned t = 0; t < threads; ++t) {
      tables.push_back(std::make_unique<StateTable>(2, 0, o.segment_bits));
    }
  };
  print(name, "private", threads, measure(o, prepare, [&] {
          on_threads(threads, [&](unsigned t) {
            const int64_t from = o.rows * t / threads, to = o.rows * (t + 1) / threads;
            count_private(*tables[t], keys.data() + from, to - from, out.data() + from);
          });
        }));
}

void run_by_lane(const Options& o, const char* name, const std::vector<uint64_t>& keys,
                 std::vector<uint64_t>& out) {
  const unsigned lane_bits = unsigned(std::bit_width(o.threads - 1));
  const unsigned lanes = 1u << lane_bits;
  std::vector<std::unique_ptr<StateTable>> tables;
  const auto prepare = [&] {
    tables.clear();
    for (unsigned l = 0; l < lanes; ++l) {
      tables.push_back(std::make_unique<StateTable>(2, lane_bits, o.segment_bits));
    }
  };
  print(name, "by_lane", lanes, measure(o, prepare, [&] {
          on_threads(lanes, [&](unsigned l) {
            count_lane(*tables[l], l, lane_bits, keys.data(), o.rows, out.data());
          });
        }));
}

Batch batch_of(const uint64_t* keys, int64_t n) {
  Batch b;
  b.length = n;
  Column c;
  c.length = n;
  c.data = reinterpret_cast<const uint8_t*>(keys);
  b.columns.push_back(c);
  return b;
}

void run_stages(const Options& o, const char* name, const std::string& aggregate,
                unsigned lane_bits, const std::vector<uint64_t>& keys) {
  std::vector<AggregateSpec> specs{{AggregateKind::Count, -1, Type::Int64, false}};
  if (aggregate == "sum") specs = {{AggregateKind::Sum, 0, Type::Int64, false}};
  const KeyedPlan plan = KeyedPlan::make({0}, {Type::Int64}, specs, 10, lane_bits, o.segment_bits);
  std::vector<std::unique_ptr<KeyedState>> states;
  double spent[3];
  const auto prepare = [&] {
    states.clear();
    for (unsigned l = 0; l < plan.lanes(); ++l) {
      states.push_back(std::make_unique<KeyedState>(plan, l));
    }
  };
  SplitBatch s;
  Batch out;
  const Rate rate = measure(o, prepare, [&] {
    std::fill(spent, spent + 3, 0.0);
    for (int64_t from = 0; from < o.rows; from += o.batch) {
      const Batch in = batch_of(keys.data() + from, std::min(o.batch, o.rows - from));
      auto at = Clock::now();
      split_by_lane(plan, in, s);
      spent[0] += seconds_since(at);
      at = Clock::now();
      for (unsigned l = 0; l < plan.lanes(); ++l) states[l]->process(in, s, l);
      spent[1] += seconds_since(at);
      at = Clock::now();
      merge_lanes(plan, in, s, out);
      spent[2] += seconds_since(at);
    }
  });
  char more[160];
  const double ns = 1e9 / double(o.rows);
  std::snprintf(more, sizeof more,
                ", \"lanes\": %u, \"split_ns\": %.2f, \"process_ns\": %.2f, \"merge_ns\": %.2f",
                plan.lanes(), spent[0] * ns, spent[1] * ns, spent[2] * ns);
  print(name, "stages_" + aggregate, 1, rate, more);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (argc > 1) o.rows = std::atoll(argv[1]);
  if (argc > 2) o.threads = unsigned(std::atoi(argv[2]));
  if (argc > 3) o.repetitions = unsigned(std::atoi(argv[3]));
  if (argc > 4) o.batch = std::atoll(argv[4]);
  if (argc > 5) o.segment_bits = unsigned(std::atoi(argv[5]));
  std::vector<uint64_t> out(static_cast<size_t>(o.rows));
  for (const auto& [name, distinct] : std::initializer_list<std::pair<const char*, uint64_t>>{
           {"hot", 1'000}, {"1e5", 100'000}, {"1e6", 1'000'000}, {"1e7", 10'000'000}}) {
    const std::vector<uint64_t> keys = make_keys(o.rows, distinct);
    run_private(o, name, 1, keys, out);
    if (o.threads > 1) {
      run_private(o, name, o.threads, keys, out);
      run_by_lane(o, name, keys, out);
    }
    for (unsigned lane_bits : {0u, 1u, 2u}) run_stages(o, name, "count", lane_bits, keys);
    for (unsigned lane_bits : {0u, 1u}) run_stages(o, name, "sum", lane_bits, keys);
  }
}
