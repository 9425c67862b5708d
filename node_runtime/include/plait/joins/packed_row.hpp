// PackedRow: how some columns of a row are packed into bytes that outlive their batch.
//
// A packed row is: null bits (a word for 64 columns), a word for each fixed-width column, the ends
// of the texts (4 bytes each), the texts. It has no addresses, so it travels between nodes as it
// is. bind() names the batch that size(), pack() and append_row() read. One thread at a time: the
// holder of the lane; nothing waits.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/core/dispatch.hpp"
#include "plait/time/emitter.hpp"

namespace plait {

class PackedRow {
 public:
  PackedRow() = default;
  // `types` are those of all columns of the input, `columns` the ones to keep.
  PackedRow(const std::vector<Type>& types, const std::vector<int>& columns) {
    for (int column : columns) {
      const Type type = types.at(size_t(column));
      Field f{column, type, uint32_t(is_varlen(type) ? texts_++ : words_++)};
      fields_.push_back(f);
    }
    null_words_ = (fields_.size() + 63) / 64;
    fixed_ = 8 * (null_words_ + words_) + 4 * texts_;
    bound_.resize(fields_.size());
  }

  size_t columns() const { return fields_.size(); }

  void bind(const Batch& batch) {
    for (size_t i = 0; i < fields_.size(); ++i)
      bound_[i] = &batch.columns[size_t(fields_[i].column)];
  }
  // Bytes of a row of the batch when packed.
  size_t size(int64_t row) const {
    size_t n = fixed_;
    if (texts_ == 0) return n;
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (is_varlen(fields_[i].type) && bound_[i]->valid(row)) n += size_t(bound_[i]->size(row));
    }
    if (n - fixed_ > UINT32_MAX) throw std::length_error("the texts of one row exceed 4 GiB");
    return n;
  }
  void pack(int64_t row, char* to) const {
    if (null_words_) std::memset(to, 0, 8 * null_words_);
    char* words = to + 8 * null_words_;
    char* ends = words + 8 * words_;
    char* texts = to + fixed_;
    uint32_t end = 0;
    for (size_t i = 0; i < fields_.size(); ++i) {
      const Column& c = *bound_[i];
      const bool valid = c.valid(row);
      if (!valid) to[i >> 3] = char(to[i >> 3] | char(1 << (i & 7)));
      const Field& f = fields_[i];
      if (is_varlen(f.type)) {
        if (valid) {
          const auto size = size_t(c.size(row));
          if (size) std::memcpy(texts + end, c.bytes(row), size);
          end += uint32_t(size);
        }
        std::memcpy(ends + 4 * f.at, &end, 4);
      } else {
        const uint64_t bits = valid ? word(c, row) : 0;
        std::memcpy(words + 8 * f.at, &bits, 8);
      }
    }
  }

  // Values of a packed row, by position.
  bool valid(const char* from, size_t i) const { return !(from[i >> 3] >> (i & 7) & 1); }
  uint64_t word(const char* from, size_t i) const {
    uint64_t bits;
    std::memcpy(&bits, from + 8 * (null_words_ + fields_[i].at), 8);
    return bits;
  }
  std::string_view text(const char* from, size_t i) const {
    const uint32_t at = fields_[i].at;
    const uint32_t begin = at ? end_of(from, at - 1) : 0;
    return {from + fixed_ + begin, end_of(from, at) - begin};
  }

  // Appends a packed row to out[first], out[first + 1], ...
  PLAIT_INLINE void append(const char* from, std::vector<GrowingColumn>& out, size_t first) const {
    for (size_t i = 0; i < fields_.size(); ++i) {
      GrowingColumn& to = out[first + i];
      if (!valid(from, i)) {
        to.null();
      } else if (is_varlen(fields_[i].type)) {
        to.text(text(from, i));
      } else {
        to.word(word(from, i));
      }
    }
  }
  PLAIT_INLINE void append_row(int64_t row, std::vector<GrowingColumn>& out, size_t first) const {
    for (size_t i = 0; i < fields_.size(); ++i) out[first + i].copy(*bound_[i], row);
  }
  void append_nulls(std::vector<GrowingColumn>& out, size_t first) const {
    for (size_t i = 0; i < fields_.size(); ++i) out[first + i].null();
  }

  // Whether bytes that came from elsewhere are a packed row.
  bool fits(const char* from, size_t size) const {
    if (size < fixed_) return false;
    uint32_t end = 0;
    for (uint32_t i = 0; i < texts_; ++i) {
      if (end_of(from, i) < end) return false;
      end = end_of(from, i);
    }
    return size - fixed_ == end;
  }

  static uint64_t word(const Column& c, int64_t row) {
    if (c.type == Type::Bool) return c.boolean(row);
    uint64_t bits;
    std::memcpy(&bits, c.data + 8 * row, 8);
    return bits;
  }
  const Column& bound(size_t i) const { return *bound_[i]; }

 private:
  struct Field {
    int column;
    Type type;
    uint32_t at;  // among the words or the texts
  };
  uint32_t end_of(const char* from, uint32_t text) const {
    uint32_t end;
    std::memcpy(&end, from + 8 * (null_words_ + words_) + 4 * text, 4);
    return end;
  }

  std::vector<Field> fields_;
  std::vector<const Column*> bound_;
  size_t null_words_ = 0, words_ = 0, texts_ = 0, fixed_ = 0;
};

}  // namespace plait
