// Epochs on several simulated nodes, one random step at a time.
//
// Sources that have rows, nothing for a while, or nothing at all; word between the nodes that takes
// its time, and may reach a node before it has begun; rounds of promise and commit or lift, in any
// order; nodes that join and leave, and a common end. Fences are kept; every source of every node
// meets every control item once, at its epoch; all end at the same epoch, a leaving node at its
// own; there is always a step to take, and a source that waits may sleep until there are news.
// Arguments: cases, seed, fault.
namespace plait {
inline int seeded_fault = 0;  // see test_native_cluster.py
}

#include "plait/sources/epochs.hpp"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <optional>
#include <random>

#include "check.hpp"

namespace {

using namespace plait;

struct Word {
  uint32_t from, to;
  uint64_t next;
  bool done;
};

struct Source {
  uint64_t left = 0;              // epochs with rows
  bool asked = false;             // it was told to make a batch and has not yet
  bool over = false;              // it has emitted its end
  std::vector<uint64_t> met;      // control items
  uint64_t next = 0, end = 0;     // epochs
  std::optional<uint64_t> waits;  // for other news than these
};

struct Node {
  explicit Node(size_t n) : epochs(n), sources(n) { epochs.hold(); }

  bool over() const {
    return std::all_of(sources.begin(), sources.end(), [](const Source& s) { return s.over; });
  }

  Epochs epochs;
  std::vector<Source> sources;
  bool begun = false, leaves = false;
  uint64_t first = 0, last = Epochs::kNever;  // the epochs it takes part in
  std::optional<uint64_t> fence;
  Epochs::Progress told;
  std::vector<uint32_t> peers;  // as it knows them
  std::vector<uint64_t> items;  // control items that it must meet
};

class World {
 public:
  explicit World(uint64_t seed) : rng_(seed), sources_(1 + below(2)) {
    const auto n = uint32_t(1 + below(3));
    for (uint32_t r = 0; r < n; ++r) {
      add();
      members_.push_back(r);
    }
    for (uint32_t r : members_) {
      Node& node = *nodes_[r];
      node.peers = others(members_, r);
      node.epochs.start_at(0);
      node.epochs.peers(node.peers);
      node.epochs.lift();
      node.begun = true;
    }
  }

  void run() {
    constexpr int kSteps = 200'000;
    rounds_ = int(below(12));
    int steps = 0;
    while (!over()) {
      CHECK(++steps < kSteps);
      step();
    }
    uint64_t end = 0;
    for (uint32_t r : members_) end = std::max(end, nodes_[r]->sources[0].end);
    for (const auto& node : nodes_) {
      if (!node->begun) continue;
      for (const Source& s : node->sources) {
        CHECK(s.met == node->items);
        CHECK(s.end == (node->leaves ? node->last : end));
      }
      CHECK(node->epochs.promise(below(4)) == 0);
    }
    CHECK(end <= stop_at_);
  }

 private:
  uint64_t below(uint64_t n) { return rng_() % n; }
  static std::vector<uint32_t> others(std::vector<uint32_t> ranks, uint32_t rank) {
    std::erase(ranks, rank);
    return ranks;
  }
  uint32_t add() {
    nodes_.push_back(std::make_unique<Node>(sources_));
    for (Source& s : nodes_.back()->sources) s.left = below(3) ? below(60) : 0;
    return uint32_t(nodes_.size() - 1);
  }
  bool over() const {
    if (phase_ != Phase::Idle) return false;
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& n) { return !n->begun || n->over(); });
  }

  void step() {
    const auto rank = uint32_t(below(nodes_.size()));
    switch (below(6)) {
      case 0:
        return deliver();
      case 1:
        return tell(rank);
      case 2:
        return coordinate();
      default:
        return move(rank, size_t(below(sources_)));
    }
  }

  // A source does the next thing that it is told.
  void move(uint32_t rank, size_t s) {
    using Kind = Epochs::Turn::Kind;
    Node& node = *nodes_[rank];
    Source& source = node.sources[s];
    if (source.over) return;
    if (source.asked) return answer(rank, s);
    const bool no_news = source.waits == node.epochs.news();
    const Epochs::Turn turn = node.epochs.turn(s, 0, false);
    source.waits.reset();
    if (turn.kind == Kind::Wait) source.waits = turn.news;
    if (turn.kind == Kind::Wait) return;
    CHECK(!no_news);
    CHECK(node.begun);
    CHECK(turn.epoch == source.next);
    switch (turn.kind) {
      case Kind::Data:
        source.asked = true;
        return;
      case Kind::Empty:
        return emit(rank, s);
      case Kind::Control:
        CHECK(turn.control->epoch == source.next);
        source.met.push_back(turn.control->epoch);
        return;
      case Kind::End:
        CHECK(!node.fence);
        source.over = true;
        source.end = source.next;
        return;
      case Kind::Wait:
        return;
    }
  }
  void answer(uint32_t rank, size_t s) {
    Node& node = *nodes_[rank];
    Source& source = node.sources[s];
    source.asked = false;
    if (source.left == 0) {
      node.epochs.finished(s);
    } else if (below(4) == 0) {
      if (below(2)) {
        node.epochs.not_due(s);
      } else if (node.epochs.idle(s)) {
        emit(rank, s);
      }
    } else {
      --source.left;
      emit(rank, s);
    }
  }
  void emit(uint32_t rank, size_t s) {
    Node& node = *nodes_[rank];
    Source& source = node.sources[s];
    if (node.fence) CHECK(source.next < *node.fence);
    CHECK(source.next < node.last);
    // Nobody passes a layout that a member does not know yet.
    if (phase_ == Phase::Commit && !told_leave(rank)) CHECK(source.next < agreed_ || knows(rank));
    ++source.next;
    node.epochs.emitted(s);
    if (below(2)) {  // its parts say how far it is
      for (uint32_t to : node.peers) words_.push_back({rank, to, source.next, false});
    }
  }
  bool knows(uint32_t rank) const {
    return std::find(pending_.begin(), pending_.end(), rank) == pending_.end();
  }
  bool told_leave(uint32_t rank) const { return nodes_[rank]->leaves; }

  void tell(uint32_t rank) {
    Node& node = *nodes_[rank];
    const Epochs::Progress now = node.epochs.progress();
    if (!node.begun || now == node.told) return;
    node.told = now;
    for (uint32_t to : node.peers) words_.push_back({rank, to, now.next, now.done});
  }
  // Words of one node to another come in order; those of different nodes in any.
  void deliver() {
    if (words_.empty()) return;
    const Word& any = words_[size_t(below(words_.size()))];
    const auto at = std::find_if(words_.begin(), words_.end(), [&](const Word& w) {
      return w.from == any.from && w.to == any.to;
    });
    const Word word = *at;
    words_.erase(at);
    (void)nodes_[word.to]->epochs.remote(word.from, word.next, word.done);
  }

  enum class Phase { Idle, Promise, Commit, Lift };

  void coordinate() {
    switch (phase_) {
      case Phase::Idle:
        if (rounds_ == 0 || below(8) != 0) return;
        --rounds_;
        pending_ = members_;
        std::shuffle(pending_.begin(), pending_.end(), rng_);
        promised_.clear();
        agreed_ = last_ + 1;
        phase_ = Phase::Promise;
        return;
      case Phase::Promise:
        return promise();
      case Phase::Commit:
        if (slow_ && below(100) != 0) return;  // the others may come to their end meanwhile
        commit(pending_.back());
        pending_.pop_back();
        if (pending_.empty()) phase_ = Phase::Idle;
        return;
      case Phase::Lift:
        if (!pending_.empty()) {
          nodes_[pending_.back()]->fence.reset();
          nodes_[pending_.back()]->epochs.lift();
          pending_.pop_back();
        }
        if (pending_.empty()) phase_ = Phase::Idle;
        return;
    }
  }
  void promise() {
    const uint32_t rank = pending_.back();
    pending_.pop_back();
    Node& node = *nodes_[rank];
    const uint64_t fence = node.epochs.promise(below(8));
    if (fence != 0) {
      CHECK(node.epochs.promise(below(8)) == fence);  // asked again: the same answer
      for (const Source& s : node.sources) CHECK(s.next + s.asked <= fence && !s.over);
      node.fence = fence;
      promised_.push_back(rank);
      agreed_ = std::max(agreed_, fence);
    }
    if (fence == 0 || (pending_.empty() && below(5) == 0)) {
      if (fence == 0) rounds_ = 0;
      pending_ = promised_;
      phase_ = Phase::Lift;
    } else if (pending_.empty()) {
      decide();
    }
  }
  // What the round is for.
  void decide() {
    items_.clear();
    joiner_.reset();
    leaver_.reset();
    uint64_t epoch = agreed_;
    next_ = members_;
    end_ = Epochs::kNever;
    const uint64_t kind = below(8);
    if (kind == 0) {
      end_ = epoch;
      rounds_ = 0;
    } else {
      for (uint64_t n = kind == 1 ? 1 : 1 + below(4); n > 0; --n) {
        items_.push_back(epoch);
        epoch += 1 + below(5);
      }
      if (kind == 1 && nodes_.size() < 6) {
        joiner_ = add();
        next_.push_back(*joiner_);
      } else if (kind == 2 && members_.size() > 1) {
        leaver_ = members_[1 + size_t(below(members_.size() - 1))];
        std::erase(next_, *leaver_);
      }
      last_ = items_.back();
    }
    stop_at_ = std::min(stop_at_, end_);
    pending_ = members_;
    if (joiner_) pending_.push_back(*joiner_);
    slow_ = below(2) == 0;
    std::shuffle(pending_.begin(), pending_.end(), rng_);
    if (joiner_ && below(2)) {  // it hears of it last
      std::erase(pending_, *joiner_);
      pending_.insert(pending_.begin(), *joiner_);
    }
    members_ = next_;
    phase_ = Phase::Commit;
  }
  void commit(uint32_t rank) {
    Node& node = *nodes_[rank];
    if (joiner_ == rank) {
      node.first = items_.back();
      for (Source& s : node.sources) s.next = node.first;
      node.epochs.start_at(node.first);
      node.begun = true;
    }
    std::vector<std::shared_ptr<Control>> controls;
    uint64_t end = end_;
    for (uint64_t epoch : items_) {
      auto control = std::make_shared<Control>();
      control->epoch = epoch;
      controls.push_back(std::move(control));
      node.items.push_back(epoch);
    }
    if (leaver_ == rank) {
      node.leaves = true;
      node.last = end = items_.back();
    }
    node.peers = others(next_, rank);
    node.epochs.peers(node.peers);
    node.epochs.commit(controls, end, node.leaves);
    node.fence.reset();
    node.told = {};
  }

  std::mt19937_64 rng_;
  const size_t sources_;  // of each node
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<uint32_t> members_;
  std::deque<Word> words_;
  int rounds_ = 0;
  uint64_t last_ = 0, stop_at_ = Epochs::kNever;

  // The round
  Phase phase_ = Phase::Idle;
  std::vector<uint32_t> pending_, promised_, next_;
  std::vector<uint64_t> items_;
  std::optional<uint32_t> joiner_, leaver_;
  uint64_t agreed_ = 0, end_ = Epochs::kNever;
  bool slow_ = false;
};

// A source that is at its end says so also behind a failure; one that is cut off does not.
void check_over_behind_a_failure() {
  Epochs epochs(2);
  epochs.closes = true;
  CHECK(epochs.turn(0, 0, false).kind == Epochs::Turn::Kind::Data);
  epochs.finished(0);
  for (int i = 0; i < 3; ++i) {
    CHECK(epochs.turn(1, i, false).kind == Epochs::Turn::Kind::Data);
    epochs.emitted(1);
  }
  CHECK(epochs.turn(1, 3, true, true).kind == Epochs::Turn::Kind::End);
  for (int i = 0; i < 3; ++i) {
    const auto turn = epochs.turn(0, 0, true, true);
    CHECK(turn.kind == Epochs::Turn::Kind::Empty && turn.over);
    epochs.emitted(0);
  }
  CHECK(epochs.turn(0, 0, true, true).kind == Epochs::Turn::Kind::End);
}

}  // namespace

int main(int argc, char** argv) {
  const auto cases = plait::testing::argument(argc, argv, 1000);
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device()();
  plait::seeded_fault = argc > 3 ? std::atoi(argv[3]) : 0;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  check_over_behind_a_failure();
  for (unsigned long i = 0; i < cases; ++i) {
    plait::testing::story() = "seed " + std::to_string(seed + i) + ": ";
    World(seed + i).run();
  }
  std::printf("%lu cases\n", cases);
  return 0;
}
