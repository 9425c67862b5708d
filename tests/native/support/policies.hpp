// The policies under test: right by default, weakened in one place by a build flag.
//
// Each PLAIT_BUG_ flag is a fault that a careless change could bring in; the tests of the tests
// build with it and demand that the sanitizer or the explorer reports it.
#pragma once

#include "plait/core/atomics.hpp"

namespace plait::testing {

template <class Base>
struct Seeded : Base {
#ifdef PLAIT_BUG_RELAXED_PUBLISH
  static constexpr std::memory_order kPublish = std::memory_order_relaxed;
#endif
#ifdef PLAIT_BUG_SILENT_FLAG
  static constexpr std::memory_order kRaiseFlag = std::memory_order_acquire;
#endif
#ifdef PLAIT_BUG_NO_RECHECK
  static constexpr bool kRecheck = false;
#endif
#ifdef PLAIT_BUG_SILENT_MARK
  static constexpr std::memory_order kMark = std::memory_order_relaxed;
#endif
#ifdef PLAIT_BUG_UNLIST_LATE
  static constexpr bool kUnlistFirst = false;
#endif
#ifdef PLAIT_BUG_COUNT_BEFORE_OPERATE
  static constexpr bool kOperateThenRelease = false;
#endif
};

using TestAtomics = Seeded<RealAtomics>;

}  // namespace plait::testing
