// GroupBins: some of a lane's bins, by the hashes of the groups that are in them, and the way of
// groups to bytes and back.
//
// A lane operator asks it of each group while bins are copied or dropped; read_group_bin takes the
// bytes of one in. Belongs to the holder of the lane; never waits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plait/groups/group_bytes.hpp"
#include "plait/groups/group_plan.hpp"

namespace plait {

class GroupBins {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  GroupBins(const GroupPlan& plan, std::span<const uint32_t> bins)
      : plan_(plan), bins_(bins), numbers_(size_t(1) << (plan.bin_bits - plan.lane_bits), kNone) {
    for (size_t b = 0; b < bins.size(); ++b) numbers_[plan.bin_in_lane(bins[b])] = uint32_t(b);
  }

  // The position of a group's bin among the bins, or kNone.
  uint32_t of(uint64_t hash) const { return numbers_[plan_.bin_in_lane(plan_.bin(hash))]; }
  bool has(uint64_t hash) const { return of(hash) != kNone; }

  // The bytes of each bin, of what was written for it; none where that is nothing.
  std::vector<Bytes> finish(std::vector<GroupWriter>& writers) const {
    std::vector<Bytes> out(bins_.size());
    for (size_t b = 0; b < bins_.size(); ++b) {
      if (!writers[b].count()) continue;
      out[b] = writers[b].finish(plan_.fingerprint, plan_.bin_bits, bins_[b]);
    }
    return out;
  }

 private:
  const GroupPlan& plan_;
  const std::span<const uint32_t> bins_;
  std::vector<uint32_t> numbers_;  // by the bin's number in the lane
};

inline void write_group_key(GroupWriter& out, const GroupPlan& plan, const Key& key,
                            uint64_t place) {
  out.byte(key.null);
  out.word(place);
  out.word(key.hash);
  if (plan.keys.wide()) out.text(key.bytes);
}
// If it is not a key of this bin, in.ok() is false.
inline Key read_group_key(GroupReader& in, const GroupPlan& plan, uint32_t bin, uint64_t& place) {
  const bool null = in.byte() != 0;
  place = in.word();
  Key key{in.word(), null, {}};
  if (plan.keys.wide()) key.bytes = in.text();
  if (!in.ok() || !plan.came_with(key.hash, bin) || !plan.keys.right(key)) in.fail();
  return key;
}

// Takes the bytes of a bin in: `read` is called for each entry in them. Else why not: they are
// refused, the bin is `here`, or what was read is not `what`, and `undo` takes it out again.
template <class Read, class Undo>
std::string read_group_bin(const GroupPlan& plan, uint32_t bin, bool here, const uint8_t* data,
                           size_t size, const char* what, Read&& read, Undo&& undo) {
  BinHeader h, expected;
  expected.bin_bits = uint16_t(plan.put_bits);
  expected.bin = bin;
  expected.fingerprint = plan.fingerprint;
  std::string reason = unsealed_bin(BinKind::Timed, expected, data, size, h);
  if (!reason.empty()) return reason;
  if (here && plan.put_bits == plan.bin_bits)
    return "bin " + std::to_string(bin) + " is here already";
  GroupReader in(data + sizeof h, data + size);
  for (uint64_t i = 0; i < h.count && in.ok(); ++i) read(in);
  if (in.at_end()) return "";
  undo();
  return std::string("damaged: not ") + what + " of this bin";
}

}  // namespace plait
