// The parts of an epoch from several nodes, put together: against a stable sort of all their rows.
//
// Random parts of every kind of column: tags dense, with gaps, or repeated and numbered by subs;
// slices of larger columns, nulls, empty texts. Inputs of a union: some of an event-time operator,
// whose rows are at marks or at records. Arguments: cases, seed, a planted fault.
namespace plait {
inline int seeded_fault = 0;  // see test_native_time.py
}

#include "plait/columns/merge_parts.hpp"

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <tuple>

#include "check.hpp"

namespace {

using namespace plait;

constexpr Type kTypes[] = {Type::Int64,  Type::Float64,   Type::Bool,
                           Type::String, Type::Timestamp, Type::Bytes};

// A row as text, column by column; and its place: row number, sub.
struct Row {
  int64_t number = 0;
  uint64_t sub = 0;
  std::vector<std::string> values;
  bool operator==(const Row&) const = default;
};

class Case {
 public:
  explicit Case(uint64_t seed) : rng_(seed) {}

  void run() {
    const size_t nodes = 1 + below(4);
    const bool with_subs = below(3) == 0;
    const bool unique = !with_subs && below(4) != 0;
    const bool slices = below(4) == 0;  // each node has its own run of rows
    for (size_t c = 1 + below(4); c > 0; --c) types_.push_back(kTypes[below(std::size(kTypes))]);
    const int64_t first = int64_t(below(1000));
    std::vector<std::vector<Row>> dealt(nodes);
    const size_t n = below(60);
    int64_t number = first;
    for (size_t i = 0; i < n; ++i) {
      Row row;
      row.number = number;
      row.sub = with_subs ? next_sub_ : 0;
      row.values = random_values();
      // Without subs, rows of one tag are all on one node: they stand as they were made.
      const bool again = !unique && i + 1 < n && below(3) == 0;
      const size_t to = slices ? i * nodes / n : with_subs || !sticky_ ? below(nodes) : last_;
      dealt[to].push_back(std::move(row));
      last_ = to;
      sticky_ = again;
      next_sub_ = again ? next_sub_ + 1 + below(3) : 0;
      if (!again) number += 1 + (gaps_ ? int64_t(below(3)) : 0);
      if (i == n / 2) gaps_ = below(2) == 0;
    }
    check(dealt, with_subs, unique, first);
  }

 private:
  uint64_t below(uint64_t n) { return rng_() % n; }

  std::vector<std::string> random_values() {
    std::vector<std::string> out;
    for (Type t : types_) {
      if (below(5) == 0) {
        out.emplace_back("null");
      } else if (t == Type::Bool) {
        out.emplace_back(below(2) ? "1" : "0");
      } else if (is_varlen(t)) {
        out.push_back("'" + std::string(below(6), char('a' + below(26))));
      } else {
        out.push_back(std::to_string(int64_t(rng_())));
      }
    }
    return out;
  }

  // The values with some others before and behind: a view of the middle.
  Column column_of(const std::vector<Row>& rows, size_t c) {
    const Type type = types_[c];
    const auto before = int64_t(below(9)), n = int64_t(rows.size());
    const int64_t all = before + n + int64_t(below(9));
    auto value = [&](int64_t i) -> std::string {
      if (i >= before && i < before + n) return rows[size_t(i - before)].values[c];
      return type == Type::Bool ? "1" : is_varlen(type) ? "'other" : "77";
    };
    Column out;
    out.type = type;
    out.length = all;
    bool nulls = below(4) == 0;
    for (int64_t i = before; i < before + n; ++i) nulls |= value(i) == "null";
    if (nulls) {
      out.validity_owner = BufferRef::zeroed(bit_bytes(all));
      for (int64_t i = 0; i < all; ++i) {
        if (value(i) != "null") set_bit(out.validity_owner.data(), i);
      }
      out.validity = out.validity_owner.data();
    }
    if (type == Type::Bool) {
      out.data_owner = BufferRef::zeroed(bit_bytes(all));
      for (int64_t i = 0; i < all; ++i) {
        if (value(i) == "1") set_bit(out.data_owner.data(), i);
      }
    } else if (is_varlen(type)) {
      std::string bytes;
      out.offsets_owner = BufferRef::make(4 * (all + 1));
      out.offsets_owner.as<int32_t>()[0] = 0;
      for (int64_t i = 0; i < all; ++i) {
        if (value(i) != "null") bytes += value(i).substr(1);
        out.offsets_owner.as<int32_t>()[i + 1] = int32_t(bytes.size());
      }
      out.offsets = out.offsets_owner.as<int32_t>();
      out.data_owner = BufferRef::make(int64_t(bytes.size()));
      std::copy(bytes.begin(), bytes.end(), out.data_owner.data());
    } else {
      out.data_owner = BufferRef::zeroed(8 * all);
      for (int64_t i = 0; i < all; ++i) {
        if (value(i) != "null") out.data_owner.as<int64_t>()[i] = std::stoll(value(i));
      }
    }
    out.data = out.data_owner.data();
    return out.slice(before, n);
  }

  Batch batch_of(const std::vector<Row>& rows, bool with_subs, int64_t first) {
    Batch b;
    b.length = int64_t(rows.size());
    for (size_t c = 0; c < types_.size(); ++c) b.columns.push_back(column_of(rows, c));
    bool dense = true;
    for (size_t i = 0; i < rows.size(); ++i) dense &= rows[i].number == rows[0].number + int64_t(i);
    b.first_row = dense || below(2) ? rows[0].number : first;
    if (!dense || below(4) == 0) {
      b.tags_owner = BufferRef::make(4 * b.length);
      for (size_t i = 0; i < rows.size(); ++i) {
        b.tags_owner.as<uint32_t>()[i] = uint32_t(rows[i].number - b.first_row);
      }
      b.tags = b.tags_owner.as<uint32_t>();
      if (below(2)) tags_to_bits(b);
    }
    // A node whose subs are all 0 need not say so.
    bool zero = true;
    for (const Row& r : rows) zero &= r.sub == 0;
    if (with_subs && !(zero && below(2))) {
      b.subs_owner = BufferRef::make(8 * b.length);
      for (size_t i = 0; i < rows.size(); ++i) b.subs_owner.as<uint64_t>()[i] = rows[i].sub;
      b.subs = b.subs_owner.as<uint64_t>();
    }
    return b;
  }

  // The tags as bits, if all are different, with some zeros on both sides.
  void tags_to_bits(Batch& b) {
    for (int64_t i = 1; i < b.length; ++i) {
      if (b.tags[i - 1] == b.tags[i]) return;
    }
    const auto first = uint32_t(below(b.tags[0] + 1));
    std::vector<uint32_t> rows;
    for (int64_t i = 0; i < b.length; ++i) rows.push_back(b.tags[i] - first);
    b.bits = TagBits::of(rows.data(), b.length, int64_t(rows.back() + 1 + below(200)));
    b.bits.first = first;
    b.tags = nullptr;
  }

  std::vector<Row> rows_of(const Batch& b) const {
    std::vector<Row> out;
    for (int64_t i = 0; i < b.length; ++i) {
      Row row;
      row.number = b.row_number(i);
      row.sub = b.subs ? b.subs[i] : 0;
      for (size_t c = 0; c < types_.size(); ++c) row.values.push_back(text_of(b.columns[c], i));
      out.push_back(std::move(row));
    }
    return out;
  }
  static std::string text_of(const Column& c, int64_t i) {
    if (!c.valid(i)) return "null";
    if (c.type == Type::Bool) return c.boolean(i) ? "1" : "0";
    if (is_varlen(c.type)) return "'" + std::string(c.bytes(i), size_t(c.size(i)));
    return std::to_string(c.i64()[i]);
  }

  void check(const std::vector<std::vector<Row>>& dealt, bool with_subs, bool unique,
             int64_t first) {
    std::vector<Batch> parts;
    std::vector<Row> want;
    for (const auto& rows : dealt) {
      if (rows.empty()) continue;  // the gather stage leaves empty parts out
      parts.push_back(batch_of(rows, with_subs, first));
      CHECK(rows_of(parts.back()) == rows);
      want.insert(want.end(), rows.begin(), rows.end());
    }
    if (parts.empty()) return;
    std::stable_sort(want.begin(), want.end(), [](const Row& a, const Row& b) {
      return std::tie(a.number, a.sub) < std::tie(b.number, b.sub);
    });
    const Batch merged = merge_parts(parts, unique);
    CHECK(merged.length == int64_t(want.size()));
    for (const Column& c : merged.columns) CHECK(c.length == merged.length);
    CHECK(rows_of(merged) == want);
  }

  // Rows of several inputs of a unit, by position, then input.
 public:
  void unite() {
    types_ = {Type::Int64};
    const int64_t base = int64_t(below(1000)), rows = 1 + int64_t(below(30));
    std::vector<Batch> parts;
    std::vector<Row> want;
    for (size_t input = 1 + below(4); input > 0; --input) {
      const bool halves = below(2);
      std::vector<Row> mine;
      for (int64_t at = 0; at <= 2 * rows; ++at) {
        if (at % 2 == 0 && !halves) continue;
        for (size_t n = below(3) ? 0 : 1 + below(2); n > 0; --n) {
          mine.push_back({at, 0, random_values()});
        }
      }
      if (mine.empty()) continue;
      parts.push_back(input_of(mine, halves, base, rows));
      want.insert(want.end(), mine.begin(), mine.end());
    }
    if (parts.empty()) return;
    std::stable_sort(want.begin(), want.end(),
                     [](const Row& a, const Row& b) { return a.number < b.number; });
    even_halves(parts);
    Batch merged = parts.size() > 1 ? merge_parts(parts, false) : parts[0];
    merged.base = base;
    CHECK(merged.length == int64_t(want.size()));
    for (int64_t i = 0; i < merged.length; ++i) {
      CHECK(merged.position(i) == want[size_t(i)].number);
      CHECK(merged.row_number(i) == base + want[size_t(i)].number / 2);
      CHECK(merged.half(i) == want[size_t(i)].number % 2);
      CHECK(text_of(merged.columns[0], i) == want[size_t(i)].values[0]);
    }
  }

 private:
  // `mine` by position; the rows of an input without halves are all of records.
  Batch input_of(const std::vector<Row>& mine, bool halves, int64_t base, int64_t rows) {
    Batch b;
    b.length = int64_t(mine.size());
    b.base = base;
    b.rows = rows;
    b.halves = halves;
    b.first_row =
        halves ? base : base + mine[0].number / 2 - int64_t(below(2)) * (mine[0].number / 2);
    b.columns.push_back(column_of(mine, 0));
    b.tags_owner = BufferRef::make(4 * b.length);
    for (int64_t i = 0; i < b.length; ++i) {
      const int64_t at = mine[size_t(i)].number;
      b.tags_owner.as<uint32_t>()[i] = uint32_t(halves ? at : base + at / 2 - b.first_row);
    }
    b.tags = b.tags_owner.as<uint32_t>();
    if (!halves && below(2)) tags_to_bits(b);
    return b;
  }

  std::mt19937_64 rng_;
  std::vector<Type> types_;
  size_t last_ = 0;
  bool sticky_ = false, gaps_ = false;
  uint64_t next_sub_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto cases = plait::testing::argument(argc, argv, 10'000);
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device()();
  plait::seeded_fault = argc > 3 ? std::atoi(argv[3]) : 0;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (unsigned long i = 0; i < cases; ++i) {
    plait::testing::story() = "seed " + std::to_string(seed + i) + ": ";
    Case(seed + i).run();
    Case(seed + i).unite();
  }
  std::printf("%lu cases\n", cases);
  return 0;
}
