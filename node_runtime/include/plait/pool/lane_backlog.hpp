// LaneBacklog: what a stage with its state in the pool has to give to the lanes and has not given
// yet.
//
// Messages go in the order in which they were added, those of one item lane by lane; what the ring
// has no room for is kept and tried again. What is not awaited any more is not given. One thread at
// a time: the holder of the stage's flag.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/pool/lane_work.hpp"

namespace plait {

class LaneBacklog {
 public:
  LaneBacklog(const LaneWork& work, PoolLanes& lanes, LaneReturns& returns)
      : work_(work), lanes_(lanes), returns_(returns) {}

  bool empty() const { return giving_.empty(); }
  // The messages of a batch, whose serial was sent.
  void add(uint64_t serial, Asked& what) {
    giving_.push_back({serial, {what.messages.begin(), what.messages.end()}, std::move(what.bins)});
  }
  // Asks for bins; Copy: all lanes for all that have state. False: no answer comes.
  bool ask_bins(uint64_t serial, LaneDo what, const std::vector<uint32_t>& bins) {
    std::vector<std::shared_ptr<LaneMessage>> by_lane(lanes_.lanes());
    auto at = [&](uint32_t lane) -> LaneMessage& {
      if (!by_lane[lane]) by_lane[lane] = std::make_shared<LaneMessage>();
      by_lane[lane]->what = what;
      return *by_lane[lane];
    };
    for (uint32_t bin : bins) at(work_.lane_of(bin)).bins.push_back(bin);
    for (uint32_t lane = 0; what == LaneDo::Copy && lane < by_lane.size(); ++lane) {
      at(lane).all = true;
    }
    return send(serial, std::move(by_lane));
  }
  bool put_bins(uint64_t serial, std::vector<Control::Bin>& bins) {
    std::vector<std::shared_ptr<LaneMessage>> by_lane(lanes_.lanes());
    for (auto& bin : bins) {
      auto& m = by_lane[work_.lane_of(bin.bin)];
      if (!m) m = std::make_shared<LaneMessage>();
      m->what = LaneDo::Put;
      m->put.push_back({bin.bin, std::move(bin.bytes)});
    }
    return send(serial, std::move(by_lane));
  }

  // Gives what is left. False: there is no room; `chances`: LaneReturns::chances before that.
  bool give(uint64_t& chances) {
    for (Giving& g : giving_) {
      for (uint32_t lane = 0; lane < g.messages.size(); ++lane) {
        if (!g.messages[lane]) continue;
        if (!needed(g.serial)) break;
        chances = returns_.chances();
        if (!try_give(lane, g)) return false;
        g.messages[lane] = nullptr;
      }
    }
    giving_.clear();
    return true;
  }

 private:
  struct Giving {
    uint64_t serial = 0;
    std::vector<PoolLanes::Message> messages;  // by lane; those that were given are null
    std::vector<std::vector<uint32_t>> bins;   // by lane: those that rows may change; or nothing
  };

  bool send(uint64_t serial, std::vector<std::shared_ptr<LaneMessage>> by_lane) {
    Asked what;
    what.messages = std::move(by_lane);
    if (!what.count()) return false;
    if (serial != PoolLanes::kNobody && !returns_.send(serial, what.count(), true)) return false;
    add(serial, what);
    return true;
  }
  // False: it was dropped, or nobody is there to take it.
  bool needed(uint64_t serial) const {
    return serial == PoolLanes::kNobody ? returns_.why().empty() : returns_.waits(serial);
  }
  bool try_give(uint32_t lane, const Giving& g) {
    try {
      static const std::vector<uint32_t> kNone;
      return lanes_.try_give(lane, g.serial, g.messages[lane],
                             lane < g.bins.size() ? g.bins[lane] : kNone);
    } catch (const std::exception& error) {
      returns_.broke(std::string("the runtime failed: ") + error.what());
      return true;
    }
  }

  const LaneWork& work_;
  PoolLanes& lanes_;
  LaneReturns& returns_;
  std::vector<Giving> giving_;
};

}  // namespace plait
