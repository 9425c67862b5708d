// Random window operators and units of rows for the tests, and values as text.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "plait/time/lane_operator.hpp"
#include "plait/time/window_grid.hpp"
#include "unit_marks.hpp"

namespace plait::testing {

using Random = std::mt19937_64;

struct Value {
  bool null = true;
  uint64_t bits = 0;
  std::string text;
  bool operator<(const Value& o) const {
    return std::tie(null, bits, text) < std::tie(o.null, o.bits, o.text);
  }
  bool operator==(const Value& o) const = default;
};

inline Value value_of(const Column& c, int64_t i) {
  if (!c.valid(i)) return {};
  if (is_varlen(c.type)) return {false, 0, {c.bytes(i), size_t(c.size(i))}};
  if (c.type == Type::Bool) return {false, c.boolean(i), {}};
  return {false, std::bit_cast<uint64_t>(c.i64()[i]), {}};
}

inline std::string show(const Value& v, Type type) {
  if (v.null) return "null";
  if (is_varlen(type)) return "'" + v.text + "'";
  if (type != Type::Float64) return std::to_string(int64_t(v.bits));
  const auto number = std::bit_cast<double>(v.bits);
  if (number != number) return "nan";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

// The columns of every input: two that may be keys, the event time, values of every type, windows.
enum : int { kNumber, kName, kTime, kInt, kFloat, kText, kBool, kStart, kEnd, kColumns };
inline const std::vector<Type> kTypes{Type::Int64, Type::String,    Type::Timestamp,
                                      Type::Int64, Type::Float64,   Type::String,
                                      Type::Bool,  Type::Timestamp, Type::Timestamp};

struct Row {
  std::vector<Value> values;
  uint64_t place = 0;
  int64_t arrived = kNoTime;  // it counts by that, if it is set
  int64_t time() const {
    return arrived != kNoTime ? arrived : clamp_time(int64_t(values[kTime].bits));
  }
};

struct Unit {
  UnitMarks marks;
  Batch batch;
  std::vector<Row> rows;
  std::vector<uint32_t> order;  // empty: a row's place is its index
};

// Of the rows of a source, those that come to the operator: most with the time that moves the
// watermark in front of them, some with one behind it.
inline Unit random_unit(const TimedSpec& spec, Random& random, const UnitMarks& marks,
                        uint64_t epoch, bool timed, bool halves) {
  const auto one_of = [&](uint64_t n) { return int64_t(random() % n); };
  const bool session = spec.within == TimedSpec::Within::Session;
  const int64_t spread = one_of(2) ? 1 + one_of(40) : 1;
  const bool wild = one_of(40) == 0, large = !session && one_of(20) == 0;
  Unit u;
  u.marks = marks;
  u.batch = batch_of(marks, epoch, timed, halves);
  const uint64_t numbers = spec.offset % 3 ? 9 : 300;
  const bool spaced = one_of(2);
  for (size_t i = 0; i < marks.positions.size(); ++i) {
    Row row;
    row.values.resize(kColumns);
    const auto set = [&](int column, uint64_t bits) {
      row.values[size_t(column)] = {false, bits, {}};
    };
    if (one_of(12)) set(kNumber, uint64_t(one_of(numbers) - 4));
    if (one_of(12)) row.values[kName] = {false, 0, std::string(size_t(one_of(3)), 'a')};
    const int64_t now = marks.rows() ? marks.time_at(marks.positions[i]) : 0;
    set(kTime, uint64_t(one_of(2) ? now : now - one_of(uint64_t(spread)) + one_of(4)));
    if (wild && one_of(5) == 0) set(kTime, uint64_t(one_of(2) ? INT64_MAX - 3 : INT64_MIN + 3));
    if (one_of(4)) set(kInt, uint64_t(one_of(20) - 10));
    if (large && one_of(5) == 0) set(kInt, (uint64_t(1) << 53) + uint64_t(one_of(9)));
    const double fine = double(one_of(1000)) / 7, coarse = double(one_of(100)) / 4;
    const double rare = one_of(30) ? session ? coarse : fine : __builtin_nan("");
    if (one_of(4)) set(kFloat, std::bit_cast<uint64_t>(rare));
    if (one_of(4)) row.values[kText] = {false, 0, std::string(1, char('a' + one_of(6)))};
    if (one_of(4)) set(kBool, uint64_t(one_of(2)));
    const int64_t start = floor_div(now + one_of(20) - 15, 4) * 4;
    if (one_of(30)) set(kStart, uint64_t(start));
    set(kEnd, uint64_t(start + 4 * (1 + one_of(2))));
    if (spaced) u.order.push_back(uint32_t(3 * i));
    u.rows.push_back(row);
  }
  for (size_t c = 0; c < kColumns; ++c) {
    GrowingColumn column(kTypes[c]);
    for (const Row& row : u.rows) {
      const Value& v = row.values[c];
      if (v.null) {
        column.null();
      } else if (is_varlen(kTypes[c])) {
        column.text(v.text);
      } else {
        column.word(v.bits);
      }
    }
    u.batch.columns.push_back(column.finish());
  }
  return u;
}

inline void random_aggregates(TimedSpec& spec, Random& random) {
  using K = AggregateKind;
  const unsigned n = unsigned(random() % 4);
  const bool additive = random() % 2;  // all can be kept up while rows come and go
  spec.aggregates.push_back({K::Count, -1, Type::Int64, false});
  for (unsigned i = 0; i < n; ++i) {
    AggregateSpec a;
    a.kind = K(random() % 8);
    const int inputs[] = {kTime, kInt, kFloat, kText, kBool};
    a.input = inputs[random() % 5];
    if (additive) {
      const K kinds[] = {K::Count, K::Sum, K::Mean};
      a.kind = kinds[random() % 3];
      a.input = random() % 2 ? kInt : kBool;
    }
    const bool sums = a.kind == K::Sum || a.kind == K::Mean;
    if (sums && (a.input == kText || a.input == kTime)) a.input = random() % 2 ? kInt : kFloat;
    a.type = kTypes[size_t(a.input)];
    a.nullable = a.input != kTime;
    spec.aggregates.push_back(a);
  }
  for (const AggregateSpec& a : spec.aggregates) {
    Type result = a.type;
    if (a.kind == K::Count || a.kind == K::Distinct) result = Type::Int64;
    if (a.kind == K::Mean) result = Type::Float64;
    if (a.kind == K::Sum && a.type != Type::Float64) result = Type::Int64;
    spec.out_types.push_back(result);
  }
}

inline TimedSpec random_spec(Random& random) {
  using W = TimedSpec::Within;
  using Kind = TimedSpec::Kind;
  const auto one_of = [&](uint64_t n) { return int64_t(random() % n); };
  TimedSpec s;
  s.types = kTypes;
  s.time = kTime;
  s.bin_bits = 3;
  s.lane_bits = unsigned(one_of(2));
  const std::vector<int> keys[] = {{}, {kNumber}, {kName}, {kNumber, kName}, {kNumber}};
  s.key_columns = keys[one_of(5)];
  const Kind kinds[] = {Kind::Window, Kind::Window, Kind::Top,
                        Kind::Late,   Kind::Last,   Kind::Running};
  s.kind = kinds[one_of(6)];
  const W within[] = {W::Grid, W::Session, W::Given, W::Rows};
  s.within = within[one_of(s.kind == Kind::Late ? 2 : s.kind == Kind::Top ? 3 : 4)];
  s.every = 1 + one_of(6);
  s.size = one_of(2) ? s.every * (1 + one_of(one_of(2) ? 4 : 20)) : s.every + one_of(9);
  s.offset = one_of(21) - 10;
  s.gap = 1 + one_of(8);
  s.window_start = kStart;
  s.window_end = kEnd;
  if (s.within == W::Rows) {
    s.size = 1 + one_of(one_of(2) ? 5 : 40);
    s.every = 1 + one_of(5);
  }
  const bool last = s.kind == Kind::Last || (s.kind == Kind::Window && s.within == W::Rows);
  if (s.kind == Kind::Running || (last && one_of(2))) s.ttl = 1 + one_of(20);
  if (one_of(3) == 0) s.lateness = 1 + one_of(12);
  if (s.kind == Kind::Window && one_of(3) == 0) s.early = 1 + one_of(5);
  const bool timed = s.within == W::Grid || s.within == W::Session;
  if (timed && (s.kind == Kind::Window || s.kind == Kind::Top) && one_of(4) == 0) {
    s.arrival = true;
    s.time = -1;
    s.lateness = 0;
  }
  s.k = 1 + one_of(s.kind == Kind::Last && one_of(2) ? 40 : 4);
  if (s.kind == Kind::Late || s.kind == Kind::Top) {
    s.out_types = kTypes;
    const int by[] = {kInt, kFloat, kText, kBool, kTime};
    s.by = by[one_of(5)];
    s.greatest = one_of(2);
    s.ties = one_of(2);
  } else {
    for (int k : s.key_columns) s.out_types.push_back(kTypes[size_t(k)]);
  }
  const bool windows = s.kind == Kind::Window && s.within != W::Rows;
  if (windows || (s.kind == Kind::Top && s.within != W::Given)) {
    s.out_types.insert(s.out_types.end(), 2, Type::Timestamp);
  }
  if (!s.out_types.empty() && (s.kind == Kind::Late || s.kind == Kind::Top)) return s;
  random_aggregates(s, random);
  return s;
}

inline std::string describe(const TimedSpec& s) {
  std::string text = "kind " + std::to_string(int(s.kind)) + " within " +
                     std::to_string(int(s.within)) + (s.arrival ? " by arrival" : "") + " keys " +
                     std::to_string(s.key_columns.size());
  for (int64_t n :
       {s.size, s.every, s.offset, s.gap, s.lateness, s.early, s.ttl, s.k, int64_t(s.by)}) {
    text += " " + std::to_string(n);
  }
  for (const AggregateSpec& a : s.aggregates) {
    text += " [" + std::to_string(int(a.kind)) + " of " + std::to_string(a.input) + "]";
  }
  return text;
}

}  // namespace plait::testing
