// KeyCodec: the key of a row as what a table knows it by, and back into columns.
//
// A key of one fixed-width column (or of none) is its hash, which is one to one; only the null key
// is marked. Any other key is its hash and bytes: those of one text, or the encoding of several
// columns. bind() names the batch whose rows are asked for; the rest is pure. For one thread at a
// time (the holder of the lane); never waits.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "plait/columns/key_hash.hpp"
#include "plait/time/emitter.hpp"

namespace plait {

namespace key_detail {
// Newton's iteration doubles the right bits of an inverse modulo 2^64.
constexpr uint64_t inverse(uint64_t a) {
  uint64_t x = a;
  for (int i = 0; i < 6; ++i) x *= 2 - a * x;
  return x;
}
}  // namespace key_detail

// A key as tables know it. A narrow key has no bytes.
struct Key {
  uint64_t hash = 0;
  bool null = false;       // of one column
  std::string_view bytes;  // not of narrow keys, nor of nulls
};

class KeyCodec {
 public:
  KeyCodec(const std::vector<Type>& types, const std::vector<int>& key_columns)
      : places_(key_columns) {
    for (int c : key_columns) types_.push_back(types[size_t(c)]);
    for (Type t : types_) {
      if (t == Type::Object) throw std::invalid_argument("an object column cannot be a key");
    }
    wide_ = types_.size() > 1 || (types_.size() == 1 && is_varlen(types_[0]));
  }

  bool wide() const { return wide_; }
  const std::vector<Type>& types() const { return types_; }

  void bind(const Batch& batch) {
    columns_.clear();
    for (int c : places_) columns_.push_back(&batch.columns[size_t(c)]);
    nulls_ = columns_.size() == 1 && columns_[0]->validity;
  }
  // Whether a key of the bound batch may be the null of one column.
  bool has_nulls() const { return nulls_; }
  bool is_null(uint32_t row) const { return nulls_ && !columns_[0]->valid(row); }

  // Valid until the next call.
  Key of_row(uint64_t hash, uint32_t row) {
    Key key{hash, is_null(row), {}};
    if (!wide_ || key.null) return key;
    if (types_.size() == 1) {
      key.bytes = {columns_[0]->bytes(row), size_t(columns_[0]->size(row))};
    } else {
      scratch_.clear();
      encode_key(columns_, row, scratch_);
      key.bytes = {reinterpret_cast<const char*>(scratch_.data()), scratch_.size()};
    }
    return key;
  }

  // The key's columns as the first ones of a row.
  void emit(const Key& key, std::vector<GrowingColumn>& out) const {
    if (types_.size() > 1) return emit_encoded(key.bytes, out);
    if (types_.empty()) return;
    if (key.null) {
      out[0].null();
    } else if (wide_) {
      out[0].text(key.bytes);
    } else {
      out[0].word((key.hash * kInverse) ^ salt(types_[0]));
    }
  }

  // Whether hash and bytes belong together: for bytes from elsewhere.
  bool right(const Key& key) const {
    if (key.null) return types_.size() == 1 && key.hash == null_hash(types_[0]);
    if (types_.empty()) return key.hash == 0;
    if (!wide_) return key.bytes.empty();
    if (types_.size() == 1) {
      return key.hash == hash_bytes(key.bytes.data(), key.bytes.size(), types_[0]);
    }
    return key.hash == xxh64(key.bytes.data(), key.bytes.size(), 0) && encoded(key.bytes);
  }

 private:
  static constexpr uint64_t kInverse = key_detail::inverse(kGolden);
  static_assert(kGolden * kInverse == 1);

  void emit_encoded(std::string_view bytes, std::vector<GrowingColumn>& out) const {
    const char* at = bytes.data();
    for (size_t k = 0; k < types_.size(); ++k) {
      const bool null = at[1] != 0;
      at += 2;
      if (null) {
        out[k].null();
      } else if (is_varlen(types_[k])) {
        uint32_t size;
        std::memcpy(&size, at, 4);
        out[k].text({at + 4, size});
        at += 4 + size_t(size);
      } else {
        uint64_t bits;
        std::memcpy(&bits, at, 8);
        out[k].word(bits);
        at += 8;
      }
    }
  }
  bool encoded(std::string_view bytes) const {
    size_t at = 0;
    for (Type t : types_) {
      if (bytes.size() - at < 2 || uint8_t(bytes[at]) != uint8_t(t)) return false;
      const bool null = bytes[at + 1] != 0;
      at += 2;
      size_t size = null ? 0 : 8;
      if (!null && is_varlen(t)) {
        if (bytes.size() - at < 4) return false;
        uint32_t length;
        std::memcpy(&length, bytes.data() + at, 4);
        size = 4 + size_t(length);
      }
      if (bytes.size() - at < size) return false;
      at += size;
    }
    return at == bytes.size();
  }

  std::vector<int> places_;
  std::vector<Type> types_;
  bool wide_ = false, nulls_ = false;
  std::vector<const Column*> columns_;
  std::vector<uint8_t> scratch_;
};

}  // namespace plait
