// StatelessLane: a lane that judges each row by its time alone and keeps nothing.
//
// All calls belong to the holder of the lane; never waits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plait/time/lane_operator.hpp"

namespace plait {

class StatelessLane : public LaneOperator {
 public:
  void advance(int64_t, int64_t, Emitter&) override {}
  uint64_t bin_keys(uint32_t) const override { return 0; }
  int64_t byte_size() const override { return 0; }
  std::vector<Bytes> copy_bins(std::span<const uint32_t> bins) const override {
    return std::vector<Bytes>(bins.size());
  }
  void drop_bins(std::span<const uint32_t>) override {}
  std::string put_bin(uint32_t, const uint8_t*, size_t) override {
    return "of another operator: late records have no state";
  }
};

}  // namespace plait
