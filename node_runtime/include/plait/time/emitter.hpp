// Emitter: what one lane of a timed operator makes of one unit: rows, and each row's place in the
// order.
//
// A row is begun with its order, then every column is given one value, in turn. A row that an input
// row makes at once has the time kAtOnce and the place of that row; one that is due by time has the
// watermark at which it is due and the place of the record that began it. Where it is in the unit
// (its tag) follows from that and is found afterwards (assign_tags). Rows of equal order keep the
// order in which they were made, so both must come from one lane. One thread at a time: the holder
// of the lane.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/columns/failure.hpp"
#include "plait/core/dispatch.hpp"
#include "plait/time/timed_spec.hpp"

namespace plait {

inline constexpr int64_t kAtOnce = kNoTime;

// A column that grows.
class GrowingColumn {
 public:
  explicit GrowingColumn(Type type) : type_(type) {}

  void null() {
    if (valid_.empty()) valid_.assign(size_t(length_), 1);
    valid_.push_back(0);
    if (is_varlen(type_)) {
      ends_.push_back(int64_t(text_.size()));
    } else {
      words_.push_back(0);
    }
    ++length_;
  }
  // Of Int64, Float64 and Timestamp the 64 bits; of Bool 0 or 1.
  PLAIT_INLINE void word(uint64_t bits) {
    words_.push_back(bits);
    good();
  }
  void text(std::string_view bytes) {
    text_.insert(text_.end(), bytes.begin(), bytes.end());
    ends_.push_back(int64_t(text_.size()));
    good();
  }
  // Value i of a column of the same type.
  PLAIT_INLINE void copy(const Column& c, int64_t i) {
    if (!c.valid(i)) return null();
    if (is_varlen(type_)) return text({c.bytes(i), size_t(c.size(i))});
    if (type_ == Type::Bool) return word(c.boolean(i));
    uint64_t bits;
    std::memcpy(&bits, c.data + 8 * i, 8);
    word(bits);
  }
  // The values of n rows of such a column.
  void copy(const Column& c, const uint32_t* rows, size_t n) {
    if (c.validity || !valid_.empty() || !is_fixed64(type_)) {
      for (size_t i = 0; i < n; ++i) copy(c, rows[i]);
      return;
    }
    const size_t at = words_.size();
    words_.resize(at + n);
    uint64_t* to = words_.data() + at;
    for (size_t i = 0; i < n; ++i) std::memcpy(to + i, c.data + 8 * size_t(rows[i]), 8);
    length_ += int64_t(n);
  }
  int64_t length() const { return length_; }
  Column finish() const;
  void clear() {
    length_ = 0;
    words_.clear();
    text_.clear();
    ends_.clear();
    valid_.clear();
  }

 private:
  PLAIT_INLINE void good() {
    if (!valid_.empty()) valid_.push_back(1);
    ++length_;
  }

  Type type_;
  int64_t length_ = 0;
  std::vector<uint64_t> words_;
  std::vector<char> text_;
  std::vector<int64_t> ends_;
  std::vector<uint8_t> valid_;  // empty: none is null
};

inline Column GrowingColumn::finish() const {
  Column c;
  c.type = type_;
  c.length = length_;
  if (!valid_.empty()) {
    c.validity_owner = BufferRef::zeroed(bit_bytes(length_));
    for (int64_t i = 0; i < length_; ++i) {
      if (valid_[size_t(i)]) set_bit(c.validity_owner.data(), i);
    }
    c.validity = c.validity_owner.data();
  }
  if (type_ == Type::Bool) {
    c.data_owner = BufferRef::zeroed(bit_bytes(length_));
    for (int64_t i = 0; i < length_; ++i) {
      if (words_[size_t(i)]) set_bit(c.data_owner.data(), i);
    }
  } else if (is_varlen(type_)) {
    check_text(int64_t(text_.size()));
    c.data_owner = BufferRef::make(int64_t(text_.size()));
    if (!text_.empty()) std::memcpy(c.data_owner.data(), text_.data(), text_.size());
    c.offsets_owner = BufferRef::make(4 * (length_ + 1));
    auto* offsets = c.offsets_owner.as<int32_t>();
    offsets[0] = 0;
    for (int64_t i = 0; i < length_; ++i) offsets[i + 1] = int32_t(ends_[size_t(i)]);
    c.offsets = offsets;
  } else {
    c.data_owner = BufferRef::make(8 * length_);
    if (length_) std::memcpy(c.data_owner.data(), words_.data(), size_t(8 * length_));
  }
  c.data = c.data_owner.data();
  return c;
}

class Emitter {
 public:
  struct Order {
    int64_t time = 0;
    uint64_t place = 0;
    uint32_t tag = 0;  // as Batch::tags, with halves
    bool operator<(const Order& o) const {
      if (tag != o.tag) return tag < o.tag;
      return time != o.time ? time < o.time : place < o.place;
    }
  };

  explicit Emitter(const std::vector<Type>& types) {
    for (Type type : types) columns.emplace_back(type);
  }

  // The next row. Every column must be given its value before the next one is begun, or at least
  // before the lane is done with its rows.
  PLAIT_INLINE void begin(int64_t time, uint64_t place) {
    Order& order = orders.emplace_back();
    order.time = time;
    order.place = place;
  }
  void at_once(uint64_t place) { begin(kAtOnce, place); }

  int64_t length() const { return int64_t(orders.size()); }
  void clear() {
    for (auto& c : columns) c.clear();
    orders.clear();
    failed.clear();
    late = left_out = 0;
  }

  std::vector<GrowingColumn> columns;
  std::vector<Order> orders;
  std::vector<RowFailure>
      failed;  // input rows that do not fit a sum and changed nothing, ascending
  // How far time is without sources that were stopped and flushed: windows that end later are not
  // over, though they are due.
  int64_t held = kAllTime;
  int64_t late = 0;      // input rows that came too late and changed nothing
  int64_t left_out = 0;  // input rows that are no part of any result for another reason (Late:
                         // those that were in time)
};

}  // namespace plait
