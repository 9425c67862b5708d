// TopRows: the rows of one group that may still be among its top k.
//
// A row is ranked by its value in `by`, mapped to an integer that is greater for better values; of
// equal ones the row that came first is better. Rows worse than the k best seen so far are turned
// away by one comparison, others are packed and kept; when there are twice as many as needed the
// rest is dropped. For one thread at a time (the holder of the lane); never waits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plait/columns/key_hash.hpp"
#include "plait/groups/group_bytes.hpp"
#include "plait/time/emitter.hpp"

namespace plait {

struct TopRule {
  std::vector<Type> types;  // of a row's columns
  int64_t k = 0;
  int by = -1;
  bool greatest = true, ties = false;

  bool by_text() const { return is_varlen(types[size_t(by)]); }
  int64_t rank(uint64_t bits) const {
    if (types[size_t(by)] == Type::Float64) {
      const auto b = int64_t(canonical_double(bits));
      bits = uint64_t(b < 0 ? b ^ INT64_MAX : b);
    }
    return greatest ? int64_t(bits) : ~int64_t(bits);
  }
  // The value of a rank.
  uint64_t bits(int64_t rank) const {
    const int64_t b = greatest ? rank : ~rank;
    return uint64_t(types[size_t(by)] == Type::Float64 && b < 0 ? b ^ INT64_MAX : b);
  }
};

class TopRows {
 public:
  // The cell holds the rows' address; 0: none yet.
  static TopRows* of(uint64_t cell) { return reinterpret_cast<TopRows*>(cell); }
  static TopRows& in(uint64_t& cell) {
    if (!cell) cell = reinterpret_cast<uint64_t>(new TopRows());
    return *of(cell);
  }
  static void drop(uint64_t& cell) {
    delete of(cell);
    cell = 0;
  }

  size_t bytes() const {
    size_t n = sizeof *this + rows_.capacity() * sizeof(RankedRow);
    for (const RankedRow& r : rows_) n += r.packed.capacity();
    return n;
  }

  // Row `row` of the batch, the last one of the group so far.
  void add(const TopRule& rule, const Batch& batch, uint32_t row, uint64_t place) {
    const Column& by = batch.columns[size_t(rule.by)];
    if (!by.valid(row)) return;
    int64_t rank = 0;
    if (!rule.by_text()) {
      const uint64_t bits = value(by, row);
      if (by.type == Type::Float64) {
        const auto number = std::bit_cast<double>(bits);
        if (number != number) return;
      }
      rank = rule.rank(bits);
      if (full_ && (rank < last_rank_ || (rank == last_rank_ && !rule.ties))) return;
    } else if (full_) {
      const std::string_view text(by.bytes(row), size_t(by.size(row)));
      const int order = text.compare(by_text(rows_[last_]));
      if (rule.greatest ? order < 0 : order > 0) return;
      if (order == 0 && !rule.ties) return;
    }
    RankedRow& r = rows_.emplace_back();
    r.rank = rank;
    r.place = place;
    for (size_t c = 0; c < rule.types.size(); ++c) pack(rule, c, batch.columns[c], row, r);
    if (rows_.size() >= room_) prune(rule);
  }
  // The n rows from `row` on, in order; `place_of(row)` is a row's place. Most are worse than the k
  // best so far: many at a time are turned away.
  template <class PlaceOf>
  void add_rows(const TopRule& rule, const Batch& batch, uint32_t row, uint32_t n,
                PlaceOf place_of) {
    const Column& by = batch.columns[size_t(rule.by)];
    const bool numbers = is_fixed64(by.type) && !by.validity;
    for (const uint32_t end = row + n; row < end;) {
      const uint32_t many = std::min(kMany, end - row);
      const bool any =
          !numbers || !full_ ||
          (by.type == Type::Float64
               ? any_as_good(reinterpret_cast<const double*>(by.data) + row, many,
                             std::bit_cast<double>(rule.bits(last_rank_)), rule)
               : any_as_good(by.i64() + row, many, int64_t(rule.bits(last_rank_)), rule));
      for (uint32_t i = 0; any && i < many; ++i) add(rule, batch, row + i, place_of(row + i));
      row += many;
    }
  }
  void add_all(const TopRule& rule, const TopRows& other) {
    rows_.insert(rows_.end(), other.rows_.begin(), other.rows_.end());
    prune(rule);
  }

  // Calls begin(), then gives each column its value, for each of the top rows in order.
  template <class Begin>
  void emit(const TopRule& rule, std::vector<GrowingColumn>& out, Begin begin) {
    prune(rule);
    for (const RankedRow& r : rows_) {
      begin();
      const char* at = r.packed.data();
      for (size_t c = 0; c < rule.types.size(); ++c) at = unpack(rule.types[c], at, out[c]);
    }
  }

  void write(GroupWriter& out) const {
    out.word(rows_.size());
    for (const RankedRow& r : rows_) {
      out.word(r.place);
      out.text(r.packed);
    }
  }
  void read(const TopRule& rule, GroupReader& in) {
    const uint64_t n = in.word();
    for (uint64_t i = 0; i < n && in.ok(); ++i) {
      RankedRow r;
      r.place = in.word();
      r.packed = in.text();
      if (in.ok() && !settle(rule, r)) in.fail();
      rows_.push_back(std::move(r));
    }
    if (in.ok()) prune(rule);
  }

 private:
  static constexpr size_t kSpare = 16;
  static constexpr uint32_t kMany = 128;
  struct RankedRow {
    int64_t rank = 0;
    uint64_t place = 0;
    uint32_t by_at = 0, by_size = 0;  // the value ranked by, where it is a text
    std::string packed;               // by column: 1 if null, else 0 and 8 bytes or size and bytes
  };

  // False: all of n values are worse than another one. NaN counts as good.
  template <class T>
  static bool any_as_good(const T* values, uint32_t n, T than, const TopRule& rule) {
    uint64_t worse = 0;
    if (rule.greatest) {
      for (uint32_t i = 0; i < n; ++i) worse += values[i] < than;
    } else {
      for (uint32_t i = 0; i < n; ++i) worse += values[i] > than;
    }
    return worse < n;
  }
  static uint64_t value(const Column& c, uint32_t row) {
    if (c.type == Type::Bool) return c.boolean(row);
    uint64_t bits;
    std::memcpy(&bits, c.data + 8 * size_t(row), 8);
    return bits;
  }
  static std::string_view by_text(const RankedRow& r) {
    return {r.packed.data() + r.by_at, r.by_size};
  }

  static void pack(const TopRule& rule, size_t column, const Column& c, uint32_t row,
                   RankedRow& r) {
    const bool null = !c.valid(row);
    r.packed.push_back(char(null));
    if (null) return;
    if (is_varlen(c.type)) {
      const auto size = uint32_t(c.size(row));
      r.packed.append(reinterpret_cast<const char*>(&size), 4);
      if (int(column) == rule.by) {
        r.by_at = uint32_t(r.packed.size());
        r.by_size = size;
      }
      r.packed.append(c.bytes(row), size);
    } else {
      const uint64_t bits = value(c, row);
      r.packed.append(reinterpret_cast<const char*>(&bits), 8);
    }
  }
  static const char* unpack(Type type, const char* at, GrowingColumn& out) {
    if (*at++) {
      out.null();
    } else if (is_varlen(type)) {
      uint32_t size;
      std::memcpy(&size, at, 4);
      out.text({at + 4, size});
      at += 4 + size_t(size);
    } else {
      uint64_t bits;
      std::memcpy(&bits, at, 8);
      out.word(bits);
      at += 8;
    }
    return at;
  }
  // Finds the rank in a packed row that came from elsewhere; false: it is no row.
  static bool settle(const TopRule& rule, RankedRow& r) {
    const auto* from = reinterpret_cast<const uint8_t*>(r.packed.data());
    GroupReader in(from, from + r.packed.size());
    for (size_t c = 0; c < rule.types.size(); ++c) {
      const bool by = int(c) == rule.by;
      const uint8_t null = in.byte();
      if (null > 1 || (null && by)) return false;
      if (null) continue;
      if (is_varlen(rule.types[c])) {
        const std::string_view text = in.text();
        if (by && in.ok()) {
          r.by_at = uint32_t(text.data() - r.packed.data());
          r.by_size = uint32_t(text.size());
        }
      } else {
        const uint64_t bits = in.word();
        if (by) r.rank = rule.rank(bits);
      }
    }
    return in.at_end();
  }

  // Negative: a is better by its value alone.
  static int compare(const TopRule& rule, const RankedRow& a, const RankedRow& b) {
    if (!rule.by_text()) return a.rank > b.rank ? -1 : a.rank < b.rank;
    const int order = by_text(a).compare(by_text(b));
    return rule.greatest ? -order : order;
  }
  // Leaves the top rows, in order.
  void prune(const TopRule& rule) {
    std::stable_sort(rows_.begin(), rows_.end(), [&](const RankedRow& a, const RankedRow& b) {
      const int order = compare(rule, a, b);
      return order ? order < 0 : a.place < b.place;
    });
    size_t keep = std::min(rows_.size(), size_t(rule.k));
    full_ = keep == size_t(rule.k);
    if (full_) {
      last_ = keep - 1;
      last_rank_ = rows_[last_].rank;
      if (rule.ties) {
        while (keep < rows_.size() && compare(rule, rows_[last_], rows_[keep]) == 0) ++keep;
      }
      rows_.erase(rows_.begin() + ptrdiff_t(keep), rows_.end());
    }
    room_ = std::max(2 * rows_.size(), size_t(rule.k) + kSpare);
  }

  std::vector<RankedRow> rows_;
  size_t room_ = kSpare;
  bool full_ = false;  // there are k; the last of them is rows_[last_]
  size_t last_ = 0;
  int64_t last_rank_ = 0;
};

}  // namespace plait
