// Links: the connections of one node with the other nodes of its job: TCP, or, on one host, local.
//
// For each ordered pair of nodes the sender dials two connections: data, and bulk for state, so
// that state never stands before records. There are no threads in here: `send` writes at once what
// the connection takes, and `poll` receives, writes the rest, dials, acknowledges; the engine's
// workers call it between their work and wait in it when they have none. Frames to a peer arrive in
// the order sent, each once, over any number of lost connections.
//
// Threads: send, send_bulk, add_peer, drop_peer, reconnect, wake and the questions: any; poll: any,
// one at a time, another caller gets false at once. `listen` before the first poll. No call may be
// running when the object goes. Progress: only poll waits, and only if asked to. "Full" does not
// exist: the caller bounds what it sends by credits, and a peer that does not read has only its own
// queue grow.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/links/in_link.hpp"
#include "plait/links/link_bell.hpp"
#include "plait/links/link_peer.hpp"

namespace plait {

class Links {
 public:
  Links(uint32_t rank, std::string job, std::string token, LinkOptions options,
        LinkHandler& handler)
      : context_(rank, std::move(job), std::move(token), options, handler),
        bell_(context_),
        greetings_(options.greet_per_s, options.greet_at_once) {}
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Port 0: any free one. Returns the port. Throws std::runtime_error in words.
  uint16_t listen(const std::string& host, uint16_t port) {
    door_.socket = open_listener(host, port);
    const uint16_t given = port_of(door_.socket.fd());
    if (context_.options.local) local_door_.socket = open_local(given);
    for (Door* door : {&door_, &local_door_}) door->links = this;
    if (!open(door_)) throw std::runtime_error("cannot watch the port: " + errno_text(errno));
    if (local_door_.socket && !open(local_door_)) local_door_.socket.close();
    return given;
  }

  // Nobody can connect any more, and the port is free again. When no call of poll is running.
  void close_door() {
    door_.socket.close();
    local_door_.socket.close();
  }

  // From the next poll on the peer is dialled. Looks up the host, so it may wait; throws
  // std::runtime_error when there is no such host. A peer that is known already is left alone.
  void add_peer(uint32_t rank, const std::string& host, uint16_t port) {
    auto addresses = look_up(host, port, false);
    if (context_.options.local) addresses = with_local(std::move(addresses), port);
    auto peer = std::make_shared<LinkPeer>(context_, rank, std::move(addresses));
    {
      std::lock_guard<std::mutex> hold(lock_);
      if (!peers_.emplace(rank, peer).second) return;
      context_.set_dropped(rank, false);
      changes_.push_back({Change::Kind::Add, rank, std::move(peer)});
      changed_.store(true, std::memory_order_release);  // pairs with the exchange in adopt
    }
    wake();
  }

  // Forgets the peer and all queued for it. Once this returns nothing more comes from it, but for
  // the frame that another thread is handling now; it cannot connect again unless it is added.
  void drop_peer(uint32_t rank) {
    {
      std::lock_guard<std::mutex> hold(lock_);
      std::shared_ptr<LinkPeer> peer;
      const auto found = peers_.find(rank);
      if (found != peers_.end()) {
        peer = std::move(found->second);
        peers_.erase(found);
        peer->forget();
      }
      context_.set_dropped(rank, true);
      changes_.push_back({Change::Kind::Drop, rank, std::move(peer)});
      changed_.store(true, std::memory_order_release);  // pairs with the exchange in adopt
    }
    wake();
  }

  // Ends the connections to the peer as if they were lost; they are dialled again.
  void reconnect(uint32_t rank) {
    {
      std::lock_guard<std::mutex> hold(lock_);
      changes_.push_back({Change::Kind::Cut, rank, nullptr});
      changed_.store(true, std::memory_order_release);  // pairs with the exchange in adopt
    }
    wake();
  }

  // A frame for a peer that is not known is let go.
  void send(uint32_t to, Encoded frame) {
    if (const auto peer = find(to)) put(peer->data, std::move(frame));
  }
  void send_bulk(uint32_t to, Encoded frame) {
    if (const auto peer = find(to)) put(peer->bulk, std::move(frame));
  }

  // Receives, writes, dials; whether anything moved. Waits at most `timeout_ns` for something to
  // do, or until `wake`. False at once when another thread polls.
  bool poll(int64_t timeout_ns) {
    const std::unique_lock<std::mutex> hold(poll_lock_, std::try_to_lock);
    if (!hold.owns_lock()) return false;
    context_.now = link_now_ns();
    context_.moved = false;
    adopt();
    act();
    if (!serve() && !context_.moved && timeout_ns > 0) {
      if (rings_sleep(true)) {
        bell_.wait(context_.epoll.fd(), std::min(timeout_ns, next_due_ - context_.now));
      }
      rings_sleep(false);
      context_.now = link_now_ns();
      serve();
      act();
    }
    return context_.moved;
  }

  // Ends a waiting poll, or keeps the next one from waiting.
  void wake() { bell_.ring(); }
  bool waiting() const { return bell_.waiting(); }

  // Queued and not yet written to the connection, data and bulk.
  int64_t unsent_bytes(uint32_t to) const {
    const auto peer = find(to);
    return peer ? peer->unsent_bytes() : 0;
  }
  int64_t unsent_bulk_bytes(uint32_t to) const {
    const auto peer = find(to);
    return peer ? peer->bulk.queue.unsent_bytes() : 0;
  }
  // Frames of either connection that the peer has not acknowledged; 0: it has handled them all.
  int64_t held_frames(uint32_t to) const {
    const auto peer = find(to);
    return peer ? peer->data.queue.held() + peer->bulk.queue.held() : 0;
  }
  // Peers without a data or bulk connection now, ascending.
  std::vector<uint32_t> down_peers() const {
    std::lock_guard<std::mutex> hold(lock_);
    std::vector<uint32_t> out;
    for (const auto& [rank, peer] : peers_) {
      if (!peer->up()) out.push_back(rank);
    }
    return out;
  }
  LinkTraffic traffic(uint32_t rank) {
    const auto peer = find(rank);
    return traffic_of(rank, *context_.counts_of(rank), peer.get());
  }
  // How many connections to this node were refused; of the last one, why and from where.
  Refusal refusals() const { return context_.refusals.last(); }

 private:
  struct Change {
    enum class Kind : uint8_t { Add, Drop, Cut };
    Kind kind;
    uint32_t rank;
    std::shared_ptr<LinkPeer> peer;
  };
  struct Door final : Watched {
    Links* links = nullptr;
    Socket socket;
    uint64_t id = 0;
    int64_t opens_ns = INT64_MAX;  // when it is watched again, if it is not
    void ready(uint32_t) override { links->let_in(*this); }
  };

  std::shared_ptr<LinkPeer> find(uint32_t rank) const {
    std::lock_guard<std::mutex> hold(lock_);
    const auto found = peers_.find(rank);
    return found == peers_.end() ? nullptr : found->second;
  }

  void put(OutLink& link, Encoded frame) {
    if (link.queue.push(std::move(frame), link.most())) wake();
  }

  // Takes over what other threads have asked for, in their order.
  void adopt() {
    if (!changed_.load(std::memory_order_acquire)) return;  // pairs with the stores
    std::vector<Change> changes;
    {
      std::lock_guard<std::mutex> hold(lock_);
      changed_.store(false, std::memory_order_relaxed);
      changes.swap(changes_);
    }
    for (Change& c : changes) {
      if (c.kind == Change::Kind::Add) {
        active_[c.rank] = std::move(c.peer);
      } else if (c.kind == Change::Kind::Cut) {
        const auto found = active_.find(c.rank);
        if (found == active_.end()) continue;
        found->second->shut();
      } else {
        if (const auto found = active_.find(c.rank); found != active_.end()) {
          found->second->close();
          active_.erase(found);
        }
        for (const auto& in : inward_) {
          if (in->is_from(c.rank)) in->close();
        }
        remove_closed();
        context_.inboxes.erase({c.rank, false});
        context_.inboxes.erase({c.rank, true});
        context_.clocks.erase(c.rank);
      }
    }
    context_.replan = true;
  }

  // Dials what is due, acknowledges, writes what nobody else writes; plans the next time.
  void act() {
    for (const auto& [rank, peer] : active_) {
      context_.moved |= peer->flush();
    }
    if (!context_.replan && context_.now < next_due_) return;
    context_.replan = false;
    for (const auto& [rank, peer] : active_) peer->tick();
    for (const auto& in : inward_) in->tick();
    remove_closed();
    for (Door* door : {&door_, &local_door_}) {
      if (context_.now >= door->opens_ns && !open(*door)) door->opens_ns = context_.now + kRetryNs;
    }
    next_due_ = std::min(door_.opens_ns, local_door_.opens_ns);
    for (const auto& [rank, peer] : active_) {
      next_due_ = std::min(next_due_, peer->due());
    }
    for (const auto& in : inward_) next_due_ = std::min(next_due_, in->due());
  }

  // Handles what the system reports now; whether there was anything.
  bool serve() {
    std::array<epoll_event, 64> events;
    const int n = ::epoll_wait(context_.epoll.fd(), events.data(), int(events.size()), 0);
    for (int i = 0; i < n; ++i) {
      const epoll_event& e = events[size_t(i)];
      if (Watched* who = context_.find(e.data.u64)) who->ready(e.events);
    }
    for (const auto& in : inward_) in->poll();
    return n > 0;
  }
  // False: there is something in one, and nobody may sleep.
  bool rings_sleep(bool on) {
    bool empty = true;
    for (const auto& in : inward_) empty = in->sleeps(on) && empty;
    return empty;
  }

  [[nodiscard]] bool open(Door& door) {
    if (!context_.watch(door.socket.fd(), EPOLLIN, door, door.id)) return false;
    door.opens_ns = INT64_MAX;
    return true;
  }
  // Who knocks meanwhile waits in the system's queue.
  void shut_until(Door& door, int64_t ns) {
    context_.unwatch(door.socket.fd(), door.id);
    door.opens_ns = ns;
    context_.replan = true;
  }

  void let_in(Door& door) {
    for (int i = 0; i < 16; ++i) {
      if (!greetings_.take(context_.now)) return shut_until(door, greetings_.next_ns());
      Address from;
      from.size = sizeof from.bytes;
      Socket s(::accept4(door.socket.fd(), reinterpret_cast<sockaddr*>(&from.bytes), &from.size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!s) return out_of_descriptors() ? shut_until(door, context_.now + kRetryNs) : void();
      if (&door == &local_door_ && !same_user(s.fd())) {
        context_.refusals.add("it belongs to another user", text_of(from));
        continue;
      }
      inward_.push_back(std::make_unique<InLink>(context_, std::move(s), text_of(from)));
      drop_oldest_strangers();
      context_.moved = context_.replan = true;
    }
  }
  // The connection stays in the queue: without a pause the poll would never wait.
  static bool out_of_descriptors() {
    return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  }
  // The oldest had the most time to prove itself. One that belongs here takes a round trip for it,
  // in which greet_per_s lets in too few to drive it out.
  void drop_oldest_strangers() {
    const auto is_stranger = [](const auto& in) { return !in->closed() && !in->trusted(); };
    auto more = std::count_if(inward_.begin(), inward_.end(), is_stranger) -
                int64_t(context_.options.max_strangers);
    for (size_t i = 0; more > 0; ++i) {
      if (!is_stranger(inward_[i])) continue;
      inward_[i]->make_way();
      --more;
    }
  }

  void remove_closed() {
    std::erase_if(inward_, [](const auto& in) { return in->closed(); });
  }

  static constexpr int64_t kRetryNs = 100'000'000;

  LinkContext context_;
  LinkBell bell_;
  GreetLimit greetings_;
  Door door_, local_door_;
  std::mutex poll_lock_;
  std::atomic<bool> changed_{false};

  mutable std::mutex lock_;  // the next two
  std::map<uint32_t, std::shared_ptr<LinkPeer>> peers_;
  std::vector<Change> changes_;

  // The thread that polls.
  std::map<uint32_t, std::shared_ptr<LinkPeer>> active_;
  std::vector<std::unique_ptr<InLink>> inward_;
  int64_t next_due_ = 0;
};

}  // namespace plait
