// RouteStage: the sending side of an exchange (Megaphone's F).
//
// Workers claim batches, run the operators before the exchange, find the node of every row by the
// layout of the batch's epoch, and encode each node's part, all in parallel; the parts leave in
// serial order, even empty ones, when every receiver has given credit. Control items, failures and
// the end go to everybody. Threads and progress as in Stage; `credit` and `forget` may be called by
// any thread.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/exchange/exchange.hpp"
#include "plait/exchange/row_split.hpp"
#include "plait/moves/state_moves.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/stages/stage_impl.hpp"

namespace plait {

struct Routing {
  // Pinned: all rows to the home node, as with Home, and the others go on with empty parts.
  enum class Kind : uint8_t { Key, Bin, Home, Pinned } kind = Kind::Key;
  std::shared_ptr<const KeyedPlan> plan;  // Key: which columns, how many bins
  uint32_t op = 0;                        // the operator behind; Bin: its state is one bin
  uint32_t home = 0;                      // Home, Pinned
  bool repeats = false;  // several rows may have the same tag: they are numbered here
  bool tags = true;      // an operator after it looks at tags; else they stay here
};

class RouteStage final : public Stage, public Outlet {
 public:
  RouteStage(std::string name, const StageLimits& limits, uint32_t channel, Routing routing,
             Operators operators, Wire& wire)
      : Stage(std::move(name), limits),
        channel_(channel),
        routing_(std::move(routing)),
        operators_(std::move(operators)),
        wire_(wire),
        outgoing_(limits.batches) {
    routes = true;
    if (routing_.kind == Routing::Kind::Key) {
      loads_ = std::vector<std::atomic<int64_t>>(size_t(1) << routing_.plan->bin_bits);
    }
  }

  int64_t run(Worker& worker, int64_t records) override {
    int64_t done = 0;
    while (done < records) {
      Slot* s = try_claim(limits_.batches);
      if (!s) break;
      done += s->records + 1;
      stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
      if (!s->batch.control && !s->batch.end && !worker.leaves()) {
        run_all(operators_, s->batch, worker);
        prepare(*s);
      }
      finish(*s, worker);
      if (worker.slice_over()) break;
    }
    return done;
  }

  bool can_send() const override {
    if (!outputs_have_room()) return false;
    std::lock_guard<std::mutex> hold(lock_);
    return std::all_of(windows_.begin(), windows_.end(),
                       [](const auto& w) { return w.second.open(); });
  }
  void credit(uint32_t from, uint64_t consumed) override {
    std::lock_guard<std::mutex> hold(lock_);
    auto found = windows_.find(from);
    if (found != windows_.end()) found->second.credit(consumed);
  }
  void forget(uint32_t peer) override {
    std::lock_guard<std::mutex> hold(lock_);
    windows_.erase(peer);
    gone_.push_back(peer);
  }
  // Rows sent to each bin, from samples.
  const std::vector<std::atomic<int64_t>>& loads() const { return loads_; }
  bool ends_here() const { return outputs_.empty(); }

 protected:
  void pass(Slot& slot, Batch&& batch, Worker& worker) override {
    // When the run is given up a unit may have been dropped before this one: a receiver must not
    // get units, or what comes between them, with one missing.
    const bool dropped = worker.shared.aborting.load(std::memory_order_acquire);
    if (batch.control || batch.end) {
      const Layouts::Ref layout = wire_.layouts().at(batch.epoch);
      if (!dropped && layout->member(wire_.here())) {
        const Encoded frame = batch.end ? end_frame(batch) : encode_control(channel_, batch.epoch);
        each_receiver(*layout, [&](uint32_t to) { send(to, frame); });
      }
    } else {
      if (!dropped) {
        for (auto& [to, frame] : outgoing_[place(slot)]) send(to, std::move(frame));
      }
      outgoing_[place(slot)].clear();
    }
    if (!outputs_.empty()) {
      hand_on(std::move(batch), worker);
    } else {
      batch.letters.reset();  // they went with the rows
      arrive(batch, worker);
    }
  }

 private:
  // What one receiver has not consumed yet.
  struct Window {
    uint64_t sent = 0, consumed = 0;
    int64_t bytes = 0;
    std::array<int64_t, kWindow> sizes{};

    bool open() const {
      const uint64_t ahead = sent - consumed;
      return ahead < kLeast || (ahead < kWindow && bytes < kWindowBytes);
    }
    void send(int64_t size) {
      sizes[sent++ % kWindow] = size;
      bytes += size;
    }
    void credit(uint64_t upto) {
      while (consumed < std::min(upto, sent)) bytes -= sizes[consumed++ % kWindow];
    }
  };
  using Frames = std::vector<std::pair<uint32_t, Encoded>>;

  size_t place(const Slot& slot) const { return size_t(slot.serial & (limits_.batches - 1)); }
  Frame head() const {
    Frame f;
    f.channel = channel_;
    return f;
  }
  Encoded end_frame(const Batch& batch) const { return encode_data(head(), batch, nullptr, 0); }

  template <class Visit>
  void each_receiver(const Layout& layout, Visit visit) const {
    if (routing_.kind == Routing::Kind::Home) {
      if (routing_.home != wire_.here()) visit(routing_.home);
      return;
    }
    for (uint32_t rank : layout.members) {
      if (rank != wire_.here()) visit(rank);
    }
  }

  void send(uint32_t to, Encoded frame) {
    {
      std::lock_guard<std::mutex> hold(lock_);
      if (std::find(gone_.begin(), gone_.end(), to) != gone_.end()) return;
      windows_[to].send(frame.size);
    }
    wire_.send(to, std::move(frame));
  }

  // Encodes the parts of all receivers and leaves this node's own in the slot.
  void prepare(Slot& slot) {
    Batch& batch = slot.batch;
    Frames& frames = outgoing_[place(slot)];
    frames.clear();
    const Layouts::Ref layout = wire_.layouts().at(batch.epoch);
    guarded(batch, routing_.op, [&] {
      if (routing_.repeats) number_repeats(batch);
      if (routing_.kind == Routing::Kind::Home || routing_.kind == Routing::Kind::Pinned) {
        to_one(batch, routing_.home, *layout, frames);
      } else if (routing_.kind == Routing::Kind::Bin) {
        to_one(batch, layout->owners[singleton_bin(routing_.op, layout->owners.size())], *layout,
               frames);
      } else {
        by_key(batch, *layout, frames);
      }
    });
    if (broken(batch)) {  // everybody hears of it
      frames.clear();
      each_receiver(*layout, [&](uint32_t to) {
        frames.emplace_back(to, encode_data(head(), batch, nullptr, 0));
      });
    }
  }

  // All rows to one node; the others get an empty part.
  void to_one(Batch& batch, uint32_t owner, const Layout& layout, Frames& frames) {
    const bool home = routing_.kind == Routing::Kind::Home;
    each_receiver(layout, [&](uint32_t to) {
      Batch part = batch;
      if (!home) part.letters.reset();
      frames.emplace_back(to, encode_data(head(), part, nullptr, to == owner ? part.length : 0));
    });
    if (owner != wire_.here()) truncate(batch, 0);
  }

  void by_key(Batch& batch, const Layout& layout, Frames& frames) {
    const int64_t n = batch.length;
    const size_t members = layout.members.size();
    if (members == 1 || n == 0) return empty_parts(batch, layout, frames);
    const KeyedPlan& plan = *routing_.plan;
    const unsigned bits = plan.bin_bits, shift = 64 - bits;
    if (bits == 0) return to_one(batch, layout.owners[0], layout, frames);
    const size_t mine = layout.place_of(wire_.here());
    if (members == 2 && parts_by_bits(plan, batch, routing_.tags)) {
      const Column& key = *plain_key(plan, batch);
      const auto* keys = reinterpret_cast<const uint64_t*>(key.data);
      const uint64_t s = salt(key.type);
      const auto hash = [=](int64_t i) { return (keys[i] ^ s) * kGolden; };
      const RowSides sides = sides_of(keys, n, s, shift, layout.places.data());
      if (sides.ones != 0 && sides.ones != n) {
        sample(n, shift, hash);
        frames.emplace_back(layout.members[1 - mine],
                            part_by_bits(head(), batch, sides, mine == 1, routing_.tags));
        return;
      }
    }
    const BufferRef hashes = BufferRef::make(8 * n);
    SplitBatch scratch;
    split_detail::hash_rows(plan, batch, scratch, hashes.as<uint64_t>());
    const uint64_t* h = hashes.as<uint64_t>();
    sample(n, shift, [=](int64_t i) { return h[i]; });
    const RowLists lists = lists_of(h, n, shift, layout);
    if (routing_.tags) batch.spread_tags();
    for (size_t m = 0; m < members; ++m) {
      if (m == mine) continue;
      Batch part = batch;
      part.letters.reset();
      frames.emplace_back(layout.members[m],
                          encode_data(head(), part, lists.rows[m], lists.counts[m], routing_.tags));
    }
    if (lists.counts[mine] != n) {
      keep_rows(batch, lists.rows[mine], lists.counts[mine], routing_.tags);
    }
  }

  void empty_parts(Batch& batch, const Layout& layout, Frames& frames) {
    if (layout.members.size() == 1) return;
    Batch part = batch;
    part.letters.reset();
    const Encoded frame = encode_data(head(), part, nullptr, 0);
    each_receiver(layout, [&](uint32_t to) { frames.emplace_back(to, frame); });
  }

  // Counts one row in 16 for its bin; of large batches one in 64: an atomic addition takes as long
  // as it takes to route ten rows. One row of each stretch, at a place that is drawn: rows at equal
  // distances would meet the same keys again and again where keys come in turn. A stretch counts as
  // many rows as it has, so the sum is exact.
  template <class Hash>
  void sample(int64_t n, unsigned shift, Hash hash) {
    const int64_t every = n < 4096 ? 16 : 64;
    uint64_t draw = draws_.fetch_add(kGolden, std::memory_order_relaxed);
    for (int64_t from = 0; from < n; from += every) {
      const int64_t rows = std::min(every, n - from);
      draw = draw * 6364136223846793005u + 1442695040888963407u;
      const auto at = int64_t(((draw >> 32) * uint64_t(rows)) >> 32);
      loads_[hash(from + at) >> shift].fetch_add(rows, std::memory_order_relaxed);
    }
  }

  // Rows of one tag go to different nodes: their order among each other goes along.
  static void number_repeats(Batch& batch) {
    constexpr uint64_t kMost = 1 << 16;
    batch.spread_tags();
    if (batch.length == 0 && !batch.failure) return;
    BufferRef subs = BufferRef::make(8 * batch.length);
    uint64_t k = 0;
    for (int64_t i = 0; i < batch.length; ++i) {
      const uint64_t sub = batch.subs ? batch.subs[i] : 0;
      const bool again = i > 0 && batch.row_number(i) == batch.row_number(i - 1) &&
                         sub == (batch.subs ? batch.subs[i - 1] : 0);
      k = again ? k + 1 : 0;
      if (k == kMost) throw std::length_error("one record became more than 65,536 records");
      subs.as<uint64_t>()[i] = sub << 16 | k;
    }
    batch.subs = subs.as<uint64_t>();
    batch.subs_owner = std::move(subs);
    if (batch.failure) {  // behind all rows of its record; others may hold it as it was
      batch.failure = std::make_shared<Failure>(*batch.failure);
      batch.failure->letter.sub = batch.failure->letter.sub << 16 | (kMost - 1);
    }
  }

  const uint32_t channel_;
  const Routing routing_;
  const Operators operators_;
  Wire& wire_;
  std::vector<Frames> outgoing_;  // by slot: encoded, not sent yet
  std::vector<std::atomic<int64_t>> loads_;
  std::atomic<uint64_t> draws_{0};  // where the next batch begins to draw
  mutable std::mutex lock_;
  std::map<uint32_t, Window> windows_;
  std::vector<uint32_t> gone_;
};

}  // namespace plait
