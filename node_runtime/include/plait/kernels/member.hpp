// `is_in`: whether a value is one of a fixed set of constants.
//
// Up to kLinear constants are compared one by one; more go into an open-addressing table at half
// load. NaN is in no set, and -0.0 is 0.0. A MemberSet is immutable once built: any thread may read
// it, nothing blocks.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "plait/core/dispatch.hpp"
#include "plait/kernels/logic.hpp"
#include "plait/kernels/program.hpp"

namespace plait {

class MemberSet {
 public:
  static constexpr size_t kLinear = 8;

  MemberSet(std::vector<int64_t> words, std::vector<std::string> texts)
      : words_(std::move(words)), texts_(std::move(texts)) {
    const size_t count = words_.size() + texts_.size();
    if (count <= kLinear) return;
    table_.assign(std::bit_ceil(2 * count), 0);
    for (size_t i = 0; i < count; ++i) {
      size_t at = home(texts_.empty() ? hash(words_[i]) : hash(texts_[i]));
      while (table_[at]) at = next(at);
      table_[at] = uint32_t(i + 1);
    }
  }

  bool linear() const { return table_.empty(); }
  const std::vector<int64_t>& words() const { return words_; }

  bool has(int64_t word) const {
    for (size_t at = home(hash(word)); table_[at]; at = next(at))
      if (words_[table_[at] - 1] == word) return true;
    return false;
  }
  bool has(const Text& t) const {
    if (linear()) {
      for (const auto& s : texts_)
        if (s == t.view()) return true;
      return false;
    }
    for (size_t at = home(hash(t.view())); table_[at]; at = next(at))
      if (texts_[table_[at] - 1] == t.view()) return true;
    return false;
  }

 private:
  static uint64_t hash(int64_t word) { return uint64_t(word) * 0x9E3779B97F4A7C15u; }
  static uint64_t hash(std::string_view s) {
    return uint64_t(std::hash<std::string_view>{}(s)) * 0x9E3779B97F4A7C15u;
  }
  size_t home(uint64_t h) const { return size_t(h >> (64 - std::countr_zero(table_.size()))); }
  size_t next(size_t at) const { return (at + 1) & (table_.size() - 1); }

  std::vector<int64_t> words_;  // int64 values, or the bits of floats
  std::vector<std::string> texts_;
  std::vector<uint32_t> table_;  // index + 1; 0 is empty
};

template <class T>
struct LoopOrEqual {
  PLAIT_INLINE static void run(const T* __restrict a, T b, uint8_t* __restrict o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) o[i] |= uint8_t(a[i] == b);
  }
};

template <class T>
void is_in_words(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  uint8_t* o = c.out<uint8_t>(in);
  const MemberSet& set = *in.members;
  if (set.linear()) {
    std::memset(o, 0, size_t(c.n));
    for (const int64_t word : set.words())
      dispatch<LoopOrEqual<T>>(a.as<T>(), std::bit_cast<T>(word), o, c.n);
  } else {
    for (int64_t i = 0; i < c.n; ++i) {
      T x = a.as<T>()[i];
      if constexpr (std::is_same_v<T, double>) x = x == 0 ? 0.0 : x;
      o[i] = uint8_t(set.has(std::bit_cast<int64_t>(x)));
    }
  }
  c.set(in, o, c.valid_of(in, a));
}

// value: bit 0 is set when false is in the set, bit 1 when true is.
inline void is_in_bool(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  uint8_t* o = c.out<uint8_t>(in);
  for (int64_t i = 0; i < c.n; ++i) o[i] = uint8_t(in.value >> a.as<uint8_t>()[i]) & 1;
  c.set(in, o, c.valid_of(in, a));
}

inline void is_in_text(Context& c, const Instr& in) {
  const Vec& a = c.vec(in.a());
  uint8_t* o = c.out<uint8_t>(in);
  for (int64_t i = 0; i < c.n; ++i) o[i] = uint8_t(a.ok(i) && in.members->has(a.text(i)));
  c.set(in, o, c.valid_of(in, a));
}

}  // namespace plait
