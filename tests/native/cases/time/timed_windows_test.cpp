// The lane operators of windows against plain loops over all rows: random windows, keys, results,
// rows and sources that move the watermark with every record, and two sets of lanes between which
// bins move while the rows flow. Arguments: jobs, seed, a planted fault.
namespace plait {
inline int seeded_fault = 0;  // see test_native_time.py
}

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "plait/keyed/split_by_lane.hpp"
#include "plait/time/timed_lane.hpp"
#include "plait/windows/make_window_lane.hpp"
#include "window_model.hpp"

namespace {

using namespace plait;
using namespace plait::testing;

struct Lanes {
  std::vector<std::unique_ptr<TimedLane>> lanes;
  Lanes(const TimedSpec& spec, const Sources& sources) {
    const uint32_t bins = 1u << (spec.bin_bits - spec.lane_bits);
    for (unsigned l = 0; l < 1u << spec.lane_bits; ++l) {
      lanes.push_back(std::make_unique<TimedLane>(l, l * bins, bins, spec.key_columns.empty(),
                                                  make_window_lane(spec, l), UnitTime(sources)));
      lanes.back()->used = true;
    }
  }
};

struct Made {
  Emitter::Order order;
  std::string text;
};

// The rows of an emitter, in order, as text.
void collect(const TimedSpec& spec, const Emitter& out, std::vector<Made>& made) {
  std::vector<Column> columns;
  for (size_t c = 0; c < spec.out_types.size(); ++c) {
    columns.push_back(out.columns[c].finish());
    CHECK(columns.back().length == out.length());
  }
  for (int64_t i = 0; i < out.length(); ++i) {
    std::string text;
    for (const Column& c : columns) text += show(value_of(c, i), c.type) + "|";
    made.push_back({out.orders[size_t(i)], text});
  }
}

class Run {
 public:
  Run(const TimedSpec& spec, Random& random)
      : spec_(spec),
        random_(random),
        sources_(spec.arrival ? arrival_sources(random) : random_sources(random)),
        nodes_(make_nodes()),
        owner_(1u << spec.bin_bits, 0) {}

  void go(unsigned epochs) {
    const std::unique_ptr<Model> model = make_model(spec_);
    PlainClock clock(sources_);
    MarkedUnits units(random_, sources_);
    const bool halves = random_() % 2, fails = random_() % 8 == 0;
    for (unsigned epoch = 0; epoch < epochs; ++epoch) {
      for (uint32_t s = 0; s < source_count(sources_); ++s) {
        if (!(*sources_)[s].reaches) continue;
        UnitMarks marks = units.next(s, epoch + 1 == epochs, random_() % 20 ? 40 : 500);
        marks.positions = random_positions(random_, marks.rows(), halves);
        if (fails && marks.rows() && random_() % 10 == 0) {
          marks.failed = int64_t(random_() % uint64_t(2 * marks.rows()));
          std::erase_if(marks.positions, [&](int64_t at) { return at > marks.failed; });
        }
        run_unit(random_unit(spec_, random_, marks, epoch, (*sources_)[s].timed, halves), clock,
                 *model);
        if (marks.failed >= 0) return;
        if (random_() % 2) move_bins();
      }
    }
    CHECK(clock.now == kAllTime);
    using Kind = TimedSpec::Kind;
    const bool stays = spec_.kind == Kind::Last || spec_.kind == Kind::Running;
    if (stays || spec_.within == TimedSpec::Within::Rows) return;
    for (uint32_t b = 0; b < owner_.size(); ++b) CHECK(lane(owner_[b], b).bin_keys(b) == 0);
  }

 private:
  std::vector<Lanes> make_nodes() const {
    std::vector<Lanes> nodes;
    nodes.emplace_back(spec_, sources_);
    nodes.emplace_back(spec_, sources_);
    return nodes;
  }
  LaneOperator& lane(unsigned node, uint32_t bin) {
    return *nodes_[node].lanes[bin >> (spec_.bin_bits - spec_.lane_bits)]->op;
  }

  void run_unit(Unit unit, PlainClock& clock, Model& model) {
    const uint64_t base = nodes_[0].lanes[0]->time.place(unit.batch);
    arrived_ = std::max(arrived_, unit.marks.stamp);
    for (size_t i = 0; i < unit.rows.size(); ++i) {
      unit.rows[i].place = base + (unit.order.empty() ? i : unit.order[i]);
      if (spec_.arrival) unit.rows[i].arrived = arrived_;
    }
    model.out = {};
    walk_unit(
        clock, unit.marks,
        [&](size_t i) { model.take(unit.rows[i], unit.marks.positions[i], clock.now); },
        [&](int64_t position, int64_t before) { model.due(position, before, clock.now); });
    std::vector<Made> made;
    int64_t late = 0, left_out = 0;
    run_lanes(unit, made, late, left_out);
    compare(made, model.out);
    CHECK(late == model.out.late && !(spec_.arrival && late));
    CHECK(left_out == model.out.left_out);
  }

  void run_lanes(const Unit& unit, std::vector<Made>& made, int64_t& late, int64_t& left_out) {
    std::vector<Type> key_types;
    for (int k : spec_.key_columns) key_types.push_back(spec_.types[size_t(k)]);
    const KeyedPlan plan =
        KeyedPlan::make(spec_.key_columns, key_types, {}, spec_.bin_bits, spec_.lane_bits);
    SplitBatch s;
    std::vector<uint64_t> hashes(size_t(unit.batch.length) + 1);
    split_detail::hash_rows(plan, unit.batch, s, hashes.data());
    hashes.pop_back();
    for (unsigned n = 0; n < nodes_.size(); ++n) {
      for (unsigned l = 0; l < nodes_[n].lanes.size(); ++l) {
        std::vector<uint32_t> rows;
        std::vector<uint64_t> mine;
        for (uint32_t r = 0; r < hashes.size(); ++r) {
          const auto bin = uint32_t(top_bits(hashes[r], spec_.bin_bits));
          if (owner_[bin] != n || bin >> (spec_.bin_bits - spec_.lane_bits) != l) continue;
          rows.push_back(r);
          mine.push_back(hashes[r]);
        }
        Emitter out(spec_.out_types);
        TimedLane& lane = *nodes_[n].lanes[l];
        const bool all = rows.size() == hashes.size();
        lane.run(unit.batch, all ? nullptr : rows.data(), uint32_t(rows.size()), mine.data(),
                 unit.order.empty() ? nullptr : unit.order.data(), out);
        collect(spec_, out, made);
        late += out.late;
        left_out += out.left_out;
        CHECK(lane.op->byte_size() >= 0);
      }
    }
    std::stable_sort(made.begin(), made.end(),
                     [](const Made& a, const Made& b) { return a.order < b.order; });
  }

  void compare(const std::vector<Made>& made, const Expected& expected) {
    const size_t n = std::max(made.size(), expected.rows.size());
    for (size_t i = 0; i < n; ++i) {
      std::string got = "nothing", want = "nothing";
      if (i < made.size()) got = "at " + std::to_string(made[i].order.tag) + ": " + made[i].text;
      if (i < expected.rows.size()) {
        want = "at " + std::to_string(expected.rows[i].position) + ": " + expected.rows[i].text;
      }
      if (got == want) continue;
      story() += "row " + std::to_string(i) + "\n got " + got + "\nwant " + want + "\n";
      CHECK(got == want);
    }
  }

  // Some bins go to the other node; damaged bytes are refused on the way.
  void move_bins() {
    for (unsigned from = 0; from < 2; ++from) {
      for (unsigned l = 0; l < 1u << spec_.lane_bits; ++l) {
        std::vector<uint32_t> bins;
        for (uint32_t b = 0; b < owner_.size(); ++b) {
          const bool here = b >> (spec_.bin_bits - spec_.lane_bits) == l && owner_[b] == from;
          if (here && random_() % 3 == 0) bins.push_back(b);
        }
        move(*nodes_[from].lanes[l]->op, *nodes_[1 - from].lanes[l]->op, bins);
        for (uint32_t b : bins) owner_[b] = 1 - from;
      }
    }
  }
  void move(LaneOperator& from, LaneOperator& to, const std::vector<uint32_t>& bins) {
    const std::vector<Bytes> bytes = from.copy_bins(bins);
    CHECK(bytes.size() == bins.size());
    std::vector<uint64_t> keys;
    for (uint32_t b : bins) keys.push_back(from.bin_keys(b));
    from.drop_bins(bins);
    for (size_t i = 0; i < bins.size(); ++i) {
      CHECK(from.bin_keys(bins[i]) == 0);
      CHECK((bytes[i].size == 0) == (keys[i] == 0));
      if (bytes[i].size == 0) continue;
      std::vector<uint8_t> bad = bytes[i];
      bad[random_() % bad.size()] ^= uint8_t(1 + random_() % 255);
      CHECK(!to.put_bin(bins[i], bad.data(), bad.size()).empty());
      craft(to, bins[i], bytes[i]);
      const size_t cut = random_() % size_t(bytes[i].size);
      CHECK(!to.put_bin(bins[i], bytes[i].data(), cut).empty());
      CHECK(to.bin_keys(bins[i]) == 0);
      const std::string reason = to.put_bin(bins[i], bytes[i].data(), size_t(bytes[i].size));
      if (!reason.empty()) story() += reason + "\n";
      CHECK(reason.empty());
      CHECK(to.bin_keys(bins[i]) == keys[i]);
      CHECK(!to.put_bin(bins[i], bytes[i].data(), size_t(bytes[i].size)).empty());
    }
  }
  // Bytes with a right checksum and something wrong in them: taken or refused, never more.
  void craft(LaneOperator& to, uint32_t bin, std::vector<uint8_t> bytes) {
    BinHeader h;
    std::memcpy(&h, bytes.data(), sizeof h);
    bytes[sizeof h + random_() % h.length] ^= uint8_t(1 + random_() % 255);
    h.checksum = h.right_checksum(bytes.data() + sizeof h);
    std::memcpy(bytes.data(), &h, sizeof h);
    Lanes other(spec_, sources_);
    const unsigned l = bin >> (spec_.bin_bits - spec_.lane_bits);
    (void)other.lanes[l]->op->put_bin(bin, bytes.data(), bytes.size()).empty();
    CHECK(to.bin_keys(bin) == 0);
  }

  const TimedSpec& spec_;
  Random& random_;
  const Sources sources_;
  std::vector<Lanes> nodes_;
  std::vector<unsigned> owner_;
  int64_t arrived_ = 0;
};

void refuses_nonsense() {
  TimedSpec good;
  good.within = TimedSpec::Within::Grid;
  good.types = {Type::Timestamp};
  good.time = 0;
  good.size = good.every = 10;
  (void)make_window_lane(good, 0);
  std::vector<TimedSpec> bad(5, good);
  bad[0].every = 11;
  bad[1].size = 0;
  bad[2].time = -1;
  bad[3].within = TimedSpec::Within::Session;
  bad[4].kind = TimedSpec::Kind::Join;
  for (const TimedSpec& spec : bad) {
    bool refused = false;
    try {
      (void)make_window_lane(spec, 0);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long jobs = argument(argc, argv, 2000);
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  seeded_fault = argc > 3 ? std::atoi(argv[3]) : 0;
  refuses_nonsense();
  for (unsigned long job = 0; job < jobs; ++job) {
    Random random(seed + job);
    const TimedSpec spec = random_spec(random);
    story() = "seed " + std::to_string(seed + job) + ": " + describe(spec) + "\n";
    Run(spec, random).go(4 + unsigned(random() % 24));
  }
  return 0;
}
