// Writing and reading the bytes of a bin of a join.
//
// The header is BinHeader of kind Join (keyed/bin_format.hpp); ByteWriter collects what follows and
// seals it, ByteReader never reads beyond the end. Nothing shared: any thread, no waiting.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "plait/core/xxh64.hpp"
#include "plait/keyed/bin_format.hpp"
#include "plait/keyed/sealed_bytes.hpp"
#include "plait/time/timed_spec.hpp"

namespace plait {

class ByteWriter : private SealedBytes {
 public:
  ByteWriter() : SealedBytes(4096) {}

  using SealedBytes::put;
  template <class T>
  void put(const T& value) {
    put(&value, sizeof value);
  }
  void put_bytes(const void* data, uint64_t size) {
    put(size);
    put(data, size);
  }
  Bytes seal(BinHeader header) {
    header.magic[3] = BinHeader::mark(BinKind::Join);
    return SealedBytes::seal(header);
  }
};

class ByteReader {
 public:
  ByteReader(const uint8_t* at, const uint8_t* end) : at_(at), end_(end) {}

  template <class T>
  [[nodiscard]] bool get(T& value) {
    const char* from;
    if (!get(from, sizeof value)) return false;
    std::memcpy(&value, from, sizeof value);
    return true;
  }
  [[nodiscard]] bool get(const char*& data, uint64_t size) {
    if (uint64_t(end_ - at_) < size) return false;
    data = reinterpret_cast<const char*>(at_);
    at_ += size;
    return true;
  }
  [[nodiscard]] bool get_bytes(const char*& data, uint64_t& size) {
    return get(size) && get(data, size);
  }
  bool at_end() const { return at_ == end_; }

 private:
  const uint8_t *at_, *end_;
};

// Bins move only between operators that do the same.
inline uint64_t join_fingerprint(const TimedSpec& s) {
  std::string bytes;
  const auto add = [&](int64_t v) { bytes.append(reinterpret_cast<const char*>(&v), 8); };
  for (int64_t v : {int64_t(s.kind), int64_t(s.within), int64_t(s.how), s.size, s.every, s.offset,
                    s.low, s.high, s.tolerance, s.ttl, s.wait, int64_t(s.empty)}) {
    add(v);
  }
  const auto add_types = [&](const std::vector<int>& columns) {
    add(int64_t(columns.size()));
    for (int c : columns) add(int64_t(s.types[size_t(c)]));
  };
  add_types(s.key_columns);
  for (const auto* side : {&s.left, &s.right}) {
    add_types(side->columns);
    add(side->time);
  }
  for (int c : {s.span_start, s.span_end}) add(c);
  for (const AggregateSpec& a : s.aggregates) {
    for (int v : {int(a.kind), int(a.input >= 0), int(a.type), int(a.nullable)}) add(v);
  }
  return xxh64(bytes.data(), bytes.size(), 0);
}

}  // namespace plait
