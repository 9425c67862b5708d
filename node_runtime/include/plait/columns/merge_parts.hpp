// Several batches of one epoch and source as one: rows by their place in the order.
//
// Parts come from the inputs of a union or from the nodes of a job. Where they follow each other
// (each node read its own slice) they are put one after the other; where they interleave without
// gaps every row's place is its tag; otherwise they are merged row by row. Tags that come as bits
// stay bits where that is enough. Pure functions: any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/columns/row_bits.hpp"
#include "plait/columns/select.hpp"

namespace plait {

// The columns of several batches one behind the other.
inline Column concat_columns(const std::vector<const Column*>& parts, int64_t length) {
  Column out;
  out.type = parts[0]->type;
  out.length = length;
  bool nulls = false;
  int64_t bytes = 0;
  for (const Column* c : parts) {
    nulls |= c->validity != nullptr;
    if (is_varlen(c->type) && c->length) bytes += c->offsets[c->length] - c->offsets[0];
  }
  check_text(bytes);
  if (nulls) {
    out.validity_owner = BufferRef::zeroed(bit_bytes(length));
    int64_t at = 0;
    for (const Column* c : parts) {
      for (int64_t i = 0; i < c->length; ++i, ++at) {
        if (c->valid(i)) set_bit(out.validity_owner.data(), at);
      }
    }
    out.validity = out.validity_owner.data();
  }
  if (out.type == Type::Bool) {
    out.data_owner = BufferRef::zeroed(bit_bytes(length));
    int64_t at = 0;
    for (const Column* c : parts) {
      for (int64_t i = 0; i < c->length; ++i, ++at) {
        if (c->boolean(i)) set_bit(out.data_owner.data(), at);
      }
    }
  } else if (is_varlen(out.type)) {
    out.data_owner = BufferRef::make(bytes);
    out.offsets_owner = BufferRef::make(4 * (length + 1));
    auto* offsets = out.offsets_owner.as<int32_t>();
    int64_t at = 0;
    int32_t end = 0;
    offsets[0] = 0;
    for (const Column* c : parts) {
      if (c->length == 0) continue;
      const int32_t n = c->offsets[c->length] - c->offsets[0];
      std::memcpy(out.data_owner.data() + end, c->data + c->offsets[0], size_t(n));
      for (int64_t i = 0; i < c->length; ++i) {
        offsets[++at] = end + c->offsets[i + 1] - c->offsets[0];
      }
      end += n;
    }
    out.offsets = offsets;
  } else {
    out.data_owner = BufferRef::make(8 * length);
    int64_t at = 0;
    for (const Column* c : parts) {
      std::memcpy(out.data_owner.data() + 8 * at, c->data, size_t(8 * c->length));
      at += c->length;
    }
  }
  out.data = out.data_owner.data();
  return out;
}

// Sets the rows of a part whose tags are bits or dense; bit 0 is row `first`.
inline void add_rows(const Batch& p, int64_t first, uint64_t* words) {
  if (p.bits) {
    p.bits.add_to(words, p.first_row + p.bits.first - first);
  } else {
    set_bits(words, p.first_row - first, p.length);
  }
}

// The tags of parts that follow each other as bits, if that is what they have. A part's bits may
// go on, all 0, beyond its last row.
inline TagBits concat_bits(const std::vector<Batch>& parts) {
  bool any = false;
  int64_t end = 0;
  const int64_t first = parts[0].first_row;
  for (const Batch& p : parts) {
    if (p.tags || p.first_row < first) return {};
    any = any || p.bits;
    const int64_t rows = p.bits ? p.bits.first + p.bits.count * 64 : p.length;
    end = std::max(end, p.first_row - first + rows);
  }
  if (!any || end > int64_t(UINT32_MAX)) return {};
  int64_t length = 0;
  for (const Batch& p : parts) length += p.length;
  if (TagBits::words_for(end) * 8 > 4 * length) return {};  // a list is shorter
  TagBits out;
  out.count = TagBits::words_for(end);
  out.owner = BufferRef::zeroed(8 * (out.count + 1));
  for (const Batch& p : parts) add_rows(p, first, out.owner.as<uint64_t>());
  out.words = out.owner.as<uint64_t>();
  return out;
}

// One behind the other. Without `tags` they come out as if they were dense.
inline Batch concat_parts(const std::vector<Batch>& parts, bool tags = true) {
  Batch out;
  out.first_row = parts[0].first_row;
  out.halves = parts[0].halves;
  bool dense = true, subs = false;
  for (const Batch& p : parts) {
    dense = dense && !p.tags && !p.bits && p.first_row == out.first_row + out.length;
    subs = subs || p.subs;
    out.length += p.length;
  }
  for (size_t c = 0; c < parts[0].columns.size(); ++c) {
    std::vector<const Column*> columns;
    for (const Batch& p : parts) columns.push_back(&p.columns[c]);
    out.columns.push_back(concat_columns(columns, out.length));
  }
  if (!dense && tags) out.bits = concat_bits(parts);
  if (!dense && tags && !out.bits) {
    out.tags_owner = BufferRef::make(4 * out.length);
    auto* to = out.tags_owner.as<uint32_t>();
    for (const Batch& p : parts) {
      const auto shift = uint32_t(p.first_row - out.first_row);
      if (p.bits) {
        p.bits.each([&](uint32_t tag) { *to++ = shift + tag; });
        continue;
      }
      for (int64_t i = 0; i < p.length; ++i) *to++ = shift + (p.tags ? p.tags[i] : uint32_t(i));
    }
    out.tags = out.tags_owner.as<uint32_t>();
  }
  if (subs) {
    out.subs_owner = BufferRef::make(8 * out.length);
    auto* to = out.subs_owner.as<uint64_t>();
    for (const Batch& p : parts) {
      for (int64_t i = 0; i < p.length; ++i) *to++ = p.subs ? p.subs[i] : 0;
    }
    out.subs = out.subs_owner.as<uint64_t>();
  }
  return out;
}

// Puts 64-bit values at their places.
inline void scatter64(const Batch& p, const Column& c, int64_t first, uint64_t* to) {
  const auto* from = reinterpret_cast<const uint64_t*>(c.data);
  const int64_t shift = p.first_row - first;
  if (p.bits) {
    p.bits.each([&](uint32_t tag) { to[shift + int64_t(tag)] = *from++; });
    return;
  }
  if (!p.tags) {
    std::memcpy(to + shift, from, size_t(8 * p.length));
    return;
  }
  for (int64_t i = 0; i < p.length; ++i) to[shift + int64_t(p.tags[i])] = from[i];
}

// Rows whose tags are all different and leave no gap: a row's place is its tag.
inline Batch scatter_parts(const std::vector<Batch>& parts, int64_t first, int64_t length) {
  Batch out;
  out.length = length;
  out.first_row = first;
  BufferRef second;  // of two parts: the rows of the second, as bits
  if (parts.size() == 2 && !parts[0].tags && !parts[1].tags && have_lane_mask() &&
      parts[1].first_row + parts[1].bits.first >= first) {
    const int64_t rows = parts[1].bits ? parts[1].bits.count * 64 : parts[1].length;
    second = BufferRef::zeroed(8 * (TagBits::words_for(length) + TagBits::words_for(rows) + 2));
    add_rows(parts[1], first, second.as<uint64_t>());
  }
  BufferRef order;  // place -> row of the parts put one behind the other; where it is needed
  for (size_t c = 0; c < parts[0].columns.size(); ++c) {
    bool plain = is_fixed64(parts[0].columns[c].type);
    for (const Batch& p : parts) plain = plain && !p.columns[c].validity;
    if (plain) {
      Column column;
      column.type = parts[0].columns[c].type;
      column.length = length;
      column.data_owner = BufferRef::make(8 * length);
      auto* to = column.data_owner.as<uint64_t>();
      if (second) {
        const auto* from0 = reinterpret_cast<const uint64_t*>(parts[0].columns[c].data);
        const auto* from1 = reinterpret_cast<const uint64_t*>(parts[1].columns[c].data);
        expand_bits(from0, parts[0].length, from1, second.as<uint64_t>(), length, to);
      } else {
        for (const Batch& p : parts) scatter64(p, p.columns[c], first, to);
      }
      column.data = column.data_owner.data();
      out.columns.push_back(std::move(column));
      continue;
    }
    if (!order) {
      order = BufferRef::make(4 * length);
      uint32_t at = 0;
      for (const Batch& p : parts) {
        if (p.bits) {
          p.bits.each(
              [&](uint32_t tag) { order.as<uint32_t>()[p.first_row + tag - first] = at++; });
          continue;
        }
        for (int64_t i = 0; i < p.length; ++i) {
          order.as<uint32_t>()[p.order_number(i) - first] = at++;
        }
      }
    }
    std::vector<const Column*> columns;
    for (const Batch& p : parts) columns.push_back(&p.columns[c]);
    out.columns.push_back(take(concat_columns(columns, length), order.as<uint32_t>(), length));
  }
  return out;
}

// Rows of all parts by (row number, sub), then part.
inline Batch interleave_parts(const std::vector<Batch>& given) {
  Batch joined = concat_parts(given);
  joined.bits = TagBits();
  std::vector<Batch> parts = given;
  for (Batch& p : parts) p.spread_tags();
  std::vector<uint32_t> base, at(parts.size(), 0), order;
  uint32_t n = 0;
  int64_t first = INT64_MAX;
  for (const Batch& p : parts) {
    base.push_back(n);
    n += uint32_t(p.length);
    first = std::min(first, p.order_number(0));
  }
  if (joined.halves) first = joined.first_row;  // its tags stay as they are
  order.reserve(n);
  BufferRef tags = BufferRef::make(4 * int64_t(n));
  while (order.size() < n) {
    size_t best = parts.size();
    int64_t row = 0;
    uint64_t sub = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (at[p] == parts[p].length) continue;
      const int64_t r = parts[p].order_number(at[p]);
      const uint64_t s = parts[p].subs ? parts[p].subs[at[p]] : 0;
      if (best == parts.size() || r < row || (r == row && s < sub)) {
        best = p;
        row = r;
        sub = s;
      }
    }
    tags.as<uint32_t>()[order.size()] = uint32_t(row - first);
    order.push_back(base[best] + at[best]++);
  }
  for (Column& c : joined.columns) c = take(c, order.data(), n);
  if (joined.subs) {
    BufferRef subs = BufferRef::make(8 * int64_t(n));
    for (size_t i = 0; i < n; ++i) subs.as<uint64_t>()[i] = joined.subs[order[i]];
    joined.subs = subs.as<uint64_t>();
    joined.subs_owner = std::move(subs);
  }
  if (!joined.halves) joined.first_row = first;
  joined.tags = tags.as<uint32_t>();
  joined.tags_owner = std::move(tags);
  return joined;
}

// Rows of parts that a timed operator made on several nodes, by (tag, time, sub); each part is in
// that order. A row's tag stays what it is.
inline Batch order_parts(const std::vector<Batch>& parts) {
  Batch joined = concat_parts(parts);
  std::vector<uint32_t> order, at(parts.size(), 0), base{0};
  for (const Batch& p : parts) base.push_back(base.back() + uint32_t(p.length));
  const uint32_t n = base.back();
  order.reserve(n);
  while (order.size() < n) {
    size_t best = parts.size();
    std::tuple<int64_t, int64_t, uint64_t> least;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (at[p] == parts[p].length) continue;
      const std::tuple key{parts[p].order_number(at[p]), parts[p].times[at[p]],
                           parts[p].subs[at[p]]};
      if (best < parts.size() && !(key < least)) continue;
      best = p;
      least = key;
    }
    order.push_back(base[best] + at[best]++);
  }
  take_rows(joined, order.data(), n);
  return joined;
}

// The place of each row among the rows of the batch, as its sub.
inline void index_rows(Batch& batch) {
  BufferRef subs = BufferRef::make(8 * batch.length);
  for (int64_t i = 0; i < batch.length; ++i) subs.as<uint64_t>()[i] = uint64_t(i);
  batch.subs = subs.as<uint64_t>();
  batch.subs_owner = std::move(subs);
  batch.times = nullptr;
  batch.times_owner = BufferRef();
}

// Parts that each have rows, as one batch. `unique`: no two rows have the same row number.
// `tags`: false if nobody looks at them any more. All have halves or none has.
inline Batch merge_parts(const std::vector<Batch>& parts, bool unique, bool tags = true) {
  if (parts[0].times) return order_parts(parts);
  bool follow = true;
  int64_t length = 0, first = INT64_MAX, last = INT64_MIN;
  for (const Batch& p : parts) {
    follow = follow && p.order_number(0) > last;
    length += p.length;
    first = std::min(first, p.order_number(0));
    last = std::max(last, p.last_number());
  }
  if (follow) return concat_parts(parts, tags);
  if (unique && !parts[0].halves && last - first + 1 == length)
    return scatter_parts(parts, first, length);
  return interleave_parts(parts);
}

}  // namespace plait
