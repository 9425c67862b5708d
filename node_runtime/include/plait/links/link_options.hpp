// What can be set about the links of a node, what they count, and who hears of their events.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "plait/links/frame.hpp"

namespace plait {

struct LinkOptions {
  FrameLimits limits;
  int64_t handshake_ns = 5'000'000'000;  // a connection that is not trusted by then is closed
  int64_t redial_least_ns = 10'000'000, redial_most_ns = 1'000'000'000;
  uint32_t max_strangers = 64;  // connections not yet trusted, at a time; then the oldest goes
  // Connections that are accepted: so many a second, and so many at once.
  uint32_t greet_per_s = 500, greet_at_once = 128;
  int64_t read_chunk_bytes = (256 << 10) - 64;  // with the slack of a buffer: 256 KB
  int64_t read_per_poll_bytes = 1 << 20;        // of one connection, then the next has its turn
  int64_t bulk_per_poll_bytes = 256 << 10;      // written to one peer's bulk connection
  uint32_t ack_frames = 64;
  int64_t ack_bytes = 1 << 20;
  int64_t ack_delay_ns = 2'000'000;
  bool local = true;                  // nodes of one host use a socket of the host instead of TCP
  uint64_t ring_bytes = 512 << 10;    // between nodes of one host: shared memory; 0: none
  int64_t same_clock_ns = 1'000'000;  // clocks that may differ by so little are one clock
};

// Hears of what comes in. All of it is called inside poll(), by the thread that polls, one call at
// a time; it may send, add and drop peers, and must not throw.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  virtual void frame(uint32_t from, Frame&& frame) = 0;
  virtual void up(uint32_t peer) = 0;
  // The connection to the peer was lost, or is refused for a reason not told before; it is dialled
  // again until the peer is dropped.
  virtual void down(uint32_t peer, const std::string& why) = 0;
};

// Counts of one peer, over all its connections. Relaxed everywhere: statistics.
struct LinkCounts {
  std::atomic<int64_t> frames_sent{0}, bytes_sent{0}, frames_received{0}, bytes_received{0};
  std::atomic<int64_t> duplicates{0}, connected{0};
};

struct LinkTraffic {
  uint32_t peer = 0;
  int64_t frames_sent = 0, bytes_sent = 0, frames_received = 0, bytes_received = 0;
  int64_t duplicates = 0;  // frames received again after a reconnect, and left out
  int64_t connected = 0;   // how often a connection to the peer came up
  int64_t unsent_bytes = 0;
  bool up = false;
  std::string why_down;
};

inline int64_t link_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace plait
