// Reach, UnitClock and Watermarks against a plain loop over rows: several origins of time, idle and
// ended ones, jumps that are cut, rows in pieces, positions of both halves, failures; parts of a
// unit joined in any sequence. Arguments: cases, seed, a planted fault.
namespace plait {
inline int seeded_fault = 0;  // see test_native_time.py
}

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "unit_marks.hpp"

namespace {

using namespace plait;
using namespace plait::testing;
using Random = std::mt19937_64;

int64_t one_of(Random& random, uint64_t n) { return int64_t(random() % n); }

BufferRef buffer_of(const std::vector<int64_t>& times, size_t from, size_t n) {
  BufferRef out = BufferRef::make(int64_t(8 * n));
  std::copy_n(times.begin() + ptrdiff_t(from), n, out.as<int64_t>());
  return out;
}

std::shared_ptr<Reach> slice_of(const std::vector<int64_t>& times, size_t from, size_t n) {
  BufferRef owner = buffer_of(times, from, n);
  const auto* first = owner.as<int64_t>();
  return reach_of(first, int64_t(n), std::move(owner), int64_t(from));
}

std::vector<int64_t> random_times(Random& random) {
  std::vector<int64_t> times(size_t(1 + one_of(random, 40)));
  const bool in_order = one_of(random, 2);
  int64_t now = one_of(random, 100) - 50;
  for (int64_t& t : times) {
    t = now - (in_order ? 0 : one_of(random, 10));
    if (one_of(random, 200) == 0) t = one_of(random, 2) ? INT64_MAX : INT64_MIN + 1;
    if (t == INT64_MAX && in_order) t = now;
    now += one_of(random, 6);
  }
  return times;
}

void check_reach(const Reach& reach, const std::vector<int64_t>& times, size_t from, size_t n) {
  CHECK(reach.first == int64_t(from) && reach.rows == int64_t(n));
  int64_t greatest = kNoTime;
  bool falls = false;
  for (size_t i = 0; i < n; ++i) {
    const int64_t time = times[from + i];
    const bool far = time > kFarTime || time < -kFarTime;
    falls = falls || far || (i && time < times[from + i - 1]);
    if (!far) greatest = std::max(greatest, time);
    CHECK(reach.times[i] == greatest);
    CHECK(reach.row_times[i] == (far ? kNoTime : time));
  }
  CHECK(reach.greatest == greatest && reach.plain());
  CHECK(falls || reach.times == reach.row_times);  // in order: no copy
}

// A unit read by one node, or in slices by several, whose parts come in any sequence.
void reaches(Random& random) {
  const std::vector<int64_t> times = random_times(random);
  check_reach(*slice_of(times, 0, times.size()), times, 0, times.size());
  std::vector<ReachRef> parts;
  for (size_t from = 0; from < times.size();) {
    const size_t left = times.size() - from;
    const size_t n = one_of(random, 3) ? 1 + size_t(one_of(random, left)) : left;
    const auto slice = slice_of(times, from, n);
    check_reach(*slice, times, from, n);
    CHECK(!slice->whole);
    parts.push_back(slice);
    from += n;
  }
  if (parts.size() > 1) {  // of a slice nothing passed
    std::vector<ReachRef> some = parts;
    const auto out = some.begin() + one_of(random, some.size() - 1);
    std::vector<int64_t> left = times;
    std::fill_n(left.begin() + (*out)->first, (*out)->rows, INT64_MAX);
    some.erase(out);
    std::shuffle(some.begin(), some.end(), random);
    const ReachRef joined = join_reach(some);
    CHECK(joined->first == 0 && joined->rows >= int64_t(times.size()));
    for (size_t i = 0; i < times.size(); ++i) {
      const bool far = left[i] > kFarTime || left[i] < -kFarTime;
      CHECK(joined->row_times[i] == (far ? kNoTime : left[i]));
    }
  }
  for (int64_t n = one_of(random, 3); n > 0; --n) parts.push_back(nullptr);  // that read nothing
  std::shuffle(parts.begin(), parts.end(), random);
  const ReachRef whole = join_reach(parts);
  CHECK(whole->whole);
  check_reach(*whole, times, 0, times.size());
  // What is whole already is taken as it is, whatever the others say.
  parts[size_t(one_of(random, parts.size()))] = whole;
  CHECK(join_reach(parts) == whole);
  CHECK(!join_reach({}) && !join_reach({nullptr, nullptr}));
}

// Rows that pass an operator on several nodes, here and there: whatever the parts and their
// sequence, the reach is that of all rows.
void passings(Random& random) {
  const int64_t rows = 1 + one_of(random, 30);
  std::vector<UnitMarks::Passing> all;
  for (int64_t position = 0; position <= 2 * rows; ++position) {
    for (int64_t n = std::max<int64_t>(0, one_of(random, 5) - 2); n > 0; --n) {
      all.push_back({position, position + one_of(random, 20)});
    }
  }
  std::vector<std::vector<UnitMarks::Passing>> split(size_t(1 + one_of(random, 4)));
  for (const auto& p : all) split[size_t(one_of(random, split.size()))].push_back(p);
  std::vector<ReachRef> parts;
  int64_t ended = kNotEnded;  // the least of where a failure ended the parts, if one did
  for (const auto& part : split) {
    std::shared_ptr<Reach> reach = part.empty() ? nullptr : reach_of_passing(part);
    if (reach && one_of(random, 8) == 0) {
      reach->ended = part.back().position + 1 + one_of(random, 2);
      ended = std::min(ended, reach->ended);
    }
    parts.push_back(std::move(reach));
  }
  std::shuffle(parts.begin(), parts.end(), random);
  const ReachRef whole = join_reach(parts);
  CHECK(!whole == all.empty());
  if (all.empty()) return;
  CHECK(whole->rows >= all.back().position / 2 + 2);
  std::erase_if(all, [&](const auto& p) { return p.position >= ended; });
  CHECK(whole->whole && whole->first == 0);
  int64_t before = kNoTime;
  for (int64_t row = 0; row < whole->rows; ++row) {
    int64_t least = kNoTime, greatest = kNoTime;
    for (const auto& p : all) {
      if (p.position == 2 * row) before = std::max(before, p.time);
      if (p.position != 2 * row + 1) continue;
      least = least == kNoTime ? p.time : std::min(least, p.time);
      greatest = std::max(greatest, p.time);
    }
    CHECK(whole->times[row] == std::max(before, least));
    before = std::max(before, greatest);
  }
  CHECK(whole->greatest == before);
}

// What a loop saw of a unit.
struct Seen {
  std::vector<int64_t> at;      // the watermark at each position, up to that behind the rows
  std::vector<int64_t> behind;  // behind the mark of each row
  int64_t before = kNoTime, end = kNoTime;
};

void check_clock(Random& random, const UnitClock& clock, const Seen& seen, int64_t rows) {
  CHECK(clock.before() == seen.before);
  CHECK(clock.end() == seen.end);
  CHECK(clock.rows() == rows);
  for (size_t p = 0; p < seen.at.size(); ++p) CHECK(clock.at(int64_t(p)) == seen.at[p]);
  // Times that fall due in the unit, asked for in order, or not.
  std::vector<int64_t> asked;
  for (int64_t w : seen.behind) {
    asked.insert(asked.end(), {add_times(w, -1), w, add_times(w, 1)});
  }
  asked.push_back(seen.end);
  for (int n = 0; n < 6; ++n) asked.push_back(one_of(random, 300) - 100);
  std::erase_if(asked, [&](int64_t t) { return t <= seen.before || t > seen.end; });
  if (one_of(random, 2)) {
    std::sort(asked.begin(), asked.end());
  } else {
    std::shuffle(asked.begin(), asked.end(), random);
  }
  for (int64_t t : asked) {
    int64_t row = 0;
    while (row < rows && size_t(row) < seen.behind.size() && seen.behind[size_t(row)] < t) ++row;
    if (size_t(row) == seen.behind.size()) row = rows;
    CHECK(clock.first(t) == row);
    CHECK(clock.due_position(t) == 2 * row);
  }
}

// Watermarks as bytes and back: nothing of time is lost between units.
void through_bytes(const Sources& sources, Watermarks& watermarks) {
  std::vector<uint8_t> bytes(watermarks.byte_size());
  watermarks.write(bytes.data());
  Watermarks other(sources);
  other.read(bytes.data());
  CHECK(other.now() == watermarks.now() && other.clock() == watermarks.clock());
  watermarks = other;
}

// Times at the ends of what counts, and beyond them.
void stretch(Random& random, UnitMarks& unit) {
  for (int64_t& t : unit.times) {
    if (one_of(random, 20) == 0) t = one_of(random, 2) ? INT64_MAX - 2 : INT64_MIN + 2;
    if (one_of(random, 20) == 0) t = one_of(random, 2) ? kFarTime : -kFarTime;
  }
}

void clocks(Random& random) {
  const Sources sources = random_sources(random);
  PlainClock plain(sources);
  Watermarks watermarks(sources);
  MarkedUnits units(random, sources);
  const bool far = one_of(random, 20) == 0;
  const int64_t epochs = 1 + one_of(random, 12);
  std::vector<bool> over(sources->size());
  int64_t stamp = 0;
  for (int64_t epoch = 0; epoch <= epochs; ++epoch) {
    for (uint32_t s = 0; s < source_count(sources); ++s) {
      if (!(*sources)[s].reaches) continue;
      const bool last = epoch == epochs || over[s] || one_of(random, 15) == 0;
      UnitMarks unit = units.next(s, last, over[s] ? 0 : 30);
      over[s] = last;
      if (far) stretch(random, unit);
      if (unit.rows() && one_of(random, 60) == 0) unit.failed = one_of(random, 2 * unit.rows());
      Batch batch = batch_of(unit, uint64_t(epoch), (*sources)[s].timed, one_of(random, 2));
      Seen seen;
      seen.before = plain.now;
      // Every position has a row; the loop stops where the unit fails.
      for (int64_t p = 0; p <= 2 * unit.rows(); ++p) {
        if (unit.failed < 0 || p <= unit.failed) unit.positions.push_back(p);
      }
      walk_unit(
          plain, unit,
          [&](size_t i) {
            seen.at.push_back(plain.now);
            if (unit.positions[i] % 2) seen.behind.push_back(plain.now);
          },
          [&](int64_t, int64_t before) { CHECK(before < plain.now); });
      seen.end = plain.now;
      const UnitClock clock = watermarks.pass(batch);
      check_clock(random, clock, seen, unit.rows());
      if (unit.failed >= 0) return;  // nothing comes behind it
      stamp = std::max(stamp, batch.stamp);
      CHECK(watermarks.now() == plain.now && watermarks.clock() == stamp);
      if (one_of(random, 4) == 0) through_bytes(sources, watermarks);
    }
  }
  CHECK(watermarks.now() == kAllTime);
}

// By hand: the example of the definition, and the ends of windows.
void examples() {
  const auto sources = std::make_shared<std::vector<TimedOrigin>>(
      std::vector<TimedOrigin>{{.reaches = true, .timed = true, .max_jump = 5}});
  UnitMarks unit;
  unit.passing.resize(1);
  unit.times = {0, 100, 100, 6, 7, 16};
  Watermarks watermarks(sources);
  const UnitClock clock = watermarks.pass(batch_of(unit, 0, true, false));
  const int64_t right[] = {0, 5, 10, 10, 10, 15};
  for (int64_t row = 0; row < 6; ++row) CHECK(clock.at(2 * row + 1) == right[row]);
  CHECK(clock.at(0) == kNoTime && clock.at(2) == 0 && clock.end() == 15);
  CHECK(clock.first(5) == 1 && clock.first(6) == 2 && clock.first(11) == 5);
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long cases = argument(argc, argv, 2000);
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  seeded_fault = argc > 3 ? std::atoi(argv[3]) : 0;
  std::printf("seed %lu\n", seed);
  examples();
  for (unsigned long i = 0; i < cases; ++i) {
    story() = "seed " + std::to_string(seed + i) + ": ";
    Random random(seed + i);
    reaches(random);
    passings(random);
    clocks(random);
  }
  return 0;
}
