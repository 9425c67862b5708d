// What the binding reads of an engine: plain values, taken while it runs or after its end.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plait/engine/builder.hpp"

namespace plait {

// in, out, filtered, skipped, dead-lettered, made, copied, late, absorbed, shed.
inline std::vector<int64_t> counts_of(const Engine& e, size_t node) {
  const auto counts = e.shared.counts.all(node);
  return {counts.begin(), counts.end()};
}
// Of the set that the epochs before the last mark were counted in.
inline std::vector<int64_t> closed_counts_of(const Engine& e, size_t node) {
  const auto counts = e.shared.counts.closed(node);
  return {counts.begin(), counts.end()};
}
inline std::vector<std::string> stage_names_of(const Engine& e) {
  std::vector<std::string> names;
  for (const auto& stage : e.stages()) names.push_back(stage->name);
  return names;
}
inline std::vector<int64_t> cuts_of(const Engine& e, size_t source) {
  return e.sources()[source]->cuts;
}
// All plans of what is kept: of each its epoch, how many thresholds it has, and these.
inline std::vector<uint64_t> keeps_of(const Engine& e) {
  std::vector<uint64_t> out;
  for (const KeepPlan& plan : e.shared.keeps.all()) {
    out.insert(out.end(), {plan.epoch, uint64_t(plan.thresholds.size())});
    out.insert(out.end(), plan.thresholds.begin(), plan.thresholds.end());
  }
  return out;
}
// Before the start: what is kept from an epoch on.
inline void add_keep(Engine& e, uint64_t epoch, const std::vector<uint64_t>& thresholds) {
  e.shared.keeps.add(epoch, thresholds);
}
inline std::vector<int64_t> stamps_of(const Engine& e, size_t source) {
  return e.sources()[source]->stamps;
}
// The cuts of a source from an epoch on: the first epoch, then rows, stamp and kind of each.
inline std::vector<int64_t> log_of(const Engine& e, size_t source, uint64_t from, uint64_t end) {
  std::vector<int64_t> out;
  const std::vector<Cut> cuts = e.sources()[source]->log.copy(from, end);
  out.push_back(int64_t(from));
  for (const Cut& cut : cuts) out.insert(out.end(), {cut.rows, cut.stamp, cut.kind});
  return out;
}
inline void drop_log(Engine& e, uint64_t before) {
  for (SourceStage* source : e.sources()) source->log.drop(before);
}
// Each script as log_of gives it.
inline void repeat_cuts(Engine& e, const std::vector<std::vector<int64_t>>& logs, uint64_t until) {
  std::vector<Script> scripts(e.sources().size());
  for (size_t s = 0; s < logs.size(); ++s) {
    scripts[s].first = uint64_t(logs[s].at(0));
    for (size_t i = 1; i + 2 < logs[s].size(); i += 3) {
      scripts[s].cuts.push_back({logs[s][i], logs[s][i + 1], uint8_t(logs[s][i + 2])});
    }
  }
  e.repeat(std::move(scripts), until);
}
inline std::vector<int64_t> latency_of(const Engine& e, const std::vector<double>& percents) {
  Histogram all;
  e.latency(all);
  std::vector<int64_t> out;
  for (double p : percents) out.push_back(int64_t(all.percentile(p)));
  out.push_back(int64_t(all.max()));
  return out;
}
// All latencies so far: upper edge in nanoseconds, count, edge, count, ...; then the greatest.
inline std::vector<int64_t> latency_buckets_of(const Engine& e) {
  Histogram all;
  e.latency(all);
  std::vector<int64_t> out;
  all.each([&](uint64_t edge, uint64_t count) {
    out.push_back(int64_t(edge));
    out.push_back(int64_t(count));
  });
  out.push_back(int64_t(all.max()));
  return out;
}
// Rows sent to each bin, over all exchanges by key (from samples).
inline std::vector<int64_t> loads_of(const Engine& e) {
  std::vector<int64_t> out;
  for (const auto& stage : e.stages()) {
    const auto* route = dynamic_cast<const RouteStage*>(stage.get());
    if (!route) continue;
    out.resize(std::max(out.size(), route->loads().size()), 0);
    for (size_t i = 0; i < route->loads().size(); ++i) {
      out[i] += route->loads()[i].load(std::memory_order_relaxed);
    }
  }
  return out;
}
// Bytes of keyed state, as the lanes last said.
inline int64_t state_bytes_of(const Engine& e) {
  int64_t n = 0;
  for (const auto& stage : e.stages()) {
    if (const auto* keyed = dynamic_cast<const KeyedStage*>(stage.get())) n += keyed->state_bytes();
    if (const auto* timed = dynamic_cast<const TimedStage*>(stage.get())) n += timed->state_bytes();
  }
  return n;
}
// After the run, once: results of an event-time operator that were not due before the end.
inline int64_t unfinished_of(Engine& e, uint32_t op) {
  int64_t n = 0;
  for (const auto& stage : e.stages()) {
    auto* timed = dynamic_cast<TimedStage*>(stage.get());
    if (timed && timed->runs(op)) n += timed->drop_unfinished();
  }
  return n;
}
// Records that stages have taken in and sources given, worker time in stages in nanoseconds,
// workers that are not suspended.
inline std::vector<int64_t> load_of(const Engine& e) {
  int64_t records = e.read(), busy = 0;
  for (const auto& stage : e.stages()) {
    records += stage->stats.records_in.load(std::memory_order_relaxed);
    busy += stage->stats.running_ns.load(std::memory_order_relaxed);
  }
  return {records, busy, int64_t(e.shared.levels.active())};
}
// Of one stage: nanoseconds in which its worklist was full, its degree, the most workers it can
// use, then the numbers of the stages behind it.
inline std::vector<int64_t> stage_load_of(const Engine& e, size_t number, unsigned workers) {
  Stage& stage = *e.stages()[number];
  const bool shared = stage.threading == Threading::Dynamic && !stage.python;
  const int64_t most = shared ? std::min(stage.max_workers(), workers) : 1;
  std::vector<int64_t> out = {stage.full_ns(), std::min<int64_t>(stage.degree(), most), most};
  for (const uint32_t after : stage.after()) out.push_back(after);
  return out;
}
// Of one stage: nanoseconds of processor time, records taken in and handed on, records that wait,
// nanoseconds in which its worklist was full.
inline std::vector<int64_t> stage_time_of(const Engine& e, size_t number) {
  Stage& stage = *e.stages()[number];
  const StageStats& s = stage.stats;
  return {s.cpu.cpu_ns.load(std::memory_order_relaxed),
          s.records_in.load(std::memory_order_relaxed),
          s.records_out.load(std::memory_order_relaxed),
          std::max<int64_t>(0, s.waiting_records.load(std::memory_order_relaxed)), stage.full_ns()};
}
inline int64_t delivered_of(const Engine& e) { return e.shared.delivered.load(); }
inline std::vector<Letter> take_letters(Engine& e) {
  std::lock_guard<std::mutex> hold(e.shared.end_lock);
  return std::exchange(e.shared.letters, {});
}
inline bool error_of(Engine& e, Letter& out) {
  std::lock_guard<std::mutex> hold(e.shared.end_lock);
  if (e.shared.error) out = *e.shared.error;
  return e.shared.error != nullptr;
}

}  // namespace plait
