// SealedBytes: bytes of a bin's state that grow behind their header, and the checks of its seal.
//
// put() appends; seal() fills in how many bytes follow the header and the checksum, and gives all
// of them away. Who reads them asks unsealed() first: whether they are whole and as they were
// written. `Header` has magic, version, bin_bits, bin, length, checksum, right_checksum() and
// kVersion. Nothing shared: any thread, no waiting. Full: never, it grows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "plait/keyed/bin_format.hpp"

namespace plait {

template <class Header>
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
  // What was written at end(), within the room asked for, counts too.
  uint8_t* end() { return out_.data() + size_; }
  void wrote(size_t size) { size_ += size; }
  Bytes seal(Header header) {
    header.length = size_ - sizeof header;
    header.checksum = header.right_checksum(out_.data() + sizeof header);
    std::memcpy(out_.data(), &header, sizeof header);
    return {std::move(out_), int64_t(size_)};
  }

 private:
  size_t size_ = sizeof(Header), room_;
  BufferRef out_;
};

// Reads the header. Empty when the bytes are those that were sealed; else why not. `wrong(header)`
// says why they are not what the reader wants, by their magic alone; null: they are.
template <class Header, class Wrong>
std::string unsealed(const uint8_t* data, size_t size, Header& h, Wrong&& wrong) {
  if (size < sizeof h) return "truncated: shorter than a header";
  std::memcpy(&h, data, sizeof h);
  if (const char* why = wrong(h)) return why;
  if (h.version != Header::kVersion) {
    return "version " + std::to_string(h.version) + ", this runtime reads " +
           std::to_string(Header::kVersion);
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

}  // namespace plait
