// Several nodes in one process while their layout changes: bins move at once, one by one, or by a
// copy and a difference; nodes join, leave and are dropped; connections break.
//
// What a coordinator does is done here at random, by a seed that is printed: promise on all
// members, the greatest fence is the epoch, commit in any order. The answer is that of a plain
// loop, row for row; and no gather stage ever holds more than the credit of its senders. Arguments:
// runs, seed, fault. A fault works only in a build whose headers have it.
namespace plait {
inline int seeded_fault = 0;  // see test_native_cluster.py
}

#include "cluster_samples.hpp"

namespace {

using namespace plait;
using namespace plait::testing;

struct Tally {
  int64_t rounds = 0, bins = 0, joins = 0, leaves = 0, drops = 0, cuts = 0, ready = 0;
};
Tally tally;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "%s%s\n", story().c_str(), why.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

class Conductor {
 public:
  Conductor(uint64_t seed, int64_t rows) : rng_(seed) {
    p_.rows = rows / 2 + below(rows);
    p_.epoch_rows = 1 + below(12);
    p_.bin_bits = unsigned(below(6));
    p_.total = below(3) != 0;
    p_.repeats = below(2);
    p_.one = below(4) == 0;
    p_.texts = !p_.one && below(3) == 0;
    p_.sliced = below(3) != 0;
    p_.second = uint32_t(1 + below(40));
    last_.epoch_records = p_.epoch_rows;
    last_.readers = {p_.sliced ? Layout::kEveryone : 0};
    const auto nodes = uint32_t(1 + below(3));
    for (uint32_t r = 0; r < nodes; ++r) {
      add_member();
      last_.members.push_back(r);
    }
    last_.owners = random_owners(last_.members);
  }

  void run() {
    for (uint32_t r : shuffled(last_.members)) node(r).cluster.begin(last_, false);
    while (round()) look();
    wait_for_all();
    for (auto& m : all_) {
      tally.bins += m->cluster.bins_in();
      m->close();
    }
    check_rows();
  }

 private:
  int64_t below(int64_t n) { return int64_t(rng_() % uint64_t(n)); }
  template <class T>
  std::vector<T> shuffled(std::vector<T> v) {
    std::shuffle(v.begin(), v.end(), rng_);
    return v;
  }
  Member& node(uint32_t rank) { return *all_[rank]; }
  uint32_t any_member() { return last_.members[size_t(below(int64_t(last_.members.size())))]; }
  std::vector<uint32_t> random_owners(const std::vector<uint32_t>& members) {
    std::vector<uint32_t> owners(size_t(1) << p_.bin_bits);
    for (uint32_t& o : owners) o = members[size_t(below(int64_t(members.size())))];
    return owners;
  }

  Member& add_member() {
    StageLimits limits;
    limits.batches = below(2) ? 4 : 16;
    limits.locked_reorder = below(4) == 0;
    const auto lanes = unsigned(below(int64_t(std::min(p_.bin_bits, 2u)) + 1));
    all_.push_back(
        std::make_unique<Member>(p_, uint32_t(all_.size()), unsigned(1 + below(3)), lanes, limits));
    for (uint32_t r : last_.members) all_.back()->connect(node(r));
    if (all_.size() > 1 && last_.members.empty()) give_up("nobody to connect to");
    all_.back()->engine.start();
    return *all_.back();
  }

  // One thing that a coordinator may do; false: the job is at its end.
  bool round() {
    // Rounds put epochs behind the last rows; enough of them are there already.
    if (last_.row_of(last_.epoch) > p_.rows + 64) return false;
    // Now and then the records catch up with the layouts first.
    const bool catch_up = below(3) != 0;
    for (uint32_t r : last_.members) {
      if (node(r).engine.finished()) return false;
      while (catch_up && node(r).cluster.next_epoch() < last_.epoch) {
        if (node(r).engine.finished()) return false;
        errors_none();
        wait_a_little();
      }
    }
    switch (below(12)) {
      case 0:
        return all_.size() < 7 ? join() : true;
      case 1:
        return last_.members.size() > 1 ? leave() : true;
      case 2:
        return lift_only();
      case 3:
      case 4:
        if (last_.members.size() > 1) {
          node(any_member()).cluster.links.reconnect(any_member());
          ++tally.cuts;
        }
        return true;
      default:
        return move();
    }
  }

  // All members promise; the epoch, or 0: one of them is at its end.
  uint64_t agree() {
    uint64_t epoch = 0;
    std::vector<uint32_t> promised;
    for (uint32_t r : shuffled(last_.members)) {
      const uint64_t fence = node(r).cluster.promise(uint64_t(below(6)));
      if (fence == 0) {
        lift(promised);
        return 0;
      }
      promised.push_back(r);
      epoch = std::max(epoch, fence);
    }
    return std::max(epoch, last_.epoch + 1);
  }
  bool lift_only() {
    if (agree() == 0) return false;
    lift(last_.members);
    return true;
  }
  void lift(const std::vector<uint32_t>& ranks) {
    for (uint32_t r : shuffled(ranks)) node(r).cluster.lift();
  }
  // `joiner`: a node that begins with the last of the layouts.
  void commit(const std::vector<Layout>& layouts, int joiner = -1) {
    std::vector<uint32_t> told = last_.members;
    if (joiner >= 0) told.push_back(uint32_t(joiner));
    for (uint32_t r : shuffled(told)) {
      if (int(r) != joiner) {
        node(r).cluster.commit(layouts, Epochs::kNever);
        continue;
      }
      Layout first = layouts.back();
      first.epoch_records = records_of(layouts);
      if (changed_) first.first_row = last_.row_of(first.epoch);
      node(r).cluster.begin(first, true);
    }
    for (Layout next : layouts) {
      if (next.epoch_records == 0) next.epoch_records = last_.epoch_records;
      next.first_row = last_.row_of(next.epoch);
      last_ = std::move(next);
    }
    ++tally.rounds;
  }
  int64_t records_of(const std::vector<Layout>& layouts) const {
    int64_t n = last_.epoch_records;
    for (const Layout& l : layouts) n = l.epoch_records ? l.epoch_records : n;
    return n;
  }
  Layout next_layout(uint64_t epoch) const {
    Layout next = last_;
    next.epoch = epoch;
    next.copies.clear();
    next.epoch_records = 0;
    next.first_row = 0;
    return next;
  }

  bool move() {
    uint64_t epoch = agree();
    if (epoch == 0) return false;
    std::vector<Layout> layouts;
    Layout next = next_layout(epoch);
    switch (below(3)) {
      case 0:
        next.owners = random_owners(next.members);
        layouts.push_back(next);
        break;
      case 1:
        for (int64_t steps = 1 + below(6); steps > 0; --steps) {
          next.owners[size_t(below(int64_t(next.owners.size())))] = any_member();
          layouts.push_back(next);
          next.epoch += uint64_t(1 + below(3));
        }
        break;
      default:
        copy_and_switch(next, layouts);
    }
    // Copies may be left over, for the next round to make use of or give up.
    if (below(4) == 0) {
      const auto bin = uint32_t(below(int64_t(next.owners.size())));
      layouts.back().copies.emplace_back(bin, any_member());
    }
    if (p_.sliced && below(8) == 0) {
      layouts.back().epoch_records = 1 + below(12);
      changed_ = true;
    }
    if (below(2)) expect(layouts);
    commit(layouts);
    return true;
  }
  // All hear of the moves before they are made, or some while the others make them already; now and
  // then of others than are made.
  void expect(const std::vector<Layout>& layouts) {
    std::vector<PlannedMove> moves;
    const std::vector<uint32_t>* before = &last_.owners;
    for (const Layout& l : layouts) {
      for (uint32_t bin = 0; bin < l.owners.size(); ++bin) {
        const uint32_t to = below(16) ? l.owners[bin] : any_member();
        if ((*before)[bin] != to) moves.push_back({bin, (*before)[bin], to});
      }
      before = &l.owners;
    }
    ++plans_;
    for (uint32_t r : shuffled(last_.members)) node(r).cluster.expect(plans_, moves);
  }
  void copy_and_switch(Layout& next, std::vector<Layout>& layouts) {
    const std::vector<std::pair<uint32_t, uint32_t>> left = last_.copies;
    for (auto c : left) {
      if (next.member(c.second) && below(2)) next.copies.push_back(c);
    }
    for (int64_t n = 1 + below(4); n > 0; --n) {
      const auto bin = uint32_t(below(int64_t(next.owners.size())));
      const bool known = std::any_of(next.copies.begin(), next.copies.end(),
                                     [&](const auto& c) { return c.first == bin; });
      if (!known) next.copies.emplace_back(bin, any_member());
    }
    layouts.push_back(next);
    const auto planned = next.copies;
    for (auto [bin, to] : planned) {
      next.epoch += uint64_t(1 + below(3));
      if (below(6) == 0) {
        next.copies.clear();  // it comes to nothing
      } else {
        std::erase(next.copies, std::make_pair(bin, to));
        // Now and then somebody else gets it than who has the copy.
        next.owners[bin] = below(8) ? to : any_member();
      }
      layouts.push_back(next);
    }
  }

  bool join() {
    const uint32_t rank = add_member().rank;
    if (below(4) == 0) {  // it goes before it has begun
      node(rank).close();
      for (uint32_t r : last_.members) node(r).cluster.drop(rank);
      ++tally.drops;
      return true;
    }
    const uint64_t epoch = agree();
    if (epoch == 0) {
      node(rank).close();
      return false;
    }
    Layout next = next_layout(epoch);
    next.members.push_back(rank);
    commit({next}, int(rank));
    if (below(2)) return drop(rank);  // it owns nothing, so it reads nothing either
    ++tally.joins;
    return true;
  }

  // The bins of a node go to the others, and it ends at the next layout.
  bool leave() {
    const uint32_t rank = any_member();
    if (rank == 0) return true;
    uint64_t epoch = agree();
    if (epoch == 0) return false;
    Layout next = next_layout(epoch);
    std::vector<uint32_t> staying = next.members;
    std::erase(staying, rank);
    for (uint32_t& o : next.owners) {
      if (o == rank) o = staying[size_t(below(int64_t(staying.size())))];
    }
    std::vector<Layout> layouts{next};
    if (below(2)) {
      commit(layouts);
      layouts.clear();
      epoch = agree();
      if (epoch == 0) return false;
      next = next_layout(epoch);
    } else {
      next.epoch += uint64_t(1 + below(3));
    }
    next.members = staying;
    layouts.push_back(next);
    const uint64_t gone = next.epoch;
    if (below(3) == 0) {  // the others go on at once
      next.epoch += uint64_t(1 + below(40));
      next.owners = random_owners(staying);
      layouts.push_back(next);
    }
    commit(layouts);
    left_.emplace_back(rank, gone);
    ++tally.leaves;
    return true;
  }

  // A node that never owned and read anything dies.
  bool drop(uint32_t rank) {
    node(rank).close();
    std::erase(last_.members, rank);
    for (uint32_t r : shuffled(last_.members)) node(r).cluster.drop(rank);
    ++tally.drops;
    return true;
  }

  void errors_none() {
    for (auto& m : all_) {
      const std::string error = m->error();
      if (!error.empty()) give_up("node " + std::to_string(m->rank) + ": " + error);
    }
  }
  // Between the rounds: what must hold at any time.
  void look() {
    errors_none();
    for (auto& m : all_) {
      for (uint32_t g : m->gathers) {
        const int64_t waiting =
            m->engine.stages()[g]->stats.waiting_records.load(std::memory_order_relaxed);
        CHECK(waiting <= int64_t(all_.size() * (kWindow + 1) * 12 * 2));
      }
    }
    uint64_t passed = UINT64_MAX;
    for (uint32_t r : last_.members) {
      const uint64_t ready = node(r).cluster.ready();
      CHECK(ready <= plans_);
      tally.ready += plans_ && ready == plans_;
      passed = std::min(passed, node(r).cluster.passed(node(r).engine.sinks_total));
    }
    std::erase_if(left_, [&](auto gone) { return let_go(gone.first, gone.second, passed); });
  }
  // A node that has left is forgotten once nobody needs it any more.
  bool let_go(uint32_t rank, uint64_t epoch, uint64_t passed) {
    if (passed < epoch || !node(rank).engine.finished()) return false;
    for (uint32_t r : last_.members) {
      if (node(rank).cluster.links.held_frames(r) != 0) return false;
    }
    node(rank).close();
    for (uint32_t r : shuffled(last_.members)) node(r).cluster.drop(rank);
    return true;
  }

  void wait_for_all() {
    auto over = [](const auto& m) { return m->engine.finished(); };
    for (; !std::all_of(all_.begin(), all_.end(), over); wait_a_little()) look();
    look();
  }
  // Gives up when nothing has moved for very long.
  void wait_a_little() {
    int64_t sum = 0;
    for (auto& m : all_) {
      sum += int64_t(m->cluster.next_epoch()) + m->cluster.bins_in() + m->engine.finished() +
             m->engine.shared.delivered.load(std::memory_order_relaxed);
    }
    idle_ = sum == moved_ ? idle_ + 1 : 0;
    moved_ = sum;
    if (idle_ > (seeded_fault ? 10'000 : 200'000)) give_up("stuck: " + places());
    const auto waiting =
        std::find_if(all_.begin(), all_.end(), [](const auto& m) { return !m->engine.finished(); });
    if (waiting != all_.end()) (*waiting)->engine.wait(100'000);
  }
  std::string places() {
    std::string text;
    for (auto& m : all_) {
      text += "node " + std::to_string(m->rank) + (m->engine.finished() ? " is over" : "") +
              " at epoch " + std::to_string(m->cluster.next_epoch()) + ", passed " +
              std::to_string(m->cluster.passed(m->engine.sinks_total)) + "; ";
    }
    return text + "last layout " + std::to_string(last_.epoch);
  }

  void check_rows() {
    const std::vector<Row> want = plain_loop(p_);
    std::vector<Row> got;
    for (auto& m : all_) {
      const std::vector<Row> rows = m->rows();
      if (!p_.total) {  // of one key in order, on every node
        std::map<int64_t, int64_t> seen;
        for (const auto& [key, count, sum] : rows) {
          CHECK(count > seen[key]);
          seen[key] = count;
        }
      }
      got.insert(got.end(), rows.begin(), rows.end());
    }
    std::vector<Row> expected = want;
    if (!p_.total) {
      std::sort(got.begin(), got.end());
      std::sort(expected.begin(), expected.end());
    }
    CHECK(got.size() == expected.size());
    CHECK(got == expected);
  }

  std::mt19937_64 rng_;
  Pipeline p_;
  std::vector<std::unique_ptr<Member>> all_;  // by rank
  Layout last_;
  bool changed_ = false;                             // the length of epochs
  std::vector<std::pair<uint32_t, uint64_t>> left_;  // who has left, and when
  int64_t moved_ = 0, idle_ = 0;                     // see wait_a_little
  uint64_t plans_ = 0;                               // told by expect
};

// A receiver that gives no credit gets kWindow frames and no more.
class SilentWire final : public Wire {
 public:
  SilentWire() {
    Layout layout;
    layout.members = {0, 1};
    all.add(layout);
  }
  uint32_t here() const override { return 0; }
  const Layouts& layouts() const override { return all; }
  void send(uint32_t, Encoded) override { ++sent; }
  void send_credit(uint32_t, uint32_t, uint64_t consumed) override { credited = consumed; }

  Layouts all;
  uint64_t sent = 0, credited = 0;
};

void check_credit() {
  SilentWire wire;
  Shared shared(1);
  Worker worker(0, 1, shared);
  Routing routing;
  routing.kind = Routing::Kind::Home;
  routing.home = 1;
  RouteStage stage("route", StageLimits(), 0, routing, Operators(), wire);
  uint64_t pushed = 0, consumed = 0;
  for (int i = 0; i < 100; ++i) {
    for (; stage.room(0); ++pushed) {
      Batch batch;
      batch.epoch = pushed;
      stage.push(std::move(batch), 0);
    }
    stage.run(worker, 1000);
    stage.try_release(worker);
    CHECK(wire.sent == consumed + kWindow);
    stage.credit(1, ++consumed);
    stage.try_release(worker);
    CHECK(wire.sent == consumed + kWindow);
  }
  stage.forget(1);  // nobody waits for it now
  stage.try_release(worker);
  CHECK(wire.sent == consumed + kWindow);
  CHECK(stage.room(0));
}

// A node whose stream has failed sends nothing more: nobody waits for its parts, or for credit.
void check_behind_a_failure() {
  SilentWire wire;
  Shared shared(1);
  Worker worker(0, 1, shared);
  GatherStage stage("gather", StageLimits(), 0, 0, {0}, true, true, false, wire);
  ParallelStage behind("behind", StageLimits(), Operators());
  stage.connect(behind, 0);
  const auto part = [&](uint32_t from, uint64_t epoch, bool fails) {
    Batch batch;
    batch.epoch = epoch;
    if (fails) batch.failure = std::make_shared<Failure>();
    stage.take_part(from, std::move(batch));
  };
  uint64_t epoch = 0;
  for (; stage.room(0); ++epoch) part(0, epoch, false);
  CHECK(epoch == kWindow && !stage.runnable());
  part(1, 0, true);
  CHECK(stage.runnable());
  stage.run(worker, 1);
  CHECK(stage.room(0) && !stage.pending() && wire.credited == 1);
  for (; epoch < 10 * kWindow; ++epoch) {
    CHECK(stage.room(0));
    part(0, epoch, false);
    if (epoch < 3 * kWindow) part(1, epoch, false);  // what was on its way
    stage.run(worker, 1);
  }
  CHECK(!stage.pending() && wire.credited == 1 + 2 * kWindow);
  CHECK(behind.runnable() && behind.run(worker, 1000) == 1);  // the failure, nothing behind it
}

}  // namespace

int main(int argc, char** argv) {
  const auto runs = argument(argc, argv, 20);
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device()();
  const auto rows = argc > 3 ? std::strtoll(argv[3], nullptr, 10) : 4000;
  seeded_fault = argc > 4 ? std::atoi(argv[4]) : 0;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  check_credit();
  check_behind_a_failure();
  for (unsigned long i = 0; i < runs; ++i) {
    story() = "seed " + std::to_string(seed + i) + ": ";
    Conductor conductor(seed + i, rows);
    conductor.run();
  }
  std::printf(
      "%lu runs: %lld rounds, %lld bins moved, %lld joins, %lld leaves, %lld drops, %lld "
      "cuts, %lld times ready\n",
      runs, (long long)tally.rounds, (long long)tally.bins, (long long)tally.joins,
      (long long)tally.leaves, (long long)tally.drops, (long long)tally.cuts,
      (long long)tally.ready);
  return 0;
}
