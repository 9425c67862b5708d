// OutLink: the connection on which this node sends to one peer; there are two, data and bulk.
//
// This side dials, proves itself, and then only writes; what comes back are acknowledgements. A
// connection that fails is dialled again, after a pause that doubles up to a limit, and goes on
// after the last frame that the peer has. A peer that has become another process is refused: what
// the old one had acknowledged would be lost. Threads: `queue`, up, why_down: any; all else belongs
// to the thread that polls.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/links/link_context.hpp"
#include "plait/links/link_local.hpp"
#include "plait/links/send_queue.hpp"

namespace plait {

class OutLink final : public Watched {
 public:
  OutLink(LinkContext& context, uint32_t peer, bool bulk, std::vector<Address> addresses)
      : queue(context.counts_of(peer)),
        context_(context),
        counts_(context.counts_of(peer)),
        peer_(peer),
        bulk_(bulk),
        addresses_(std::move(addresses)),
        pause_ns_(context.options.redial_least_ns),
        in_(BufferRef::make(kInput)) {}
  ~OutLink() override {
    if (id_ != 0) close();  // else it was closed, or never dialled: any thread may be here
  }

  SendQueue queue;

  bool up() const { return up_.load(std::memory_order_acquire); }  // pairs with the one in welcome
  std::string why_down() const {
    std::lock_guard<std::mutex> hold(why_lock_);
    return why_;
  }
  int64_t most() const { return bulk_ ? context_.options.bulk_per_poll_bytes : kDataAtOnce; }

  // When `tick` has something to do.
  int64_t due() const { return due_; }
  void tick() {
    if (context_.now < due_) return;
    if (state_ == State::Idle) return dial();
    if (state_ != State::Up) fail("no answer from it in time");
  }

  void ready(uint32_t events) override {
    if (state_ == State::Connecting) {
      const int error = pending_error(socket_.fd());
      if (error) return fail(errno_text(error));
      if (!(events & EPOLLOUT)) return;
      if (local_ && !same_user(socket_.fd())) return fail("another user has its name");
      state_ = State::Dialled;
    }
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) read();
    if (state_ == State::Up && (events & EPOLLOUT)) context_.moved |= queue.writable(most());
  }

  // Ends the present connection as a lost one; it is dialled again.
  void shut() const { socket_.shut(); }
  void close() {
    queue.close();
    context_.unwatch(socket_.fd(), id_);
    socket_.close();
    ring_.reset();
    up_.store(false, std::memory_order_relaxed);
    state_ = State::Idle;
    due_ = context_.now;
    have_ = 0;
  }

 private:
  enum class State : uint8_t { Idle, Connecting, Dialled, Greeted, Up };
  static constexpr int64_t kInput = (64 << 10) - 64, kDataAtOnce = 1 << 20;

  void dial() {
    int error = 0;
    const Address& to = addresses_[attempt_++ % addresses_.size()];
    local_ = is_local(to);
    socket_ = begin_connect(to, error);
    if (!socket_) return fail(errno_text(error));
    state_ = State::Connecting;
    due_ = context_.now + context_.options.handshake_ns;
    context_.replan = true;
    if (!context_.watch(socket_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, *this, id_)) {
      fail("the connection cannot be watched");
    }
  }

  void fail(const std::string& why, bool refused = false) {
    const bool was_up = up();
    close();
    context_.replan = true;
    if (local_ && !was_up) return;  // nobody is there, or somebody else: the next way, at once
    due_ = context_.now + pause_ns_;
    pause_ns_ = std::min(pause_ns_ * 2, context_.options.redial_most_ns);
    if (refused) pause_ns_ = context_.options.redial_most_ns;
    const std::string text = "node " + std::to_string(peer_) + ": " + why;
    // The bulk connection only speaks of what the data connection does not meet as well.
    bool news = bulk_ ? was_up && refused : was_up;
    {
      std::lock_guard<std::mutex> hold(why_lock_);
      news = news || (!bulk_ && refused && why_ != text);
      why_ = text;
    }
    if (news) context_.handler.down(peer_, text);
  }

  void read() {
    while (state_ != State::Idle) {
      const ssize_t n =
          ::recv(socket_.fd(), in_.data() + have_, size_t(kInput - have_), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) return fail(n == 0 ? "it closed the connection" : errno_text(errno));
      have_ += n;
      if (!take_all()) return;
    }
  }

  // Takes the whole frames that have come. False: the connection has ended.
  bool take_all() {
    int64_t at = 0;
    while (have_ - at >= kPrefixBytes) {
      Prefix prefix;
      const std::string why = read_prefix(in_.data() + at, kHandshakeLimits, prefix);
      if (!why.empty()) return fail(why, true), false;
      if (have_ - at < prefix.frame_bytes()) break;
      take(in_.data() + at, prefix.frame_bytes());
      if (state_ == State::Idle) return false;
      at += prefix.frame_bytes();
    }
    have_ -= at;
    if (at && have_) std::memmove(in_.data(), in_.data() + at, size_t(have_));
    return true;
  }

  void take(const uint8_t* data, int64_t size) {
    if (state_ == State::Up) {
      Frame frame;
      if (decode(data, size, in_, kHandshakeLimits, frame).empty() &&
          frame.kind == FrameKind::Ack) {
        if (!queue.acknowledge(frame.number)) fail("it acknowledged a frame never sent", true);
        if (ring_)
          context_.moved |= queue.writable(most());  // it may be the word that there is room
        return;
      }
    }
    Handshake shake;
    std::string why = decode_handshake(data, size, shake);
    if (!why.empty()) return fail(why, true);
    if (shake.kind == FrameKind::Refuse) return fail("it refused: " + shake.reason, true);
    if (shake.kind == FrameKind::Challenge && state_ == State::Dialled) return greet(shake.nonce);
    if (shake.kind == FrameKind::Welcome && state_ == State::Greeted) return enter(shake.welcome);
    fail("a message out of place", true);
  }

  void greet(const std::string& challenge) {
    challenge_ = challenge;
    hello_ = Hello();
    hello_.job = context_.job;
    hello_.rank = context_.rank;
    hello_.to = peer_;
    hello_.bulk = bulk_;
    hello_.session = context_.session;
    hello_.nonce = random_bytes(16);
    hello_.proof = hello_proof(context_.token, challenge_, hello_);
    hello_.now_ns = link_now_ns();
    const Encoded e = encode_hello(hello_);
    Socket memory;
    if (local_) ring_ = LinkRing::make(context_.options.ring_bytes, memory);
    const bool sent =
        ring_ ? send_with(socket_.fd(), e.bytes.data(), size_t(e.size), memory.fd())
              : ::send(socket_.fd(), e.bytes.data(), size_t(e.size), MSG_NOSIGNAL) == e.size;
    if (!sent) return fail("the greeting could not be sent");
    state_ = State::Greeted;
  }

  void enter(const Welcome& w) {
    if (!proof_holds(w.proof, welcome_proof(context_.token, challenge_, hello_, w))) {
      return fail("it does not know the job's token", true);
    }
    if (session_ != 0 && session_ != w.session) {
      return fail("another process has come in its place", true);
    }
    session_ = w.session;
    const std::string why = queue.open(socket_.fd(), w.sequence, ring_.get());
    if (!why.empty()) return fail(why, true);
    state_ = State::Up;
    attempt_ = 0;
    due_ = INT64_MAX;
    pause_ns_ = context_.options.redial_least_ns;
    up_.store(true, std::memory_order_release);  // pairs with up()
    counts_->connected.fetch_add(1, std::memory_order_relaxed);
    context_.moved = context_.replan = true;
    queue.flush(most());
    if (!bulk_) context_.handler.up(peer_);
  }

  LinkContext& context_;
  const std::shared_ptr<LinkCounts> counts_;
  const uint32_t peer_;
  const bool bulk_;
  const std::vector<Address> addresses_;
  size_t attempt_ = 0;
  State state_ = State::Idle;
  bool local_ = false;  // the present connection, or the last one
  Socket socket_;
  std::unique_ptr<LinkRing> ring_;  // in which the queue writes; null: to the socket
  uint64_t id_ = 0;
  int64_t due_ = 0, pause_ns_;
  uint64_t session_ = 0;
  std::string challenge_;
  Hello hello_;
  BufferRef in_;
  int64_t have_ = 0;
  std::atomic<bool> up_{false};
  mutable std::mutex why_lock_;
  std::string why_ = "not connected yet";
};

}  // namespace plait
