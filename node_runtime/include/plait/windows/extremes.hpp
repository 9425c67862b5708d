// Extremes: the values among the last n of a key that are, or may yet become, the least (or the
// greatest) one: each is smaller (or greater) than all before it that are left, or equal to them.
//
// A value that comes takes the place of those it beats; the oldest one leaves with its record. Each
// value comes and goes once. Of equal values the earlier one counts; NaN never comes in. For one
// thread at a time; never waits.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "plait/columns/layout.hpp"

namespace plait {

class Extremes {
 public:
  bool empty() const { return first_ == values_.size(); }
  uint64_t best() const { return values_[first_].value; }
  size_t bytes() const { return values_.capacity() * sizeof(Numbered); }

  // Record number `number` brings a value that is no NaN.
  void add(uint64_t number, uint64_t value, Type type, bool greatest) {
    if (type == Type::Float64) {
      const auto v = std::bit_cast<double>(value);
      greatest ? drop([&](uint64_t old) { return std::bit_cast<double>(old) < v; })
               : drop([&](uint64_t old) { return std::bit_cast<double>(old) > v; });
    } else {
      greatest ? drop([&](uint64_t old) { return int64_t(old) < int64_t(value); })
               : drop([&](uint64_t old) { return int64_t(old) > int64_t(value); });
    }
    values_.push_back({number, value});
  }
  // Records before `number` are gone.
  void leave(uint64_t number) {
    while (first_ < values_.size() && values_[first_].number < number) ++first_;
    if (first_ < 16 || first_ * 2 < values_.size()) return;
    values_.erase(values_.begin(), values_.begin() + ptrdiff_t(first_));
    first_ = 0;
  }

 private:
  struct Numbered {
    uint64_t number, value;
  };
  template <class Beaten>
  void drop(Beaten beaten) {
    while (values_.size() > first_ && beaten(values_.back().value)) values_.pop_back();
  }

  std::vector<Numbered> values_;
  size_t first_ = 0;  // those before it are gone
};

}  // namespace plait
