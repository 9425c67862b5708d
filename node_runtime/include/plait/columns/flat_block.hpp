// Columns as one flat block of memory that another process can read in place.
//
// A FlatWriter without memory only counts, so the same function that writes a thing also says how
// large it will be. Every number stands at a multiple of its size and every buffer of a column at a
// multiple of 64 bytes, counted from the start of the block: a block that is copied to another
// aligned place is still right. A column that is one of the columns that came in ("passed") is
// named, not written. A FlatReader checks every length before it is used, and throws. Nothing here
// is shared between threads.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"

namespace plait {

class FlatWriter {
 public:
  explicit FlatWriter(uint8_t* base = nullptr) : base_(base) {}

  void align(int64_t to) { used_ = (used_ + to - 1) / to * to; }
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    align(alignof(T));
    bytes(&value, sizeof(T));
  }
  void bytes(const void* from, int64_t n) {
    if (base_ && n) std::memcpy(base_ + used_, from, size_t(n));
    used_ += n;
  }
  void text(const std::string& words) {
    put(int64_t(words.size()));
    bytes(words.data(), int64_t(words.size()));
  }
  // Room for `n` bytes that the caller fills; null while counting.
  uint8_t* room(int64_t n) {
    uint8_t* at = base_ ? base_ + used_ : nullptr;
    used_ += n;
    return at;
  }
  int64_t used() const { return used_; }

 private:
  uint8_t* const base_;
  int64_t used_ = 0;
};

class FlatReader {
 public:
  FlatReader(const uint8_t* base, int64_t size) : base_(base), size_(size) {}

  void align(int64_t to) { at_ = (at_ + to - 1) / to * to; }
  template <class T>
  T get() {
    align(alignof(T));
    T value;
    std::memcpy(&value, bytes(sizeof(T)), sizeof(T));
    return value;
  }
  const uint8_t* bytes(int64_t n) {
    if (n < 0 || at_ > size_ || n > size_ - at_) {
      throw std::runtime_error("a block of shared memory is cut off");
    }
    const uint8_t* found = base_ + at_;
    at_ += n;
    return found;
  }
  std::string text() {
    const auto n = get<int64_t>();
    const uint8_t* found = bytes(n);
    return std::string(reinterpret_cast<const char*>(found), size_t(n));
  }
  // A count of things of at least `each` bytes: no more than there can be.
  int64_t count(int64_t each) {
    const auto n = get<int64_t>();
    if (n < 0 || n > (size_ - at_) / each) {
      throw std::runtime_error("a block of shared memory is damaged");
    }
    return n;
  }

 private:
  const uint8_t* const base_;
  const int64_t size_;
  int64_t at_ = 0;
};

inline constexpr int64_t kFlatAlign = 64;

struct FlatColumn {
  int64_t length = 0;
  int32_t passed = -1;  // the column of the input that this is; -1: it follows
  Type type = Type::Int64;
  bool has_validity = false;
  uint8_t validity_bit = 0, data_bit = 0;
};

inline void flat_bits(FlatWriter& out, const uint8_t* bits, int64_t first, int64_t length) {
  out.align(kFlatAlign);
  out.bytes(bits + first / 8, bit_bytes(first % 8 + length));
}

inline bool same_column(const Column& a, const Column& b) {
  return a.type == b.type && a.length == b.length && a.data == b.data && a.offsets == b.offsets &&
         a.validity == b.validity && a.validity_offset == b.validity_offset &&
         a.data_offset == b.data_offset;
}

inline void flat_column(FlatWriter& out, const Column& c, const std::vector<Column>* given) {
  FlatColumn head{c.length, -1, c.type, c.validity != nullptr, uint8_t(c.validity_offset % 8), 0};
  for (size_t i = 0; given && i < given->size(); ++i) {
    if (same_column(c, (*given)[i])) head.passed = int32_t(i);
  }
  if (c.type == Type::Bool) head.data_bit = uint8_t(c.data_offset % 8);
  out.put(head);
  if (head.passed >= 0) return;
  if (c.validity) flat_bits(out, c.validity, c.validity_offset, c.length);
  if (c.type == Type::Bool) {
    flat_bits(out, c.data, c.data_offset, c.length);
  } else if (is_varlen(c.type)) {
    const int32_t from = c.length ? c.offsets[0] : 0;
    const int64_t size = c.length ? int64_t(c.offsets[c.length]) - from : 0;
    out.align(kFlatAlign);
    if (uint8_t* at = out.room(4 * (c.length + 1))) {
      auto* offsets = reinterpret_cast<int32_t*>(at);
      offsets[0] = 0;
      for (int64_t i = 1; i <= c.length; ++i) offsets[i] = c.offsets[i] - from;
    }
    out.put(size);
    out.align(kFlatAlign);
    out.bytes(c.data + from, size);
  } else {
    out.align(kFlatAlign);
    out.bytes(c.data, 8 * c.length);
  }
}

// `given`: columns that the reader has too, of which only the number is written.
inline void flat_columns(FlatWriter& out, const std::vector<Column>& columns,
                         const std::vector<Column>* given = nullptr) {
  out.put(int64_t(columns.size()));
  for (const auto& c : columns) flat_column(out, c, given);
}

inline Column read_column(FlatReader& in, const BufferRef& owner,
                          const std::vector<Column>* given) {
  const auto head = in.get<FlatColumn>();
  if (head.passed >= 0) {
    if (!given || size_t(head.passed) >= given->size()) {
      throw std::runtime_error("a block of shared memory names a column that is not there");
    }
    return (*given)[size_t(head.passed)];
  }
  Column c;
  c.type = head.type;
  c.length = head.length;
  if (c.length < 0) throw std::runtime_error("a block of shared memory is damaged");
  if (head.has_validity) {
    in.align(kFlatAlign);
    c.validity = in.bytes(bit_bytes(head.validity_bit + c.length));
    c.validity_offset = head.validity_bit;
    c.validity_owner = owner;
  }
  if (c.type == Type::Bool) {
    in.align(kFlatAlign);
    c.data = in.bytes(bit_bytes(head.data_bit + c.length));
    c.data_offset = head.data_bit;
  } else if (is_varlen(c.type)) {
    in.align(kFlatAlign);
    c.offsets = reinterpret_cast<const int32_t*>(in.bytes(4 * (c.length + 1)));
    c.offsets_owner = owner;
    const auto size = in.get<int64_t>();
    if (c.offsets[c.length] != size) throw std::runtime_error("a block of text is damaged");
    in.align(kFlatAlign);
    c.data = in.bytes(size);
  } else {
    in.align(kFlatAlign);
    c.data = in.bytes(8 * c.length);
  }
  c.data_owner = owner;
  return c;
}

// Views of a block. `owner` keeps it alive; empty: the caller sees to it.
inline std::vector<Column> read_columns(FlatReader& in, const BufferRef& owner,
                                        const std::vector<Column>* given = nullptr) {
  const int64_t n = in.count(sizeof(FlatColumn));
  std::vector<Column> columns;
  columns.reserve(size_t(n));
  for (int64_t i = 0; i < n; ++i) columns.push_back(read_column(in, owner, given));
  return columns;
}

}  // namespace plait
