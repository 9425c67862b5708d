// Random batches for the frame tests, and comparing what was sent with what came out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "plait/links/frame_codec.hpp"

namespace plait::testing {

using Random = std::mt19937_64;

inline int64_t below(Random& random, int64_t n) { return int64_t(random() % uint64_t(n)); }
inline bool chance(Random& random, int percent) { return below(random, 100) < percent; }

// A column of `n` values that begins `skip` values into its buffers.
inline Column random_column(Random& random, Type type, int64_t n, bool nulls) {
  const int64_t skip = below(random, 20), all = n + skip;
  Column c;
  c.type = type;
  c.length = all;
  if (nulls) {
    c.validity_owner = BufferRef::zeroed(bit_bytes(all));
    for (int64_t i = 0; i < all; ++i) {
      if (chance(random, 70)) set_bit(c.validity_owner.data(), i);
    }
    c.validity = c.validity_owner.data();
  }
  if (type == Type::Bool) {
    c.data_owner = BufferRef::zeroed(bit_bytes(all));
    for (int64_t i = 0; i < all; ++i) {
      if (chance(random, 50)) set_bit(c.data_owner.data(), i);
    }
  } else if (is_fixed64(type)) {
    c.data_owner = BufferRef::make(8 * all);
    // Every second column has values that agree in their high bits.
    const uint64_t above = random();
    const uint64_t low = chance(random, 50) ? ~uint64_t(0) : (uint64_t(1) << below(random, 40)) - 1;
    for (int64_t i = 0; i < all; ++i) {
      c.data_owner.as<uint64_t>()[i] = (above & ~low) | (random() & low);
    }
  } else {
    c.offsets_owner = BufferRef::make(4 * (all + 1));
    std::string text;
    for (int64_t i = 0; i <= all; ++i) {
      c.offsets_owner.as<int32_t>()[i] = int32_t(text.size());
      text.append(size_t(below(random, chance(random, 5) ? 300 : 12)), char('a' + i % 26));
    }
    c.offsets = c.offsets_owner.as<int32_t>();
    c.data_owner = BufferRef::make(int64_t(text.size()));
    std::memcpy(c.data_owner.data(), text.data(), text.size());
  }
  c.data = c.data_owner.data();
  return c.slice(skip, n);
}

// The tags as bits, if all are different, with some words of zeros on both sides.
inline void tags_to_bits(Batch& b, Random& random) {
  for (int64_t i = 1; i < b.length; ++i) {
    if (b.tags[i - 1] == b.tags[i]) return;
  }
  if (b.length == 0) return;
  const auto before = uint32_t(below(random, std::min<int64_t>(b.tags[0], 200) + 1));
  std::vector<uint32_t> from_zero;
  for (int64_t i = 0; i < b.length; ++i) from_zero.push_back(b.tags[i] - b.tags[0] + before);
  b.bits = TagBits::of(from_zero.data(), b.length, from_zero.back() + 1 + below(random, 200));
  b.bits.first = b.tags[0] - before;
  b.tags = nullptr;
}

// How far time is at some rows of the unit: a slice of them, or all.
inline ReachRef random_reach(Random& random) {
  const int64_t rows = 1 + below(random, 60);
  BufferRef times = BufferRef::make(8 * rows);
  const int64_t spread = chance(random, 50) ? 3 : 1'000'000'000'000;
  int64_t now = int64_t(random() >> below(random, 40)) / 4;
  for (int64_t i = 0; i < rows; ++i) {
    now += below(random, spread);
    times.as<int64_t>()[i] = chance(random, 80) ? now : now - below(random, spread);
    if (chance(random, 1)) times.as<int64_t>()[i] = chance(random, 50) ? INT64_MAX : INT64_MIN + 1;
  }
  const auto* from = times.as<int64_t>();
  auto reach = reach_of(from, rows, std::move(times), below(random, 1000));
  reach->whole = chance(random, 10);
  return reach;
}

// The same of rows that passed an operator: some of them, in pieces, and given at marks.
inline ReachRef random_pieces(Random& random) {
  const int64_t rows = 1 + below(random, 200);
  ReachWriter out(rows);
  const int64_t many = 1 + below(random, 100);
  int64_t now = int64_t(random() >> 20);
  for (int64_t row = 0; row <= rows; ++row) {
    now += below(random, 1000);
    for (int64_t n = chance(random, many) ? 1 + below(random, 3) : 0; n > 0; --n) {
      out.make(row, now - below(random, 500));
    }
    if (many < 30 && chance(random, many)) out.give(row, now);
  }
  auto reach = out.finish();
  if (chance(random, 20)) reach->ended = 2 * rows + 1 + below(random, 3);
  reach->whole = chance(random, 10);
  return reach;
}

inline Batch random_batch(Random& random, int64_t n, bool riders) {
  Batch b;
  b.length = n;
  b.epoch = random() >> below(random, 64);
  b.source = uint32_t(random());
  b.first_row = int64_t(random() >> 1 >> below(random, 63));
  b.ingest_ns = int64_t(random() >> 2);
  b.end = chance(random, 10);
  const int64_t columns = below(random, 5);
  for (int64_t c = 0; c < columns; ++c) {
    b.columns.push_back(random_column(random, Type(below(random, 7)), n, chance(random, 40)));
  }
  if (chance(random, 60)) {
    b.tags_owner = BufferRef::make(4 * n);
    const int64_t gap = 1 + below(random, chance(random, 50) ? 3 : 200);
    uint32_t tag = uint32_t(chance(random, 20) ? 0 : below(random, 1 << 20));
    for (int64_t i = 0; i < n; ++i) {
      b.tags_owner.as<uint32_t>()[i] = tag;
      tag += uint32_t(chance(random, 98) ? 1 + below(random, gap) : 0);
    }
    b.tags = b.tags_owner.as<uint32_t>();
    b.halves = chance(random, 40);
    if (chance(random, 40)) tags_to_bits(b, random);
  }
  for (uint32_t origin = 0; chance(random, 30); ++origin) {
    b.reach.push_back({origin, chance(random, 50) ? random_reach(random) : random_pieces(random)});
  }
  b.base = b.first_row - below(random, std::min<int64_t>(b.first_row, 100) + 1);
  b.rows = below(random, 1000);
  b.flow = Flow(below(random, 3));
  b.stamp = int64_t(random() >> 2);
  if (chance(random, 30)) {
    b.subs_owner = BufferRef::make(8 * n);
    for (int64_t i = 0; i < n; ++i) b.subs_owner.as<uint64_t>()[i] = random();
    b.subs = b.subs_owner.as<uint64_t>();
  }
  if (b.subs && chance(random, 50)) {  // on the way from an event-time operator
    b.times_owner = BufferRef::make(8 * n);
    for (int64_t i = 0; i < n; ++i) b.times_owner.as<int64_t>()[i] = int64_t(random());
    b.times = b.times_owner.as<int64_t>();
  }
  if (riders) {
    const auto letter = [&random] {
      Letter l;
      l.op = uint32_t(random());
      l.source = uint32_t(random());
      l.epoch = random();
      l.row = int64_t(random());
      l.time = int64_t(random());
      l.sub = random();
      l.half = chance(random, 50);
      l.kind = FailureKind(below(random, int64_t(kLastFailureKind) + 1));
      l.message = std::string(size_t(below(random, 400)), 'x');
      l.code = int32_t(random());
      l.record = random_batch(random, below(random, 2), false);
      return l;
    };
    if (chance(random, 20)) {
      b.letters = std::make_shared<std::vector<Letter>>();
      const int64_t letters = 1 + below(random, 4);
      for (int64_t i = 0; i < letters; ++i) b.letters->push_back(letter());
    }
    if (chance(random, 20)) {
      b.failure = std::make_shared<Failure>();
      b.failure->broken = chance(random, 50);
      b.failure->letter = letter();
    }
  }
  return b;
}

inline void check_column(const Column& a, const uint32_t* rows, const Column& b, int64_t n) {
  CHECK(a.type == b.type && b.length == n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = rows ? rows[i] : i;
    CHECK(a.valid(from) == b.valid(i));
    if (a.type == Type::Bool) {
      CHECK(a.boolean(from) == b.boolean(i));
    } else if (is_fixed64(a.type)) {
      CHECK(a.i64()[from] == b.i64()[i]);
    } else {
      CHECK(a.size(from) == b.size(i));
      CHECK(std::memcmp(a.bytes(from), b.bytes(i), size_t(b.size(i))) == 0);
    }
  }
}

// All nodes have what is whole: it is not sent.
inline void check_reach(const Batch& sent, const Batch& got) {
  for (const OriginReach& one : got.reach) CHECK(sent.reach_from(one.origin) && one.reach);
  for (const OriginReach& one : sent.reach) {
    const ReachRef a = one.reach, b = got.reach_from(one.origin);
    CHECK(!b == a->whole);
    if (!b) continue;
    CHECK(a->first == b->first && a->rows == b->rows && a->greatest == b->greatest && !b->whole);
    CHECK(a->ended == b->ended);
    CHECK(!a->high_times == !b->high_times && !a->given_times == !b->given_times);
    for (int64_t i = 0; i < a->rows; ++i) {
      CHECK(a->times[i] == b->times[i] && a->row_times[i] == b->row_times[i]);
      if (a->high_times) CHECK(a->high_times[i] == b->high_times[i]);
      if (a->given_times) CHECK(a->given_times[i] == b->given_times[i]);
    }
  }
}

inline void check_rows(const Batch& a, const uint32_t* rows, const Batch& b, int64_t n) {
  CHECK(b.length == n && a.epoch == b.epoch && a.source == b.source);
  CHECK(a.first_row == b.first_row && a.ingest_ns == b.ingest_ns && a.end == b.end);
  CHECK(a.columns.size() == b.columns.size() && !a.subs == !b.subs && !a.times == !b.times);
  CHECK(a.base == b.base && a.rows == b.rows && a.flow == b.flow && a.stamp == b.stamp);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = rows ? rows[i] : i;
    CHECK(a.row_number(from) == b.row_number(i));
    CHECK(a.position(from) == b.position(i));
    if (a.subs) CHECK(a.subs[from] == b.subs[i]);
    if (a.times) CHECK(a.times[from] == b.times[i]);
  }
  for (size_t c = 0; c < a.columns.size(); ++c) check_column(a.columns[c], rows, b.columns[c], n);
}

inline void check_letter(const Letter& a, const Letter& b) {
  CHECK(a.op == b.op && a.source == b.source && a.epoch == b.epoch && a.row == b.row);
  CHECK(a.time == b.time && a.sub == b.sub && a.kind == b.kind && a.half == b.half);
  CHECK(a.message == b.message && a.code == b.code && b.handle == -1);
  check_rows(a.record, nullptr, b.record, a.record.length);
}

inline void check_batch(const Batch& a, const uint32_t* rows, const Batch& b, int64_t n) {
  check_rows(a, rows, b, n);
  check_reach(a, b);
  CHECK(!a.failure == !b.failure);
  CHECK((a.letters ? a.letters->size() : 0) == (b.letters ? b.letters->size() : 0));
  if (b.letters) {
    for (size_t i = 0; i < b.letters->size(); ++i) check_letter((*a.letters)[i], (*b.letters)[i]);
  }
  if (a.failure) {
    CHECK(a.failure->broken == b.failure->broken);
    check_letter(a.failure->letter, b.failure->letter);
  }
}

// Some rows of a batch, ascending; every second time all of them, as null.
inline std::vector<uint32_t> some_rows(Random& random, int64_t n) {
  std::vector<uint32_t> rows;
  const int keep = int(below(random, 100));
  for (int64_t i = 0; i < n; ++i) {
    if (chance(random, keep)) rows.push_back(uint32_t(i));
  }
  return rows;
}

// The frame as it goes over the wire, in memory of exactly its size.
struct Wire {
  explicit Wire(const Encoded& e) : size(e.size) {
    auto* memory = new uint8_t[size_t(e.size)];
    std::memcpy(memory, e.bytes.data(), size_t(e.head));
    uint8_t* at = memory + e.head;
    for (const Encoded::Tail& tail : e.tails) {
      std::memset(at + padded8(tail.size) - 8, 0, 8);
      std::memcpy(at, tail.data, size_t(tail.size));
      at += padded8(tail.size);
    }
    CHECK(at == memory + e.size);
    owner = BufferRef::foreign(memory, memory, [](void* p) { delete[] static_cast<uint8_t*>(p); });
  }
  BufferRef owner;
  int64_t size;
};

inline Frame decoded(const Wire& wire) {
  Frame out;
  const std::string why = decode(wire.owner.data(), wire.size, wire.owner, FrameLimits(), out);
  if (!why.empty()) fail(why.c_str(), __FILE__, __LINE__);
  return out;
}

}  // namespace plait::testing
