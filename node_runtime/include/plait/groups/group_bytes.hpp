// Bytes of a bin of a window, a running aggregate or the last rows of keys: a writer, and a reader
// that never reads beyond the end.
//
// The header is BinHeader of kind Timed (keyed/bin_format.hpp); unsealed_bin() refuses bytes that
// are damaged or not of this operator and bin. Nothing shared: any thread, no waiting.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "plait/keyed/bin_format.hpp"
#include "plait/keyed/sealed_bytes.hpp"

namespace plait {

class GroupWriter : private SealedBytes {
 public:
  GroupWriter() : SealedBytes(1024) {}

  using SealedBytes::put;
  void byte(uint8_t value) { put(&value, 1); }
  void word(uint64_t value) { put(&value, 8); }
  void text(std::string_view bytes) {
    const auto size = uint32_t(bytes.size());
    put(&size, 4);
    put(bytes.data(), bytes.size());
  }
  void counted() { ++count_; }
  uint64_t count() const { return count_; }

  Bytes finish(uint64_t fingerprint, unsigned bin_bits, uint32_t bin) {
    BinHeader h;
    h.magic[3] = BinHeader::mark(BinKind::Timed);
    h.bin_bits = uint16_t(bin_bits);
    h.bin = bin;
    h.fingerprint = fingerprint;
    h.count = count_;
    return seal(h);
  }

 private:
  uint64_t count_ = 0;
};

// After the first read beyond the end everything read is 0 or empty, and ok() is false.
class GroupReader {
 public:
  GroupReader(const uint8_t* at, const uint8_t* end) : at_(at), end_(end) {}

  uint8_t byte() {
    const uint8_t* from = skip(1);
    return from ? *from : 0;
  }
  uint64_t word() {
    const uint8_t* from = skip(8);
    uint64_t value = 0;
    if (from) std::memcpy(&value, from, 8);
    return value;
  }
  std::string_view text() {
    uint32_t size = 0;
    if (const uint8_t* from = skip(4)) std::memcpy(&size, from, 4);
    const uint8_t* from = skip(size);
    return from ? std::string_view(reinterpret_cast<const char*>(from), size) : std::string_view();
  }
  size_t left() const { return size_t(end_ - at_); }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && at_ == end_; }
  void fail() { ok_ = false; }

 private:
  const uint8_t* skip(size_t size) {
    if (!ok_ || left() < size) {
      ok_ = false;
      return nullptr;
    }
    at_ += size;
    return at_ - size;
  }
  const uint8_t *at_, *end_;
  bool ok_ = true;
};

}  // namespace plait
