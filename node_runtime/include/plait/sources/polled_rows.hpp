// PolledRows: rows as they were polled, good and bad ones, that wait until they are given on.
//
// For the holder of a source's flag.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "plait/columns/merge_parts.hpp"
#include "plait/sources/origins.hpp"

namespace plait {

// The rows of a poll, of which some are given already.
struct PolledRows {
  Polled polled;
  int64_t rows = 0, at = 0, position = -1;
  size_t bad = 0;

  // Gives at most so many, as the rows from number `to` on of `out`.
  int64_t take(int64_t most, int64_t to, Polled& out, std::vector<Batch>& good,
               std::vector<Batch>& records) {
    if (out.due_ns == 0) out.due_ns = polled.due_ns;
    const int64_t n = std::min(most, rows - at);
    const size_t before = bad;
    for (; bad < polled.bad.size() && int64_t(polled.bad[bad].row) < at + n; ++bad) {
      RowFailure failure = std::move(polled.bad[bad]);
      failure.row = uint32_t(to + (int64_t(failure.row) - at));
      out.bad.push_back(std::move(failure));
    }
    const auto bads = int64_t(bad - before);
    good.push_back(part(polled.batch, at - int64_t(before), n - bads));
    if (bads && !polled.records.columns.empty()) {
      records.push_back(part(polled.records, int64_t(before), bads));
    }
    at += n;
    return n;
  }

 private:
  static Batch part(const Batch& of, int64_t from, int64_t count) {
    Batch some;
    some.length = count;
    for (const Column& column : of.columns) some.columns.push_back(column.slice(from, count));
    return some;
  }
};

inline Batch join_polled(std::vector<Batch>& parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Batch all;
  for (const Batch& one : parts) all.length += one.length;
  for (size_t c = 0; c < parts[0].columns.size(); ++c) {
    std::vector<const Column*> columns;
    for (const Batch& one : parts) columns.push_back(&one.columns[c]);
    all.columns.push_back(concat_columns(columns, all.length));
  }
  return all;
}

// The first `count` of the rows that wait, at least one; so many are there.
inline void take_polled(std::deque<PolledRows>& pieces, int64_t count, Polled& out) {
  out.kind = Polled::Kind::Rows;
  std::vector<Batch> good, records;
  for (int64_t n = 0; n < count;) {
    PolledRows& piece = pieces.front();
    n += piece.take(count - n, n, out, good, records);
    if (piece.at == piece.rows) pieces.pop_front();
  }
  out.batch = join_polled(good);
  if (!records.empty()) out.records = join_polled(records);
}

}  // namespace plait
