// A job over several nodes in one process: each node an engine with its links over loopback.
//
// A table (or a source that only node 0 reads) through a function, a count and a sum by key, a
// second one by another key, into a sink: at node 0 in total order, or on every node. The plain
// loop below has the same answer, row for row.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "check.hpp"
// The kernels use 128-bit integers, which the standard does not have.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "plait/engine/builder.hpp"
#pragma GCC diagnostic pop

namespace plait::testing {

struct Pipeline {
  int64_t rows = 1000;
  int64_t epoch_rows = 8;
  unsigned bin_bits = 4;
  bool total = true;    // the sinks are at node 0
  bool repeats = true;  // some rows become two rows of the same tag
  bool texts = false;   // the first key is a text
  bool sliced = true;   // every node reads its part; false: node 0 reads all
  bool one = false;     // there is no second state
  uint32_t second = 1;  // as many second keys
  double rate = 0;      // rows a second of a sliced table, a row an epoch; 0: as fast as it goes
};

using Row = std::tuple<int64_t, int64_t, int64_t>;  // key, count, sum

inline int64_t at(const Column& column, int64_t row) { return column.i64()[row]; }

inline int64_t key_of(int64_t i) { return i % 3 ? i * 31 % 97 : 7; }

inline Column numbers(int64_t n, const std::vector<int64_t>& values) {
  Column c;
  c.type = Type::Int64;
  c.length = n;
  c.data_owner = BufferRef::make(8 * n);
  c.data = c.data_owner.data();
  std::copy(values.begin(), values.end(), c.data_owner.as<int64_t>());
  return c;
}

inline Column texts_of(const std::vector<int64_t>& values) {
  Column c;
  c.type = Type::String;
  c.length = int64_t(values.size());
  std::string all;
  c.offsets_owner = BufferRef::make(4 * (c.length + 1));
  c.offsets_owner.as<int32_t>()[0] = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    all += "key " + std::to_string(values[i]);
    c.offsets_owner.as<int32_t>()[i + 1] = int32_t(all.size());
  }
  c.data_owner = BufferRef::make(int64_t(all.size()));
  std::copy(all.begin(), all.end(), c.data_owner.data());
  c.data = c.data_owner.data();
  c.offsets = c.offsets_owner.as<int32_t>();
  return c;
}

inline Batch table_of(const Pipeline& p, int64_t from, int64_t rows) {
  Batch batch;
  batch.length = rows;
  std::vector<int64_t> keys, values;
  for (int64_t i = from; i < from + rows; ++i) {
    keys.push_back(key_of(i));
    values.push_back(i);
  }
  batch.columns.push_back(p.texts ? texts_of(keys) : numbers(rows, keys));
  batch.columns.push_back(numbers(rows, values));
  return batch;
}

// How many rows a row becomes.
inline int copies_of(const Pipeline& p, int64_t value) {
  return value % 5 == 0 ? 0 : p.repeats && value % 4 == 0 ? 2 : 1;
}

inline std::vector<Row> plain_loop(const Pipeline& p) {
  std::map<int64_t, std::pair<int64_t, int64_t>> first, second;
  std::vector<Row> out;
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int k = 0; k < copies_of(p, i); ++k) {
      auto& [count, sum] = first[key_of(i)];
      ++count;
      sum += i;
      if (p.one) {
        out.emplace_back(key_of(i), count, sum);
        continue;
      }
      const int64_t key = (sum + k) % p.second;  // rows of one tag part here
      auto& [seen, total] = second[key];
      ++seen;
      total += count;
      out.emplace_back(key, seen, total);
    }
  }
  return out;
}

// The functions outside the engine; the context is the Pipeline.
inline void fan_out(void* context, const Batch& in, CallOutcome& outcome) {
  const auto& p = *static_cast<const Pipeline*>(context);
  std::vector<int64_t> which;
  for (int64_t i = 0; i < in.length; ++i) {
    for (int k = 0; k < copies_of(p, at(in.columns[1], i)); ++k) {
      outcome.origin.push_back(uint32_t(i));
      which.push_back(k);
    }
  }
  outcome.out.length = int64_t(outcome.origin.size());
  for (const Column& c : in.columns) {
    outcome.out.columns.push_back(take(c, outcome.origin.data(), outcome.out.length));
  }
  outcome.out.columns.push_back(numbers(outcome.out.length, which));
}
inline void second_key(void* context, const Batch& in, CallOutcome& outcome) {
  const auto& p = *static_cast<const Pipeline*>(context);
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < in.length; ++i) {
    keys.push_back((at(in.columns[2], i) + at(in.columns[3], i)) % p.second);
  }
  outcome.one_to_one = true;
  outcome.out.length = in.length;
  outcome.out.columns.push_back(numbers(in.length, keys));
  outcome.out.columns.push_back(in.columns[1]);
}

// A source that only one node reads.
struct Reader {
  const Pipeline& p;
  int64_t next = 0;
  static void poll(void* context, int64_t most, Polled& out) {
    auto& r = *static_cast<Reader*>(context);
    const int64_t n = std::min(most, r.p.rows - r.next);
    if (n == 0) return;
    out.kind = Polled::Kind::Rows;
    out.batch = table_of(r.p, r.next, n);
    r.next += n;
  }
  static int64_t position(void*) { return -1; }
};

class Member {
 public:
  Member(const Pipeline& p, uint32_t rank, unsigned workers, unsigned lane_bits,
         const StageLimits& limits)
      : rank(rank),
        cluster(rank, "job", "token", options()),
        port(cluster.links.listen("127.0.0.1", 0)),
        engine(kNodes, 1, workers, "ct", 50'000.0),
        reader_{p} {
    build(p, lane_bits, limits);
  }
  ~Member() { close(); }

  void connect(Member& other) {
    cluster.links.add_peer(other.rank, "127.0.0.1", other.port);
    other.cluster.links.add_peer(rank, "127.0.0.1", port);
  }
  // Ends it as if its process were killed.
  void close() {
    engine.abort();
    cluster.close();
    cluster.wake();
    engine.join();
  }
  std::vector<Row> rows() const {
    std::vector<Row> out;
    if (!has_sink) return out;
    for (const Batch& b : kept_of(engine, sink)) {
      for (int64_t i = 0; i < b.length; ++i) {
        out.emplace_back(at(b.columns[0], i), at(b.columns[1], i), at(b.columns[2], i));
      }
    }
    return out;
  }
  std::string error() {
    std::lock_guard<std::mutex> hold(engine.shared.end_lock);
    return engine.shared.error ? engine.shared.error->message : cluster.refused();
  }

  const uint32_t rank;
  Cluster cluster;
  const uint16_t port;
  Engine engine;
  std::vector<uint32_t> gathers;
  uint32_t sink = 0;
  bool has_sink = false;

 private:
  static constexpr uint32_t kNodes = 6;
  static LinkOptions options() {
    LinkOptions o;
    o.redial_least_ns = 100'000;
    o.redial_most_ns = 5'000'000;
    return o;
  }

  std::shared_ptr<KeyedPlan> plan(const Pipeline& p, Type key, std::vector<AggregateSpec> ops,
                                  unsigned lane_bits) {
    return std::make_shared<KeyedPlan>(KeyedPlan::make({0}, {key}, ops, p.bin_bits, lane_bits));
  }
  // The rows of stage `from`, after these operators, at their nodes.
  uint32_t exchange(Builder& b, const std::string& name, Routing routing, Operators operators,
                    bool unique, uint32_t from) {
    const auto channel = uint32_t(channels_++);
    const uint32_t op = routing.op;
    const bool home = routing.kind == Routing::Kind::Home, tags = routing.tags;
    const uint32_t route = b.route_stage({.stage = {"to " + name},
                                          .channel = channel,
                                          .routing = std::move(routing),
                                          .operators = std::move(operators)});
    b.connect(from, route, 0);
    if (home && rank != 0) return route;
    const uint32_t gather = b.gather_stage({.stage = {"at " + name},
                                            .channel = channel,
                                            .op = op,
                                            .sources = {0},
                                            .unique = unique,
                                            .tags = tags});
    b.connect(route, gather, 0);
    gathers.push_back(gather);
    return gather;
  }

  void build(const Pipeline& p, unsigned lane_bits, const StageLimits& limits) {
    Builder b(engine, &cluster);
    b.limits = limits;
    void* context = const_cast<Pipeline*>(&p);
    const Type key = p.texts ? Type::String : Type::Int64;
    const std::vector<Type> types = {key, Type::Int64};
    const SourceStageSpec source{
        .stage = {"source"}, .types = types, .epoch_records = p.epoch_rows};
    const auto call = [&](uint32_t op, CallOperator::Function function, std::vector<Type> out) {
      return std::make_unique<CallOperator>(op, OnError::Fail, function, context, std::move(out));
    };
    const auto nan_filter = [](uint32_t op) {
      return std::make_unique<NanKeyFilter>(op, OnError::Fail, std::vector<uint32_t>());
    };
    uint32_t last;
    if (p.sliced) {
      // In pieces, so that slices cross their borders.
      std::vector<Batch> chunks;
      for (int64_t i = 0; i < p.rows; i += 37) {
        chunks.push_back(table_of(p, i, std::min<int64_t>(37, p.rows - i)));
      }
      last = b.table_source(source, std::move(chunks), p.rate);
      if (p.rate > 0) b.pace(0, 1.0);
    } else if (rank == 0) {
      last = b.outside_source(source, Reader::poll, Reader::position, &reader_);
    } else {
      last = b.no_source(source);
    }
    const uint32_t fan = b.parallel_stage(
        {.stage = {"fan out"},
         .operators = operators_of(call(1, fan_out, {key, Type::Int64, Type::Int64}))});
    b.connect(last, fan, 0);

    const AggregateSpec count, sum{AggregateKind::Sum, 1},
        which{AggregateKind::Last, 2};  // of two rows of one tag
    Routing by_first{Routing::Kind::Key, plan(p, key, {}, 0), 2};
    by_first.repeats = p.repeats;
    by_first.tags = p.total || p.repeats || !p.one;
    last = exchange(b, "first", by_first, operators_of(nan_filter(2)), !p.repeats, fan);
    Operators after;
    if (!p.one) after = operators_of(call(3, second_key, {Type::Int64, Type::Int64}));
    const uint32_t first = b.keyed_stage({.stage = {"first"},
                                          .op = 2,
                                          .plan = plan(p, key, {count, sum, which}, lane_bits),
                                          .after = std::move(after)});
    b.connect(last, first, 0);

    last = first;
    if (!p.one) {
      last = exchange(b, "second", {Routing::Kind::Key, plan(p, Type::Int64, {}, 0), 4},
                      operators_of(nan_filter(4)), !p.repeats, first);
      const uint32_t second = b.keyed_stage(
          {.stage = {"second"}, .op = 4, .plan = plan(p, Type::Int64, {count, sum}, lane_bits)});
      b.connect(last, second, 0);
      last = second;
    }
    if (p.total) {
      last = exchange(b, "sink", {Routing::Kind::Home, nullptr, 5}, {}, !p.repeats, last);
    }
    has_sink = !p.total || rank == 0;
    if (has_sink) {
      sink = b.sink_stage({.stage = {"sink"}, .op = 5, .keep = true});
      b.connect(last, sink, 0);
    }
  }

  int channels_ = 0;
  Reader reader_;
};

}  // namespace plait::testing
