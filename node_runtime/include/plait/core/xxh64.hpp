// XXH64, written from its published description.
//
// A pure function of the bytes and the seed, the same on every machine; it hashes varying-length
// keys and checks state bytes. Any thread may call it; it never waits and never allocates.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace plait {

static_assert(std::endian::native == std::endian::little, "state bytes are little-endian");

namespace xxh64_detail {
inline constexpr uint64_t kP1 = 0x9E3779B185EBCA87, kP2 = 0xC2B2AE3D27D4EB4F,
                          kP3 = 0x165667B19E3779F9, kP4 = 0x85EBCA77C2B2AE63,
                          kP5 = 0x27D4EB2F165667C5;

inline uint64_t mix(uint64_t lane, uint64_t word) { return std::rotl(lane + word * kP2, 31) * kP1; }

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
}  // namespace xxh64_detail

inline uint64_t xxh64(const void* data, size_t size, uint64_t seed) {
  using namespace xxh64_detail;
  const auto* at = static_cast<const uint8_t*>(data);
  size_t left = size;
  uint64_t h;
  if (left >= 32) {
    uint64_t a = seed + kP1 + kP2, b = seed + kP2, c = seed, d = seed - kP1;
    for (; left >= 32; at += 32, left -= 32) {
      a = mix(a, load<uint64_t>(at));
      b = mix(b, load<uint64_t>(at + 8));
      c = mix(c, load<uint64_t>(at + 16));
      d = mix(d, load<uint64_t>(at + 24));
    }
    h = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (uint64_t lane : {a, b, c, d}) h = (h ^ mix(0, lane)) * kP1 + kP4;
  } else {
    h = seed + kP5;
  }
  h += size;
  for (; left >= 8; at += 8, left -= 8) {
    h = std::rotl(h ^ mix(0, load<uint64_t>(at)), 27) * kP1 + kP4;
  }
  if (left >= 4) {
    h = std::rotl(h ^ (uint64_t(load<uint32_t>(at)) * kP1), 23) * kP2 + kP3;
    at += 4;
    left -= 4;
  }
  for (; left; ++at, --left) h = std::rotl(h ^ (*at * kP5), 11) * kP1;
  h = (h ^ (h >> 33)) * kP2;
  h = (h ^ (h >> 29)) * kP3;
  return h ^ (h >> 32);
}

}  // namespace plait
