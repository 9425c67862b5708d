// A slow job on several nodes in one process: its workers sleep between two records, and a record
// is due at the same time whoever reads it.
//
// A table of which a row is due every few milliseconds, an epoch each, so that most nodes have none
// of an epoch's rows. How often workers look for work is counted by their sleeps, not by the clock:
// one that stays awake looks again and again and never sleeps, however slow the machine is. The
// last node joins while the others run. Arguments: rows, fault. A fault works only in a build whose
// headers have it.
namespace plait {
inline int seeded_fault = 0;  // see test_native_idle.py
}

#include "cluster_samples.hpp"

namespace {

using namespace plait;
using namespace plait::testing;

constexpr uint64_t kMostLooks = 100;  // for each sleep, on average

struct Nodes {
  Nodes(Pipeline pipeline, uint32_t count) : p(std::move(pipeline)) {
    layout.epoch_records = p.epoch_rows;
    layout.readers = {p.sliced ? Layout::kEveryone : 0};
    for (uint32_t r = 0; r < count; ++r) {
      add();
      layout.members.push_back(r);
    }
    const size_t bins = size_t(1) << p.bin_bits;
    for (size_t bin = 0; bin < bins; ++bin) layout.owners.push_back(uint32_t(bin % count));
    for (auto& m : all) m->cluster.begin(layout, false);
  }
  Member& add() {
    all.push_back(std::make_unique<Member>(p, uint32_t(all.size()), 2u, 0u, StageLimits{}));
    for (uint32_t r : layout.members) all.back()->connect(*all[r]);
    all.back()->engine.start();
    return *all.back();
  }
  // A node more, from an epoch on that all have agreed on.
  void join() {
    Member& m = add();
    Layout next = layout;
    next.epoch = 0;
    for (uint32_t r : layout.members) {
      next.epoch = std::max(next.epoch, all[r]->cluster.promise(1));
    }
    next.members.push_back(m.rank);
    for (size_t bin = 0; bin < next.owners.size(); bin += 2) next.owners[bin] = m.rank;
    m.cluster.begin(next, true);
    next.epoch_records = 0;
    for (uint32_t r : layout.members) all[r]->cluster.commit({next}, Epochs::kNever);
    layout = next;
  }
  void finish() {
    for (auto& m : all) {
      while (!m->engine.wait(1'000'000'000)) CHECK(m->error().empty());
    }
    for (auto& m : all) m->close();
  }

  const Pipeline p;
  Layout layout;
  std::vector<std::unique_ptr<Member>> all;
};

Pipeline slow_job(int64_t rows) {
  Pipeline p;
  p.rows = rows;
  p.epoch_rows = 1;
  p.rate = 100;
  p.one = true;
  p.repeats = false;
  return p;
}

void check_rows(const Nodes& nodes) {
  const std::vector<Row> rows = nodes.all[0]->rows();
  CHECK(rows == plain_loop(nodes.p));
}

void check_looks(Nodes& nodes) {
  for (auto& m : nodes.all) {
    const auto [looks, sleeps] = m->engine.looks_and_sleeps();
    std::printf("node %u: %llu looks, %llu sleeps\n", m->rank, (unsigned long long)looks,
                (unsigned long long)sleeps);
    CHECK(looks < kMostLooks * sleeps);
  }
}

void workers_sleep_between_rows(int64_t rows) {
  Nodes nodes(slow_job(rows), 3);
  nodes.finish();
  check_rows(nodes);
  check_looks(nodes);
}

// The row of this epoch.
int64_t due(int64_t start, uint64_t epoch) { return start + int64_t(epoch + 1) * 10'000'000; }

void a_row_is_due_when_the_job_says(int64_t rows) {
  Nodes nodes(slow_job(rows), 2);
  while (nodes.all[0]->cluster.next_epoch() < 5) nodes.all[0]->engine.wait(1'000'000);
  nodes.join();
  nodes.finish();
  check_rows(nodes);
  const int64_t start = nodes.all[0]->cluster.start().load();
  CHECK(start != kNoStart);
  for (auto& m : nodes.all) CHECK(m->cluster.start().load() == start);
  for (const Batch& batch : kept_of(nodes.all[0]->engine, nodes.all[0]->sink)) {
    if (batch.length) CHECK(batch.ingest_ns == due(start, batch.epoch));
  }
  // Whenever, and for whichever rows, an origin is asked first.
  for (const int64_t first : {0, 7, 3}) {
    RateOrigin origin(nodes.p.rate, rows, 0, 0, true);
    origin.start_at(start, 0);
    Polled polled;
    origin.slice(first, 1, polled);
    CHECK(polled.kind == Polled::Kind::Rows && polled.due_ns == due(start, uint64_t(first)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 60;
  if (argc > 2) seeded_fault = std::atoi(argv[2]);
  workers_sleep_between_rows(rows);
  a_row_is_due_when_the_job_says(rows);
  std::printf("ok: %lld rows\n", (long long)rows);
  return 0;
}
