// CHECK for the native tests: an assertion that stays on in every build and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace plait::testing {

// What to print before a failed check's message; the explorer puts its seed here.
inline std::string& story() {
  static std::string text;
  return text;
}

[[noreturn]] inline void fail(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%sCHECK failed at %s:%d: %s\n", story().c_str(), file, line, what);
  std::fflush(nullptr);
  std::_Exit(1);
}

// The first argument as a number, or `fallback`.
inline unsigned long argument(int argc, char** argv, unsigned long fallback) {
  return argc > 1 ? std::strtoul(argv[1], nullptr, 10) : fallback;
}

}  // namespace plait::testing

#define CHECK(condition) \
  ((condition) ? void() : ::plait::testing::fail(#condition, __FILE__, __LINE__))
