// Bytes of the state of operators that know time: a writer, a reader that never reads beyond the
// end, and the header that seals them.
//
// The header says what the bytes are, of which bin and operator, how many entries and bytes follow,
// and carries a checksum over all of it; check() refuses everything else. Nothing shared: any
// thread, no waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "plait/keyed/bin_format.hpp"
#include "plait/keyed/sealed_bytes.hpp"
#include "plait/core/xxh64.hpp"

namespace plait {

struct GroupHeader {
  static constexpr uint16_t kVersion = 1;
  char magic[4] = {'P', 'L', 'B', 'T'};
  uint16_t version = kVersion;
  uint16_t bin_bits = 0;
  uint32_t bin = 0;
  uint32_t reserved = 0;
  uint64_t fingerprint = 0;
  uint64_t count = 0;     // entries
  uint64_t length = 0;    // of what follows the header
  uint64_t checksum = 0;  // XXH64 of what follows, seeded by that of the header before this field

  uint64_t right_checksum(const uint8_t* payload) const {
    return xxh64(payload, length, xxh64(this, offsetof(GroupHeader, checksum), 0));
  }
};
static_assert(sizeof(GroupHeader) == 48);

class GroupWriter : private SealedBytes<GroupHeader> {
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
    GroupHeader h;
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

// Empty when the bytes are whole and of this operator and bin; else why not.
inline std::string check_group_bin(uint64_t fingerprint, unsigned bin_bits, uint32_t bin,
                                   const uint8_t* data, size_t size, GroupHeader& h) {
  std::string why = unsealed(data, size, h, [](const GroupHeader& g) {
    const bool right = std::memcmp(g.magic, GroupHeader().magic, 4) == 0;
    return right ? nullptr : "not the state of a timed bin";
  });
  if (!why.empty()) return why;
  if (h.fingerprint != fingerprint) return "of another operator: its window or results differ";
  if (why = other_bins(h.bin_bits, bin_bits); !why.empty()) return why;
  if (h.bin != bin) return "of bin " + std::to_string(h.bin);
  return "";
}

}  // namespace plait
