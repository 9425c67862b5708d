// The hash by which records are kept or shed; its Python twin is shedding/plan.py.
//
// A record is in a sample iff its hash is below the sample's threshold, so smaller samples are
// parts of greater ones. By row: of the seed, the source and the number of the row there, whatever
// became of other rows. By key: of the seed and the canonical hash of the key, mixed again: bins
// are the high bits of that hash, and a threshold on it as it is would empty whole bins. Neither
// may ever change: a run is repeated by it. Pure functions.
#pragma once

#include <cstdint>

#include "plait/columns/batch.hpp"
#include "plait/columns/key_hash.hpp"
#include "plait/core/dispatch.hpp"

namespace plait {

// A bijection of 64 bits in which every bit of the result depends on all (splitmix64's).
PLAIT_INLINE constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}
inline constexpr uint64_t kKeysSeed = 0x7368656462796B79;

inline constexpr uint64_t rows_seed(uint64_t seed, uint32_t source) {
  return mix64(mix64(seed) + (uint64_t(source) + 1) * kGolden);
}
PLAIT_INLINE constexpr uint64_t row_sample(uint64_t rows_seed, int64_t row) {
  return mix64(rows_seed + uint64_t(row) * kGolden);
}
inline constexpr uint64_t keys_seed(uint64_t seed) { return mix64(seed ^ kKeysSeed); }
PLAIT_INLINE constexpr uint64_t key_sample(uint64_t keys_seed, uint64_t key_hash) {
  return mix64(keys_seed + key_hash);
}

// Ones, beside those that are there, for the rows that are below the threshold.
struct LoopSampleRows {
  PLAIT_INLINE static void run(uint64_t seed, int64_t first, const uint32_t* tags, int shift,
                               int64_t n, uint64_t below, uint8_t* mask) {
    if (tags) {
      for (int64_t i = 0; i < n; ++i) {
        mask[i] |= uint8_t(row_sample(seed, first + (tags[i] >> shift)) < below);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) mask[i] |= uint8_t(row_sample(seed, first + i) < below);
    }
  }
};
struct LoopSampleKeys {
  PLAIT_INLINE static void run(uint64_t seed, const uint64_t* hashes, int64_t n, uint64_t below,
                               uint8_t* mask) {
    for (int64_t i = 0; i < n; ++i) mask[i] |= uint8_t(key_sample(seed, hashes[i]) < below);
  }
};

}  // namespace plait
