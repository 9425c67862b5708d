// LastRows: the values of the last n records of one key that the aggregates over them need.
//
// A ring of rows, each a word with a bit for every value that is null, then a word for every input;
// a text's word owns its bytes. Results are computed anew from the rows in their order, so that
// sums of floats are those of a plain loop. Whether a record fits the checked sums is known before
// it is added: as long as a bound of all that the ring may add up to fits, without a look at the
// ring. For one thread at a time (the holder of the lane);
// never waits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "plait/columns/failure.hpp"
#include "plait/windows/group_cells.hpp"

namespace plait {

// Which columns the rows keep, and where each aggregate finds its own.
struct LastPlan {
  std::vector<int> columns;
  std::vector<Type> types;
  std::vector<int> of_op;    // the input's number; -1: count of rows
  std::vector<size_t> sums;  // the inputs' numbers of checked sums
  uint64_t n = 1;

  LastPlan(const GroupPlan& plan, uint64_t n) : n(n) {
    for (const GroupOp& op : plan.ops) {
      if (op.input < 0) {
        of_op.push_back(-1);
        continue;
      }
      const auto at = std::find(columns.begin(), columns.end(), op.input);
      of_op.push_back(int(at - columns.begin()));
      if (op.checked()) sums.push_back(size_t(at - columns.begin()));
      if (at != columns.end()) continue;
      columns.push_back(op.input);
      types.push_back(op.type);
    }
    if (columns.size() > 64) throw std::invalid_argument("more than 64 inputs of aggregates");
  }
  size_t stride() const { return columns.size() + 1; }
};

class LastRows {
 public:
  uint64_t total() const { return total_; }
  size_t bytes() const { return sizeof *this + words_.capacity() * 8; }

  void add(const LastPlan& plan, const Batch& batch, uint32_t row) {
    const size_t stride = plan.stride(), at = size_t(total_++ % plan.n) * stride;
    if (at == words_.size()) words_.resize(at + stride, 0);
    uint64_t* to = words_.data() + at;
    to[0] = 0;
    for (size_t c = 0; c < plan.columns.size(); ++c) {
      const Column& column = batch.columns[size_t(plan.columns[c])];
      if (!column.valid(row)) {
        to[0] |= uint64_t(1) << c;
      } else if (is_varlen(column.type)) {
        Blob::assign(to[c + 1], column.bytes(row), uint32_t(column.size(row)));
      } else if (column.type == Type::Bool) {
        to[c + 1] = column.boolean(row);
      } else {
        std::memcpy(to + c + 1, column.data + 8 * size_t(row), 8);
      }
    }
  }

  // Whether a row fits the sums over it and those before it that stay with it, added in their
  // order; if not it has failed. A row that fits is added next.
  bool fits(const LastPlan& plan, const Batch& batch, uint32_t row,
            std::vector<RowFailure>& failed) {
    if (plan.sums.empty()) return true;
    uint64_t most = 0;
    for (size_t input : plan.sums) {
      const Column& c = batch.columns[size_t(plan.columns[input])];
      if (c.valid(row)) most = std::max(most, size_of(word_of(c, row)));
    }
    if (grows(bound_, most)) [[likely]]
      return true;
    const uint64_t from = total_ - std::min(total_, plan.n - 1);
    bound_ = 0;
    bool small = true;
    for (uint64_t r = from; r < total_ && small; ++r) {
      uint64_t here = 0;
      for (size_t input : plan.sums) {
        if (has(plan, r, input)) here = std::max(here, size_of(kept(plan, r, input)));
      }
      small = grows(bound_, here);
    }
    if (small && grows(bound_, most)) return true;
    bound_ = std::numeric_limits<uint64_t>::max();  // the next row looks again
    for (size_t input : plan.sums) {
      int64_t sum = 0;
      const auto takes = [&](int64_t value) {
        int64_t next;
        if (__builtin_add_overflow(sum, value, &next)) {
          failed.push_back({row, sum_misfit(sum, value)});
          return false;
        }
        sum = next;
        return true;
      };
      for (uint64_t r = from; r < total_; ++r) {
        if (has(plan, r, input) && !takes(kept(plan, r, input))) return false;
      }
      const Column& c = batch.columns[size_t(plan.columns[input])];
      if (c.valid(row) && !takes(word_of(c, row))) return false;
    }
    return true;
  }

  // Into the cells of a slot, which are 0.
  void results(const GroupPlan& plan, const LastPlan& last, uint64_t* slot) const {
    slot[1] = std::min(total_, last.n);
    for (size_t o = 0; o < plan.ops.size(); ++o) {
      const GroupOp& op = plan.ops[o];
      if (op.counts_rows()) continue;
      uint64_t seen = 0;
      const auto input = size_t(last.of_op[o]);
      each(last, [&](const uint64_t* row) {
        if (row[0] >> input & 1) return;
        fold_one(op, seen++ == 0, slot, row[input + 1]);
      });
      if (op.seen >= 0) slot[op.seen] = seen;
    }
  }

  void drop(const LastPlan& plan) {
    for (size_t c = 0; c < plan.types.size(); ++c) {
      if (!is_varlen(plan.types[c])) continue;
      for (size_t at = c + 1; at < words_.size(); at += plan.stride()) Blob::drop(words_[at]);
    }
  }
  void write(const LastPlan& plan, GroupWriter& out) const {
    out.word(total_);
    each(plan, [&](const uint64_t* row) {
      out.word(row[0]);
      for (size_t c = 0; c < plan.types.size(); ++c) {
        if (row[0] >> c & 1) continue;
        if (is_varlen(plan.types[c])) {
          Blob* blob = Blob::of(row[c + 1]);
          out.text({blob->bytes(), blob->size});
        } else {
          out.word(row[c + 1]);
        }
      }
    });
  }
  // On damage the reader is not ok(); drop() must be called all the same.
  void read(const LastPlan& plan, GroupReader& in) {
    const uint64_t total = in.word(), rows = std::min(total, plan.n);
    if (!in.ok() || rows > in.left() / 8) return in.fail();
    words_.assign(size_t(rows) * plan.stride(), 0);
    for (uint64_t r = total - rows; r < total && in.ok(); ++r) {
      uint64_t* row = words_.data() + size_t(r % plan.n) * plan.stride();
      row[0] = in.word();
      if (plan.columns.size() < 64 && row[0] >> plan.columns.size()) in.fail();
      for (size_t c = 0; c < plan.types.size() && in.ok(); ++c) {
        if (row[0] >> c & 1) continue;
        if (is_varlen(plan.types[c])) {
          const std::string_view text = in.text();
          if (in.ok()) Blob::assign(row[c + 1], text.data(), uint32_t(text.size()));
        } else {
          row[c + 1] = in.word();
        }
      }
    }
    total_ = total;
    bound_ = std::numeric_limits<uint64_t>::max();
  }

 private:
  static int64_t word_of(const Column& c, uint32_t row) {
    return c.type == Type::Bool ? int64_t(c.boolean(row)) : c.i64()[row];
  }
  static uint64_t size_of(int64_t value) { return value < 0 ? -uint64_t(value) : uint64_t(value); }
  // Adds to a bound unless int64 might not hold the sum then.
  static bool grows(uint64_t& bound, uint64_t size) {
    constexpr uint64_t kMost = uint64_t(std::numeric_limits<int64_t>::max());
    if (bound > kMost || size > kMost - bound) return false;
    bound += size;
    return true;
  }
  const uint64_t* row_of(const LastPlan& plan, uint64_t r) const {
    return words_.data() + size_t(r % plan.n) * plan.stride();
  }
  bool has(const LastPlan& plan, uint64_t r, size_t input) const {
    return !(row_of(plan, r)[0] >> input & 1);
  }
  int64_t kept(const LastPlan& plan, uint64_t r, size_t input) const {
    return int64_t(row_of(plan, r)[input + 1]);
  }
  template <class Visit>
  void each(const LastPlan& plan, Visit visit) const {
    const uint64_t rows = std::min(total_, plan.n);
    const size_t stride = plan.stride(), end = size_t(rows) * stride;
    size_t at = total_ > plan.n ? size_t(total_ % plan.n) * stride : 0;
    for (uint64_t r = 0; r < rows; ++r) {
      visit(words_.data() + at);
      at = at + stride == end ? 0 : at + stride;
    }
  }
  static void fold_one(const GroupOp& op, bool first, uint64_t* slot, uint64_t value) {
    using namespace group_detail;
    using K = AggregateKind;
    uint64_t& cell = slot[op.cell];
    if (op.kind == K::Distinct) {
      ValueSet& set = ValueSet::in(cell);
      if (!is_varlen(op.type)) return set.add_word(ValueSet::canonical(value, op.type));
      return set.add_text({Blob::of(value)->bytes(), Blob::of(value)->size});
    }
    if (op.text) {
      Blob* blob = Blob::of(value);
      if (aggregates_detail::replaces(op.kind, cell, blob->bytes(), blob->size)) {
        Blob::assign(cell, blob->bytes(), blob->size);
      }
      return;
    }
    switch (op.kind) {
      case K::Sum:
        cell = fold_bits<K::Sum>(op, first, cell, value);
        return;
      case K::WrappingSum:
        cell = fold_bits<K::WrappingSum>(op, first, cell, value);
        return;
      case K::Mean:
        if (op.type != Type::Float64) value = std::bit_cast<uint64_t>(double(int64_t(value)));
        cell = fold_bits<K::Mean>(op, first, cell, value);
        return;
      case K::Min:
        cell = fold_bits<K::Min>(op, first, cell, value);
        return;
      case K::Max:
        cell = fold_bits<K::Max>(op, first, cell, value);
        return;
      case K::First:
        if (first) cell = value;
        return;
      case K::Last:
        cell = value;
        return;
      default:  // a count is what was seen
        return;
    }
  }

  uint64_t total_ = 0;  // records so far; number r is in row r % n
  uint64_t bound_ = 0;  // no part of the ring adds up to more; only where sums are checked
  std::vector<uint64_t> words_;
};

}  // namespace plait
