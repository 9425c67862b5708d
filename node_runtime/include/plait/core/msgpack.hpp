// The part of MessagePack that frame headers need: integers, booleans, texts, arrays.
//
// The writer appends the shortest form of each value. The reader takes any form of them, never
// reads past its end, and after the first thing it cannot take stays failed: every later value is
// zero or empty, so a caller may read a whole header and ask `ok()` once. Texts are views into the
// bytes read. One thread at a time for each object; nothing waits.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace plait {

class PackWriter {
 public:
  explicit PackWriter(std::string& out) : out_(out) {}

  void uint(uint64_t v) {
    if (v < 0x80) return byte(uint8_t(v));
    if (v <= 0xFF) return tagged(0xCC, v, 1);
    if (v <= 0xFFFF) return tagged(0xCD, v, 2);
    if (v <= 0xFFFFFFFF) return tagged(0xCE, v, 4);
    tagged(0xCF, v, 8);
  }
  void sint(int64_t v) {
    if (v >= 0) return uint(uint64_t(v));
    if (v >= -32) return byte(uint8_t(v));
    if (v >= INT8_MIN) return tagged(0xD0, uint64_t(v), 1);
    if (v >= INT16_MIN) return tagged(0xD1, uint64_t(v), 2);
    if (v >= INT32_MIN) return tagged(0xD2, uint64_t(v), 4);
    tagged(0xD3, uint64_t(v), 8);
  }
  void boolean(bool v) { byte(v ? 0xC3 : 0xC2); }
  void text(std::string_view v) {
    if (v.size() < 32) {
      byte(uint8_t(0xA0 | v.size()));
    } else if (v.size() <= 0xFF) {
      tagged(0xD9, v.size(), 1);
    } else if (v.size() <= 0xFFFF) {
      tagged(0xDA, v.size(), 2);
    } else {
      tagged(0xDB, v.size(), 4);
    }
    out_.append(v);
  }
  void bytes(std::string_view v) {
    if (v.size() <= 0xFF) {
      tagged(0xC4, v.size(), 1);
    } else if (v.size() <= 0xFFFF) {
      tagged(0xC5, v.size(), 2);
    } else {
      tagged(0xC6, v.size(), 4);
    }
    out_.append(v);
  }
  void array(uint64_t n) {
    if (n < 16) return byte(uint8_t(0x90 | n));
    if (n <= 0xFFFF) return tagged(0xDC, n, 2);
    tagged(0xDD, n, 4);
  }

 private:
  void byte(uint8_t b) { out_.push_back(char(b)); }
  void tagged(uint8_t tag, uint64_t v, int size) {
    char form[9];
    form[0] = char(tag);
    for (int i = 0; i < size; ++i) form[1 + i] = char(v >> (8 * (size - 1 - i)));
    out_.append(form, size_t(size) + 1);
  }
  std::string& out_;
};

class PackReader {
 public:
  PackReader(const uint8_t* data, int64_t size) : at_(data), end_(data + size) {}

  bool ok() const { return ok_; }
  int64_t left() const { return end_ - at_; }

  uint64_t uint(uint64_t most = UINT64_MAX) {
    bool negative = false;
    const uint64_t v = integer(negative);
    if (negative || v > most) return refuse();
    return v;
  }
  int64_t sint() {
    bool negative = false;
    const uint64_t v = integer(negative);
    if (!negative && v > uint64_t(INT64_MAX)) return int64_t(refuse());
    return int64_t(v);
  }
  bool boolean() {
    const uint8_t b = byte();
    if (ok_ && b != 0xC2 && b != 0xC3) refuse();
    return ok_ && b == 0xC3;
  }
  // A text or bytes; both are just bytes here.
  std::string_view text() {
    const uint8_t b = byte();
    uint64_t size = 0;
    if ((b & 0xE0) == 0xA0) {
      size = b & 0x1F;
    } else if (b == 0xD9 || b == 0xC4) {
      size = big(1);
    } else if (b == 0xDA || b == 0xC5) {
      size = big(2);
    } else if (b == 0xDB || b == 0xC6) {
      size = big(4);
    } else {
      refuse();
    }
    if (!ok_ || size > uint64_t(left())) {
      refuse();
      return {};
    }
    const std::string_view v(reinterpret_cast<const char*>(at_), size_t(size));
    at_ += size;
    return v;
  }
  uint64_t array(uint64_t most) {
    const uint8_t b = byte();
    uint64_t n = 0;
    if ((b & 0xF0) == 0x90) {
      n = b & 0x0F;
    } else if (b == 0xDC) {
      n = big(2);
    } else if (b == 0xDD) {
      n = big(4);
    } else {
      return refuse();
    }
    return !ok_ || n > most ? refuse() : n;
  }

 private:
  uint64_t refuse() {
    ok_ = false;
    at_ = end_;
    return 0;
  }
  uint8_t byte() {
    if (at_ == end_) return uint8_t(refuse());
    return *at_++;
  }
  uint64_t big(int size) {
    if (left() < size) return refuse();
    uint64_t v = 0;
    for (int i = 0; i < size; ++i) v = v << 8 | *at_++;
    return v;
  }
  uint64_t integer(bool& negative) {
    const uint8_t b = byte();
    if (!ok_ || b < 0x80) return b;
    if (b >= 0xE0) {
      negative = true;
      return uint64_t(int64_t(int8_t(b)));
    }
    if (b >= 0xCC && b <= 0xCF) return big(1 << (b - 0xCC));
    if (b < 0xD0 || b > 0xD3) return refuse();
    const int bits = 8 << (b - 0xD0);
    const int64_t v = int64_t(big(bits / 8) << (64 - bits)) >> (64 - bits);
    negative = v < 0;
    return uint64_t(v);
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

}  // namespace plait
