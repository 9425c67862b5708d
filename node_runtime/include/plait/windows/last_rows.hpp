// LastRows: the values of the last n records of one key that the aggregates over them need.
//
// A head of words that are kept up while records come and go (last_plan.hpp), then a ring of rows,
// each a word with a bit for every value that is null, then a word for every input; a text's word
// owns its bytes. What is not kept up is computed anew from the rows in their order, so that sums
// of floats are those of a plain loop. Whether a record fits the checked sums is known before it is
// added: as long as a bound of all that the ring may add up to fits, without a look at the ring.
// For one thread at a time (the holder of the lane); never waits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "plait/columns/failure.hpp"
#include "plait/groups/group_cells.hpp"
#include "plait/windows/extremes.hpp"
#include "plait/windows/last_plan.hpp"

namespace plait {

class LastRows {
 public:
  uint64_t total() const { return total_; }
  size_t bytes() const {
    size_t n = sizeof *this + words_.capacity() * 8 + queues_.capacity() * sizeof(Extremes);
    for (const Extremes& q : queues_) n += q.bytes();
    return n;
  }

  void add(const LastPlan& plan, const Batch& batch, uint32_t row) {
    const size_t stride = plan.stride(), at = plan.head + next_ * stride;
    if (at >= words_.size()) words_.resize(at + stride, 0);
    uint64_t* to = words_.data() + at;
    if (plan.running && total_ >= plan.n) leave(plan, to);
    if (++next_ == plan.n) next_ = 0;
    ++total_;
    to[0] = 0;
    for (size_t c = 0; c < plan.inputs.size(); ++c) {
      const Column& column = batch.columns[size_t(plan.inputs[c].column)];
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
    if (plan.running) enter(plan, to, total_ - 1);
  }

  // Whether a row fits the sums over it and those before it that stay with it, added in their
  // order; if not it has failed. A row that fits is added next.
  bool fits(const LastPlan& plan, const Batch& batch, uint32_t row,
            std::vector<RowFailure>& failed) {
    if (plan.sums.empty()) return true;
    uint64_t most = 0;
    for (size_t input : plan.sums) {
      const Column& c = batch.columns[size_t(plan.inputs[input].column)];
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
      const Column& c = batch.columns[size_t(plan.inputs[input].column)];
      if (c.valid(row) && !takes(word_of(c, row))) return false;
    }
    return true;
  }

  // Into the cells of a slot, which are 0.
  void results(const GroupPlan& plan, const LastPlan& last, uint64_t* slot) const {
    using How = LastPlan::How;
    slot[1] = std::min(total_, last.n);
    for (size_t o = 0; o < plan.ops.size(); ++o) {
      const GroupOp& op = plan.ops[o];
      const LastPlan::Result& r = last.results[o];
      if (r.how == How::Rows) continue;
      const LastPlan::LastInput& in = last.inputs[size_t(r.input)];
      const uint64_t seen = in.nulls < 0 ? slot[1] : slot[1] - words_[size_t(in.nulls)];
      if (op.seen >= 0) slot[op.seen] = seen;
      if (seen == 0 || r.how == How::Seen) continue;
      uint64_t& cell = slot[op.cell];
      if (r.how == How::Sum) {
        cell = words_[size_t(in.sum)];
      } else if (r.how == How::Mean && is_exact(in)) {
        cell = std::bit_cast<uint64_t>(double(int64_t(words_[size_t(in.sum)])));
      } else if (r.how == How::Extreme) {
        const Extremes& queue = queues_[size_t(r.queue)];
        cell = queue.empty() ? newest(last, in, size_t(r.input)) : queue.best();
      } else if (r.how == How::First) {
        const uint64_t first = in.first < 0 ? total_ - slot[1] : words_[size_t(in.first)];
        assign(op, cell, row_of(last, first)[r.input + 1]);
      } else if (r.how == How::Last) {
        assign(op, cell, newest(last, in, size_t(r.input)));
      } else {
        anew(op, last, size_t(r.input), slot);
      }
    }
  }

  void drop(const LastPlan& plan) {
    for (size_t c = 0; c < plan.inputs.size(); ++c) {
      if (!is_varlen(plan.inputs[c].type)) continue;
      for (size_t at = plan.head + c + 1; at < words_.size(); at += plan.stride()) {
        Blob::drop(words_[at]);
      }
    }
  }
  void write(const LastPlan& plan, GroupWriter& out) const {
    out.word(total_);
    each(plan, [&](const uint64_t* row) {
      out.word(row[0]);
      for (size_t c = 0; c < plan.inputs.size(); ++c) {
        if (row[0] >> c & 1) continue;
        if (is_varlen(plan.inputs[c].type)) {
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
    words_.assign(plan.head + size_t(rows) * plan.stride(), 0);
    for (uint64_t r = total - rows; r < total && in.ok(); ++r) {
      uint64_t* row = words_.data() + plan.head + size_t(r % plan.n) * plan.stride();
      row[0] = in.word();
      if (plan.inputs.size() < 64 && row[0] >> plan.inputs.size()) in.fail();
      for (size_t c = 0; c < plan.inputs.size() && in.ok(); ++c) {
        if (row[0] >> c & 1) continue;
        if (is_varlen(plan.inputs[c].type)) {
          const std::string_view text = in.text();
          if (in.ok()) Blob::assign(row[c + 1], text.data(), uint32_t(text.size()));
        } else {
          row[c + 1] = in.word();
        }
      }
    }
    total_ = total;
    next_ = total % plan.n;
    bound_ = std::numeric_limits<uint64_t>::max();
    if (!in.ok() || !plan.running) return;
    for (uint64_t r = total - rows; r < total; ++r) enter(plan, row_of(plan, r), r);
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
    return words_.data() + plan.head + size_t(r % plan.n) * plan.stride();
  }
  uint64_t newest(const LastPlan& plan, const LastPlan::LastInput& in, size_t input) const {
    return row_of(plan, in.last < 0 ? total_ - 1 : words_[size_t(in.last)])[input + 1];
  }
  // Whether a sum of doubles of these integers is never rounded, in whatever order.
  bool is_exact(const LastPlan::LastInput& in) const {
    constexpr uint64_t kExact = uint64_t(1) << 53;
    return words_[size_t(in.size) + 1] == 0 && words_[size_t(in.size)] <= kExact;
  }

  // Takes record `number`, which has been put in its row.
  void enter(const LastPlan& plan, const uint64_t* row, uint64_t number) {
    if (queues_.size() != plan.queues.size()) queues_.resize(plan.queues.size());
    for (size_t c = 0; c < plan.inputs.size(); ++c) {
      const LastPlan::LastInput& in = plan.inputs[c];
      if (row[0] >> c & 1) {
        if (in.nulls >= 0) ++words_[size_t(in.nulls)];
        if (in.first >= 0) go_first(plan, in, c, number + 1);
        continue;
      }
      if (in.first >= 0) go_first(plan, in, c, number + 1);
      if (in.last >= 0) words_[size_t(in.last)] = number;
      const uint64_t value = row[c + 1];
      if (in.sum >= 0) words_[size_t(in.sum)] += value;
      if (in.size >= 0) {
        uint64_t* size = words_.data() + in.size;
        size[1] += __builtin_add_overflow(size[0], size_of(int64_t(value)), size);
      }
    }
    for (size_t q = 0; q < queues_.size(); ++q) {
      const LastPlan::Queue& queue = plan.queues[q];
      const auto c = size_t(queue.input);
      const uint64_t value = row[c + 1];
      queues_[q].leave(number + 1 - std::min(number + 1, plan.n));
      if (row[0] >> c & 1) continue;
      if (plan.inputs[c].type == Type::Float64 && is_nan(value)) continue;
      queues_[q].add(number, value, plan.inputs[c].type, queue.greatest);
    }
  }
  // The oldest record before number `end` that has a value; `end` if there is none.
  void go_first(const LastPlan& plan, const LastPlan::LastInput& in, size_t input, uint64_t end) {
    uint64_t& first = words_[size_t(in.first)];
    first = std::max(first, end - std::min(end, plan.n));
    while (first < end && !has(plan, first, input)) ++first;
  }
  // Gives up the oldest record, whose row takes the next one.
  void leave(const LastPlan& plan, const uint64_t* row) {
    for (size_t c = 0; c < plan.inputs.size(); ++c) {
      const LastPlan::LastInput& in = plan.inputs[c];
      if (row[0] >> c & 1) {
        if (in.nulls >= 0) --words_[size_t(in.nulls)];
        continue;
      }
      const uint64_t value = row[c + 1];
      if (in.sum >= 0) words_[size_t(in.sum)] -= value;
      if (in.size >= 0) {
        uint64_t* size = words_.data() + in.size;
        size[1] -= __builtin_sub_overflow(size[0], size_of(int64_t(value)), size);
      }
    }
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
    const size_t stride = plan.stride();
    const uint64_t* first = words_.data() + plan.head;
    const uint64_t* end = first + size_t(rows) * stride;
    const uint64_t* from = total_ > plan.n ? first + next_ * stride : first;
    for (const uint64_t* row = from; row < end; row += stride) visit(row);
    for (const uint64_t* row = first; row < from; row += stride) visit(row);
  }
  static bool is_nan(uint64_t bits) {
    const auto value = std::bit_cast<double>(bits);
    return value != value;
  }
  static void assign(const GroupOp& op, uint64_t& cell, uint64_t value) {
    if (!op.text) {
      cell = value;
    } else if (Blob* blob = Blob::of(value)) {
      Blob::assign(cell, blob->bytes(), blob->size);
    }
  }

  void anew(const GroupOp& op, const LastPlan& last, size_t input, uint64_t* slot) const {
    using K = AggregateKind;
    uint64_t& cell = slot[op.cell];
    const auto visit = [&](auto take) {
      each(last, [&](const uint64_t* row) {
        if (!(row[0] >> input & 1)) take(row[input + 1]);
      });
    };
    if (op.kind == K::Distinct) {
      ValueSet& set = ValueSet::in(cell);
      visit([&](uint64_t value) {
        if (!is_varlen(op.type)) return set.add_word(ValueSet::canonical(value, op.type));
        set.add_text({Blob::of(value)->bytes(), Blob::of(value)->size});
      });
    } else if (op.text) {
      visit([&](uint64_t value) {
        Blob* blob = Blob::of(value);
        if (aggregates_detail::replaces(op.kind, cell, blob->bytes(), blob->size)) {
          Blob::assign(cell, blob->bytes(), blob->size);
        }
      });
    } else {
      bool first = true;
      double sum = 0;
      const bool whole = op.type != Type::Float64;
      visit([&](uint64_t bits) {
        const double value = whole ? double(int64_t(bits)) : std::bit_cast<double>(bits);
        sum = first ? value : sum + value;
        first = false;
      });
      cell = std::bit_cast<uint64_t>(sum);
    }
  }
  uint64_t total_ = 0;  // records so far; number r is in row r % n
  size_t next_ = 0;     // the row of the next one
  uint64_t bound_ = 0;  // no part of the ring adds up to more; only where sums are checked
  std::vector<uint64_t> words_;
  std::vector<Extremes> queues_;
};

}  // namespace plait
