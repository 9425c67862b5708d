// Capacities of the bounded structures: powers of two, so that a position becomes a slot by a mask.
//
// A wrong capacity is a mistake of the caller and is refused when the structure is built, with the
// value in the message; it is never rounded in silence. Pure functions, any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace plait {

// Returns `capacity` if it is a power of two of at least `least`; throws std::invalid_argument if
// not.
inline std::size_t checked_capacity(std::size_t capacity, std::size_t least = 1) {
  if (!std::has_single_bit(capacity) || capacity < least) {
    throw std::invalid_argument("capacity must be a power of two of at least " +
                                std::to_string(least) + ", got " + std::to_string(capacity));
  }
  return capacity;
}

// Returns `count` if it is at least 1; throws std::invalid_argument if not.
inline std::size_t checked_count(const char* what, std::size_t count) {
  if (count == 0) throw std::invalid_argument(std::string(what) + " must be at least 1, got 0");
  return count;
}

}  // namespace plait
