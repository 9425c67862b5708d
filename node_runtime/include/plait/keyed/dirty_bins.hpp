// Which bins of a lane have changed since the last mark.
//
// A byte a bin. Bins that were empty at the mark count as changed from the start: whether they are
// still empty is seen at the next one. So as soon as every bin with keys has changed there is
// nothing left to look for, and looks() is false: with keys of all bins in every batch that is one
// batch after the mark. Before the first mark it is false too. All calls belong to the holder of
// the lane; nothing waits.
#pragma once

#include <cstdint>
#include <vector>

namespace plait {

class DirtyBins {
 public:
  DirtyBins(unsigned bin_bits, unsigned lane_bits)
      : bin_bits_(bin_bits),
        mask_((uint64_t(1) << (bin_bits - lane_bits)) - 1),
        state_(mask_ + 1, kChanged) {}

  // Whether a bin may change that has not changed yet.
  bool looks() const { return clean_ != 0; }
  void note(const uint64_t* hash, uint32_t n) {
    uint8_t* state = state_.data();
    uint64_t fresh = 0;
    for (uint32_t i = 0; i < n; ++i) {
      // The first shift by 1 lets there be one bin: a shift by 64 is not defined.
      uint8_t& one = state[(hash[i] >> 1 >> (63 - bin_bits_)) & mask_];
      fresh += one == 0;
      one |= kChanged;
    }
    clean_ -= fresh;
  }
  void note_bin(uint32_t bin) {
    uint8_t& one = state_[bin & mask_];
    clean_ -= one == 0;
    one |= kChanged;
  }
  bool changed(uint32_t bin) const { return state_[bin & mask_] != 0; }
  // Whether it had keys at the last mark.
  bool was_empty(uint32_t bin) const { return state_[bin & mask_] & kWasEmpty; }

  // A mark meets the bin: from now on it has not changed.
  void begin(uint32_t bin, bool empty) {
    uint8_t& one = state_[bin & mask_];
    clean_ -= one == 0;
    one = empty ? kWasEmpty : 0;
    clean_ += one == 0;
  }

 private:
  static constexpr uint8_t kChanged = 1, kWasEmpty = 2;

  const unsigned bin_bits_;
  const uint64_t mask_;
  uint64_t clean_ = 0;  // bins that had keys at the mark and have not changed
  std::vector<uint8_t> state_;
};

}  // namespace plait
