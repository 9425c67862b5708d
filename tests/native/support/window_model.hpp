// Windows as plain loops over all rows ever seen: what the lane operators must give, mark by mark
// and row by row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "window_samples.hpp"

namespace plait::testing {

using Rows = std::vector<Row>;

struct Expected {
  struct At {
    int64_t position;
    std::string text;
  };
  std::vector<At> rows;
  int64_t late = 0, left_out = 0;
};

inline double number(const Value& v, Type type) {
  return type == Type::Float64 ? std::bit_cast<double>(v.bits) : double(int64_t(v.bits));
}

// Negative: a is less. NaN is no argument.
inline int compare_values(const Value& a, const Value& b, Type type) {
  if (is_varlen(type)) return a.text.compare(b.text);
  if (type == Type::Float64) {
    const double x = number(a, type), y = number(b, type);
    return x < y ? -1 : x > y;
  }
  return int64_t(a.bits) < int64_t(b.bits) ? -1 : int64_t(a.bits) > int64_t(b.bits);
}

inline bool is_nan(const Value& v, Type type) {
  return type == Type::Float64 && number(v, type) != number(v, type);
}

// Sums are taken pane by pane; `width` 0: there is one.
inline Value sum_of(const Rows& rows, int column, Type type, bool mean, int64_t width,
                    int64_t offset) {
  std::map<int64_t, std::pair<double, uint64_t>> panes;
  int64_t seen = 0;
  for (const Row& row : rows) {
    const Value& v = row.values[size_t(column)];
    if (v.null) continue;
    ++seen;
    const int64_t pane = width ? floor_div(row.time() - offset, width) : 0;
    const auto found = panes.find(pane);
    const double x = number(v, type);
    const uint64_t n = v.bits;
    if (found == panes.end()) {
      panes[pane] = {x, n};
    } else {
      found->second.first += x;
      found->second.second += n;
    }
  }
  if (!seen) return {};
  double sum = 0;
  uint64_t whole = 0;
  bool first = true;
  for (const auto& [pane, part] : panes) {
    sum = first ? part.first : sum + part.first;
    whole += part.second;
    first = false;
  }
  if (mean) return {false, std::bit_cast<uint64_t>(sum / double(seen)), {}};
  return {false, type == Type::Float64 ? std::bit_cast<uint64_t>(sum) : whole, {}};
}

inline Value result_of(const AggregateSpec& a, const Rows& rows, int64_t width, int64_t offset) {
  using K = AggregateKind;
  if (a.input < 0) return {false, rows.size(), {}};
  if (a.kind == K::Sum || a.kind == K::Mean) {
    return sum_of(rows, a.input, a.type, a.kind == K::Mean, width, offset);
  }
  std::vector<Value> values;
  for (const Row& row : rows) {
    const Value& v = row.values[size_t(a.input)];
    if (!v.null) values.push_back(v);
  }
  if (a.kind == K::Count) return {false, values.size(), {}};
  if (a.kind == K::Distinct) {
    std::set<std::string> different;
    for (const Value& v : values) different.insert(show(v, a.type));
    return {false, different.size(), {}};
  }
  if (values.empty()) return {};
  if (a.kind == K::First) return values.front();
  if (a.kind == K::Last) return values.back();
  Value best = values.front();
  for (const Value& v : values) {
    if (is_nan(v, a.type)) continue;
    const int order = is_nan(best, a.type) ? 0 : compare_values(v, best, a.type);
    const bool better = a.kind == K::Min ? order < 0 : order > 0;
    if (better || is_nan(best, a.type)) best = v;
  }
  return best;
}

class Model {
 public:
  explicit Model(const TimedSpec& spec) : spec_(spec) {}
  virtual ~Model() = default;
  // A row comes at a position, when the watermark is `now`.
  virtual void take(const Row& row, int64_t position, int64_t now) = 0;
  // The watermark has risen from `before` to `now`, at a mark.
  virtual void due(int64_t position, int64_t before, int64_t now) = 0;

  Expected out;

 protected:
  using Key = std::vector<Value>;

  Key key_of(const Row& row) const {
    Key key;
    for (int k : spec_.key_columns) key.push_back(row.values[size_t(k)]);
    return key;
  }
  std::string show_key(const Key& key) const {
    std::string text;
    for (size_t k = 0; k < key.size(); ++k) text += show(key[k], spec_.out_types[k]) + "|";
    return text;
  }
  std::string show_results(const Rows& rows, int64_t width) const {
    std::string text;
    const size_t first = spec_.out_types.size() - spec_.aggregates.size();
    for (size_t i = 0; i < spec_.aggregates.size(); ++i) {
      const Value v = result_of(spec_.aggregates[i], rows, width, spec_.offset);
      text += show(v, spec_.out_types[first + i]) + "|";
    }
    return text;
  }
  static std::string show_row(const Row& row) {
    std::string text;
    for (size_t c = 0; c < kColumns; ++c) text += show(row.values[c], kTypes[c]) + "|";
    return text;
  }
  // The rows of one key and window as they come out.
  void give(const Key& key, const Rows& rows, int64_t start, int64_t end, int64_t position) {
    const auto add = [&](const std::string& text) { out.rows.push_back({position, text}); };
    const std::string window = std::to_string(start) + "|" + std::to_string(end) + "|";
    if (spec_.kind == TimedSpec::Kind::Window) {
      const bool grid = spec_.within == TimedSpec::Within::Grid;
      const int64_t width = !grid                           ? 0
                            : spec_.size % spec_.every == 0 ? spec_.every
                                                            : std::gcd(spec_.size, spec_.every);
      return add(show_key(key) + window + show_results(rows, width));
    }
    const Type type = kTypes[size_t(spec_.by)];
    const auto by = [&](const Row& row) -> const Value& { return row.values[size_t(spec_.by)]; };
    Rows best;
    for (const Row& row : rows) {
      if (!by(row).null && !is_nan(by(row), type)) best.push_back(row);
    }
    std::stable_sort(best.begin(), best.end(), [&](const Row& a, const Row& b) {
      const int order = compare_values(by(a), by(b), type);
      return spec_.greatest ? order > 0 : order < 0;
    });
    for (size_t i = 0; i < best.size(); ++i) {
      const auto last = size_t(spec_.k - 1);
      const bool tie = spec_.ties && i > last && !compare_values(by(best[last]), by(best[i]), type);
      if (i > last && !tie) break;
      const bool given = spec_.within == TimedSpec::Within::Given;
      add(show_row(best[i]) + (given ? "" : window));
    }
  }
  bool fires(int64_t before, int64_t now) const {
    if (!spec_.early || now == kAllTime) return false;
    if (before == kNoTime) return true;
    return floor_div(before, spec_.early) < floor_div(now, spec_.early);
  }
  bool over(int64_t end, int64_t now) const { return end + spec_.lateness <= now; }

  const TimedSpec& spec_;
};

// A record's windows: pairs of end and start, the earliest first.
inline std::vector<std::pair<int64_t, int64_t>> windows_of(const TimedSpec& spec, const Row& row) {
  std::vector<std::pair<int64_t, int64_t>> windows;
  if (spec.within == TimedSpec::Within::Given) {
    if (row.values[kStart].null) return windows;
    windows.push_back({int64_t(row.values[kEnd].bits), int64_t(row.values[kStart].bits)});
    return windows;
  }
  const int64_t last = floor_div(row.time() - spec.offset, spec.every) * spec.every + spec.offset;
  for (int64_t start = last; start > row.time() - spec.size; start -= spec.every) {
    windows.push_back({start + spec.size, start});
  }
  std::reverse(windows.begin(), windows.end());
  return windows;
}

class GridModel : public Model {
 public:
  using Model::Model;

  void take(const Row& row, int64_t position, int64_t now) override {
    const auto windows = windows_of(spec_, row);
    bool taken = false;
    for (const auto& w : windows) {
      if (over(w.first, now)) continue;
      taken = true;
      Group& group = add(windows_[w], row);
      group.changed = w.first > now;
      if (!group.changed) give(group.key, group.rows, w.second, w.first, position);
    }
    out.left_out += windows.empty();
    out.late += !windows.empty() && !taken;
  }

  void due(int64_t position, int64_t before, int64_t now) override {
    const bool early = fires(before, now);
    using Due = std::tuple<int64_t, uint64_t, int64_t, Group*>;  // end, place, start
    std::vector<Due> due;
    for (auto& [w, window] : windows_) {
      const bool ends = w.first > before && w.first <= now;
      for (Group& group : window) {
        const bool open = early && w.first > now && group.changed;
        if (ends || open) due.push_back({w.first, group.rows.front().place, w.second, &group});
      }
    }
    std::sort(due.begin(), due.end());
    for (auto& [end, place, start, group] : due) {
      give(group->key, group->rows, start, end, position);
      group->changed = false;
    }
    std::erase_if(windows_, [&](const auto& w) { return over(w.first.first, now); });
  }

 private:
  struct Group {
    Key key;
    Rows rows;
    bool changed = true;
  };
  Group& add(std::vector<Group>& window, const Row& row) {
    const Key key = key_of(row);
    auto found = std::find_if(window.begin(), window.end(),
                              [&](const Group& group) { return group.key == key; });
    if (found == window.end()) found = window.insert(found, {key, {}});
    found->rows.push_back(row);
    return *found;
  }
  std::map<std::pair<int64_t, int64_t>, std::vector<Group>> windows_;
};

class SessionModel : public Model {
 public:
  using Model::Model;

  void take(const Row& row, int64_t position, int64_t now) override {
    if (over(row.time() + spec_.gap, now)) {
      ++out.late;
      return;
    }
    Session& s = add(row);
    s.changed = s.end > now;
    if (!s.changed) give(s.key, s.rows, s.start, s.end, position);
  }

  void due(int64_t position, int64_t before, int64_t now) override {
    std::sort(sessions_.begin(), sessions_.end(), [](const Session& a, const Session& b) {
      return std::pair(a.end, a.rows.front().place) < std::pair(b.end, b.rows.front().place);
    });
    const bool early = fires(before, now);
    for (Session& s : sessions_) {
      const bool ends = s.end > before && s.end <= now;
      if (!ends && !(early && s.end > now && s.changed)) continue;
      give(s.key, s.rows, s.start, s.end, position);
      s.changed = false;
    }
    std::erase_if(sessions_, [&](const Session& s) { return over(s.end, now); });
  }

 private:
  struct Session {
    Key key;
    int64_t start, end;
    Rows rows;
    bool changed = true;
  };
  Session& add(const Row& row) {
    Session joined{key_of(row), row.time(), row.time() + spec_.gap, {row}};
    std::erase_if(sessions_, [&](const Session& s) {
      const int64_t t = row.time();
      if (s.key != joined.key || s.end <= t || s.start >= t + spec_.gap) return false;
      joined.start = std::min(joined.start, s.start);
      joined.end = std::max(joined.end, s.end);
      joined.rows.insert(joined.rows.end(), s.rows.begin(), s.rows.end());
      return true;
    });
    std::sort(joined.rows.begin(), joined.rows.end(),
              [](const Row& a, const Row& b) { return a.place < b.place; });
    sessions_.push_back(joined);
    return sessions_.back();
  }
  std::vector<Session> sessions_;
};

class LastModel : public Model {
 public:
  using Model::Model;

  void take(const Row& row, int64_t position, int64_t now) override {
    const bool running = spec_.kind == TimedSpec::Kind::Running;
    const bool each = spec_.kind == TimedSpec::Kind::Last || running;
    const auto n = running ? SIZE_MAX : size_t(each ? spec_.k : spec_.size);
    const auto every = size_t(each ? 1 : spec_.every);
    Of& of = keys_[key_of(row)];
    if (spec_.ttl && of.last + spec_.ttl < std::max(now, row.time())) of.rows.clear();
    of.last = of.rows.empty() ? row.time() : std::max(of.last, row.time());
    of.rows.push_back(row);
    const Rows& all = of.rows;
    if (!each && (all.size() < n || all.size() % every != 0)) return;
    const Rows last(all.end() - ptrdiff_t(std::min(n, all.size())), all.end());
    out.rows.push_back({position, show_key(key_of(row)) + show_results(last, 0)});
  }
  void due(int64_t, int64_t, int64_t) override {}

 private:
  struct Of {
    Rows rows;
    int64_t last = 0;
  };
  std::map<Key, Of> keys_;
};

class LateModel : public Model {
 public:
  using Model::Model;

  void take(const Row& row, int64_t position, int64_t now) override {
    bool late = over(row.time() + spec_.gap, now);
    if (spec_.within == TimedSpec::Within::Grid) {
      late = true;
      for (const auto& w : windows_of(spec_, row)) late = late && over(w.first, now);
    }
    if (late) out.rows.push_back({position, show_row(row)});
    out.left_out += !late;
  }
  void due(int64_t, int64_t, int64_t) override {}
};

inline std::unique_ptr<Model> make_model(const TimedSpec& spec) {
  using W = TimedSpec::Within;
  if (spec.kind == TimedSpec::Kind::Late) return std::make_unique<LateModel>(spec);
  const bool running = spec.kind == TimedSpec::Kind::Running;
  if (running || spec.kind == TimedSpec::Kind::Last ||
      (spec.kind == TimedSpec::Kind::Window && spec.within == W::Rows)) {
    return std::make_unique<LastModel>(spec);
  }
  if (spec.within == W::Session) return std::make_unique<SessionModel>(spec);
  return std::make_unique<GridModel>(spec);
}

}  // namespace plait::testing
