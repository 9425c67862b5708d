// How many bytes of text a column of a unit may hold: its offsets are 32 bits wide.
//
// Sources cut their units far below that, so only operators that make more of a unit (a text put
// together, a record that becomes many, results of windows that end together) come near it. Then no
// record is to blame, and none fails: the job ends with words. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>

namespace plait {

struct TextLimit {
  // Tests shrink it, while nothing runs.
  static inline std::atomic<int64_t> most{INT32_MAX};
  static int64_t bytes() { return most.load(std::memory_order_relaxed); }
  // A source that can cut its units anywhere puts no more into one (256 MiB).
  static int64_t unit_bytes() { return bytes() / 8 + 1; }
};

inline void set_text_limit(int64_t bytes) {
  TextLimit::most.store(bytes, std::memory_order_relaxed);
}

struct TooMuchText : std::length_error {
  TooMuchText()
      : std::length_error(
            "the texts of one column take more than 2 GiB in a unit; give the source a smaller"
            " epoch_records=, or make fewer or shorter texts of a record") {}
};

inline void check_text(int64_t bytes) {
  if (bytes > TextLimit::bytes()) throw TooMuchText();
}

}  // namespace plait
