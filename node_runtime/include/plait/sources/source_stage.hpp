// SourceStage: cuts the stream into epochs, numbers the rows, and keeps step with the other
// sources.
//
// Every source emits exactly one batch for every epoch, empty if it has nothing while another
// source is ahead. Control items and the end are emitted by all sources at the same epoch boundary,
// so every path of the graph meets them at the same place. On several nodes a source that can be
// read anywhere is cut into slices: an epoch has the same rows whatever the number of nodes, each
// node reads its part of them; any other source is read by one node, and the others emit empty
// batches for it. In a job whose order is that of event time a TimeSlicer says which rows are in an
// epoch. Any worker may run a source; one at a time holds its flag.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plait/columns/layout.hpp"
#include "plait/sources/ahead_reader.hpp"
#include "plait/sources/cut_log.hpp"
#include "plait/sources/epochs.hpp"
#include "plait/sources/origins.hpp"
#include "plait/sources/polled_rows.hpp"
#include "plait/sources/source_clock.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/stages/stage_impl.hpp"
#include "plait/workers/python_turn.hpp"

namespace plait {

class SourceStage final : public Stage {
 public:
  SourceStage(std::string name, const StageLimits& limits, uint32_t op, uint32_t source,
              Epochs& epochs, std::unique_ptr<Origin> origin, const std::vector<Type>& types,
              int64_t epoch_records, int64_t limit)
      : Stage(std::move(name), limits),
        op_(op),
        source_(source),
        epochs_(epochs),
        origin_(std::move(origin)),
        epoch_records_(epoch_records),
        limit_(limit) {
    python = origin_->python();
    for (Type type : types) empty_.columns.push_back(empty_column(type));
  }
  uint32_t max_workers() const override { return 1; }
  bool releasable() const override { return false; }
  bool pending() const override { return !over_.load(std::memory_order_relaxed); }
  int64_t front_ns() const override { return stats.last_run_ns.load(std::memory_order_relaxed); }
  bool runnable() const override {
    return !over_.load(std::memory_order_relaxed) && outputs_have_room() &&
           (now_ns() >= clock.next_ns() || epochs_.owed(source_) || stopped() ||
            clock.new_to_it(epochs_.news()) ||
            (ahead_ && ahead_->ready(now_ns() >= clock.rows_ns())));
  }
  // Before the start: the rows of its epochs are those that the slicer says, by these event times.
  void order_by_time(TimeSlicer& slicer, const SliceTime& time) {
    slicer.add(source_, epoch_records_, time.max_jump);
    ahead_ = std::make_unique<AheadReader>(slicer, source_, *origin_, time, epoch_records_, limit_);
  }

  int64_t run(Worker& worker, int64_t records) override {
    if (!runnable()) return 0;
    PythonTurn turn(worker, python);
    if (!turn) return 0;
    // Acquire pairs with the release below: the origin's position as the last holder left it.
    if (busy_.exchange(true, std::memory_order_acquire)) return 0;
    int64_t done = 0;
    while (done < records && !over_.load(std::memory_order_relaxed) && outputs_have_room()) {
      const int64_t n = step(worker);
      if (n < 0) break;
      done += n + 1;
      if (worker.slice_over()) break;
    }
    busy_.store(false, std::memory_order_release);
    if (done) {
      for (Bell* bell : peers) bell->ring();
    }
    return done;
  }
  // When the clock alone lets it go on; INT64_MAX: something else must happen before, for which its
  // crew is woken (room behind it, word of another source or node).
  int64_t wakes_ns() const {
    if (over_.load(std::memory_order_relaxed) || !outputs_have_room()) return INT64_MAX;
    return ahead_ && ahead_->ready(true) ? clock.due_ns() : clock.next_ns();
  }
  // Rows that were read in this run.
  int64_t read() const { return rows_.load(std::memory_order_relaxed) - rows_before_; }
  // Before the start: so many rows were read before.
  void start_at(int64_t rows, int64_t skip) {
    rows_before_ = rows;
    rows_.store(rows, std::memory_order_relaxed);
    next_base_ = rows;
    if (ahead_) ahead_->start_at(rows, skip);
  }
  // Before the start, of a source that all nodes read: this epoch begins with this row, where
  // epochs without a pace have so many.
  void slice_from(uint64_t epoch, int64_t row, int64_t epoch_records) {
    due_row_ = row;
    offset_ = 0;
    offset_ = row - (paced_rows > 0 ? paced_row(epoch) : int64_t(epoch) * epoch_records);
  }
  // Before the start: a control item can say where to go on.
  void keep_positions() {
    if (ahead_) ahead_->keeps_positions = true;
  }
  // Before the start: these cuts are repeated.
  void repeat(Script script) { script_ = std::move(script); }
  CutLog log;  // what it has put into its epochs, if `logs`
  bool logs = false;
  // Whether its units have a stamp, if it beats.
  bool stamps_units = true;
  static constexpr size_t kCuts = 1 << 20;  // an endless source must not fill the memory
  std::vector<int64_t>
      cuts;  // rows of each epoch (the first kCuts) before its end, as emitted; read after the run
  std::vector<int64_t> stamps;  // the wall clock of each, if it beats
  const std::atomic<bool>*stopping = nullptr, *failing = nullptr;  // the engine's
  std::vector<Bell*> peers;  // of other crews that run sources: they go on when this one has
  // On several nodes: who reads what. Null: this is the only node.
  const Layouts* layouts = nullptr;
  uint32_t rank = 0;
  // When the job began, for sources with a rate: kNoStart: not known yet. Null: it begins here.
  const std::atomic<int64_t>* start = nullptr;
  // Of a source with a rate, on several nodes: rows in an epoch, on average. Sources of different
  // rates have epochs of the same duration, so that none holds another up.
  double paced_rows = 0;
  // The column that is its event time, or -1; without rows for `idle_ns` it does not hold time up
  // (0: it does).
  int time_column = -1;
  int64_t idle_ns = 0;
  OnError on_error = OnError::Fail;  // what becomes of rows that could not be read
  // If it beats, units are stamped with the wall clock, and a source without rows emits an empty
  // one so often.
  SourceClock clock;

 private:
  // Emits one batch, or says with -1 that there is nothing to emit now.
  int64_t step(Worker& worker) {
    using Kind = Epochs::Turn::Kind;
    const bool stop = stopped();
    const bool fails = stop && failing->load(std::memory_order_acquire);
    Epochs::Turn turn = epochs_.turn(source_, rows_.load(std::memory_order_relaxed), stop, fails);
    if (turn.kind != Kind::Wait) clock.go_on();
    switch (turn.kind) {
      case Kind::Wait:
        clock.wait_for_news(turn.news);
        return -1;
      case Kind::Control: {
        Batch marker;
        marker.control = turn.control;
        note_position(*turn.control);
        return emit(std::move(marker), turn.epoch, worker);
      }
      case Kind::End: {
        Batch marker;
        marker.end = true;
        over_.store(true, std::memory_order_relaxed);
        return emit(std::move(marker), turn.epoch, worker);
      }
      case Kind::Empty: {
        if (ahead_) first_row_ = unit_base(turn.epoch);
        const Flow flow = turn.flushed ? Flow::Flushed
                          : turn.over  ? Flow::Over
                          : turn.cut   ? Flow::Cut
                                       : Flow::Running;
        return data(empty_, turn.epoch, 0, {unit_base(turn.epoch), 0, flow}, worker);
      }
      case Kind::Data:
        break;
    }
    if (start && !started_ && !take_start()) {
      epochs_.not_due(source_);
      clock.wait_for_news(turn.news);
      return -1;
    }
    if (ahead_) return ask_in_time(turn.epoch, worker);
    if (const Cut* cut = sliced() ? nullptr : script_.at(turn.epoch)) {
      return repeat(*cut, turn.epoch, worker);
    }
    return sliced() ? ask_slice(turn.epoch, worker) : ask(turn.epoch, worker);
  }
  // Whether every node reads its part of each epoch: then its rows follow from the epoch alone.
  bool sliced() const { return layouts && origin_->rows() != Origin::kNoSlices; }

  // Puts the same rows into an epoch as before; without them nothing can be repeated.
  int64_t repeat(const Cut& cut, uint64_t epoch, Worker& worker) {
    if (cut.flow() == Flow::Over) {
      epochs_.finished(source_);
      return 0;
    }
    while (waiting_rows_ < cut.rows) {
      Polled polled;
      if (const int64_t early_ns = clock.rows_ns() - now_ns(); early_ns > 0) {
        polled.kind = Polled::Kind::Wait;
        polled.wait_ns = early_ns;
      } else {
        origin_->poll(cut.rows - waiting_rows_, polled);
      }
      switch (polled.kind) {
        case Polled::Kind::Rows: {
          PolledRows piece;
          piece.rows = polled.batch.length + int64_t(polled.bad.size());
          piece.polled = std::move(polled);
          waiting_rows_ += piece.rows;
          waiting_.push_back(std::move(piece));
          continue;
        }
        case Polled::Kind::End:
          return fail(changed(cut.rows, waiting_rows_), epoch, worker);
        case Polled::Kind::Failed:
          return fail(polled, epoch, worker);
        case Polled::Kind::Wait:
          break;
      }
      clock.rows_in(polled.wait_ns);
      epochs_.not_due(source_);
      return -1;
    }
    const int64_t base = rows_.load(std::memory_order_relaxed);
    if (cut.rows == 0) return data(empty_, epoch, 0, {base, 0, cut.flow()}, worker);
    Polled rows;
    take_polled(waiting_, cut.rows, rows);
    waiting_rows_ = 0;
    return read_rows(rows, epoch, base, worker);
  }
  // The source does not give again what it gave before.
  static Polled changed(int64_t before, int64_t now) {
    Polled polled;
    polled.kind = Polled::Kind::Failed;
    polled.message = "the input has changed since: an epoch of which the output is delivered had " +
                     std::to_string(before) + " rows, and now there are " + std::to_string(now);
    return polled;
  }

  void note_position(Control& control) {
    control.positions[source_] = unit_base(control.epoch);
    if (!ahead_) {
      control.handles[source_] = origin_->position();
      return;
    }
    std::tie(control.handles[source_], control.skips[source_]) = ahead_->position();
    control.note_slices(ahead_->slices_before(control.epoch));
  }
  // Whether it may read, as far as the start of the job is concerned.
  bool take_start() {
    if (origin_->paced()) {
      const int64_t at = start->load(std::memory_order_acquire);  // pairs with Cluster::set_start
      if (at == kNoStart) return false;
      origin_->start_at(at, due_row_);
    }
    started_ = true;
    return true;
  }

  // The epoch's rows by event time; of a source that all nodes read, this node's part of them.
  int64_t ask_in_time(uint64_t epoch, Worker& worker) {
    using Answer = TimeSlicer::Answer;
    TimeSlicer::Unit unit;
    int64_t wait_ns = std::max<int64_t>(0, clock.rows_ns() - now_ns());
    Answer answer = ahead_->ask(epoch, unit, wait_ns);
    if (answer == Answer::Read) {
      clock.moved();
      epochs_.not_due(source_);
      return 0;
    }
    if (answer == Answer::Wait) {
      clock.rows_in(wait_ns);
      if (!clock.beats() && !epochs_.idle(source_)) {
        clock.look_later();
        return -1;
      }
      ahead_->skip(epoch);
      answer = ahead_->ask(epoch, unit, wait_ns);
      if (answer != Answer::Known) {  // it must not be skipped: it had rows before
        epochs_.not_due(source_);
        clock.look_later();
        return -1;
      }
    }
    clock.moved();
    if (unit.fails) return fail(ahead_->failure(), epoch, worker);
    if (const Cut* cut = script_.at(epoch); cut && cut->rows != unit.rows) {
      return fail(changed(cut->rows, unit.rows), epoch, worker);
    }
    skipped_ = unit.skipped;
    const SourceUnit whole{unit.base, unit.rows, unit.over ? Flow::Over : Flow::Running,
                           unit.in_order};
    next_base_ = unit.base + unit.rows;
    int64_t from = 0, count = unit.rows;
    if (layouts && ahead_->everywhere()) {
      std::tie(from, count) = layouts->at(epoch)->slice(rank, unit.rows);
    }
    first_row_ = unit.base + from;
    Polled polled;
    if (count) ahead_->rows(unit, from, count, polled);
    if (!polled.bad.empty()) set_aside(polled, epoch);
    const Batch& rows = count ? polled.batch : empty_;
    const int64_t n = data(rows, epoch, polled.due_ns, whole, worker, int64_t(polled.bad.size()));
    if (unit.over) epochs_.finished(source_);
    return n;
  }

  int64_t paced_row(uint64_t epoch) const { return int64_t(double(epoch) * paced_rows) + offset_; }

  // This node's part of the epoch's rows.
  int64_t ask_slice(uint64_t epoch, Worker& worker) {
    const Layouts::Ref layout = layouts->at(epoch);
    const int64_t all = all_rows();
    const bool paced = paced_rows > 0;
    const int64_t start = paced ? paced_row(epoch) : layout->row_of(epoch) + offset_;
    const int64_t rows = paced ? paced_row(epoch + 1) - start : layout->epoch_records;
    if (all >= 0 && start >= all) {
      epochs_.finished(source_);
      return 0;
    }
    auto [from, count] = layout->slice(rank, rows);
    const SourceUnit unit{start, all < 0 ? rows : std::min(rows, all - start)};
    from += start;
    if (all >= 0) count = std::clamp<int64_t>(all - from, 0, count);
    if (unit.rows == 0) return data(empty_, epoch, 0, unit, worker);
    // A node without rows of this epoch keeps to the pace of the others: if it went ahead of them
    // it would soon wait for room that only time makes.
    const bool none = count == 0;
    Polled polled;
    origin_->slice(none ? start + unit.rows - 1 : from, none ? 1 : count, polled);
    if (polled.kind == Polled::Kind::Rows) {
      if (none) return data(empty_, epoch, 0, unit, worker);
      first_row_ = from;
      return data(polled.batch, epoch, polled.due_ns, unit, worker);
    }
    clock.rows_in(polled.wait_ns);
    clock.beat_in(polled.wait_ns);
    // ... and does not let them wait for it.
    if (none && epochs_.idle(source_)) return data(empty_, epoch, 0, unit, worker);
    epochs_.not_due(source_);
    return -1;
  }

  int64_t ask(uint64_t epoch, Worker& worker) {
    const int64_t rows = rows_.load(std::memory_order_relaxed);
    int64_t most = epoch_records_;
    if (limit_ >= 0) most = std::min(most, limit_ - rows);
    Polled polled;
    const int64_t early_ns = clock.rows_ns() - now_ns();
    if (most <= 0) {
      polled.kind = Polled::Kind::End;
    } else if (early_ns > 0) {
      polled.kind = Polled::Kind::Wait;
      polled.wait_ns = early_ns;
    } else {
      origin_->poll(most, polled);
    }
    switch (polled.kind) {
      case Polled::Kind::Rows:
        return read_rows(polled, epoch, rows, worker);
      case Polled::Kind::End:
        epochs_.finished(source_);
        return 0;
      case Polled::Kind::Failed:
        return fail(polled, epoch, worker);
      case Polled::Kind::Wait:
        break;
    }
    clock.rows_in(polled.wait_ns);
    if (!clock.beats() && !epochs_.idle(source_)) return -1;
    return data(empty_, epoch, 0, {rows, 0, is_idle() ? Flow::Idle : Flow::Running}, worker);
  }
  int64_t fail(const Polled& polled, uint64_t epoch, Worker& worker) {
    Batch marker;
    marker.failure = std::make_shared<Failure>();
    marker.failure->letter.op = op_;
    marker.failure->letter.source = source_;
    marker.failure->letter.epoch = epoch;
    marker.failure->letter.row = -1;
    marker.failure->letter.kind = FailureKind::Source;
    marker.failure->letter.message = polled.message;
    marker.failure->letter.handle = polled.handle;
    marker.columns = empty_.columns;
    over_.store(true, std::memory_order_relaxed);
    emit(std::move(marker), epoch, worker);
    epochs_.failed(source_);
    return 0;
  }
  // Acquire pairs with the release in Engine::stop and Shared::note_failure.
  bool stopped() const { return stopping && stopping->load(std::memory_order_acquire); }

  // What is the same for all parts of an epoch of the source.
  struct SourceUnit {
    int64_t base = 0, rows = 0;
    Flow flow = Flow::Running;
    bool in_order = false;  // it is known that the times of its rows do not fall
  };
  int64_t unit_base(uint64_t epoch) const {
    if (ahead_) return next_base_;
    if (!sliced()) return rows_.load(std::memory_order_relaxed);
    const int64_t row =
        paced_rows > 0 ? paced_row(epoch) : layouts->at(epoch)->row_of(epoch) + offset_;
    const int64_t all = all_rows();  // no row comes behind its end
    return all < 0 ? row : std::min(row, all);
  }
  // Of a source that is read in slices: how many rows it gives; -1: without end.
  int64_t all_rows() const {
    const int64_t all = origin_->rows();
    if (limit_ < 0) return all;
    return all < 0 ? limit_ : std::min(all, limit_);
  }
  bool is_idle() const { return idle_ns > 0 && now_ns() - had_rows_ns_ > idle_ns; }
  static int64_t wall_us() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  }
  ReachRef reach_in(const Batch& rows, int64_t first, bool in_order) const {
    if (time_column < 0 || rows.length == 0) return nullptr;
    const Column& times = rows.columns[size_t(time_column)];
    if (times.data_owner && !rows.tags) {
      return reach_of(times.i64(), rows.length, times.data_owner, first, in_order);
    }
    // A row that could not be read moves no time.
    const int64_t all = rows.tags ? int64_t(rows.tags[rows.length - 1]) + 1 : rows.length;
    BufferRef copy = BufferRef::make(8 * all);
    auto* to = copy.as<int64_t>();
    int64_t row = 0;
    for (int64_t i = 0; i < rows.length; ++i) {
      const int64_t at = rows.tags ? int64_t(rows.tags[i]) : i;
      for (; row < at; ++row) to[row] = kNoTime;
      to[row++] = times.i64()[i];
    }
    return reach_of(to, all, std::move(copy), first);
  }

  int64_t read_rows(Polled& polled, uint64_t epoch, int64_t base, Worker& worker) {
    const int64_t taken = polled.batch.length + int64_t(polled.bad.size());
    if (!polled.bad.empty()) set_aside(polled, epoch);
    return data(polled.batch, epoch, polled.due_ns, {base, taken}, worker,
                int64_t(polled.bad.size()));
  }

  // Bad rows by the policy; the good ones keep their numbers. A source that is to fail does not
  // get here: its origin failed.
  void set_aside(Polled& polled, uint64_t epoch) {
    Batch& rows = polled.batch;
    BufferRef tags = BufferRef::make(std::max<int64_t>(rows.length, 1) * 4);
    size_t next = 0;
    uint32_t row = 0;
    for (int64_t i = 0; i < rows.length; ++i, ++row) {
      while (next < polled.bad.size() && polled.bad[next].row == row) ++next, ++row;
      tags.as<uint32_t>()[i] = row;
    }
    if (on_error == OnError::DeadLetter) {
      rows.source = source_;
      rows.epoch = epoch;
      rows.first_row = rows_.load(std::memory_order_relaxed);
      rows.letters = std::make_shared<std::vector<Letter>>();
      for (uint32_t k = 0; k < polled.bad.size(); ++k) {
        auto record = std::make_shared<Batch>();
        for (const Column& c : polled.records.columns) record->columns.push_back(take(c, &k, 1));
        polled.bad[k].record = std::move(record);
        rows.letters->push_back(make_letter(op_, rows, polled.bad[k]));
      }
    }
    rows.tags = tags.as<uint32_t>();
    rows.tags_owner = std::move(tags);
  }

  // `bad`: how many rows of the unit were read and are not in it.
  int64_t data(const Batch& rows, uint64_t epoch, int64_t due_ns, const SourceUnit& unit,
               Worker& worker, int64_t bad = 0) {
    Batch batch;
    batch.base = unit.base;
    batch.rows = unit.rows;
    batch.flow = unit.flow;
    const bool counts = unit.flow < Flow::Cut || unit.rows > 0;  // the last rows come with the end
    if (clock.beat_ns && counts) {
      const Cut* cut = script_.at(epoch);
      batch.stamp = cut ? cut->stamp : stamps_units ? wall_us() : 0;
      clock.beat_in(clock.beat_ns);
    }
    if (logs) {
      log.add(epoch, Cut::of(unit.rows, batch.stamp, unit.flow, std::exchange(skipped_, false)));
    }
    if (rows.length || had_rows_ns_ == 0) had_rows_ns_ = now_ns();
    batch.columns = rows.columns;
    batch.length = rows.length;
    batch.tags = rows.length ? rows.tags : nullptr;
    batch.tags_owner = rows.tags_owner;
    batch.letters = rows.letters;
    const int64_t taken = rows.length + bad;
    const int64_t read = rows_.load(std::memory_order_relaxed);
    batch.first_row = first_row_ < 0 ? read : first_row_;
    if (ReachRef reach = reach_in(rows, batch.first_row - batch.base, unit.in_order)) {
      batch.reach.push_back({source_, std::move(reach)});
    }
    batch.ingest_ns = due_ns ? due_ns : now_ns();
    rows_.store(read + taken, std::memory_order_relaxed);
    Counts& c = worker.shared.counts.of(op_, epoch);
    Counts::add(c.in, taken);
    Counts::add(c.out, batch.length);
    if (bad) Counts::add(on_error == OnError::Skip ? c.skipped : c.dead_lettered, bad);
    stats.records_in.fetch_add(taken, std::memory_order_relaxed);
    stats.records_out.fetch_add(batch.length, std::memory_order_relaxed);
    if (cuts.size() < kCuts && counts) {
      cuts.push_back(taken);
      if (clock.beat_ns) stamps.push_back(batch.stamp);
    }
    const int64_t n = emit(std::move(batch), epoch, worker);
    epochs_.emitted(source_);
    return n;
  }

  int64_t emit(Batch&& batch, uint64_t epoch, Worker& worker) {
    batch.epoch = epoch;
    batch.source = source_;
    const int64_t n = batch.length;
    hand_on(std::move(batch), worker);
    return n;
  }

  const uint32_t op_, source_;
  Epochs& epochs_;
  std::unique_ptr<Origin> origin_;
  const int64_t epoch_records_, limit_;
  int64_t first_row_ = -1;  // of the last slice
  bool started_ = false;    // knows the start, or needs none
  std::unique_ptr<AheadReader> ahead_;
  int64_t next_base_ = 0;  // in order of time: of the next unit
  int64_t had_rows_ns_ = 0, rows_before_ = 0;
  Script script_;
  std::deque<PolledRows> waiting_;  // while it repeats: what is there of the epoch
  int64_t waiting_rows_ = 0;
  bool skipped_ = false;  // in order of time: the unit that is being emitted
  int64_t offset_ = 0;    // of rows that are read in slices: they go on from a checkpoint ...
  int64_t due_row_ = 0;   // ... with this one, which is due when the job starts
  Batch empty_;
  std::atomic<int64_t> rows_{0};
  std::atomic<bool> over_{false}, busy_{false};
};

}  // namespace plait
