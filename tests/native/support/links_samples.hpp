// A node of the links' tests: its links, a thread that polls them, and what it has received.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "plait/links/links.hpp"

namespace plait::testing {

// Waits for other threads' work; a test that waits for ever is ended from outside.
inline void until(const std::function<bool()>& done) {
  while (!done()) std::this_thread::yield();
}

// Whether the nodes of a test take the short way on one host.
inline bool& over_local() {
  static bool yes = true;
  return yes;
}
// How large their rings are; 0: none.
inline uint64_t& ring_bytes() {
  static uint64_t bytes = LinkOptions().ring_bytes;
  return bytes;
}
inline LinkOptions with_way(LinkOptions options) {
  options.local = over_local();
  options.ring_bytes = ring_bytes();
  return options;
}

class LinkNode : public LinkHandler {
 public:
  explicit LinkNode(uint32_t rank, std::string token = "token", LinkOptions options = {},
                    std::string job = "job", uint16_t wanted_port = 0,
                    const std::string& host = "127.0.0.1")
      : links(rank, std::move(job), std::move(token), with_way(options), *this),
        port(links.listen(host, wanted_port)) {}
  ~LinkNode() override { stop(); }

  Links links;
  const uint16_t port;
  std::function<void(uint32_t, Frame&&)> on_frame = [](uint32_t, Frame&&) {};

  void start() {
    poller_ = std::thread([this] {
      while (!stopping_.load(std::memory_order_acquire)) links.poll(50'000'000);
    });
  }
  void stop() {
    stopping_.store(true, std::memory_order_release);  // pairs with the acquire in the thread
    links.wake();
    if (poller_.joinable()) poller_.join();
  }

  void frame(uint32_t from, Frame&& frame) override {
    on_frame(from, std::move(frame));
    received_.fetch_add(1, std::memory_order_release);  // pairs with the acquire in received()
  }
  void up(uint32_t) override { ups_.fetch_add(1, std::memory_order_relaxed); }
  void down(uint32_t peer, const std::string& why) override {
    std::lock_guard<std::mutex> hold(lock_);
    downs_.emplace_back(peer, why);
  }

  uint64_t received() const { return received_.load(std::memory_order_acquire); }
  int ups() const { return ups_.load(std::memory_order_relaxed); }
  bool was_down(uint32_t peer, const std::string& why) const {
    std::lock_guard<std::mutex> hold(lock_);
    for (const auto& [rank, text] : downs_) {
      if (rank == peer && text.find(why) != std::string::npos) return true;
    }
    return false;
  }

 private:
  std::thread poller_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> received_{0};
  std::atomic<int> ups_{0};
  mutable std::mutex lock_;
  std::vector<std::pair<uint32_t, std::string>> downs_;
};

// Rows of one column, all of them `value`.
inline Batch rows_of(int64_t value, int64_t n) {
  Batch b;
  b.length = n;
  b.epoch = uint64_t(value);
  Column c;
  c.length = n;
  c.data_owner = BufferRef::make(8 * n);
  for (int64_t i = 0; i < n; ++i) c.data_owner.as<int64_t>()[i] = value;
  c.data = c.data_owner.data();
  b.columns.push_back(std::move(c));
  return b;
}

// A blocking connection that speaks the protocol by hand.
class RawLink {
 public:
  explicit RawLink(uint16_t port) {
    const Address to = look_up("127.0.0.1", port, false).front();
    socket_ = Socket(::socket(to.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(::connect(socket_.fd(), reinterpret_cast<const sockaddr*>(&to.bytes), to.size) == 0);
  }
  explicit RawLink(Socket socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.fd(); }
  bool send(const void* data, int64_t size) {
    return ::send(socket_.fd(), data, size_t(size), MSG_NOSIGNAL) == size;
  }
  bool send(const Encoded& e, uint64_t sequence = 0) {
    std::memcpy(e.bytes.data() + 16, &sequence, 8);
    return send(e.bytes.data(), e.size);
  }
  // The next whole frame; empty when the connection has ended.
  std::vector<uint64_t> read() {
    std::vector<uint64_t> out(size_t(kPrefixBytes / 8));
    if (!read_exactly(out.data(), kPrefixBytes)) return {};
    Prefix prefix;
    CHECK(read_prefix(reinterpret_cast<const uint8_t*>(out.data()), FrameLimits(), prefix).empty());
    out.resize(size_t(prefix.frame_bytes() / 8));
    if (!read_exactly(out.data() + kPrefixBytes / 8, prefix.frame_bytes() - kPrefixBytes))
      return {};
    return out;
  }
  Handshake handshake() {
    const std::vector<uint64_t> bytes = read();
    Handshake out;
    CHECK(!bytes.empty());
    CHECK(decode_handshake(reinterpret_cast<const uint8_t*>(bytes.data()),
                           int64_t(bytes.size() * 8), out)
              .empty());
    return out;
  }
  Hello hello(uint32_t rank, uint32_t to, const std::string& token, int64_t clock_ahead_ns = 0) {
    const Handshake challenge = handshake();
    CHECK(challenge.kind == FrameKind::Challenge);
    Hello h;
    h.job = "job";
    h.rank = rank;
    h.to = to;
    h.session = 99;
    h.nonce = random_bytes(16);
    h.proof = hello_proof(token, challenge.nonce, h);
    h.now_ns = link_now_ns() + clock_ahead_ns;
    return h;
  }

 private:
  bool read_exactly(void* to, int64_t size) {
    auto* at = static_cast<uint8_t*>(to);
    while (size > 0) {
      const ssize_t n = ::recv(socket_.fd(), at, size_t(size), 0);
      if (n <= 0) return false;
      at += n;
      size -= n;
    }
    return true;
  }
  Socket socket_;
};

}  // namespace plait::testing
