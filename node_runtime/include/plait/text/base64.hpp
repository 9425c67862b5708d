// Bytes from base64 and back: whole groups of four, padded at the end, nothing else in between.
//
// Anything else is `false`: the caller asks Python, whose rules for it differ between versions.
// Pure functions: any thread, nothing blocks.
#pragma once

#include <array>
#include <cstdint>

namespace plait {

namespace base64_detail {
inline constexpr std::array<uint8_t, 256> make_values() {
  std::array<uint8_t, 256> values{};
  values.fill(0xFF);
  uint8_t next = 0;
  for (int c = 'A'; c <= 'Z'; ++c) values[size_t(c)] = next++;
  for (int c = 'a'; c <= 'z'; ++c) values[size_t(c)] = next++;
  for (int c = '0'; c <= '9'; ++c) values[size_t(c)] = next++;
  values['+'] = next++;
  values['/'] = next;
  return values;
}
inline constexpr std::array<uint8_t, 256> kValues = make_values();
}  // namespace base64_detail

// Writes at most 3 bytes for 4 and moves `to` behind them.
inline bool read_base64(const uint8_t* from, int64_t size, uint8_t*& to) {
  using base64_detail::kValues;
  if (size % 4) return false;
  const uint8_t* end = from + size;
  uint8_t* o = to;
  for (; from < end; from += 4) {
    const uint32_t a = kValues[from[0]], b = kValues[from[1]];
    const bool last = from + 4 == end;
    const int pads = !last || from[3] != '=' ? 0 : from[2] != '=' ? 1 : 2;
    const uint32_t c = pads == 2 ? 0 : kValues[from[2]], d = pads ? 0 : kValues[from[3]];
    if ((a | b | c | d) & 0xC0) return false;
    const uint32_t all = a << 18 | b << 12 | c << 6 | d;
    if (pads && (all & (pads == 2 ? 0xFFFFu : 0xFFu))) return false;  // bits that say nothing
    *o++ = uint8_t(all >> 16);
    if (pads < 2) *o++ = uint8_t(all >> 8);
    if (pads < 1) *o++ = uint8_t(all);
  }
  to = o;
  return true;
}

// Writes 4 bytes for every 3 and gives the place behind them.
inline uint8_t* write_base64(const uint8_t* from, int64_t size, uint8_t* o) {
  static constexpr char letters[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (; size > 0; from += 3, size -= 3) {
    const uint32_t all = uint32_t(from[0]) << 16 | (size > 1 ? uint32_t(from[1]) << 8 : 0u) |
                         (size > 2 ? uint32_t(from[2]) : 0u);
    *o++ = uint8_t(letters[all >> 18]);
    *o++ = uint8_t(letters[all >> 12 & 63]);
    *o++ = size > 1 ? uint8_t(letters[all >> 6 & 63]) : uint8_t('=');
    *o++ = size > 2 ? uint8_t(letters[all & 63]) : uint8_t('=');
  }
  return o;
}

}  // namespace plait
