// One round of pooled_moves.hpp: a random job with the pool, then the same with the state in the
// engine.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pooled_moves.hpp"

namespace plait::testing {

class MovesRound {
 public:
  explicit MovesRound(Random& random) : random_(random), s_(random), owners_(bins(), 0) {}

  // How many control items had their say.
  uint64_t run() {
    const Batch rows = given();
    MovesJob pooled(s_, rows, true), plain(s_, rows, false);
    pooled.engine().start();
    disturb(pooled);
    end(pooled);
    plain.engine().epochs.hold();
    plain.engine().start();
    again(plain);
    end(plain);
    return compare(pooled, plain);
  }

 private:
  static constexpr int64_t kHangNs = 60'000'000'000;
  // What was done, and the bins that came for it.
  struct Done {
    std::shared_ptr<Control> control, again;
    Bins brought;
  };

  size_t bins() const { return size_t(1) << s_.bin_bits; }
  bool chance(unsigned one_in) { return random_() % one_in == 0; }
  void pause() {
    if (chance(2)) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 1000));
  }
  Batch given() {
    std::vector<int64_t> keys, values, times;
    for (uint64_t i = 0; i < s_.rows; ++i) {
      keys.push_back(int64_t(random_() % s_.keys));
      values.push_back(int64_t(random_() % 10));
      times.push_back(int64_t(i + random_() % 20));
    }
    // Close to each other, so that several lanes of a batch have some.
    const uint64_t around = s_.rows ? random_() % s_.rows : 0;
    for (int64_t value : s_.wrong) {
      const uint64_t at = around + random_() % 12;
      if (at < s_.rows) values[at] = value;
    }
    Batch rows;
    rows.length = int64_t(s_.rows);
    rows.columns = {column_of(keys), column_of(values), column_of(times)};
    return rows;
  }

  std::shared_ptr<Control> item(uint64_t epoch, Control::Kind kind) {
    auto c = std::make_shared<Control>();
    c->kind = kind;
    c->epoch = epoch;
    c->op = 1;
    done_.push_back({c, nullptr, {}});
    return c;
  }
  template <class Keep>
  std::vector<uint32_t> some_bins(const Keep& keep) {
    std::vector<uint32_t> found;
    for (uint32_t bin = 0; bin < bins(); ++bin) {
      if (keep(bin) && chance(2)) found.push_back(bin);
    }
    return found;
  }
  void take(uint64_t epoch, const std::vector<uint32_t>& which) {
    item(epoch, Control::Kind::Take)->bins = which;
  }
  void put(uint64_t epoch, const Bins& which, bool damaged) {
    auto c = item(epoch, Control::Kind::Put);
    for (const auto& [bin, bytes] : which) c->put.push_back({1, bin, bytes});
    std::shuffle(c->put.begin(), c->put.end(), random_);
    for (auto& bin : c->put) {
      if (!damaged || !chance(3)) continue;
      if (chance(4)) {
        bin.bytes.resize(random_() % 8);  // its head is cut off, too
      } else {
        bin.bytes.back() = '?';
      }
    }
  }
  static std::vector<uint32_t> numbers_of(const Bins& some) {
    std::vector<uint32_t> numbers;
    for (const auto& [bin, bytes] : some) numbers.push_back(bin);
    return numbers;
  }

  // What is done at one epoch boundary; those that come back by a layout are brought later.
  void choose(uint64_t epoch) {
    const auto kind = random_() % 5;
    if (kind == 0) {
      item(epoch, Control::Kind::Snapshot);
    } else if (kind == 1) {
      take(epoch, some_bins([](uint32_t) { return true; }));
    } else if (kind == 2 && !held_.empty() && chance(3)) {
      put(epoch, held_, true);
    } else if (kind == 2 && !held_.empty()) {
      if (!chance(4)) take(epoch, numbers_of(held_));
      if (chance(2)) put(epoch, held_, true);
      put(epoch, held_, false);
      if (chance(2)) put(epoch, held_, chance(2));
      held_.clear();
    } else {
      layout(epoch);
    }
  }
  void layout(uint64_t epoch) {
    Bins back;
    for (uint32_t bin : some_bins([&](uint32_t bin) { return away_.count(bin) != 0; })) {
      // Bins that come together come from one place in time.
      std::string bytes = away_[bin];
      if (!back.empty()) bytes.replace(0, head_size(), back.begin()->second, 0, head_size());
      back[bin] = bytes;
      away_.erase(bin);
    }
    take(epoch, numbers_of(back));
    auto c = item(epoch, Control::Kind::Layout);
    auto next = std::make_shared<Layout>();
    next->epoch = epoch;
    next->owners = owners_;
    for (uint32_t bin : some_bins([&](uint32_t bin) { return owners_[bin] == 0; })) {
      next->owners[bin] = 1;
    }
    for (const auto& one : back) next->owners[one.first] = 0;
    auto before = std::make_shared<Layout>();
    before->owners = std::exchange(owners_, next->owners);
    next->note_moved(before->owners);
    c->before = before;
    c->layout = next;
    done_.back().brought = std::move(back);
  }
  size_t head_size() const {
    if (!s_.timers) return 0;
    return UnitTime(std::make_shared<const std::vector<TimedOrigin>>(1)).head_size();
  }

  void disturb(MovesJob& job) {
    Engine& engine = job.engine();
    const uint64_t goes_at = random_() % 10, breaks_at = s_.breaks ? random_() % 10 : 10;
    for (uint64_t i = 0; i < 10; ++i) {
      if (i == goes_at && s_.here) job.go();
      if (i == breaks_at) job.breaks();
      pause();
      const uint64_t fence = engine.epochs.promise(random_() % 4);
      if (!fence) break;
      const size_t from = done_.size();
      choose(fence);
      std::vector<std::shared_ptr<Control>> controls;
      for (size_t n = from; n < done_.size(); ++n) controls.push_back(done_[n].control);
      engine.epochs.commit(controls, Epochs::kNever, false);
      engine.shared.wake_all();
      pause();
      for (const auto& [bin, bytes] : done_.back().brought) {
        job.mirror().bring(fence, bin, bytes);
        engine.shared.wake();
        if (chance(4)) pause();
      }
      if (!engine.wait_control(*controls.back(), kHangNs)) break;
      if (engine.shared.aborting.load(std::memory_order_acquire)) break;
      for (size_t n = from; n < done_.size(); ++n) keep(*done_[n].control, job.mirror());
    }
  }
  // Bins that were taken or shipped, to be put back.
  void keep(Control& c, Mirror& mirror) {
    if (c.kind == Control::Kind::Layout) {
      for (auto& [bin, bytes] : mirror.shipped(c.epoch)) away_[bin] = bytes;
    } else if (c.kind == Control::Kind::Take) {
      std::lock_guard<std::mutex> hold(c.lock);
      for (const auto& bin : c.collected) held_[bin.bin] = bin.bytes;
    }
  }
  void again(MovesJob& job) {
    std::vector<std::shared_ptr<Control>> controls;
    for (Done& one : done_) {
      auto c = one.again = std::make_shared<Control>();
      c->kind = one.control->kind;
      c->epoch = one.control->epoch;
      c->op = 1;
      c->bins = one.control->bins;
      c->put = one.control->put;
      c->layout = one.control->layout;
      c->before = one.control->before;
      for (const auto& [bin, bytes] : one.brought) job.mirror().bring(c->epoch, bin, bytes);
      controls.push_back(c);
    }
    job.engine().epochs.commit(controls, Epochs::kNever, false);
    job.engine().shared.wake_all();
  }
  void end(MovesJob& job) {
    CHECK(job.engine().wait(kHangNs));
    CHECK(job.engine().left(kHangNs));
    job.engine().join();
  }

  uint64_t compare(MovesJob& pooled, MovesJob& plain) {
    auto got = pooled.rows(), want = plain.rows();
    const Shared &a = pooled.engine().shared, &b = plain.engine().shared;
    const auto told = std::count_if(done_.begin(), done_.end(), [](const Done& one) {
      const auto& errors = one.control->errors;
      return std::count(errors.begin(), errors.end(), kBroke) != 0;
    });
    if (told || (a.error && a.error->message == kBroke)) {
      CHECK(s_.breaks && got.size() <= want.size());
      want.resize(got.size());
      CHECK(got == want);
      return 0;
    }
    CHECK(got == want);
    CHECK(!!a.error == !!b.error);
    if (a.error) CHECK(MovesJob::place_of(*a.error) == MovesJob::place_of(*b.error));
    CHECK(pooled.letters() == plain.letters());
    if (!a.error) CHECK(counts_of(pooled.engine(), 1) == counts_of(plain.engine(), 1));
    uint64_t said = 0;
    for (Done& one : done_) {
      if (a.error && one.control->epoch > a.error->epoch) continue;
      const uint32_t sinks = pooled.engine().sinks_total;
      if (one.control->arrived.load(std::memory_order_acquire) < sinks) continue;
      if (one.again->arrived.load(std::memory_order_acquire) < sinks) continue;
      CHECK(one.control->errors == one.again->errors);
      CHECK(collected(*one.control) == collected(*one.again));
      const uint64_t epoch = one.control->epoch;
      CHECK(pooled.mirror().shipped(epoch) == plain.mirror().shipped(epoch));
      ++said;
    }
    return said;
  }
  static Bins collected(const Control& c) {
    Bins found;
    for (const auto& bin : c.collected) CHECK(found.emplace(bin.bin, bin.bytes).second);
    return found;
  }

  Random& random_;
  const MovesSetting s_;
  std::vector<uint32_t> owners_;  // of each bin, as of the last layout
  Bins held_, away_;              // taken, and shipped
  std::vector<Done> done_;
};

}  // namespace plait::testing
