// What the stages at both sides of an exchange, and the links between, know of each other.
//
// An exchange is a channel: the route stage of every node sends its part of every unit (epoch,
// source) to every node that takes part; the gather stage of each waits for all parts of a unit.
// Channels have the same numbers on all nodes. Credit: a route stage is at most kWindow frames
// ahead of what the receiver has consumed, so memory is bounded whatever the speed of a node; and
// of frames so large that kWindowBytes are on the way, at most kLeast: what waits longer leaves the
// caches and costs twice.
#pragma once

#include <cstdint>

#include "plait/columns/batch.hpp"
#include "plait/columns/layout.hpp"
#include "plait/links/frame_codec.hpp"

namespace plait {

inline constexpr uint64_t kWindow = 16;
inline constexpr uint64_t kLeast = 4;
inline constexpr int64_t kWindowBytes = 256 << 10;
inline constexpr uint64_t kCreditEvery = 4;  // frames, or sooner:
inline constexpr int64_t kCreditBytes = kWindowBytes / 8;

class Inlet {  // a gather stage
 public:
  virtual ~Inlet() = default;
  virtual void take_part(uint32_t from, Batch&& part) = 0;
  virtual void start_at(uint64_t epoch) = 0;
};

class Outlet {  // a route stage
 public:
  virtual ~Outlet() = default;
  virtual void credit(uint32_t from, uint64_t consumed) = 0;
  virtual void forget(uint32_t peer) = 0;
};

class Wire {  // the node's links
 public:
  virtual ~Wire() = default;
  virtual uint32_t here() const = 0;
  virtual const Layouts& layouts() const = 0;
  virtual void send(uint32_t to, Encoded frame) = 0;
  virtual void send_credit(uint32_t to, uint32_t channel, uint64_t consumed) = 0;
};

}  // namespace plait
