// TimedLane: one lane of a timed operator with its watermark, and its bins on their way between
// nodes.
//
// A bin goes as bytes: what the lane knows of time, then the operator's own bytes (none if the bin
// is empty). Bins always go whole: windows and pending records change too much for copies ahead to
// pay. All calls belong to the holder of the lane; nothing waits.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/control.hpp"
#include "plait/moves/state_moves.hpp"
#include "plait/time/lane_operator.hpp"
#include "plait/time/unit_time.hpp"
#include "plait/time/window_grid.hpp"

namespace plait {

class TimedLane {
 public:
  // `bins`: of the lane, from `first` on. `keyless`: it is the one lane of an operator without
  // keys, whose state counts at one bin of the layout.
  TimedLane(uint32_t number, uint32_t first, uint32_t bins, bool keyless,
            std::unique_ptr<LaneOperator> op, UnitTime time)
      : time(std::move(time)),
        op(std::move(op)),
        number_(number),
        first_(first),
        bins_(bins),
        keyless_(keyless) {}

  bool owns(uint32_t bin) const { return bin - first_ < bins_; }

  // Bins as bytes. They stay.
  std::vector<Bytes> copy(const std::vector<uint32_t>& bins) const {
    std::vector<Bytes> states = op->copy_bins(bins);
    std::vector<Bytes> out;
    const size_t head = time.head_size();
    for (const Bytes& state : states) {
      Bytes b;
      b.size = int64_t(head) + state.size;
      b.bytes = BufferRef::make(b.size);
      uint8_t* to = b.bytes.data();
      time.write_head(to);
      if (state.size) std::memcpy(to + head, state.data(), size_t(state.size));
      out.push_back(std::move(b));
    }
    return out;
  }
  [[nodiscard]] std::string put(uint32_t bin, const uint8_t* data, size_t size) {
    const size_t head = time.head_size();
    if (size < head) return "bin " + std::to_string(bin) + ": damaged: cut short";
    if (size == head) return "";
    used = true;
    return op->put_bin(bin, data + head, size - head);
  }
  std::vector<uint32_t> filled() const {
    std::vector<uint32_t> found;
    for (uint32_t bin = first_; bin < first_ + bins_; ++bin) {
      if (op->bin_keys(bin)) found.push_back(bin);
    }
    return found;
  }

  // Takes the lane's rows of a unit, and lets time go on: to the end of the unit at once, or from
  // one multiple of `early` to the next.
  void run(const Batch& unit, const uint32_t* rows, uint32_t n, const uint64_t* hashes,
           const uint32_t* order, Emitter& out) {
    const int64_t arrival = time.watermarks.arrival(unit);
    const UnitClock clock = time.watermarks.pass(unit);
    out.held = time.watermarks.held();
    if (!used) return;  // see below
    const LaneRows all{unit, rows, n, hashes, time.place(unit), order, clock, 0, arrival};
    const TagFinder tag_of{unit, order, clock};
    int64_t reached = clock.before();
    size_t tagged = out.orders.size();
    uint32_t from = 0;
    const auto step = [&](uint32_t to, int64_t watermark, int64_t row) {
      if (to > from) op->process(all.slice(from, to), out);
      from = to;
      if (watermark > reached) op->advance(reached, watermark, out);
      reached = watermark;
      for (; tagged < out.orders.size(); ++tagged) {
        out.orders[tagged].tag = tag_of(out.orders[tagged], watermark, 2 * row);
      }
    };
    while (op->early() && clock.end() > reached) {
      const int64_t row = next_early(clock, reached);
      if (row == clock.rows()) break;
      uint32_t to = from;
      while (to < n && all.position(to) <= 2 * row) ++to;
      step(to, clock.at(2 * row + 1), row);
    }
    step(n, clock.end(), clock.rows());
  }

  // Passes a layout: ships what goes; false as long as a bin that it brings is missing.
  bool pass(Control& c, StateMoves& moves) {
    if (passing_ != &c) {
      passing_ = &c;
      give(c, moves);
    }
    std::erase_if(missing_, [&](uint32_t bin) { return install(c, bin, moves); });
    if (!missing_.empty()) return false;
    passing_ = nullptr;
    return true;
  }

  UnitTime time;
  std::unique_ptr<LaneOperator> op;
  // Whether rows or bins ever came. Of a node that joined the job later, the lane does not know the
  // time before they do, so the operator is told of none.
  bool used = false;

 private:
  // The row at whose mark the watermark passes the next multiple of `early`, or is there at all.
  int64_t next_early(const UnitClock& clock, int64_t reached) const {
    const int64_t length = op->early();
    int64_t next = kNoTime + 1;
    if (reached != kNoTime &&
        __builtin_mul_overflow(floor_div(reached, length) + 1, length, &next)) {
      return clock.rows();  // there is none any more
    }
    return next > clock.end() ? clock.rows() : clock.first(next);
  }

  void give(const Control& c, StateMoves& moves) {
    std::vector<uint32_t> going, targets;
    missing_.clear();
    each_move(c, number_, keyless_, first_, bins_, [&](uint32_t bin, uint32_t from, uint32_t to) {
      if (from == moves.here()) {
        going.push_back(bin);
        targets.push_back(to);
      }
      if (to == moves.here()) missing_.push_back(bin);
    });
    if (going.empty()) return;
    std::vector<Bytes> states = copy(going);
    op->drop_bins(going);
    for (size_t i = 0; i < going.size(); ++i) {
      const uint8_t* data = states[i].bytes.data();
      const int64_t size = states[i].size;
      moves.ship(targets[i], number_, going[i],
                 {c.epoch, MoveKind::Whole, std::move(states[i].bytes), data, size});
    }
  }
  bool install(Control& c, uint32_t bin, StateMoves& moves) {
    MovedBin m;
    if (!moves.take(number_, bin, c.epoch, m)) return false;
    const bool whole = time.adopt(m.data, size_t(m.size));
    const std::string why = whole ? put(bin, m.data, size_t(m.size)) : "damaged: its times";
    if (!why.empty()) c.refuse(why);
    moves.installed(m.size);
    return true;
  }

  const uint32_t number_, first_, bins_;
  const bool keyless_;
  Control* passing_ = nullptr;  // the layout that is being passed, and the bins it still waits for
  std::vector<uint32_t> missing_;
};

}  // namespace plait
