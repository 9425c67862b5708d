// The joins and spans of the tests in the plainest way: vectors of rows, walked from the front,
// mark by mark and row by row.
//
// A row has both sides' fields; the columns of its own side are set, the others are null in the
// batch. Results are texts, so that they can be compared and printed. Any thread, nothing shared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/time/timed_spec.hpp"

namespace plait::testing {

// The columns of the united stream.
enum Col {
  kSide,
  kKey,
  kText,
  kLeftTime,
  kLeftA,
  kLeftB,
  kLeftEnd,
  kRightTime,
  kRightA,
  kRightC,
  kRightB,
  kLeftStart,
  kCols
};

struct Row {
  int side = 0;
  std::optional<int64_t> key;
  std::optional<std::string> text;
  int64_t time = 0, start = 0, end = 0;
  std::optional<int64_t> a;
  std::optional<std::string> b;
  bool c = false;
  uint64_t place = 0;
};

struct Made {
  int64_t position;
  bool at_once;
  int64_t time;
  uint64_t place;
  std::string row;
};

inline std::string show(const std::optional<int64_t>& v) { return v ? std::to_string(*v) : "-"; }
inline std::string show(const std::optional<std::string>& v) { return v ? "'" + *v + "'" : "-"; }
inline std::string show(double v) { return "f" + std::to_string(v); }
inline std::string show_left(const Row& r) {
  return std::to_string(r.time) + " " + show(r.a) + " " + show(r.b) + " " + std::to_string(r.end) +
         " ";
}
inline std::string show_right(const Row& r) {
  return std::to_string(r.time) + " " + (r.a ? show(double(*r.a) / 4) : "-") + " " +
         std::to_string(int(r.c)) + " " + show(r.b) + " ";
}
inline const char* kNoRight = "- - - - ";

class Model {
 public:
  explicit Model(const TimedSpec& spec) : spec_(spec) {}

  std::vector<Made> made;
  int64_t late = 0, left_out = 0;

  // A row comes at a position, when the watermark is `now`.
  void take(const Row& row, int64_t position, int64_t now) {
    position_ = position;
    now_ = now;
    if (spec_.how == How::Late) {
      take_late(row);
    } else if (spec_.kind == TimedSpec::Kind::Span) {
      take_span(row);
    } else if (spec_.within == Within::AsOf) {
      take_as_of(row);
    } else {
      take_pair(row);
    }
  }
  // The watermark has risen to `now`, at a mark.
  void due(int64_t position, int64_t now) {
    position_ = position;
    now_ = now;
    const size_t from = made.size();
    if (spec_.kind == TimedSpec::Kind::Span) {
      end_spans();
    } else if (spec_.within == Within::AsOf) {
      end_as_of();
    } else {
      end();
    }
    std::sort(made.begin() + ptrdiff_t(from), made.end(), [](const Made& x, const Made& y) {
      return std::pair(x.time, x.place) < std::pair(y.time, y.place);
    });
  }

 private:
  using Within = TimedSpec::Within;
  using How = TimedSpec::How;
  struct Kept {
    Row row;
    bool matched = false, out = false;
    std::vector<Row> rights = {};
  };

  bool key_null(const Row& r) const {
    for (int k : spec_.key_columns) {
      if (k == kKey ? !r.key : !r.text) return true;
    }
    return false;
  }
  bool same_key(const Row& x, const Row& y) const {
    if (key_null(x) || key_null(y)) return false;
    for (int k : spec_.key_columns) {
      if (k == kKey ? *x.key != *y.key : *x.text != *y.text) return false;
    }
    return true;
  }

  std::vector<int64_t> windows(int64_t t) const {
    std::vector<int64_t> starts;
    const int64_t middle = (t - spec_.offset) / spec_.every;
    for (int64_t n = middle - spec_.size - 2; n <= middle + 2; ++n) {
      const int64_t s = spec_.offset + n * spec_.every;
      if (s <= t && t < s + spec_.size) starts.push_back(s);
    }
    return starts;
  }
  // The last time at which the record can match, inclusive.
  int64_t last(const Row& r) const {
    if (spec_.within == Within::Grid) return windows(r.time).back() + spec_.size - 1;
    if (spec_.within == Within::Between) {
      return r.side == 0 ? r.time + spec_.high : r.time - spec_.low;
    }
    return spec_.ttl ? r.time + spec_.ttl : kAllTime;
  }
  bool over(const Row& r) const {
    const int64_t l = last(r);
    return l == kAllTime ? now_ == kAllTime : l < now_;
  }
  int64_t pairs(const Row& l, const Row& r) const {
    if (spec_.within == Within::Grid) {
      int64_t n = 0;
      for (int64_t a : windows(l.time)) {
        for (int64_t b : windows(r.time)) n += a == b && a + spec_.size > now_;
      }
      return n;
    }
    if (spec_.within == Within::Between) {
      return r.time - l.time >= spec_.low && r.time - l.time <= spec_.high;
    }
    return 1;
  }

  void at_once(uint64_t place, const std::string& row) {
    made.push_back({position_, true, 0, place, row});
  }
  void later(int64_t time, uint64_t place, const std::string& row) {
    made.push_back({position_, false, time, place, row});
  }
  // One that is not behind the watermark is in time, even if all that it could meet is over.
  bool is_late(const Row& row) const {
    if (spec_.within == Within::AsOf) return row.time < now_;
    return over(row) && (spec_.within != Within::Between || row.time < now_);
  }
  void take_late(const Row& row) {
    if (row.side == 0 && is_late(row)) {
      at_once(row.place, show_left(row));
    } else {
      ++left_out;
    }
  }

  void take_pair(const Row& row) {
    if (is_late(row)) {
      ++late;
      return;
    }
    const bool alone_too = row.side == 0 && (spec_.how == How::Left || spec_.how == How::Anti);
    if (key_null(row) && !alone_too) {
      ++left_out;
      return;
    }
    Kept kept{row};
    auto& others = row.side ? lefts_ : rights_;
    for (Kept& other : others) {
      if (!same_key(row, other.row) || over(other.row)) continue;
      const Row& l = row.side ? other.row : row;
      const Row& r = row.side ? row : other.row;
      Kept& left = row.side ? other : kept;
      for (int64_t n = pairs(l, r); n > 0; --n) {
        const bool first = !left.matched;
        left.matched = true;
        if (spec_.how == How::Anti || (spec_.how == How::Semi && !first)) continue;
        at_once(row.place, show_left(l) + (spec_.how == How::Semi ? "" : show_right(r)));
      }
    }
    if (alone_too && over(row)) {
      kept.out = true;
      if (!kept.matched) at_once(row.place, alone(row));
    }
    (row.side ? rights_ : lefts_).push_back(kept);
  }
  void end() {
    for (Kept& k : lefts_) {
      if (k.out || !over(k.row)) continue;
      k.out = true;
      if (k.matched || (spec_.how != How::Left && spec_.how != How::Anti)) continue;
      later(last(k.row), k.row.place, alone(k.row));
    }
  }
  std::string alone(const Row& left) const {
    return show_left(left) + (spec_.how == How::Left ? kNoRight : "");
  }

  void take_as_of(const Row& row) {
    const bool gone =
        row.side ? spec_.tolerance && row.time + spec_.tolerance < now_ : is_late(row);
    if (gone) {
      ++late;
      return;
    }
    (row.side ? rights_ : lefts_).push_back({row});
  }
  void end_as_of() {
    for (Kept& k : lefts_) {
      if (k.out || k.row.time >= now_) continue;
      k.out = true;
      const Row* best = nullptr;
      for (const Kept& r : rights_) {
        const bool near = !spec_.tolerance || r.row.time >= k.row.time - spec_.tolerance;
        if (!same_key(k.row, r.row) || r.row.time > k.row.time || !near) continue;
        if (!best || r.row.time >= best->time) best = &r.row;
      }
      if (spec_.how == How::Anti ? best != nullptr : spec_.how != How::Left && !best) continue;
      std::string right;
      if (spec_.how == How::Inner || spec_.how == How::Left) {
        right = best ? show_right(*best) : kNoRight;
      }
      later(k.row.time, k.row.place, show_left(k.row) + right);
    }
  }

  void take_span(const Row& row) {
    if (row.side == 0 && std::max(row.end, row.time) < now_) {
      ++late;
      return;
    }
    const auto in = [&](const Row& l, const Row& r) {
      return same_key(l, r) && l.start <= r.time && r.time <= l.end;
    };
    if (row.side) {
      for (Kept& k : lefts_) {
        if (!k.out && in(k.row, row)) k.rights.push_back(row);
      }
      rights_.push_back({row});
      return;
    }
    Kept kept{row};
    for (const Kept& r : rights_) {
      if (r.row.time + spec_.wait >= now_ && in(row, r.row)) kept.rights.push_back(r.row);
    }
    kept.out = row.end < now_;
    if (kept.out && gives(kept)) at_once(row.place, span(kept));
    lefts_.push_back(kept);
  }
  void end_spans() {
    for (Kept& k : lefts_) {
      if (k.out || k.row.end >= now_) continue;
      k.out = true;
      if (gives(k)) later(k.row.end, k.row.place, span(k));
    }
  }
  bool gives(const Kept& k) const { return spec_.empty || !k.rights.empty(); }
  std::string span(const Kept& k) const {
    std::string row = show_left(k.row);
    for (const AggregateSpec& a : spec_.aggregates) row += result(a, k.rights) + " ";
    return row;
  }
  static std::string result(const AggregateSpec& spec, const std::vector<Row>& rows) {
    using K = AggregateKind;
    if (spec.kind == K::Count && spec.input < 0) return std::to_string(rows.size());
    if (spec.input == kRightB) return result_of<std::string>(spec, rows);
    if (spec.input == kRightC) return result_of<bool>(spec, rows);
    return result_of<double>(spec, rows);
  }
  static std::string text_of(const std::string& v) { return "'" + v + "'"; }
  static std::string text_of(double v) { return show(v); }
  static std::string text_of(bool v) { return std::to_string(int(v)); }
  template <class T>
  static std::string result_of(const AggregateSpec& spec, const std::vector<Row>& rows) {
    using K = AggregateKind;
    std::vector<T> values;
    for (const Row& r : rows) {
      if constexpr (std::is_same_v<T, std::string>) {
        if (r.b) values.push_back(*r.b);
      } else if constexpr (std::is_same_v<T, double>) {
        if (r.a) values.push_back(double(*r.a) / 4);
      } else {
        values.push_back(r.c);
      }
    }
    if (spec.kind == K::Count) return std::to_string(values.size());
    if (values.empty()) return "-";
    switch (spec.kind) {
      case K::Min:
        return text_of(T(*std::min_element(values.begin(), values.end())));
      case K::Max:
        return text_of(T(*std::max_element(values.begin(), values.end())));
      case K::First:
        return text_of(T(values.front()));
      case K::Last:
        return text_of(T(values.back()));
      default:
        break;
    }
    if constexpr (std::is_same_v<T, std::string>) {
      return "?";
    } else {
      double sum = 0;
      for (const auto v : values) sum += double(v);
      if (spec.kind == K::Mean) return show(sum / double(values.size()));
      return std::is_same_v<T, bool> ? std::to_string(int64_t(sum)) : show(sum);
    }
  }

  const TimedSpec& spec_;
  int64_t position_ = 0, now_ = kNoTime;
  std::vector<Kept> lefts_, rights_;
};

}  // namespace plait::testing
