// Joins and spans against a model of vectors: random specs, rows and sources that move the
// watermark with every record, with bins that go to other operators and come back in between, and
// bytes that are damaged on the way. Arguments: runs, seed, a planted fault.
namespace plait {
inline int seeded_fault = 0;  // see test_native_time.py
}

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "check.hpp"
#include "join_model.hpp"
#include "plait/columns/key_hash.hpp"
#include "plait/joins/make_join_lane.hpp"
#include "plait/time/timed_lane.hpp"
#include "unit_marks.hpp"

namespace {

using namespace plait;
using namespace plait::testing;
using Random = std::mt19937_64;
using Kind = TimedSpec::Kind;
using Within = TimedSpec::Within;
using How = TimedSpec::How;
using Lanes = std::vector<std::unique_ptr<TimedLane>>;

const std::vector<Type> kTypes = {Type::Int64,   Type::Int64,  Type::String,    Type::Timestamp,
                                  Type::Int64,   Type::String, Type::Timestamp, Type::Timestamp,
                                  Type::Float64, Type::Bool,   Type::String,    Type::Timestamp};

int64_t draw(Random& random, int64_t from, int64_t to) {
  return std::uniform_int_distribution<int64_t>(from, to)(random);
}

std::string random_text(Random& random) {
  const int64_t kind = draw(random, 0, 200);
  if (kind == 0) return std::string(size_t(draw(random, 60'000, 80'000)), 'z');
  if (kind < 4) return std::string(size_t(draw(random, 300, 3000)), 'y');
  return std::string(size_t(draw(random, 0, 6)), char('a' + draw(random, 0, 3)));
}

AggregateSpec random_aggregate(Random& random) {
  AggregateSpec a;
  switch (draw(random, 0, 4)) {
    case 0:
      return a;
    case 1:
      a.input = kRightC;
      a.type = Type::Bool;
      break;
    case 2:
      a.input = kRightB;
      a.type = Type::String;
      a.nullable = true;
      break;
    default:
      a.input = kRightA;
      a.type = Type::Float64;
      a.nullable = true;
  }
  const AggregateKind of_text[] = {AggregateKind::Count, AggregateKind::Min, AggregateKind::Max,
                                   AggregateKind::First, AggregateKind::Last};
  a.kind = a.type == Type::String ? of_text[draw(random, 0, 4)] : AggregateKind(draw(random, 0, 6));
  return a;
}

Type result_type(const AggregateSpec& a) {
  switch (a.kind) {
    case AggregateKind::Count:
      return Type::Int64;
    case AggregateKind::Mean:
      return Type::Float64;
    case AggregateKind::Sum:
      return a.type == Type::Float64 ? Type::Float64 : Type::Int64;
    default:
      return a.type;
  }
}

TimedSpec random_spec(Random& random) {
  TimedSpec s;
  s.types = kTypes;
  s.side = kSide;
  s.left = {{kLeftTime, kLeftA, kLeftB, kLeftEnd}, kLeftTime};
  s.right = {{kRightTime, kRightA, kRightC, kRightB}, kRightTime};
  const std::vector<int> keys[] = {{kKey}, {kKey}, {kText}, {kKey, kText}};
  s.key_columns = keys[draw(random, 0, 3)];
  s.bin_bits = unsigned(draw(random, 0, 4));
  s.lane_bits = unsigned(draw(random, 0, s.bin_bits));
  for (int c : s.left.columns) s.out_types.push_back(s.types[size_t(c)]);
  s.kind = draw(random, 0, 3) == 0 ? Kind::Span : Kind::Join;
  if (s.kind == Kind::Span) {
    s.span_start = kLeftStart;
    s.span_end = kLeftEnd;
    s.empty = draw(random, 0, 1);
    s.wait = draw(random, 0, 1) * draw(random, 0, 40);
    for (int64_t n = draw(random, 1, 4); n > 0; --n) {
      s.aggregates.push_back(random_aggregate(random));
      s.out_types.push_back(result_type(s.aggregates.back()));
    }
    return s;
  }
  s.how = How(draw(random, 0, 4));
  const Within within[] = {Within::None, Within::None, Within::Grid, Within::Between, Within::AsOf};
  s.within = within[draw(random, 0, 4)];
  const bool may_stay = s.how != How::Late;
  if (s.within == Within::None) s.ttl = draw(random, !may_stay, 1) * draw(random, 1, 40);
  s.size = draw(random, 1, 30);
  s.every = draw(random, 0, 1) ? s.size : draw(random, 1, s.size);
  s.offset = draw(random, -20, 20);
  s.low = draw(random, -20, 10);
  s.high = s.low + draw(random, 0, 20);
  s.tolerance = draw(random, 0, 1) * draw(random, 1, 20);
  if (s.how == How::Inner || s.how == How::Left) {
    for (int c : s.right.columns) s.out_types.push_back(s.types[size_t(c)]);
  }
  return s;
}

struct Ways {
  int64_t keys, jitter;
  bool wild;
};

// Most have the time that moves the watermark in front of them.
Row random_row(Random& random, const Ways& ways, int64_t now, uint64_t place) {
  Row r;
  r.side = int(draw(random, 0, 1));
  if (draw(random, 0, 15)) r.key = draw(random, 0, ways.keys);
  if (draw(random, 0, 15)) r.text = std::string(size_t(draw(random, 0, 3)), 'k');
  r.time = draw(random, 0, 2) ? now : now + draw(random, -ways.jitter, 2);
  if (ways.wild && draw(random, 0, 50) == 0) r.time += draw(random, -300, 300);
  r.start = draw(random, 0, 2) ? r.time : r.time - draw(random, 0, 30);
  r.end = r.start + draw(random, -3, 30);
  if (draw(random, 0, 3)) r.a = draw(random, -50, 50);
  if (draw(random, 0, 3)) r.b = random_text(random);
  r.c = draw(random, 0, 1);
  r.place = place;
  return r;
}

void add_columns(Batch& batch, const std::vector<Row>& rows) {
  std::vector<GrowingColumn> columns;
  for (Type t : kTypes) columns.emplace_back(t);
  const auto number = [&](int c, bool there, uint64_t bits) {
    there ? columns[size_t(c)].word(bits) : columns[size_t(c)].null();
  };
  const auto text = [&](int c, bool there, const std::optional<std::string>& v) {
    there&& v ? columns[size_t(c)].text(*v) : columns[size_t(c)].null();
  };
  for (const Row& r : rows) {
    const bool right = r.side, left = !right;
    number(kSide, true, uint64_t(r.side));
    number(kKey, r.key.has_value(), uint64_t(r.key.value_or(0)));
    text(kText, true, r.text);
    number(kLeftTime, left, uint64_t(r.time));
    number(kLeftA, left && r.a, uint64_t(r.a.value_or(0)));
    text(kLeftB, left, r.b);
    number(kLeftEnd, left, uint64_t(r.end));
    number(kRightTime, right, uint64_t(r.time));
    number(kRightA, right && r.a, std::bit_cast<uint64_t>(double(r.a.value_or(0)) / 4));
    number(kRightC, right, r.c);
    text(kRightB, right, r.b);
    number(kLeftStart, left, uint64_t(r.start));
  }
  for (const GrowingColumn& c : columns) batch.columns.push_back(c.finish());
}

uint64_t hash_of(const TimedSpec& spec, const Batch& batch, int64_t row) {
  std::vector<const Column*> columns;
  for (int k : spec.key_columns) columns.push_back(&batch.columns[size_t(k)]);
  if (columns.size() > 1) {
    std::vector<uint8_t> bytes;
    encode_key(columns, row, bytes);
    return xxh64(bytes.data(), bytes.size(), 0);
  }
  const Column& c = *columns[0];
  if (!c.valid(row)) return null_hash(c.type);
  if (is_varlen(c.type)) return hash_bytes(c.bytes(row), size_t(c.size(row)), c.type);
  return hash_fixed(key_bits(c, row), c.type);
}

std::string value_of(const Column& c, int64_t i) {
  if (!c.valid(i)) return "-";
  if (is_varlen(c.type)) return "'" + std::string(c.bytes(i), size_t(c.size(i))) + "'";
  if (c.type == Type::Bool) return std::to_string(int(c.boolean(i)));
  if (c.type == Type::Float64) return show(c.f64()[i]);
  return std::to_string(c.i64()[i]);
}

void collect(const Emitter& out, std::vector<Made>& made) {
  std::vector<Column> columns;
  for (const GrowingColumn& c : out.columns) columns.push_back(c.finish());
  for (const Column& c : columns) CHECK(c.length == out.length());
  for (int64_t i = 0; i < out.length(); ++i) {
    std::string row;
    for (const Column& c : columns) row += value_of(c, i) + " ";
    const auto& o = out.orders[size_t(i)];
    made.push_back({o.tag, o.time == kAtOnce, o.time, o.place, row});
  }
}

Lanes lanes_of(const TimedSpec& spec, const Sources& sources) {
  Lanes lanes;
  const uint32_t bins = 1u << (spec.bin_bits - spec.lane_bits);
  for (unsigned l = 0; l < 1u << spec.lane_bits; ++l) {
    lanes.push_back(std::make_unique<TimedLane>(l, l * bins, bins, false, make_join_lane(spec, l),
                                                UnitTime(sources)));
    lanes.back()->used = true;
  }
  return lanes;
}

struct Counted {
  int64_t late = 0, left_out = 0;
};

// Each lane's rows of a unit; lanes that have no rows see time go on.
std::vector<Made> run_unit(const TimedSpec& spec, Lanes& lanes, const Batch& batch,
                           const std::vector<uint32_t>& order, bool rows, Counted& counted) {
  std::vector<Made> made;
  for (unsigned l = 0; l < lanes.size(); ++l) {
    std::vector<uint32_t> mine;
    std::vector<uint64_t> hashes;
    for (uint32_t i = 0; rows && i < batch.length; ++i) {
      const uint64_t h = hash_of(spec, batch, i);
      if (top_bits(h, spec.lane_bits) != l) continue;
      mine.push_back(i);
      hashes.push_back(h);
    }
    Emitter out(spec.out_types);
    lanes[l]->run(batch, mine.data(), uint32_t(mine.size()), hashes.data(),
                  order.empty() ? nullptr : order.data(), out);
    counted.late += out.late;
    counted.left_out += out.left_out;
    collect(out, made);
  }
  std::stable_sort(made.begin(), made.end(), [](const Made& x, const Made& y) {
    return std::tie(x.position, x.time, x.place) < std::tie(y.position, y.time, y.place);
  });
  return made;
}

void damage(Random& random, LaneOperator& lane, uint32_t bin, const Bytes& bytes) {
  std::vector<uint8_t> bad = bytes;
  bad[size_t(draw(random, 0, int64_t(bad.size()) - 1))] ^= uint8_t(1 << draw(random, 0, 7));
  CHECK(!lane.put_bin(bin, bad.data(), bad.size()).empty());
  bad = bytes;
  const auto cut = size_t(draw(random, 1, int64_t(bad.size()) - 1));
  CHECK(!lane.put_bin(bin, bad.data(), cut).empty());
  // With a right checksum over wrong bytes nothing may be read that is not there.
  bad = bytes;
  BinHeader h;
  for (int64_t n = draw(random, 1, 4); n > 0; --n) {
    const int64_t last = int64_t(bad.size()) - 1;
    bad[size_t(draw(random, int64_t(sizeof h), last))] = uint8_t(draw(random, 0, 255));
  }
  std::memcpy(&h, bad.data(), sizeof h);
  h.checksum = h.right_checksum(bad.data() + sizeof h);
  std::memcpy(bad.data(), &h, sizeof h);
  if (lane.put_bin(bin, bad.data(), bad.size()).empty()) {
    const uint32_t gone[] = {bin};
    lane.drop_bins(gone);
  }
  CHECK(lane.bin_keys(bin) == 0);
}

// Takes bins out and puts them into other operators.
void move_bins(Random& random, const TimedSpec& spec, Lanes& from, Lanes& to) {
  const unsigned per_lane = spec.bin_bits - spec.lane_bits;
  for (unsigned l = 0; l < from.size(); ++l) {
    std::vector<uint32_t> bins;
    for (uint32_t b = l << per_lane; b < (l + 1) << per_lane; ++b) {
      if (draw(random, 0, 2)) bins.push_back(b);
    }
    std::shuffle(bins.begin(), bins.end(), random);
    LaneOperator &here = *from[l]->op, &there = *to[l]->op;
    const std::vector<Bytes> all = here.copy_bins(bins);
    CHECK(all.size() == bins.size());
    for (size_t i = 0; i < bins.size(); ++i) {
      const uint64_t keys = here.bin_keys(bins[i]);
      CHECK((all[i].size == 0) == (keys == 0));
      if (keys == 0) continue;
      if (there.bin_keys(bins[i]) == 0) damage(random, there, bins[i], all[i]);
      CHECK(!here.put_bin(bins[i], all[i].data(), size_t(all[i].size)).empty());
      if (from.size() > 1) {
        LaneOperator& other = *to[(l + 1) % from.size()]->op;
        CHECK(!other.put_bin(bins[i], all[i].data(), size_t(all[i].size)).empty());
      }
    }
    here.drop_bins(bins);
    for (size_t i = 0; i < bins.size(); ++i) {
      CHECK(here.bin_keys(bins[i]) == 0);
      if (all[i].size == 0) continue;
      const std::string reason = there.put_bin(bins[i], all[i].data(), size_t(all[i].size));
      if (!reason.empty()) story() += reason + "\n";
      CHECK(reason.empty());
      CHECK(there.bin_keys(bins[i]) > 0);
    }
  }
}

void compare(const std::vector<Made>& got, const std::vector<Made>& right) {
  for (size_t i = 0; i < std::max(got.size(), right.size()); ++i) {
    const bool same = i < got.size() && i < right.size() && got[i].row == right[i].row &&
                      got[i].place == right[i].place && got[i].at_once == right[i].at_once &&
                      got[i].position == right[i].position;
    if (same) continue;
    const auto text = [i](const std::vector<Made>& made) {
      if (i >= made.size()) return std::string("none");
      return "at " + std::to_string(made[i].position) + ": " + made[i].row.substr(0, 200);
    };
    story() += "row " + std::to_string(i) + " of " + std::to_string(right.size()) + ":\n  got " +
               text(got) + "\nright " + text(right) + "\n";
    CHECK(same);
  }
}

// What stayed behind when bins went to and fro.
void bring_back(const TimedSpec& spec, Lanes& from, Lanes& to) {
  const unsigned per_lane = spec.bin_bits - spec.lane_bits;
  for (unsigned l = 0; l < from.size(); ++l) {
    for (uint32_t b = l << per_lane; b < (l + 1) << per_lane; ++b) {
      if (from[l]->op->bin_keys(b) == 0) continue;
      const uint32_t bins[] = {b};
      const Bytes bytes = from[l]->op->copy_bins(bins)[0];
      from[l]->op->drop_bins(bins);
      CHECK(to[l]->op->put_bin(b, bytes.data(), size_t(bytes.size)).empty());
    }
  }
}

class Run {
 public:
  Run(uint64_t seed, const TimedSpec& spec, Random& random)
      : random_(random),
        spec_(spec),
        sources_(random_sources(random)),
        many_(draw(random, 0, 39) == 0),  // enough to fill chunks and tables
        ways_{many_                ? 2000
              : draw(random, 0, 1) ? 3
                                   : 30,
              draw(random, 0, 15), draw(random, 0, 1) == 1},
        halves_(draw(random, 0, 1)),
        spaced_(draw(random, 0, 1)),
        model_(spec),
        clock_(sources_),
        here_(lanes_of(spec, sources_)),
        there_(lanes_of(spec, sources_)) {
    story() = "seed " + std::to_string(seed) + " kind " + std::to_string(int(spec.kind)) +
              " within " + std::to_string(int(spec.within)) + " how " +
              std::to_string(int(spec.how)) + "\n";
  }

  uint64_t go() {
    MarkedUnits units(random_, sources_);
    const bool fails = draw(random_, 0, 7) == 0;
    const int64_t epochs = draw(random_, 1, 12);
    for (int64_t epoch = 0; epoch <= epochs; ++epoch) {
      for (uint32_t s = 0; s < source_count(sources_); ++s) {
        if (!(*sources_)[s].reaches) continue;
        UnitMarks marks = units.next(s, epoch == epochs, many_ ? 600 : 25);
        marks.positions = random_positions(random_, marks.rows(), halves_);
        if (fails && marks.rows() && draw(random_, 0, 9) == 0) {
          marks.failed = draw(random_, 0, 2 * marks.rows() - 1);
          std::erase_if(marks.positions, [&](int64_t at) { return at > marks.failed; });
        }
        unit(marks, uint64_t(epoch));
        if (marks.failed >= 0) return rows_made_;
        if (draw(random_, 0, 2)) continue;
        move_bins(random_, spec_, here_, there_);
        move_bins(random_, spec_, there_, here_);
        bring_back(spec_, there_, here_);
      }
    }
    CHECK(clock_.now == kAllTime);
    return rows_made_;
  }

 private:
  void unit(const UnitMarks& marks, uint64_t epoch) {
    Batch batch = batch_of(marks, epoch, (*sources_)[marks.source].timed, halves_);
    const uint64_t base = here_[0]->time.place(batch);
    std::vector<Row> rows;
    std::vector<uint32_t> order;
    for (size_t i = 0; i < marks.positions.size(); ++i) {
      if (spaced_) order.push_back(uint32_t(2 * i + 1));
      const int64_t now = marks.rows() ? marks.time_at(marks.positions[i]) : 0;
      rows.push_back(random_row(random_, ways_, now, base + (spaced_ ? 2 * i + 1 : i)));
    }
    add_columns(batch, rows);
    model_.made.clear();
    walk_unit(
        clock_, marks, [&](size_t i) { model_.take(rows[i], marks.positions[i], clock_.now); },
        [&](int64_t position, int64_t) { model_.due(position, clock_.now); });
    const std::vector<Made> made = run_unit(spec_, here_, batch, order, true, counted_);
    compare(made, model_.made);
    rows_made_ += made.size();
    CHECK(counted_.late == model_.late);
    CHECK(counted_.left_out == model_.left_out);
    Counted none;  // the others see time go on, too
    CHECK(run_unit(spec_, there_, batch, order, false, none).empty());
  }

  Random& random_;
  const TimedSpec& spec_;
  const Sources sources_;
  const bool many_;
  const Ways ways_;
  const bool halves_, spaced_;
  Model model_;
  PlainClock clock_;
  Lanes here_, there_;
  Counted counted_;
  uint64_t rows_made_ = 0;
};

uint64_t run(uint64_t seed) {
  Random random(seed);
  const TimedSpec spec = random_spec(random);
  return Run(seed, spec, random).go();
}

// What waits for its time is still there when a watermark that fell was refused.
void falling_watermark() {
  DueQueue<int> queue;
  std::vector<int> seen;
  const auto visit = [&](int n) { seen.push_back(n); };
  const auto fetch = [](int, int) {};
  for (int n = 0; n < 50; ++n) queue.add(n, n);
  queue.take(20, visit, fetch);
  CHECK(seen.size() == 21);
  queue.add(15, 100);  // already due: at the next watermark
  bool refused = false;
  try {
    queue.take(10, visit, fetch);
  } catch (const std::logic_error& error) {
    refused = error.what() == std::string("a watermark fell from 20 to 10");
  }
  CHECK(refused && seen.size() == 21);
  queue.take(20, visit, fetch);  // the same one again
  CHECK(seen.size() == 22 && seen.back() == 100);
  queue.take(kAllTime, visit, fetch);
  CHECK(seen.size() == 51);
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long runs = argument(argc, argv, 500);
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  seeded_fault = argc > 3 ? std::atoi(argv[3]) : 0;
  falling_watermark();
  uint64_t made = 0;
  for (uint64_t i = 0; i < runs; ++i) made += run(seed + i);
  story() = "seed " + std::to_string(seed) + ": nothing came out\n";
  CHECK(made > 0 || runs < 20);
  return 0;
}
