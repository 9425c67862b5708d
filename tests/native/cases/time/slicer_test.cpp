// TimeSlicer against a plain loop over the rows of all sources: rows that could not be read, times
// out of order, jumps that are cut, sources without rows and ones that fail, read here or fed in
// pieces, epochs skipped, asked in any sequence. Arguments: cases, seed, a planted fault.
namespace plait {
inline int seeded_fault = 0;  // see test_native_slicer.py
}

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "plait/sources/time_slicer.hpp"

namespace {

using namespace plait;
using Random = std::mt19937_64;

struct SmallSizes {
  static constexpr int64_t kFirstLength = 16, kLongest = 64;
  static constexpr int64_t kFew = 6, kMost = 12;
  static constexpr int64_t kReadRows = 5;
};
using Slicer = BasicTimeSlicer<SmallSizes>;

int64_t one_of(Random& random, uint64_t n) { return int64_t(random() % n); }

// Its times lie in pieces of seven rows.
struct Times final : Origin {
  explicit Times(const std::vector<int64_t>& values) {
    for (size_t i = 0; i < values.size(); i += kPiece) {
      const auto from = values.begin() + int64_t(i);
      pieces.emplace_back(from, from + int64_t(std::min(kPiece, values.size() - i)));
    }
  }
  void poll(int64_t, Polled&) override {}
  const int64_t* times(int, int64_t first, int64_t& rows) const override {
    const std::vector<int64_t>& piece = pieces.at(size_t(first) / kPiece);
    const size_t at = size_t(first) % kPiece;
    rows = std::min(rows, int64_t(piece.size() - at));
    return piece.data() + at;
  }
  static constexpr size_t kPiece = 7;
  std::vector<std::vector<int64_t>> pieces;
};

struct Source {
  std::vector<int64_t> times;  // of the rows as they are; kNoTime: could not be read
  int64_t max_jump = 0, epoch_records = 1;
  bool fails = false, here = false;
};

// What comes, one after the other: a row of a source, its end, its failure.
struct Event {
  size_t source;
  int64_t what;
  bool operator==(const Event&) const = default;
};
constexpr int64_t kEnd = -1, kFailure = -2;

std::vector<int64_t> running(const Source& source) {
  std::vector<int64_t> found;
  int64_t time = kNoTime;
  for (int64_t t : source.times) {
    if (t != kNoTime) {
      time = time == kNoTime ? t : std::max(time, std::min(t, time + source.max_jump));
    }
    found.push_back(time);
  }
  return found;
}

// The definition: slice by slice, source by source, row by row. A failure is where the row before
// it is, and nothing comes behind it.
std::vector<Event> plain(const std::vector<Source>& sources) {
  std::vector<std::vector<int64_t>> times;
  std::vector<Event> events;
  for (size_t s = 0; s < sources.size(); ++s) {
    times.push_back(running(sources[s]));
    if (times[s].empty() && !sources[s].fails) events.push_back({s, kEnd});
    if (sources[s].fails) times[s].push_back(times[s].empty() ? kNoTime : times[s].back());
  }
  std::vector<size_t> at(sources.size(), 0);
  int64_t length = SmallSizes::kFirstLength, end = kNoTime;
  for (;;) {
    int64_t least = INT64_MAX;
    bool any = false;
    for (size_t s = 0; s < times.size(); ++s) {
      if (at[s] == times[s].size()) continue;
      any = true;
      least = std::min(least, times[s][at[s]]);
    }
    if (!any) return events;
    const int64_t start = std::max(end, least);
    auto rows_until = [&](int64_t until) {
      int64_t rows = 0;
      for (size_t s = 0; s < times.size(); ++s) {
        for (size_t i = at[s]; i < sources[s].times.size(); ++i) rows += times[s][i] < until;
      }
      return rows;
    };
    while (length > 1 && rows_until(start + length) > SmallSizes::kMost) length /= 2;
    end = start + length;
    const bool few = rows_until(end) < SmallSizes::kFew;
    for (size_t s = 0; s < times.size(); ++s) {
      for (; at[s] < times[s].size() && times[s][at[s]] < end; ++at[s]) {
        const bool last = at[s] + 1 == times[s].size();
        if (last && sources[s].fails) {
          events.push_back({s, kFailure});
          return events;
        }
        events.push_back({s, int64_t(at[s])});
        if (last) events.push_back({s, kEnd});
      }
    }
    if (few) length = std::min(2 * length, SmallSizes::kLongest);
  }
}

Source random_source(Random& random) {
  Source source;
  source.epoch_records = 1 + one_of(random, 20);
  source.max_jump = one_of(random, 4) ? 1000 : 7;
  source.fails = one_of(random, 10) == 0;
  source.here = !source.fails && one_of(random, 2);
  const int64_t rows = one_of(random, 6) ? one_of(random, 90) : one_of(random, 3);
  const int64_t step = 1 + one_of(random, 30);
  int64_t now = one_of(random, 100) - 50;
  for (int64_t i = 0; i < rows; ++i) {
    now += one_of(random, 3) ? one_of(random, uint64_t(step)) : 0;
    int64_t time = now - (one_of(random, 3) ? 0 : one_of(random, 40));
    if (one_of(random, 60) == 0) time += 5000;
    if (!source.here && one_of(random, 12) == 0) time = kNoTime;
    source.times.push_back(time);
  }
  return source;
}

void one_case(Random& random) {
  std::vector<Source> sources;
  std::vector<std::unique_ptr<Times>> origins;
  const size_t count = size_t(1 + one_of(random, 3));
  const bool all_here = one_of(random, 4) == 0;
  for (size_t s = 0; s < count; ++s) {
    sources.push_back(random_source(random));
    if (!all_here) continue;
    sources[s].here = true;
    sources[s].fails = false;
    std::erase(sources[s].times, kNoTime);
  }
  Slicer slicer(count);
  bool everywhere = true;
  for (size_t s = 0; s < count; ++s) {
    slicer.add(s, sources[s].epoch_records, sources[s].max_jump);
    origins.push_back(std::make_unique<Times>(sources[s].times));
    if (sources[s].here) slicer.read_from(s, *origins[s], 0, int64_t(sources[s].times.size()));
    everywhere = everywhere && sources[s].here;
  }
  CHECK(slicer.everywhere() == everywhere);

  std::vector<std::vector<std::vector<Event>>> by_epoch(count);
  std::vector<int64_t> base(count, 0);
  std::vector<uint64_t> next(count, 0);
  std::vector<size_t> fed(count, 0);
  std::vector<bool> done(count, false);
  bool failed = false;
  int still = 0;
  while (!std::all_of(done.begin(), done.end(), [](bool d) { return d; })) {
    const auto s = size_t(one_of(random, count));
    if (done[s]) continue;
    Slicer::Unit unit;
    switch (slicer.ask(s, next[s], unit)) {
      case Slicer::Answer::Known: {
        still = unit.rows ? 0 : still;
        CHECK(unit.base == base[s] && unit.rows <= sources[s].epoch_records);
        const auto from = sources[s].times.begin() + base[s];
        CHECK(!unit.in_order || std::is_sorted(from, from + unit.rows));
        std::vector<Event> here;
        for (int64_t i = 0; i < unit.rows; ++i) here.push_back({s, base[s] + i});
        base[s] += unit.rows;
        if (unit.over) here.push_back({s, kEnd});
        if (unit.fails) here.push_back({s, kFailure});
        by_epoch[s].push_back(std::move(here));
        ++next[s];
        done[s] = unit.over || unit.fails;
        failed = failed || unit.fails;
        break;
      }
      case Slicer::Answer::Read: {
        still = 0;
        CHECK(!sources[s].here);
        const auto& times = sources[s].times;
        const size_t n = std::min(times.size() - fed[s], size_t(1 + one_of(random, 9)));
        if (n == 0) {
          slicer.end(s, sources[s].fails);
        } else {
          slicer.feed(s, times.data() + fed[s], int64_t(n));
          fed[s] += n;
        }
        break;
      }
      case Slicer::Answer::Wait:
        CHECK(!everywhere);
        if (failed) {  // the run ends when all have come to it
          done[s] = true;
        } else if (one_of(random, 5) == 0) {
          slicer.skip(next[s]);
        }
        CHECK(++still < 5000);
    }
  }
  std::vector<Event> got;
  size_t epochs = 0;
  for (const auto& of : by_epoch) epochs = std::max(epochs, of.size());
  for (size_t epoch = 0; epoch < epochs; ++epoch) {
    for (size_t s = 0; s < count; ++s) {
      if (epoch >= by_epoch[s].size()) continue;
      got.insert(got.end(), by_epoch[s][epoch].begin(), by_epoch[s][epoch].end());
    }
  }
  CHECK(got == plain(sources));

  // A node that joins later plans the same from there on.
  if (!everywhere) return;
  Slicer other(count);
  for (size_t s = 0; s < count; ++s) {
    other.add(s, sources[s].epoch_records, sources[s].max_jump);
    other.read_from(s, *origins[s], 0, int64_t(sources[s].times.size()));
  }
  const auto from = uint64_t(one_of(random, uint64_t(epochs + 1)));
  for (size_t s = 0; s < count; ++s) {
    for (uint64_t epoch = from; epoch < by_epoch[s].size(); ++epoch) {
      Slicer::Unit unit;
      CHECK(other.ask(s, epoch, unit) == Slicer::Answer::Known);
      const auto& here = by_epoch[s][epoch];
      CHECK(unit.rows + unit.over == int64_t(here.size()));
      CHECK(unit.rows == 0 || here[0] == (Event{s, unit.base}));
    }
    if (from < by_epoch[s].size()) continue;
    Slicer::Unit unit;
    CHECK(other.ask(s, from, unit) == Slicer::Answer::Known);
    CHECK(unit.over && unit.rows == 0 && unit.base == int64_t(sources[s].times.size()));
  }
}

// A source that has ended asks for no more epochs: when it comes to a mark, the others may have
// gone beyond it, and what was planned there is gone.
void ended_source_comes_late() {
  Slicer slicer(2);
  for (size_t s = 0; s < 2; ++s) slicer.add(s, 1, 1000);
  const int64_t times[] = {1, 2, 3, 4, 5, 6, 7, 8};
  slicer.end(0, false);
  slicer.feed(1, times, 8);
  slicer.end(1, false);
  Slicer::Unit unit;
  CHECK(slicer.ask(0, 0, unit) == Slicer::Answer::Known && unit.over);
  for (uint64_t epoch = 0; epoch < 6; ++epoch) {
    CHECK(!slicer.state_before(epoch).empty());
    CHECK(slicer.ask(1, epoch, unit) == Slicer::Answer::Known);
  }
  CHECK(slicer.state_before(2).empty());
}

}  // namespace

int main(int argc, char** argv) {
  const int cases = argc > 1 ? std::stoi(argv[1]) : 1000;
  const unsigned long long seed = argc > 2 ? std::stoull(argv[2]) : 1;
  Random random(seed);
  plait::seeded_fault = argc > 3 ? std::stoi(argv[3]) : 0;
  ended_source_comes_late();
  for (int i = 0; i < cases; ++i) one_case(random);
  std::printf("%d cases, seed %llu\n", cases, seed);
  return 0;
}
