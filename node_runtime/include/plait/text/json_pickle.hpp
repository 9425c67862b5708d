// Any value of JSON as a pickle of what Python's `json` makes of it: how an object column holds it.
//
// The pickle shares nothing, so a name that is there often is there often. What needs Python to
// judge (a number beyond 64 bits or the range of a float, half of a surrogate pair) is `Unsettled`.
// One thread at a time; nothing blocks; recursion ends at 64.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plait/text/json_scanner.hpp"

namespace plait {

class JsonPickle {
 public:
  using Place = JsonScanner::Place;

  // Behind the value at p, which is in `depth` objects and lists; or null, and the scanner's fault
  // says why.
  Place write(JsonScanner& scan, Place p, int depth) {
    size_ = 0;
    put(kProtocol, sizeof kProtocol);
    p = value(scan, p, depth);
    if (p) put('.');
    return p;
  }

  const uint8_t* data() const { return bytes_.data(); }
  int64_t size() const { return int64_t(size_); }

 private:
  static constexpr uint8_t kProtocol[] = {0x80, 4};

  Place value(JsonScanner& scan, Place p, int depth) {
    switch (*p) {
      case '"':
        return text(scan, p);
      case '{':
      case '[':
        if (depth == kJsonDepth) return scan.fail(JsonWrong::Deep, p);
        return *p == '{' ? object(scan, p, depth + 1) : list(scan, p, depth + 1);
      case 't':
      case 'f':
      case 'n':
        if (const Place after = scan.skip(p, depth)) {
          put(*p == 't' ? 0x88 : *p == 'f' ? 0x89 : 'N');
          return after;
        }
        return nullptr;
      default:
        if (*p == '-' || json_detail::is_digit(*p)) return number(scan, p);
        return scan.skip(p, depth);  // says what is wrong
    }
  }

  Place text(JsonScanner& scan, Place p) {
    put('X');
    const size_t begin = size_ + 4;
    uint8_t* out = room(4 + size_t(scan.end() - p) + kTextBlock) + 4;
    bool half = false;
    const Place after = scan.text(p + 1, out, half);
    if (!after) return nullptr;
    if (half) return scan.fail(JsonWrong::Unsettled, p);
    size_ = size_t(out - bytes_.data());
    const auto count = uint32_t(size_ - begin);
    std::memcpy(bytes_.data() + begin - 4, &count, 4);
    return after;
  }

  Place object(JsonScanner& scan, Place p, int depth) {
    const size_t before = scan.names_noted();
    put("}(", 2);
    p = scan.space(p + 1);
    if (*p != '}') {
      for (;;) {
        const Place at = p;
        const std::string_view name = scan.name(p);
        if (!p) return nullptr;
        scan.note_name(name);
        if (!text(scan, at)) return nullptr;
        if (!(p = scan.colon(p)) || !(p = value(scan, p, depth))) return nullptr;
        p = scan.space(p);
        if (*p == '}') break;
        if (*p != ',') return scan.fail(JsonWrong::NoComma, p);
        p = scan.space(p + 1);
      }
      if (!scan.names_differ(before)) return nullptr;
      scan.forget_names(before);
    }
    put('u');
    return p + 1;
  }

  Place list(JsonScanner& scan, Place p, int depth) {
    put("](", 2);
    p = scan.space(p + 1);
    if (*p != ']') {
      for (;;) {
        if (!(p = value(scan, p, depth))) return nullptr;
        p = scan.space(p);
        if (*p == ']') break;
        if (*p != ',') return scan.fail(JsonWrong::NoComma, p);
        p = scan.space(p + 1);
      }
    }
    put('e');
    return p + 1;
  }

  Place number(JsonScanner& scan, Place p) {
    JsonNumber n;
    const Place after = scan.number(p, n);
    if (!after) return nullptr;
    if (!n.whole) {
      const auto made = float_of(n, after);
      if (!made) return scan.fail(JsonWrong::Unsettled, p);
      const uint64_t bits = __builtin_bswap64(std::bit_cast<uint64_t>(*made));
      put('G');
      put(&bits, 8);
      return after;
    }
    if (n.count > 19 || n.digits > uint64_t(INT64_MAX)) return scan.fail(JsonWrong::Unsettled, p);
    const int64_t whole = n.negative ? -int64_t(n.digits) : int64_t(n.digits);
    if (whole == int32_t(whole)) {
      const auto small = int32_t(whole);
      put('J');
      put(&small, 4);
    } else {
      put("\x8a\x08", 2);
      put(&whole, 8);
    }
    return after;
  }

  uint8_t* room(size_t more) {
    if (size_ + more > bytes_.size()) bytes_.resize(2 * (size_ + more));
    return bytes_.data() + size_;
  }
  void put(uint8_t byte) {
    *room(1) = byte;
    ++size_;
  }
  void put(const void* bytes, size_t size) {
    std::memcpy(room(size), bytes, size);
    size_ += size;
  }

  std::vector<uint8_t> bytes_;
  size_t size_ = 0;
};

}  // namespace plait
