// LinkPeer: the two connections on which this node sends to one other node. Threads: as OutLink.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "plait/links/out_link.hpp"

namespace plait {

struct LinkPeer {
  LinkPeer(LinkContext& context, uint32_t rank, std::vector<Address> addresses)
      : data(context, rank, false, addresses), bulk(context, rank, true, std::move(addresses)) {}

  OutLink data, bulk;

  bool up() const { return data.up() && bulk.up(); }
  int64_t unsent_bytes() const { return data.queue.unsent_bytes() + bulk.queue.unsent_bytes(); }
  void forget() {
    data.queue.forget();
    bulk.queue.forget();
  }

  // The thread that polls.
  int64_t due() const { return std::min(data.due(), bulk.due()); }
  void tick() {
    data.tick();
    bulk.tick();
  }
  void shut() const {
    data.shut();
    bulk.shut();
  }
  void close() {
    data.close();
    bulk.close();
  }
  // Writes what nobody else is writing; whether anything was.
  bool flush() {
    bool wrote = false;
    for (OutLink* link : {&data, &bulk}) {
      if (link->queue.ready()) wrote |= link->queue.flush(link->most());
    }
    return wrote;
  }
};

// `peer` is null for a node that only sends to us.
inline LinkTraffic traffic_of(uint32_t rank, const LinkCounts& counts, const LinkPeer* peer) {
  LinkTraffic t;
  t.peer = rank;
  t.frames_sent = counts.frames_sent.load(std::memory_order_relaxed);
  t.bytes_sent = counts.bytes_sent.load(std::memory_order_relaxed);
  t.frames_received = counts.frames_received.load(std::memory_order_relaxed);
  t.bytes_received = counts.bytes_received.load(std::memory_order_relaxed);
  t.duplicates = counts.duplicates.load(std::memory_order_relaxed);
  t.connected = counts.connected.load(std::memory_order_relaxed);
  if (peer) {
    t.unsent_bytes = peer->unsent_bytes();
    t.up = peer->up();
    if (!t.up) t.why_down = peer->data.up() ? peer->bulk.why_down() : peer->data.why_down();
  }
  return t;
}

}  // namespace plait
