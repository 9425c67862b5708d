// Cluster: this node's place among the nodes of a job: layouts, links, and what comes in by them.
//
// The engine's workers poll it when they have nothing better to do (and now and then when they
// have); frames go to the gather and route stages, to the sources' epochs, or, as state, into the
// inbox where a lane finds them. Stages are registered before the engine starts; afterwards any
// thread may call anything.
//
// The job starts when its first member (the least rank of the first layout) begins. That time
// travels to the others, and from every member to those that join, so a row of a source with a rate
// is due at the same time whoever reads it. It is sent in the sender's steady clock; the links
// convert it by the offset that they measure when they connect, which is wrong by half of that
// handshake's round trip at most and does not follow clocks that drift apart afterwards. Hosts need
// no common wall clock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/exchange/exchange.hpp"
#include "plait/links/links.hpp"
#include "plait/moves/expected_moves.hpp"
#include "plait/moves/page_populator.hpp"
#include "plait/moves/state_moves.hpp"
#include "plait/sources/epochs.hpp"
#include "plait/sources/origins.hpp"
#include "plait/workers/network.hpp"
#include "plait/workers/shared.hpp"

namespace plait {

class Cluster final : public LinkHandler, public Wire, public StateMoves, public Network {
 public:
  Cluster(uint32_t rank, std::string job, std::string token, LinkOptions options)
      : links(rank, std::move(job), std::move(token), std::move(options), *this), rank_(rank) {}

  void attach(Epochs& epochs, Shared& shared) {
    epochs_ = &epochs;
    shared_ = &shared;
    shared.network = this;
    epochs.hold();  // until `begin`
  }
  void add_inlet(uint32_t channel, Inlet& inlet) { place(inlets_, channel) = &inlet; }
  void add_outlet(uint32_t channel, Outlet& outlet) { place(outlets_, channel) = &outlet; }

  // The node starts with this layout's epoch. `joins`: the others have run before, and mark the
  // epoch.
  void begin(Layout layout, bool joins) {
    const uint64_t epoch = layout.epoch;
    shared_->keeps.add(epoch, layout.keep);
    all_.add(std::move(layout));
    for (Inlet* inlet : inlets_) {
      if (inlet) inlet->start_at(epoch);
    }
    epochs_->start_at(epoch);
    epochs_->peers(others(*all_.last()));
    if (!joins && rank_ == std::ranges::min(all_.last()->members)) {
      set_start(now_ns());
      for (uint32_t rank : others(*all_.last())) send_start(rank);
    }
    if (joins) {
      auto control = std::make_shared<Control>();
      control->kind = Control::Kind::Layout;
      control->epoch = epoch;
      control->layout = control->before = all_.last();
      note(control);
      epochs_->commit({control}, Epochs::kNever, false);
    } else {
      epochs_->lift();
    }
    shared_->wake_all();
  }
  // New layouts at the epochs that all nodes have agreed on, ascending; or the common end of all
  // sources, with `flush` as if it were their own.
  void commit(std::vector<Layout> layouts, uint64_t stop_at, bool flush = false) {
    const bool cut = stop_at != Epochs::kNever && !flush;
    std::vector<std::shared_ptr<Control>> controls;
    bool leaving = false;
    for (Layout& layout : layouts) {
      auto control = std::make_shared<Control>();
      control->kind = Control::Kind::Layout;
      control->epoch = layout.epoch;
      control->before = all_.last();
      shared_->keeps.add(layout.epoch, layout.keep);
      all_.add(std::move(layout));
      control->layout = all_.last();
      for (uint32_t rank : control->layout->members) {
        if (!control->before->member(rank)) send_start(rank);
      }
      if (!control->layout->member(rank_) && control->before->member(rank_)) {
        leaving = true;
        stop_at = std::min(stop_at, control->epoch);
      }
      note(control);
      controls.push_back(std::move(control));
      if (leaving) break;  // what the others do later is nothing to this node
    }
    epochs_->peers(others(*all_.last()));
    epochs_->commit(controls, stop_at, leaving, cut);
    tell_again();
    shared_->wake_all();
  }
  // A mark at an epoch that all nodes have agreed on; `last`: the sources are stopped there.
  void mark(std::shared_ptr<Control> control) {
    const bool last = control->last;
    epochs_->commit({control}, last ? control->epoch : Epochs::kNever, false, last);
    shared_->wake_all();
  }
  // Bins that layouts to come will move: memory is made ready where they come.
  void expect(uint64_t number, const std::vector<PlannedMove>& moves) {
    const std::vector<uint32_t> targets = expected_.plan(number, moves, rank_);
    Frame f;
    f.kind = FrameKind::Expect;
    f.number = number;
    for (const auto& [op, keys] : expected_.own_words()) {
      f.channel = op;
      f.other = keys;
      for (uint32_t to : targets) links.send(to, encode_small(f));
    }
    shared_->wake_all();
  }
  // The last plan for whose bins all memory is there.
  uint64_t ready() {
    const uint64_t number = expected_.ready();
    if (populator_.idle()) ready_.store(number, std::memory_order_relaxed);
    return ready_.load(std::memory_order_relaxed);
  }
  // Nodes that owned and read nothing are gone.
  void drop(uint32_t peer) {
    all_.drop(peer);
    for (Outlet* outlet : outlets_) {
      if (outlet) outlet->forget(peer);
    }
    links.drop_peer(peer);
    epochs_->peers(others(*all_.last()));
    shared_->wake_all();
  }
  uint64_t promise(uint64_t ahead) { return epochs_->promise(ahead); }
  void lift() {
    epochs_->lift();
    shared_->wake_all();
  }
  void gate(uint64_t epoch) {
    epochs_->gate(epoch);
    shared_->wake_all();
  }
  uint64_t next_epoch() { return epochs_->progress().next; }
  int64_t bins_in() const { return moved_bins.load(std::memory_order_relaxed); }
  int64_t bytes_in() const { return moved_bytes.load(std::memory_order_relaxed); }
  // All layouts up to this epoch have passed every stage of this node; `sinks` of them count it.
  uint64_t passed(uint32_t sinks) {
    std::lock_guard<std::mutex> hold(lock_);
    while (first_ < controls_.size() &&
           controls_[first_]->arrived.load(std::memory_order_acquire) >= sinks) {
      Control& c = *controls_[first_++];
      passed_ = c.epoch;
      add_errors(c, refused_);
    }
    if (first_ > 64) {
      controls_.erase(controls_.begin(), controls_.begin() + int64_t(first_));
      first_ = 0;
    }
    if (passed_) all_.retire(passed_);
    return passed_;
  }

  // Network
  bool poll(int64_t timeout_ns) override {
    const bool moved = links.poll(timeout_ns);
    tell_progress(!moved);
    return moved;
  }
  void wake() override { links.wake(); }
  bool closed() const override { return closed_.load(std::memory_order_acquire); }
  void close() { closed_.store(true, std::memory_order_release); }  // pairs with closed

  // Wire
  uint32_t here() const override { return rank_; }
  const Layouts& layouts() const override { return all_; }
  // When row 0 of a source with a rate is due, in this host's clock; kNoStart: not heard yet.
  const std::atomic<int64_t>& start() const { return start_; }
  void send(uint32_t to, Encoded frame) override { links.send(to, std::move(frame)); }
  void send_credit(uint32_t to, uint32_t channel, uint64_t consumed) override {
    Frame f;
    f.kind = FrameKind::Credit;
    f.channel = channel;
    f.number = consumed;
    links.send(to, encode_small(f));
  }

  // StateMoves
  void add_state(MovingState& state) override { expected_.add(state); }
  void populate(std::vector<std::pair<void*, size_t>> pieces) override { populator_.add(pieces); }
  void ship(uint32_t to, uint32_t op, uint32_t bin, MovedBin moved) override {
    Frame f;
    f.kind = FrameKind::State;
    f.channel = uint32_t(moved.kind);
    f.number = moved.epoch;
    f.op = op;
    f.bin = bin;
    f.bytes = std::move(moved.owner);
    f.state = moved.data;
    f.size = moved.size;
    links.send_bulk(to, encode_state(f));
  }
  int64_t unsent_bytes(uint32_t to) override { return links.unsent_bulk_bytes(to); }

  // LinkHandler
  void frame(uint32_t from, Frame&& f) override {
    switch (f.kind) {
      case FrameKind::Data:
        return data(from, std::move(f));
      case FrameKind::Credit:
        if (f.channel < outlets_.size() && outlets_[f.channel]) {
          outlets_[f.channel]->credit(from, f.number);
          shared_->wake();
        }
        return;
      case FrameKind::Progress:
        if (epochs_->remote(from, f.number, f.flag)) shared_->wake();
        return;
      case FrameKind::State:
        arrived(f.op, f.bin, {f.number, MoveKind(f.channel), f.bytes, f.state, f.size});
        shared_->wake();
        return;
      case FrameKind::Start:
        // All say the same, but for what is unknown of their clocks; the first counts.
        if (start_.load(std::memory_order_relaxed) != kNoStart) return;
        set_start(int64_t(f.number));
        epochs_->tell();
        shared_->wake_all();
        return;
      case FrameKind::Expect:
        return expected_.word(from, f.number, f.channel, f.other);
      default:
        return;
    }
  }
  void up(uint32_t) override {}
  void down(uint32_t, const std::string& why) override {
    std::lock_guard<std::mutex> hold(lock_);
    last_down_ = why;
  }
  // Why state could not be sent, or not be taken in; empty: it could. Told at once: a layout whose
  // bins never come passes no other node, so it would never be told as passed.
  std::string refused() {
    std::lock_guard<std::mutex> hold(lock_);
    std::string all = refused_;
    for (size_t i = first_; i < controls_.size(); ++i) add_errors(*controls_[i], all);
    return all;
  }
  std::string last_down() {
    std::lock_guard<std::mutex> hold(lock_);
    return last_down_;
  }

 private:
  template <class T>
  static T*& place(std::vector<T*>& all, uint32_t channel) {
    if (all.size() <= channel) all.resize(channel + 1, nullptr);
    return all[channel];
  }
  std::vector<uint32_t> others(const Layout& layout) const {
    std::vector<uint32_t> ranks = layout.members;
    std::erase(ranks, rank_);
    return ranks;
  }
  static void add_errors(Control& c, std::string& to) {
    std::lock_guard<std::mutex> reading(c.lock);
    for (const auto& why : c.errors) to += (to.empty() ? "" : "; ") + why;
  }
  void note(const std::shared_ptr<Control>& control) {
    std::lock_guard<std::mutex> hold(lock_);
    controls_.push_back(control);
  }

  void data(uint32_t from, Frame&& f) {
    if (f.channel >= inlets_.size() || !inlets_[f.channel]) return;
    Batch part = std::move(f.batch);
    if (f.control) {
      part.control = marker_;
      part.epoch = f.control_epoch;
    } else if (!part.end && part.flow < Flow::Cut &&  // each node closes by itself
               epochs_->remote(from, part.epoch + 1, false)) {
      shared_->wake();
    }
    inlets_[f.channel]->take_part(from, std::move(part));
  }

  void set_start(int64_t ns) {
    start_.store(ns, std::memory_order_release);  // pairs with SourceStage::take_start
  }
  void send_start(uint32_t to) {
    const int64_t ns = start_.load(std::memory_order_relaxed);
    if (ns == kNoStart) return;
    Frame f;
    f.kind = FrameKind::Start;
    f.number = uint64_t(ns);
    links.send(to, encode_small(f));
  }
  // A new node has not heard what the others know already.
  void tell_again() {
    std::lock_guard<std::mutex> hold(telling_);
    told_ = Epochs::Progress{};
  }
  // The other nodes hear how far this one is; often enough by the data itself, so only now and then
  // when there is much to do.
  void tell_progress(bool idle) {
    constexpr uint64_t kBehind = 8;
    if (!all_.any()) return;
    std::unique_lock<std::mutex> hold(telling_, std::try_to_lock);
    if (!hold) return;
    const Epochs::Progress now = epochs_->progress();
    if (now == told_ || (!idle && now.done == told_.done && now.next < told_.next + kBehind))
      return;
    told_ = now;
    Frame f;
    f.kind = FrameKind::Progress;
    f.number = now.next;
    f.flag = now.done;
    const Encoded frame = encode_small(f);
    for (uint32_t rank : others(*all_.last())) links.send(rank, frame);
  }

 public:
  Links links;

 private:
  const uint32_t rank_;
  Layouts all_;
  Epochs* epochs_ = nullptr;
  Shared* shared_ = nullptr;
  std::vector<Inlet*> inlets_;
  std::vector<Outlet*> outlets_;
  const std::shared_ptr<Control> marker_ = std::make_shared<Control>();  // of another node
  std::atomic<bool> closed_{false};
  std::atomic<int64_t> start_{kNoStart};

  std::mutex telling_;
  Epochs::Progress told_;

  std::mutex lock_;
  std::vector<std::shared_ptr<Control>> controls_;
  size_t first_ = 0;  // of them, not passed yet
  uint64_t passed_ = 0;
  std::string last_down_, refused_;
  ExpectedMoves expected_;
  std::atomic<uint64_t> ready_{0};
  PagePopulator populator_;
};

}  // namespace plait
