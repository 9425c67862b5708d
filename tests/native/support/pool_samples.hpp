// What the tests of the pool share: batches of numbers, worker threads in place of processes, and a
// state that adds up by key.
//
// The threads are what the sanitizers can see. `KeySums` is the same on both sides of the ring: it
// serves lane messages in a worker, and stands in for Python in the engine.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "plait/columns/key_hash.hpp"
#include "plait/columns/select.hpp"
#include "plait/pool/pool.hpp"
#include "plait/pool/pool_worker.hpp"

namespace plait::testing {

inline Column column_of(const std::vector<int64_t>& values) {
  Column c;
  c.length = int64_t(values.size());
  c.data_owner = BufferRef::make(8 * c.length);
  if (!values.empty()) std::memcpy(c.data_owner.data(), values.data(), 8 * values.size());
  c.data = c.data_owner.data();
  return c;
}

inline Batch numbers(int64_t first, int64_t length) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < length; ++i) values.push_back(first + i);
  Batch batch;
  batch.length = length;
  batch.columns.push_back(column_of(values));
  return batch;
}

// Each thread serves what it claims with what `make` made for it, until the pool closes.
class WorkerThreads {
 public:
  template <class Make>
  WorkerThreads(Pool& pool, uint32_t count, const Make& make) {
    for (uint32_t w = 0; w < count; ++w) {
      threads_.emplace_back([this, fd = dup(pool.fd()), w, serve = make()]() mutable {
        PoolWorker worker(fd, w);
        while (!worker.closing()) {
          if (stuck.load(std::memory_order_relaxed)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          } else if (worker.claim(10'000'000)) {
            serve(worker);
          }
        }
      });
    }
  }
  // After the pool was closed.
  void join() {
    for (auto& t : threads_) t.join();
  }
  std::atomic<bool> stuck{false};  // nothing is claimed any more

 private:
  std::vector<std::thread> threads_;
};

// Rows are (key, value), each is answered by (key, the sum of the key so far). A negative value
// fails and is not added; a sum of zero makes no row.
struct KeySums {
  using Sums = std::map<int64_t, int64_t>;
  unsigned bin_bits = 0;
  bool stops = false;  // with the policy fail: nothing behind a failed row
  std::map<uint32_t, Sums> bins;

  uint32_t bin_of(int64_t key) const {
    return uint32_t(top_bits(hash_fixed(uint64_t(key), Type::Int64), bin_bits));
  }
  CallOutcome add(const std::vector<Column>& in, int64_t length) {
    CallOutcome o;
    std::vector<int64_t> sums;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t key = in[0].i64()[i], value = in[1].i64()[i];
      if (value < 0) {
        o.failures.push_back({uint32_t(i), "bad"});
        if (stops) break;
        continue;
      }
      const int64_t sum = bins[bin_of(key)][key] += value;
      if (sum == 0) continue;
      o.origin.push_back(uint32_t(i));
      sums.push_back(sum);
    }
    o.out.length = int64_t(sums.size());
    o.one_to_one = o.out.length == length;
    o.out.columns = {o.one_to_one ? in[0] : take(in[0], o.origin.data(), o.out.length),
                     column_of(sums)};
    return o;
  }

  static std::string bytes_of(const Sums& sums) {
    std::string bytes;
    for (const auto& one : sums) {
      for (int64_t number : {one.first, one.second}) {
        bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
      }
    }
    return bytes;
  }
  static Sums sums_of(const std::string& bytes) {
    Sums sums;
    CHECK(bytes.size() % 16 == 0);
    for (size_t at = 0; at < bytes.size(); at += 16) {
      int64_t pair[2];
      std::memcpy(pair, bytes.data() + at, sizeof pair);
      sums[pair[0]] = pair[1];
    }
    return sums;
  }

  // What a worker does with a message of its lane.
  void serve(PoolWorker& worker) {
    const LaneMessage m = worker.message();
    LaneStep step;
    step.step.outcome.one_to_one = true;
    if (m.has_rows()) step.step.outcome = add(m.columns, m.length);
    for (const auto& b : m.put) {
      CHECK(bins.count(b.bin) == 0);
      bins[b.bin] = sums_of(b.bytes);
    }
    if (m.what == LaneDo::Copy || m.what == LaneDo::Take) {
      for (const auto& [bin, sums] : bins) {
        if (m.all || std::count(m.bins.begin(), m.bins.end(), bin)) {
          step.told.bins.push_back({bin, bytes_of(sums)});
        }
      }
    }
    if (m.what == LaneDo::Take) {
      for (uint32_t bin : m.bins) bins.erase(bin);
    }
    worker.answer(step);
  }
};

}  // namespace plait::testing
