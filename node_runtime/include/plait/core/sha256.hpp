// SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104), for proving that two nodes hold the same token.
//
// Plain and short rather than fast: it runs twice for each connection, never for a record. `same`
// compares in a time that does not depend on where the bytes differ. Pure functions over bytes: any
// thread, no waiting.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace plait {

using Digest = std::array<uint8_t, 32>;

namespace sha256_detail {

inline constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

inline void absorb(std::array<uint32_t, 8>& state, const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = uint32_t(block[4 * i]) << 24 | uint32_t(block[4 * i + 1]) << 16 |
           uint32_t(block[4 * i + 2]) << 8 | uint32_t(block[4 * i + 3]);
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  std::array<uint32_t, 8> s = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t mix_e = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
    const uint32_t mix_a = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
    const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
    const uint32_t most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    const uint32_t t = s[7] + mix_e + choice + kRound[i] + w[i];
    s = {t + mix_a + most, s[0], s[1], s[2], s[3] + t, s[4], s[5], s[6]};
  }
  for (size_t i = 0; i < 8; ++i) state[i] += s[i];
}

}  // namespace sha256_detail

inline Digest sha256(std::string_view text) {
  std::array<uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* at = reinterpret_cast<const uint8_t*>(text.data());
  size_t left = text.size();
  for (; left >= 64; left -= 64, at += 64) sha256_detail::absorb(state, at);
  std::array<uint8_t, 128> tail{};
  if (left) std::memcpy(tail.data(), at, left);
  tail[left] = 0x80;
  const size_t end = left < 56 ? 64 : 128;
  const uint64_t bits = uint64_t(text.size()) * 8;
  for (size_t i = 0; i < 8; ++i) tail[end - 1 - i] = uint8_t(bits >> (8 * i));
  for (size_t i = 0; i < end; i += 64) sha256_detail::absorb(state, tail.data() + i);
  Digest out;
  for (size_t i = 0; i < 32; ++i) out[i] = uint8_t(state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

inline Digest hmac_sha256(std::string_view key, std::string_view text) {
  std::array<char, 64> block{};
  if (key.size() > block.size()) {
    const Digest small = sha256(key);
    std::memcpy(block.data(), small.data(), small.size());
  } else if (!key.empty()) {
    std::memcpy(block.data(), key.data(), key.size());
  }
  std::string inner, outer;
  for (const char c : block) {
    inner.push_back(char(c ^ 0x36));
    outer.push_back(char(c ^ 0x5c));
  }
  inner.append(text);
  const Digest first = sha256(inner);
  outer.append(reinterpret_cast<const char*>(first.data()), first.size());
  return sha256(outer);
}

inline bool same(std::string_view a, const Digest& b) {
  if (a.size() != b.size()) return false;
  unsigned differ = 0;
  for (size_t i = 0; i < b.size(); ++i) differ |= uint8_t(a[i]) ^ unsigned(b[i]);
  return differ == 0;
}

}  // namespace plait
