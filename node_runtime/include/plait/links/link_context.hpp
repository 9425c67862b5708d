// LinkContext: what the connections of one node share, among them the epoll set that watches them.
//
// A connection is watched under a number that is never used again, so an event that was already
// fetched for a connection closed since finds nothing. Threads: all of it belongs to the thread
// that polls, but for `counts_of`, `refusals`, `dropped` and the constants, which any thread may
// use.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "plait/links/link_handshake.hpp"
#include "plait/links/link_options.hpp"
#include "plait/links/link_socket.hpp"
#include "plait/links/strangers.hpp"

namespace plait {

class Watched {
 public:
  virtual ~Watched() = default;
  virtual void ready(uint32_t events) = 0;
};

// What is known of the frames that come from one peer by one kind of connection; outlives each
// connection.
struct Inbox {
  uint64_t session = 0;  // of the process that sends; 0: none yet
  uint64_t last = 0;     // the last frame taken
  Watched* reader = nullptr;
};

class LinkContext {
 public:
  LinkContext(uint32_t rank_, std::string job_, std::string token_, LinkOptions options_,
              LinkHandler& handler_)
      : rank(rank_),
        job(std::move(job_)),
        token(std::move(token_)),
        options(options_),
        handler(handler_),
        epoll(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll) throw std::runtime_error("no epoll set: " + errno_text(errno));
    const std::string bytes = random_bytes(sizeof session);
    std::memcpy(&session, bytes.data(), sizeof session);
    session |= 1;  // 0 means none
  }

  const uint32_t rank;
  const std::string job, token;
  const LinkOptions options;
  LinkHandler& handler;
  uint64_t session = 0;
  const Socket epoll;

  int64_t now = 0;      // of the present poll
  bool moved = false;   // something was sent or received in it
  bool replan = false;  // the next time to act may have changed
  Refusals refusals;    // of connections to this node
  std::map<std::pair<uint32_t, bool>, Inbox> inboxes;

  struct PeerClock {
    int64_t offset_ns = 0, error_ns = INT64_MAX;
  };
  std::map<uint32_t, PeerClock> clocks;  // of the peers, against ours

  [[nodiscard]] bool watch(int fd, uint32_t events, Watched& who, uint64_t& id) {
    epoll_event e{};
    e.events = events;
    e.data.u64 = last_id_ + 1;
    if (::epoll_ctl(epoll.fd(), EPOLL_CTL_ADD, fd, &e) != 0) return false;
    id = ++last_id_;
    watched_[id] = &who;
    return true;
  }
  void unwatch(int fd, uint64_t& id) {
    if (id == 0) return;
    ::epoll_ctl(epoll.fd(), EPOLL_CTL_DEL, fd, nullptr);
    watched_.erase(id);
    id = 0;
  }
  Watched* find(uint64_t id) const {
    const auto found = watched_.find(id);
    return found == watched_.end() ? nullptr : found->second;
  }

  std::shared_ptr<LinkCounts> counts_of(uint32_t peer) {
    std::lock_guard<std::mutex> hold(lock_);
    auto& counts = counts_[peer];
    if (!counts) counts = std::make_shared<LinkCounts>();
    return counts;
  }

  void set_dropped(uint32_t peer, bool dropped) {
    std::lock_guard<std::mutex> hold(lock_);
    if (dropped) {
      dropped_.insert(peer);
    } else {
      dropped_.erase(peer);
    }
    // release pairs with the acquire in drops(): who sees the new number sees the set.
    drops_.fetch_add(1, std::memory_order_release);
  }
  uint64_t drops() const { return drops_.load(std::memory_order_acquire); }
  bool dropped(uint32_t peer) const {
    std::lock_guard<std::mutex> hold(lock_);
    return dropped_.count(peer) != 0;
  }

 private:
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, Watched*> watched_;
  mutable std::mutex lock_;
  std::map<uint32_t, std::shared_ptr<LinkCounts>> counts_;
  std::set<uint32_t> dropped_;
  std::atomic<uint64_t> drops_{0};
};

}  // namespace plait
