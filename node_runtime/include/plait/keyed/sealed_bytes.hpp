// SealedBytes: bytes of a bin's state that grow after their header, and the checks of its seal.
//
// put() appends; seal() fills in how many bytes follow the header and the checksum, and gives all
// of them away. A reader asks unsealed() first: whether the bytes are whole, as they were written
// and of the kind it reads; unsealed_bin() asks in addition whether they are of its operator and
// bin. Nothing shared: any thread, no waiting. Full: never, it grows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "plait/keyed/bin_format.hpp"

namespace plait {

class SealedBytes {
 public:
  explicit SealedBytes(size_t room) : room_(room), out_(BufferRef::make(int64_t(room))) {}

  void put(const void* data, size_t size) {
    if (size_ + size > room_) [[unlikely]] {
      room_ = std::max(2 * room_, size_ + size);
      BufferRef larger = BufferRef::make(int64_t(room_));
      std::memcpy(larger.data(), out_.data(), size_);
      out_ = std::move(larger);
    }
    if (size) std::memcpy(out_.data() + size_, data, size);
    size_ += size;
  }
  // What was put so far.
  const uint8_t* begin() const { return out_.data() + sizeof(BinHeader); }
  size_t size() const { return size_ - sizeof(BinHeader); }
  // What was written at end(), within the room asked for, counts too.
  uint8_t* end() { return out_.data() + size_; }
  void wrote(size_t size) { size_ += size; }
  Bytes seal(BinHeader header) {
    header.length = size_ - sizeof header;
    header.checksum = header.right_checksum(out_.data() + sizeof header);
    std::memcpy(out_.data(), &header, sizeof header);
    return {std::move(out_), int64_t(size_)};
  }

 private:
  size_t size_ = sizeof(BinHeader), room_;
  BufferRef out_;
};

inline const char* not_of_kind(BinKind kind) {
  switch (kind) {
    case BinKind::Whole:
      return "not the state of a whole bin";
    case BinKind::Difference:
      return "not the difference of a bin";
    case BinKind::Timed:
      return "not the state of a timed bin";
    case BinKind::Join:
      return "not the state of a bin of a join";
  }
  return "not the state of a bin";
}

// Reads the header. Empty when the bytes are those that were sealed, of this kind; else why not.
inline std::string unsealed(BinKind kind, const uint8_t* data, size_t size, BinHeader& h) {
  if (size < sizeof h) return "truncated: shorter than a header";
  std::memcpy(&h, data, sizeof h);
  if (std::memcmp(h.magic, BinHeader().magic, 3) != 0) return "not the state of a bin";
  if (h.magic[3] != BinHeader::mark(kind)) return not_of_kind(kind);
  if (h.version != BinHeader::kVersion) {
    return "version " + std::to_string(h.version) + ", this runtime reads " +
           std::to_string(BinHeader::kVersion);
  }
  if (h.length != size - sizeof h) {
    return "truncated: " + std::to_string(size - sizeof h) + " bytes of " +
           std::to_string(h.length);
  }
  if (h.checksum != h.right_checksum(data + sizeof h)) return "damaged: wrong checksum";
  return "";
}

// Why a bin does not go with these; empty: it does.
inline std::string other_bins(unsigned bin_bits, unsigned here) {
  if (bin_bits == here) return "";
  return "of a job with 2^" + std::to_string(bin_bits) + " bins, this one has 2^" +
         std::to_string(here);
}

// The same as unsealed(), and whether the bytes are of the operator and bin of `expected`.
inline std::string unsealed_bin(BinKind kind, const BinHeader& expected, const uint8_t* data,
                                size_t size, BinHeader& h) {
  std::string why = unsealed(kind, data, size, h);
  if (!why.empty()) return why;
  if (h.fingerprint != expected.fingerprint) return "of another operator: its settings differ";
  if (why = other_bins(h.bin_bits, expected.bin_bits); !why.empty()) return why;
  if (h.bin == expected.bin) return "";
  return "of bin " + std::to_string(h.bin) + ", not " + std::to_string(expected.bin);
}

}  // namespace plait
