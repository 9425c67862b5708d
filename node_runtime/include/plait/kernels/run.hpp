// Runs a program over a batch, chunk by chunk, into a fresh column or a byte mask.
//
// Fixed-width results are written by the last kernel straight into the output buffer. Rows that
// fail get a harmless value and are listed in `errors`, ascending. Any number of threads may run
// one Program at once, each with its own Workspace; a run allocates but never blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "plait/core/dispatch.hpp"
#include "plait/kernels/load.hpp"
#include "plait/kernels/program.hpp"

namespace plait {

// The output column while it grows.
class ColumnWriter {
 public:
  ColumnWriter(Type type, int64_t length, int64_t text_limit)
      : type_(type), length_(length), limit_(text_limit) {
    if (is_varlen(type)) {
      offsets_ = BufferRef::make((length + 1) * 4);
      offsets_.as<int32_t>()[0] = 0;
    } else {
      data_ = BufferRef::make(type == Type::Bool ? bit_bytes(length) : length * 8);
    }
  }

  // Where the chunk's values can be written at once, or null.
  void* target(int64_t base) const { return is_fixed64(type_) ? data_.data() + base * 8 : nullptr; }

  void put(const Context& c, const Vec& v) {
    if (v.valid) put_valid(c, v.valid);
    if (is_fixed64(type_)) {
      auto* to = data_.as<int64_t>() + c.base;
      if (v.constant) {
        std::fill_n(to, c.n, *v.as<int64_t>());
      } else if (v.data != to) {
        std::memcpy(to, v.data, size_t(c.n) * 8);
      }
    } else if (type_ == Type::Bool) {
      uint8_t* to = data_.data() + (c.base >> 3);
      if (v.constant) {
        std::memset(to, *v.as<uint8_t>() ? 0xFF : 0, size_t(bit_bytes(c.n)));
      } else {
        pack_bits(v.as<uint8_t>(), c.n, to);
      }
    } else {
      put_texts(c, v);
    }
  }

  Column finish() {
    Column out;
    out.type = type_;
    out.length = length_;
    if (is_varlen(type_) && !data_) data_ = BufferRef::make(0);
    out.data = data_.data();
    out.data_owner = std::move(data_);
    if (offsets_) {
      out.offsets = offsets_.as<int32_t>();
      out.offsets_owner = std::move(offsets_);
    }
    if (validity_) {
      out.validity = validity_.data();
      out.validity_owner = std::move(validity_);
    }
    return out;
  }

 private:
  void put_valid(const Context& c, const uint8_t* valid) {
    if (!validity_) {
      if (!std::memchr(valid, 0, size_t(c.n))) return;
      validity_ = BufferRef::make(bit_bytes(length_));
      std::memset(validity_.data(), 0xFF, size_t(bit_bytes(length_)));
    }
    pack_bits(valid, c.n, validity_.data() + (c.base >> 3));  // a chunk begins on a byte
  }

  void put_texts(const Context& c, const Vec& v) {
    int64_t total = 0;
    for (int64_t i = 0; i < c.n; ++i) total += v.ok(i) ? v.text(i).size : 0;
    reserve(used_ + std::min(total, limit_ - used_), c.base + c.n);
    int32_t* at = offsets_.as<int32_t>() + c.base;
    for (int64_t i = 0; i < c.n; ++i) {
      const Text t = v.ok(i) ? v.text(i) : Text{"", 0};
      if (t.size <= limit_ && t.size > limit_ - used_) throw TooMuchText();
      if (t.size > limit_) {
        c.errors.add(c.base + i, RowError::TooLong);
      } else {
        std::memcpy(data_.data() + used_, t.data, size_t(t.size));
        used_ += t.size;
      }
      at[i + 1] = int32_t(used_);
    }
  }
  void reserve(int64_t bytes, int64_t rows_done) {
    if (data_ && bytes <= room_) return;
    // Guess the rest from what the rows so far took.
    const auto guess = int64_t(double(bytes) * double(length_) / double(rows_done) * 1.05);
    room_ = std::min(std::max({bytes, guess, int64_t(192)}), std::max(bytes, limit_));
    BufferRef bigger = BufferRef::make(room_);
    if (used_) std::memcpy(bigger.data(), data_.data(), size_t(used_));
    data_ = std::move(bigger);
  }

  Type type_;
  int64_t length_, limit_;
  BufferRef data_, offsets_, validity_;
  int64_t used_ = 0, room_ = 0;
};

// Keeps the first error of each row, rows ascending, of those from `from` on. Chunks come in order,
// so sorting is local.
inline void settle_errors(ErrorRows& errors, size_t from) {
  auto& rows = errors.rows;
  const auto begin = rows.begin() + int64_t(from);
  const auto by_row = [](const ErrorRow& a, const ErrorRow& b) { return a.row < b.row; };
  if (!std::is_sorted(begin, rows.end(), by_row)) std::stable_sort(begin, rows.end(), by_row);
  const auto same = [](const ErrorRow& a, const ErrorRow& b) { return a.row == b.row; };
  rows.erase(std::unique(begin, rows.end(), same), rows.end());
}

template <class Put, class Target>
bool run_chunks(const Program& p, const Batch& in, Workspace& ws, ErrorRows& errors,
                Target&& target, Put&& put) {
  const size_t before = errors.rows.size();
  ws.prepare(p);
  Context c{in, ws, errors};
  const bool direct = !p.code.empty() && p.code.back().dst == p.result;
  for (c.base = 0; c.base < in.length; c.base += kChunk) {
    c.n = std::min<int64_t>(kChunk, in.length - c.base);
    const size_t last = p.code.size() - size_t(direct);
    for (size_t i = 0; i < last; ++i) p.code[i].kernel(c, p.code[i]);
    if (direct) {  // only now: earlier values of this register may be wider than the target
      c.target = target(c.base);
      c.target_slot = p.result;
      p.code[last].kernel(c, p.code[last]);
      c.target = nullptr;
    }
    put(c, c.vec(p.result));
    ws.arena.reset();
  }
  settle_errors(errors, before);
  return errors.rows.size() == before;
}

// The value of every row as a fresh column. True when no row failed.
inline bool run(const Program& p, const Batch& in, Workspace& ws, Column& out, ErrorRows& errors) {
  ColumnWriter writer(p.type, in.length, ws.text_limit);
  const bool fine = run_chunks(
      p, in, ws, errors, [&](int64_t base) { return writer.target(base); },
      [&](const Context& c, const Vec& v) { writer.put(c, v); });
  out = writer.finish();
  return fine;
}

struct LoopAndBytes {
  PLAIT_INLINE static void run(uint8_t* __restrict a, const uint8_t* __restrict b, int64_t n) {
    for (int64_t i = 0; i < n; ++i) a[i] &= b[i];
  }
};

// A predicate as bytes: 1 where it is true, 0 where it is false or null. `mask` has room for
// in.length bytes.
inline bool run_mask(const Program& p, const Batch& in, Workspace& ws, uint8_t* mask,
                     ErrorRows& errors) {
  return run_chunks(
      p, in, ws, errors, [&](int64_t base) { return mask + base; },
      [&](const Context& c, const Vec& v) {
        uint8_t* to = mask + c.base;
        if (v.constant) {
          std::memset(to, *v.as<uint8_t>(), size_t(c.n));
        } else if (v.data != to) {
          std::memcpy(to, v.data, size_t(c.n));
        }
        if (v.valid) dispatch<LoopAndBytes>(to, v.valid, c.n);
      });
}

}  // namespace plait
