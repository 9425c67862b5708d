// ValueSet: the different values of one group, for the aggregate `distinct`.
//
// A fixed-width value is a word that is mixed one to one, a text its hash and bytes; both are found
// in an open-addressing index over the values in the order in which they came. Exact. For one
// thread at a time (the holder of the lane); never waits.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plait/columns/key_hash.hpp"
#include "plait/groups/group_bytes.hpp"

namespace plait {

class ValueSet {
 public:
  // The cell holds the set's address; 0: no value yet.
  static ValueSet* of(uint64_t cell) { return reinterpret_cast<ValueSet*>(cell); }
  static ValueSet& in(uint64_t& cell) {
    if (!cell) cell = reinterpret_cast<uint64_t>(new ValueSet());
    return *of(cell);
  }
  static void drop(uint64_t& cell) {
    delete of(cell);
    cell = 0;
  }

  // -0.0 is 0.0, and every NaN is the same value.
  static uint64_t canonical(uint64_t bits, Type type) {
    if (type != Type::Float64) return bits;
    const double value = std::bit_cast<double>(bits);
    return value != value ? uint64_t(0x7FF8) << 48 : canonical_double(bits);
  }

  uint64_t size() const { return values_.size(); }
  size_t bytes() const {
    return sizeof *this + values_.capacity() * sizeof(Value) + index_.capacity() * 4 +
           text_.capacity();
  }
  void add_word(uint64_t bits) { add(bits * kGolden, {}); }
  void add_text(std::string_view text) { add(xxh64(text.data(), text.size(), 0), text); }
  void add_all(const ValueSet& other) {
    for (const Value& v : other.values_) add(v.hash, other.text(v));
  }

  void write(GroupWriter& out, bool texts) const {
    out.word(values_.size());
    for (const Value& v : values_) {
      if (texts) {
        out.text(text(v));
      } else {
        out.word(v.hash);
      }
    }
  }
  void read(GroupReader& in, bool texts) {
    const uint64_t n = in.word();
    for (uint64_t i = 0; i < n && in.ok(); ++i) {
      const uint64_t before = size();
      if (texts) {
        const std::string_view text = in.text();
        if (in.ok()) add_text(text);
      } else {
        const uint64_t hash = in.word();
        if (in.ok()) add(hash, {});
      }
      if (size() == before) in.fail();
    }
  }

 private:
  struct Value {
    uint64_t hash, at;
    uint32_t size;
  };
  std::string_view text(const Value& v) const { return {text_.data() + v.at, v.size}; }

  void add(uint64_t hash, std::string_view text) {
    if (values_.size() * 2 >= index_.size()) grow();
    size_t i = place(hash);
    for (; index_[i]; i = (i + 1) & (index_.size() - 1)) {
      const Value& v = values_[index_[i] - 1];
      if (v.hash == hash && this->text(v) == text) return;
    }
    values_.push_back({hash, text_.size(), uint32_t(text.size())});
    text_.append(text);
    index_[i] = uint32_t(values_.size());
  }
  size_t place(uint64_t hash) const { return (hash ^ hash >> 32) & (index_.size() - 1); }
  void grow() {
    index_.assign(index_.empty() ? 8 : index_.size() * 2, 0);
    for (size_t v = 0; v < values_.size(); ++v) {
      size_t i = place(values_[v].hash);
      while (index_[i]) i = (i + 1) & (index_.size() - 1);
      index_[i] = uint32_t(v + 1);
    }
  }

  std::vector<Value> values_;
  std::vector<uint32_t> index_;  // a value's number and 1; 0: free
  std::string text_;
};

}  // namespace plait
