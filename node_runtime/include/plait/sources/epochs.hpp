// Epochs: keeps the sources of a job in step, and puts control items between the same two epochs of
// all of them.
//
// A source asks for its turn, emits what the turn says, and reports what became of it; a source
// with nothing owes an empty batch while another one is ahead. A control item gets the first
// boundary that no source has passed or may be passing. On several nodes the sources of all of them
// are kept in step: each hears how far the others are, and control items come with an epoch that
// all have agreed on (promise, commit). Any thread may call anything; all but `owed` and `news`
// takes the mutex, a few times per batch, and never waits for a source.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "plait/columns/control.hpp"
#include "plait/columns/counts.hpp"

namespace plait {

class Epochs {
 public:
  static constexpr uint64_t kAhead = 64;  // how far a source may be ahead of the slowest

  struct Turn {
    enum class Kind { Data, Empty, Control, End, Wait } kind = Kind::Wait;
    uint64_t epoch = 0;
    std::shared_ptr<Control> control;
    uint64_t news = 0;     // Wait: of no use to ask again before `news()` differs from it
    bool over = false;     // Empty: the source is at its end ...
    bool cut = false;      // ... or was stopped before it
    bool flushed = false;  // over: it was stopped, and counts as if it were at its end
  };
  // How far the sources of this node are; `done`: they have no more rows.
  struct Progress {
    uint64_t next = 0;
    bool done = false;
    bool operator==(const Progress&) const = default;
  };

  explicit Epochs(size_t sources) : sources_(sources) {}

  // What source `s` should emit next. `Data`: ask it for rows, then call emitted, idle, finished or
  // failed; others as they say. `stop`: the run is to end; all sources end at the same epoch, so
  // that what was delivered is what comes first in the order. What comes at the end of a source
  // (windows that close) is then not due, because it is not at its end; unless `flush` was asked
  // for. `failing`: it is a failure that ends the run; nothing comes behind it.
  Turn turn(size_t s, int64_t position, bool stop, bool failing = false) {
    std::lock_guard<std::mutex> hold(lock_);
    SourceState& of = sources_[s];
    if (stop && stop_at_ == kNever) {
      failing_ = failing && !all_done();
      cut_ = failing_ || !flush_;
      stop_at_ = next_boundary();
      note_owed();
    }
    if (of.next >= stop_at_ && !of.done) {
      of.done = true;
      of.over = !cut_;
      of.stopped = !leaving_ && !failing_;
      add_news();
    }
    Turn t;
    t.epoch = of.next;
    if (of.cursor < scheduled() && controls_[of.cursor - let_go_]->epoch == of.next) {
      t.kind = Turn::Kind::Control;
      t.control = controls_[of.cursor++ - let_go_];
      t.control->positions[s] = position;
      let_go();
      note_owed();
    } else if (of.next >= std::min(fence_, gate_)) {
      t.kind = Turn::Kind::Wait;
    } else if (!of.done) {
      t.kind = of.next > slowest() + kAhead ? Turn::Kind::Wait : Turn::Kind::Data;
      of.asked = t.kind == Turn::Kind::Data;
    } else if (of.next < furthest()) {
      empty(of, t);
    } else if (fence_ == kNever && gate_ == kNever && all_done() && (leaving_ || others_done())) {
      ended_ = true;
      if (closes && !leaving_ && !failing_ && closing_at_ == kNever) closing_at_ = of.next;
      if (of.next == closing_at_) {
        empty(of, t);
        note_owed();
      } else {
        t.kind = Turn::Kind::End;
      }
    }
    t.news = news_.load(std::memory_order_relaxed);
    return t;
  }
  // The source's rows of this epoch are not due yet, and no empty batch can stand for them.
  void not_due(size_t s) {
    std::lock_guard<std::mutex> hold(lock_);
    sources_[s].asked = false;
  }
  // The source has nothing now. True: an empty batch is owed, since another source or a control
  // item is ahead.
  bool idle(size_t s) {
    std::lock_guard<std::mutex> hold(lock_);
    SourceState& of = sources_[s];
    of.asked = of.next < furthest();
    return of.asked;
  }
  void emitted(size_t s) {
    std::lock_guard<std::mutex> hold(lock_);
    ++sources_[s].next;
    sources_[s].asked = false;
    note_owed();
  }
  void finished(size_t s) {
    std::lock_guard<std::mutex> hold(lock_);
    sources_[s].done = sources_[s].over = true;
    sources_[s].asked = false;
    add_news();
  }
  // The source has emitted its failure in place of the epoch's rows and emits nothing more; nobody
  // waits for it. On other nodes that epoch has a part as well, an empty one.
  void failed(size_t s) {
    std::lock_guard<std::mutex> hold(lock_);
    sources_[s].done = sources_[s].gone = true;
    sources_[s].asked = false;
    ++sources_[s].next;
    note_owed();
  }
  // Queues a control item at the earliest boundary that no source has passed or may be passing now.
  // False: the job is at its end.
  bool schedule(std::shared_ptr<Control> control) {
    std::lock_guard<std::mutex> hold(lock_);
    if (all_done() || stop_at_ != kNever) return false;
    control->epoch = std::max(next_boundary(), repeat_until_);
    if (control->last) {
      cut_ = true;
      stop_at_ = control->epoch;
    }
    add(std::move(control));
    note_owed();
    return true;
  }

  // No source starts before lift or commit.
  void hold() {
    std::lock_guard<std::mutex> hold(lock_);
    fence_ = 0;
  }
  // Before the start: all sources begin with this epoch.
  void start_at(uint64_t epoch) {
    std::lock_guard<std::mutex> hold(lock_);
    for (SourceState& of : sources_) of.next = epoch;
  }
  // Before the start: what is before this epoch is repeated, and no control item is put there.
  void repeat_until(uint64_t epoch) {
    std::lock_guard<std::mutex> hold(lock_);
    repeat_until_ = epoch;
  }
  // The other nodes, from the last layout on.
  void peers(const std::vector<uint32_t>& ranks) {
    std::lock_guard<std::mutex> hold(lock_);
    peers_ = ranks;
    note_owed();
  }
  // Another node has emitted every epoch below `next`. True: this node's sources owe something now.
  bool remote(uint32_t peer, uint64_t next, bool done) {
    std::lock_guard<std::mutex> hold(lock_);
    // Said once: it counts even if the peer becomes one only later.
    Progress& heard = heard_[peer];
    heard.next = std::max(heard.next, next);
    heard.done |= done;
    const bool news = next > remote_ || done;
    remote_ = std::max(remote_, next);
    if (news) note_owed();
    return news;
  }
  Progress progress() {
    std::lock_guard<std::mutex> hold(lock_);
    Progress p;
    for (const SourceState& of : sources_) p.next = std::max(p.next, of.next);
    p.next = std::min(p.next, closing_at_);  // each node closes by itself
    p.done = all_done();
    return p;
  }
  // Something else has come that sources may wait for.
  void tell() {
    std::lock_guard<std::mutex> hold(lock_);
    add_news();
  }
  // What a stop does with windows that are open then: they close, or stay as they are.
  void flush(bool flush) {
    std::lock_guard<std::mutex> hold(lock_);
    flush_ = flush;
  }
  // Whether the source was stopped before its end. After the run.
  bool stopped(size_t s) {
    std::lock_guard<std::mutex> hold(lock_);
    return sources_[s].stopped;
  }
  // No source goes beyond the fence, so many epochs ahead, until commit or lift. 0: at the end.
  uint64_t promise(uint64_t ahead) {
    std::lock_guard<std::mutex> hold(lock_);
    if (ended_) return 0;
    if (fence_ == kNever) {
      fence_ = gate_ == kNever ? std::max(next_boundary() + 1 + ahead, repeat_until_) : gate_;
    }
    return fence_;
  }
  // No source passes this epoch before the gate moves (kNever: away), and promises give it as their
  // fence: a test chooses the epochs of all that happens.
  void gate(uint64_t epoch) {
    std::lock_guard<std::mutex> hold(lock_);
    gate_ = epoch;
    note_owed();
  }
  void lift() {
    std::lock_guard<std::mutex> hold(lock_);
    fence_ = kNever;
    note_owed();
  }
  // Control items at epochs agreed on by all nodes, ascending, none below the fence. `cut`: at
  // `stop_at` sources are stopped before their end.
  void commit(const std::vector<std::shared_ptr<Control>>& controls, uint64_t stop_at, bool leaving,
              bool cut = false) {
    std::lock_guard<std::mutex> hold(lock_);
    cut_ |= cut;
    for (const auto& control : controls) add(control);
    stop_at_ = std::min(stop_at_, stop_at);
    leaving_ |= leaving;
    fence_ = kNever;
    note_owed();
  }
  static constexpr uint64_t kNever = UINT64_MAX;
  // Whether an empty epoch follows the last one: event-time operators need it. Before the start.
  bool closes = false;
  // Told of every mark, before a source passes it. Before the start; null: nobody asks.
  CountSets* counts = nullptr;
  // As `counts`, of every plan of what is kept.
  Keeps* keeps = nullptr;

  // Whether the source should emit something even if it has no rows. Any thread, without the lock.
  bool owed(size_t s) const { return sources_[s].owed.load(std::memory_order_relaxed); }
  // Differs from that of a turn when what the turn said may no longer hold. As `owed`.
  uint64_t news() const { return news_.load(std::memory_order_relaxed); }

 private:
  struct SourceState {
    uint64_t next = 0;              // the epoch it emits next
    bool asked = false;             // it may be making the batch of that epoch
    bool done = false;              // it has no more rows
    bool over = false;              // because it is at its end, or is taken to be
    bool stopped = false;           // because it was asked to
    bool gone = false;              // it failed
    size_t cursor = 0;              // control items emitted
    std::atomic<bool> owed{false};  // a hint: relaxed, written under the lock
  };

  void add(std::shared_ptr<Control> control) {
    for (auto* facts : {&control->positions, &control->handles}) facts->assign(sources_.size(), -1);
    control->skips.assign(sources_.size(), 0);
    if (control->mark && counts) counts->begin(control->epoch);
    if (control->keep && keeps) keeps->add(control->epoch, *control->keep);
    controls_.push_back(std::move(control));
  }
  void empty(SourceState& of, Turn& t) {
    t.kind = Turn::Kind::Empty;
    t.over = of.over;
    t.cut = of.stopped && !of.over;
    t.flushed = of.stopped && of.over;
    of.asked = true;
  }
  bool all_done() const {
    return std::all_of(sources_.begin(), sources_.end(),
                       [](const SourceState& of) { return of.done; });
  }
  bool others_done() const {
    return std::all_of(peers_.begin(), peers_.end(), [this](uint32_t rank) {
      const auto found = heard_.find(rank);
      return found != heard_.end() && found->second.done;
    });
  }
  uint64_t slowest() const {
    uint64_t least = UINT64_MAX - kAhead;
    for (const SourceState& of : sources_) least = of.gone ? least : std::min(least, of.next);
    return least;
  }
  // The earliest epoch that no source has begun or may be making now.
  uint64_t next_boundary() const {
    uint64_t epoch = furthest();
    for (const SourceState& of : sources_) {
      if (of.asked) epoch = std::max(epoch, of.next + 1);
    }
    return epoch;
  }
  uint64_t furthest() const {
    uint64_t most = controls_.empty() ? 0 : controls_.back()->epoch;
    // A node that leaves does not follow the others beyond its end.
    most = std::max(most, leaving_ ? std::min(remote_, stop_at_) : remote_);
    if (stop_at_ != kNever) most = std::max(most, stop_at_);
    for (const SourceState& of : sources_) most = std::max(most, of.next);
    return most;
  }
  size_t scheduled() const { return let_go_ + controls_.size(); }
  // Items that all sources have emitted: they hold layouts, and state that was taken. The last one
  // stays, for its epoch.
  void let_go() {
    size_t emitted = scheduled();
    for (const SourceState& of : sources_)
      emitted = of.gone ? emitted : std::min(emitted, of.cursor);
    while (controls_.size() > 1 && let_go_ < emitted) {
      controls_.pop_front();
      ++let_go_;
    }
    for (SourceState& of : sources_) of.cursor = std::max(of.cursor, let_go_);
  }
  void note_owed() {
    const uint64_t most = furthest();
    for (SourceState& of : sources_) {
      of.owed.store(of.cursor < scheduled() || of.next < most, std::memory_order_relaxed);
    }
    add_news();
  }
  void add_news() {
    news_.store(news_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  std::mutex lock_;
  uint64_t stop_at_ = kNever;  // no source has rows from this epoch on
  uint64_t fence_ = kNever;    // no source emits this epoch before it hears more
  uint64_t gate_ = kNever;     // nor this one, whatever it hears
  uint64_t closing_at_ = kNever;
  uint64_t repeat_until_ = 0;
  uint64_t remote_ = 0;   // the furthest of the other nodes
  bool leaving_ = false;  // this node goes at stop_at_, the others stay
  bool cut_ = false;      // who ends at stop_at_ is not at its end
  bool failing_ = false;  // because of a failure
  bool flush_ = false;
  bool ended_ = false;
  std::vector<uint32_t> peers_;
  std::map<uint32_t, Progress> heard_;  // of every node that ever said something
  std::vector<SourceState> sources_;
  std::deque<std::shared_ptr<Control>> controls_;
  size_t let_go_ = 0;              // control items before those
  std::atomic<uint64_t> news_{0};  // a hint: relaxed, written under the lock
};

}  // namespace plait
