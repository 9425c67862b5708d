// SpanCells: the aggregates of one left record of a span, as words in front of its packed row.
//
// Word 0 counts the right records; then each aggregate has a cell and, where its values may be
// null, a word that counts those that were not. A text cell owns a Blob. The rules are those of
// running aggregates (aggregates.hpp). One thread at a time: the holder of the lane.
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "plait/core/dispatch.hpp"
#include "plait/joins/join_bytes.hpp"
#include "plait/joins/packed_row.hpp"
#include "plait/keyed/aggregates.hpp"

namespace plait {

class SpanCells {
 public:
  explicit SpanCells(const std::vector<AggregateSpec>& aggregates) {
    for (const AggregateSpec& a : aggregates) add(a);
  }

  size_t bytes() const { return 8 * words_; }
  bool texts() const { return texts_; }
  // The columns that the aggregates read, in the order in which add() wants their values.
  const std::vector<int>& inputs() const { return inputs_; }

  void start(uint64_t* cells) const { std::fill(cells, cells + words_, 0); }

  bool checked() const { return checked_; }
  // Whether a right record fits the sums; if not, why says what is wrong.
  template <class Values>
  bool fits(const uint64_t* cells, const Values& values, std::string& why) const {
    for (const Op& op : ops_) {
      if (!op.checked() || (op.nullable && !values.valid(size_t(op.value)))) continue;
      const auto old = int64_t(cells[op.cell]), value = int64_t(values.word(size_t(op.value)));
      int64_t sum;
      if (!__builtin_add_overflow(old, value, &sum)) continue;
      why = sum_misfit(old, value);
      return false;
    }
    return true;
  }

  // Adds a right record, which fits. `values` has valid(i), word(i) and text(i) of input i.
  template <class Values>
  PLAIT_INLINE void add(uint64_t* cells, const Values& values) const {
    const bool first_row = cells[0]++ == 0;
    for (const Op& op : ops_) {
      if (op.value < 0) continue;  // count of rows
      bool first = first_row;
      if (op.nullable) {
        if (!values.valid(size_t(op.value))) continue;
        first = cells[op.seen]++ == 0;
      }
      if (op.kind == AggregateKind::Count) continue;
      if (op.text) {
        take_text(op, cells[op.cell], values.text(size_t(op.value)));
      } else {
        take(op, cells[op.cell], first, values.word(size_t(op.value)));
      }
    }
  }

  // Appends the results to out[first], ...
  void append(const uint64_t* cells, std::vector<GrowingColumn>& out, size_t first) const {
    for (const Op& op : ops_) {
      GrowingColumn& to = out[first++];
      const uint64_t seen = op.nullable ? cells[op.seen] : cells[0];
      if (op.kind == AggregateKind::Count) {
        to.word(seen);
      } else if (seen == 0) {
        to.null();
      } else if (op.text) {
        Blob* blob = Blob::of(cells[op.cell]);
        to.text({blob->bytes(), blob->size});
      } else if (op.kind == AggregateKind::Mean) {
        const double mean = std::bit_cast<double>(cells[op.cell]) / double(seen);
        to.word(std::bit_cast<uint64_t>(mean));
      } else {
        to.word(cells[op.cell]);
      }
    }
  }

  void drop(uint64_t* cells) const {
    if (!texts_) return;
    for (const Op& op : ops_) {
      if (op.text) Blob::drop(cells[op.cell]);
    }
  }

  // As bytes, and back: the words, then the texts.
  void save(const uint64_t* cells, ByteWriter& to) const {
    std::vector<uint64_t> words(cells, cells + words_);
    for (const Op& op : ops_) {
      if (op.text) words[size_t(op.cell)] = 0;  // an address means nothing elsewhere
    }
    to.put(words.data(), bytes());
    for (const Op& op : ops_) {
      if (!op.text) continue;
      Blob* blob = Blob::of(cells[op.cell]);
      to.put_bytes(blob ? blob->bytes() : nullptr, blob ? blob->size : 0);
    }
  }
  [[nodiscard]] bool check(ByteReader& from) const {
    const char* data;
    if (!from.get(data, bytes())) return false;
    for (const Op& op : ops_) {
      uint64_t size;
      if (op.text && (!from.get_bytes(data, size) || size > UINT32_MAX)) return false;
    }
    return true;
  }
  void load(uint64_t* cells, ByteReader& from) const {
    const char* data = nullptr;
    (void)from.get(data, bytes());
    std::memcpy(cells, data, bytes());
    for (const Op& op : ops_) {
      if (!op.text) continue;
      uint64_t size = 0;
      (void)from.get_bytes(data, size);
      cells[op.cell] = 0;
      const uint64_t seen = op.nullable ? cells[op.seen] : cells[0];
      if (seen) Blob::assign(cells[op.cell], data, uint32_t(size));
    }
  }

 private:
  struct Op {
    AggregateKind kind;
    Type type;
    bool nullable, text;
    int value;  // among inputs(); -1: count of rows
    int cell, seen;
    bool checked() const { return kind == AggregateKind::Sum && type != Type::Float64; }
  };

  void add(const AggregateSpec& a) {
    using K = AggregateKind;
    Op op{a.kind, a.type, a.nullable && a.input >= 0, false, -1, 0, 0};
    if (a.kind == K::Distinct) throw std::invalid_argument("a span cannot count different values");
    if (a.input < 0 && a.kind != K::Count) {
      throw std::invalid_argument("only a count may be without an input");
    }
    if (a.input >= 0) {
      op.value = int(inputs_.size());
      inputs_.push_back(a.input);
    }
    if (a.kind != K::Count) {
      op.text = is_varlen(a.type);
      if (op.text && (is_sum(a.kind) || a.kind == K::Mean)) {
        throw std::invalid_argument("sum and mean are of numbers");
      }
      op.cell = int(words_++);
    }
    if (op.nullable) op.seen = int(words_++);
    texts_ = texts_ || op.text;
    checked_ = checked_ || op.checked();
    ops_.push_back(op);
  }

  template <AggregateKind kKind>
  PLAIT_INLINE static void take_as(const Op& op, uint64_t& cell, bool first, uint64_t bits) {
    bool misfit = false;  // it never is: see fits()
    if (op.type == Type::Float64) {
      const double now = fold<kKind, double>(first, std::bit_cast<double>(cell),
                                             std::bit_cast<double>(bits), misfit);
      cell = std::bit_cast<uint64_t>(now);
    } else if constexpr (kKind == AggregateKind::Mean) {
      const double now =
          fold<kKind, double>(first, std::bit_cast<double>(cell), double(int64_t(bits)), misfit);
      cell = std::bit_cast<uint64_t>(now);
    } else {
      cell = uint64_t(fold<kKind, int64_t>(first, int64_t(cell), int64_t(bits), misfit));
    }
  }
  PLAIT_INLINE static void take(const Op& op, uint64_t& cell, bool first, uint64_t bits) {
    using K = AggregateKind;
    switch (op.kind) {
      case K::Max:
        return take_as<K::Max>(op, cell, first, bits);
      case K::Min:
        return take_as<K::Min>(op, cell, first, bits);
      case K::Sum:
        return take_as<K::Sum>(op, cell, first, bits);
      case K::WrappingSum:
        return take_as<K::WrappingSum>(op, cell, first, bits);
      case K::Mean:
        return take_as<K::Mean>(op, cell, first, bits);
      case K::First:
        return take_as<K::First>(op, cell, first, bits);
      default:
        return take_as<K::Last>(op, cell, first, bits);
    }
  }
  static void take_text(const Op& op, uint64_t& cell, std::string_view text) {
    const auto size = uint32_t(text.size());
    if (aggregates_detail::replaces(op.kind, cell, text.data(), size)) {
      Blob::assign(cell, text.data(), size);
    }
  }

  std::vector<Op> ops_;
  std::vector<int> inputs_;
  size_t words_ = 1;
  bool texts_ = false, checked_ = false;
};

}  // namespace plait
