// TimeSlicer: which rows of each source an epoch holds, in a job whose order is (slice, source,
// row). A slice is a stretch of event time; docs/order_and_time.md has the rule.
//
// What it decides is a function of the event times of the sources alone. The rows of a slice are
// dealt out to epochs source by source, in as many epochs as they need. It is told the times of the
// rows as they are read (feed, end), or reads those of tables itself, and plans epoch after epoch
// as soon as it knows enough; a source asks for its part and is told it, or to read on, or to wait
// for the others. Any thread may call anything; all but `hint` takes the mutex, a few times per
// batch, and never waits for a source.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "plait/columns/reach.hpp"
#include "plait/sources/cut_log.hpp"
#include "plait/sources/origins.hpp"
#include "plait/time/timed_spec.hpp"

namespace plait {

struct SliceSizes {
  static constexpr int64_t kFirstLength = 1'000'000, kLongest = int64_t(1) << 45;  // microseconds
  // Behind a slice of fewer rows the next may be twice as long; one of more is cut in half.
  static constexpr int64_t kFew = 8192, kMost = 32768;
  static constexpr int64_t kReadRows = 4096;  // read at once of a source whose times are read here
};

// `Sizes`: tests have smaller ones.
template <class Sizes>
class BasicTimeSlicer {
 public:
  // The part of a source in an epoch.
  struct Unit {
    int64_t base = 0, rows = 0;
    bool over = false;      // no row comes behind it
    bool fails = false;     // the source cannot be read beyond it
    bool in_order = false;  // it is known that the times of its rows do not fall
    bool skipped = false;   // it has no rows because something waited for the next one
  };
  enum class Answer { Known, Read, Wait };

  explicit BasicTimeSlicer(size_t sources) : sources_(sources) {}

  // Before the start, for each source.
  void add(size_t s, int64_t epoch_records, int64_t max_jump) {
    sources_[s].epoch_records = epoch_records;
    sources_[s].max_jump = max_jump;
  }
  // Its times can be read here: `rows` of them, in this column of an origin that outlives the run.
  // `stay`: so do they, else until the next are read.
  void read_from(size_t s, const Origin& origin, int column, int64_t rows, bool stay = true) {
    SourceRows& of = sources_[s];
    of.origin = &origin;
    of.column = column;
    of.stay = stay;
    of.all = rows;
    of.ended = rows == 0;
  }
  // All sources are read so: every node plans the same epochs.
  bool everywhere() const {
    return std::all_of(sources_.begin(), sources_.end(),
                       [](const SourceRows& of) { return of.origin != nullptr; });
  }

  // What source `s` puts into an epoch. Read: more of its rows must be known (feed or end).
  Answer ask(size_t s, uint64_t epoch, Unit& unit) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!asked_) {
      asked_ = true;
      for (SourceRows& of : sources_) of.next = epoch;
    }
    plan_up_to(epoch);
    const Answer answer = part(s, epoch, unit);
    note_hints();
    return answer;
  }
  // Rows of a source as they are read; kNoTime: one that could not be, it is where time was.
  void feed(size_t s, const int64_t* times, int64_t rows) {
    std::lock_guard<std::mutex> hold(lock_);
    append(sources_[s], times, rows, false);
    plan_up_to(furthest());
    note_hints();
  }
  void end(size_t s, bool failed) {
    std::lock_guard<std::mutex> hold(lock_);
    sources_[s].ended = true;
    sources_[s].failed = failed;
    plan_up_to(furthest());
    note_hints();
  }
  // This epoch has no rows, if it is not planned yet: something waits for the next one.
  void skip(uint64_t epoch) {
    std::lock_guard<std::mutex> hold(lock_);
    if (epoch == planned() && epoch >= free_from_) skip_next();
    note_hints();
  }
  // Before the start: up to `end` each source has at most the rows of its script in an epoch, as
  // the epochs may have had other sizes; these epochs, ascending, and no others are skipped.
  void repeat(const std::vector<Script>& scripts, std::vector<uint64_t> skips, uint64_t end) {
    for (size_t s = 0; s < sources_.size(); ++s) sources_[s].script = scripts[s];
    skips_ = std::move(skips);
    free_from_ = end;
  }
  // How far it was before this epoch, for `restore`: a function of the event times, too. Of an
  // epoch that is planned and that a source has not asked for yet, or of the one to be planned
  // next. Of one before these nothing: a source that has ended asks for none, so the others may be
  // beyond it, and each of them was told when it came there.
  std::vector<int64_t> state_before(uint64_t epoch) {
    std::lock_guard<std::mutex> hold(lock_);
    if (epoch < first_) return {};
    return epoch < planned() ? befores_[epoch - first_] : state();
  }
  // Before the start: goes on with this epoch. False: these are not the facts of so many sources.
  bool restore(uint64_t epoch, const std::vector<int64_t>& facts) {
    std::lock_guard<std::mutex> hold(lock_);
    if (facts.size() != kFacts + 2 * sources_.size()) return false;
    auto next = facts.begin();
    first_ = epoch;
    begun_ = *next++ != 0;
    open_ = *next++ != 0;
    at_ = size_t(*next++);
    for (int64_t* fact : {&length_, &last_, &next_, &in_slice_}) *fact = *next++;
    for (SourceRows& of : sources_) {
      of.base = of.read = *next++;
      of.taken = of.time = *next++;
      if (of.origin) of.ended = of.read >= of.all;
    }
    return at_ <= sources_.size() && length_ > 0;
  }
  // What the source would be told now. A hint, without the lock.
  Answer hint(size_t s) const { return sources_[s].hint.load(std::memory_order_relaxed); }

 private:
  struct SourceRows {
    int64_t epoch_records = 1, max_jump = 0;
    // How far time is at each row that is known and in no epoch: in the origin, whose times do not
    // fall there, or in `made`.
    const int64_t* times = nullptr;
    int64_t known = 0;
    bool there = true;  // in the origin
    std::vector<int64_t> made;
    int64_t base = 0;         // rows in epochs
    int64_t time = kNoTime;   // at the last row that is known ...
    int64_t taken = kNoTime;  // ... and at the last that is in an epoch
    int64_t rises_from = 0;   // from this row on times do not fall
    bool ended = false, failed = false;
    bool wanted = false;  // more of its rows must be known
    uint64_t next = 0;    // the epoch it asks for next
    const Origin* origin = nullptr;
    int column = -1;
    bool stay = true;                        // its times
    int64_t read = 0, all = 0;               // of the origin's rows
    std::atomic<Answer> hint{Answer::Wait};  // relaxed, written under the lock

    Script script;  // of the epochs that are repeated

    int64_t most(uint64_t epoch) const {
      const Cut* cut = script.at(epoch);
      return cut ? cut->rows : epoch_records;
    }
    bool gone() const { return ended && !failed && known == 0; }
    int64_t until(int64_t last) const {
      return std::upper_bound(times, times + known, last) - times;
    }
    // Makes room in `made` for more behind what is known.
    void copy_times() {
      if (there) {
        made.assign(times, times + known);
        there = false;
      } else if (int64_t(made.size()) - known > Sizes::kMost) {
        made.erase(made.begin(), made.end() - known);
      }
    }
  };

  // Whether every row moves time to its own, as most do: none falls, none jumps too far.
  static bool rises(const SourceRows& of, const int64_t* times, int64_t rows) {
    const int64_t from = of.time == kNoTime ? times[0] : of.time;
    return from != kNoTime && times[0] >= from && times[rows - 1] <= add_times(from, of.max_jump) &&
           !dispatch<TimesFall>(times, rows);
  }
  // `stay`: the times are where they are as long as the slicer.
  static void append(SourceRows& of, const int64_t* times, int64_t rows, bool stay) {
    if (rows == 0) return;
    const bool rise = rises(of, times, rows);
    if (rise && stay && (of.known == 0 || (of.there && of.times + of.known == times))) {
      if (of.known == 0) of.times = times;
      of.there = true;
      of.known += rows;
      of.time = times[rows - 1];
      return;
    }
    of.copy_times();
    if (rise) {
      of.made.insert(of.made.end(), times, times + rows);
      of.time = times[rows - 1];
    } else {
      of.rises_from = of.base + of.known + rows;
      for (int64_t i = 0; i < rows; ++i) {
        if (of.time == kNoTime) {
          of.time = times[i];
        } else {
          of.time = std::max(of.time, std::min(times[i], add_times(of.time, of.max_jump)));
        }
        of.made.push_back(of.time);
      }
    }
    of.known += rows;
    of.times = of.made.data() + of.made.size() - of.known;
  }
  // Whether more rows are known now, or its end.
  bool more(SourceRows& of) {
    if (!of.origin) {
      of.wanted = true;
      return false;
    }
    int64_t rows = std::min(Sizes::kReadRows, of.all - of.read);
    const int64_t* times = of.origin->times(of.column, of.read, rows);
    append(of, times, rows, of.stay);
    of.read += rows;
    of.ended = of.read == of.all;
    return true;
  }

  uint64_t planned() const { return first_ + plans_.size(); }
  uint64_t furthest() const {
    uint64_t most = 0;
    for (const SourceRows& of : sources_) {
      if (of.next != kDone) most = std::max(most, of.next);
    }
    return most;
  }
  void plan_up_to(uint64_t epoch) {
    while (planned() <= epoch && plan_next()) {
    }
  }
  Answer part(size_t s, uint64_t epoch, Unit& unit) {
    SourceRows& of = sources_[s];
    if (epoch < planned()) {
      unit = plans_[epoch - first_][s];
    } else if (finished_) {
      unit = {of.base, 0, true};
    } else {
      return of.wanted ? Answer::Read : Answer::Wait;
    }
    of.next = unit.over || unit.fails ? kDone : epoch + 1;
    drop();
    return Answer::Known;
  }
  void drop() {
    uint64_t needed = kDone;
    for (const SourceRows& of : sources_) needed = std::min(needed, of.next);
    while (!plans_.empty() && first_ < needed) {
      plans_.pop_front();
      befores_.pop_front();
      ++first_;
    }
  }
  void note_hints() {
    for (SourceRows& of : sources_) {
      const bool known = of.next < planned() || finished_;
      of.hint.store(known       ? Answer::Known
                    : of.wanted ? Answer::Read
                                : Answer::Wait,
                    std::memory_order_relaxed);
    }
  }

  void skip_next() {
    before_ = state();
    plan({});
    for (Unit& unit : plans_.back()) unit.skipped = true;
  }
  // Plans an epoch, if enough is known.
  bool plan_next() {
    if (finished_ || stuck_) return false;
    if (std::binary_search(skips_.begin(), skips_.end(), planned())) {
      skip_next();
      return true;
    }
    before_ = state();
    for (SourceRows& of : sources_) of.wanted = false;
    if (!begun_) {
      if (!know_first_rows()) return false;
      begun_ = true;
      // Sources without rows have ended before all else.
      if (std::any_of(sources_.begin(), sources_.end(), [](auto& of) { return of.gone(); })) {
        plan({});
        return true;
      }
    }
    if (!open_ && !open_slice()) return false;
    std::vector<int64_t> rows(sources_.size(), 0);
    size_t s = at_;
    for (; s < sources_.size(); ++s) {
      SourceRows& of = sources_[s];
      const int64_t most = of.most(planned());
      int64_t in = of.until(last_);
      while (!of.ended && in == of.known && in <= most) {
        if (!more(of)) return false;
        in = of.until(last_);
      }
      rows[s] = std::min(in, most);
      const bool fails = of.failed && in == of.known;  // in this slice, behind these rows
      if (rows[s] < in || fails) {
        stuck_ = fails && in == 0;
        break;
      }
    }
    at_ = s;
    for (int64_t n : rows) in_slice_ += n;
    if (s == sources_.size()) close_slice();
    plan(rows);
    return true;
  }
  std::vector<int64_t> state() const {
    std::vector<int64_t> facts = {begun_, open_, int64_t(at_), length_, last_, next_, in_slice_};
    for (const SourceRows& of : sources_) facts.insert(facts.end(), {of.base, of.taken});
    return facts;
  }
  void plan(const std::vector<int64_t>& rows) {
    befores_.push_back(std::move(before_));
    std::vector<Unit> units(sources_.size());
    for (size_t s = 0; s < sources_.size(); ++s) {
      SourceRows& of = sources_[s];
      const int64_t n = rows.empty() ? 0 : rows[s];
      units[s].base = of.base;
      units[s].rows = n;
      units[s].in_order = of.base >= of.rises_from;
      of.base += n;
      of.times += n;
      of.known -= n;
      if (n) of.taken = of.times[-1];
      units[s].over = begun_ && of.gone();  // all without rows end in the same epoch
      units[s].fails = stuck_ && s == at_ && !rows.empty();
    }
    plans_.push_back(std::move(units));
    finished_ =
        begun_ && std::all_of(sources_.begin(), sources_.end(), [](auto& of) { return of.gone(); });
  }

  bool know_first_rows() {
    bool all = true;
    for (SourceRows& of : sources_) {
      if (of.known == 0 && !of.ended && !more(of)) all = false;
    }
    return all;
  }
  // Finds where the next slice begins and ends.
  bool open_slice() {
    if (!know_first_rows()) return false;
    int64_t least = kAllTime;
    for (const SourceRows& of : sources_) {
      if (of.known) least = std::min(least, of.times[0]);
      if (of.failed && of.known == 0) least = std::min(least, of.time);
    }
    const int64_t first = std::max(next_, least);
    for (;;) {
      last_ = add_times(first, length_ - 1);
      int64_t rows = 0;
      bool complete = true;
      for (SourceRows& of : sources_) {
        int64_t in = of.until(last_);
        while (!of.ended && in == of.known && rows + in <= Sizes::kMost && more(of)) {
          in = of.until(last_);
        }
        complete = complete && (of.ended || in < of.known);
        rows += in;
      }
      if (rows > Sizes::kMost && length_ > 1) {
        length_ /= 2;
        continue;
      }
      if (rows <= Sizes::kMost && !complete) return false;
      break;
    }
    next_ = add_times(last_, 1);
    in_slice_ = 0;
    at_ = 0;
    return open_ = true;
  }
  void close_slice() {
    open_ = false;
    if (in_slice_ < Sizes::kFew) length_ = std::min(2 * length_, Sizes::kLongest);
  }

  static constexpr uint64_t kDone = UINT64_MAX;
  static constexpr size_t kFacts = 7;  // of the state, before those of each source
  std::mutex lock_;
  std::vector<SourceRows> sources_;
  std::deque<std::vector<Unit>> plans_;
  std::deque<std::vector<int64_t>> befores_;  // the state before each of them
  std::vector<int64_t> before_;               // of the one that is being planned
  uint64_t first_ = 0;                        // the epoch of the first plan
  bool asked_ = false, begun_ = false, finished_ = false;
  bool stuck_ = false;           // at a failure
  std::vector<uint64_t> skips_;  // to be repeated, before this epoch
  uint64_t free_from_ = 0;
  // The slice: its rows are those up to time `last_`, and of its sources those before `at_` have
  // none left.
  bool open_ = false;
  size_t at_ = 0;
  int64_t length_ = Sizes::kFirstLength, last_ = kNoTime, next_ = kNoTime, in_slice_ = 0;
};

using TimeSlicer = BasicTimeSlicer<SliceSizes>;

}  // namespace plait
