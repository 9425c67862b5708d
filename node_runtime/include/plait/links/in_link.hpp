// InLink: a connection on which a peer sends to this node.
//
// Bytes are received into pooled chunks. A frame that lies whole in a chunk is decoded in place and
// its columns keep the chunk alive; a frame cut off by a chunk's end moves to the next, which is
// made large enough for it. Frames are taken in the order of their numbers, each once, and
// acknowledged in groups. Before the peer has proved itself, only handshake frames are read, into a
// small buffer. A peer of the same host may bring a ring (link_ring.hpp): then its bytes are there,
// and what comes by the socket are signals. Threads: the thread that polls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "plait/links/link_context.hpp"
#include "plait/links/link_local.hpp"
#include "plait/links/link_ring.hpp"

namespace plait {

class InLink final : public Watched {
 public:
  InLink(LinkContext& context, Socket socket, std::string from)
      : context_(context),
        socket_(std::move(socket)),
        from_(std::move(from)),
        nonce_(random_bytes(16)),
        due_(context.now + context.options.handshake_ns),
        drops_(context.drops()) {
    tune(socket_.fd());
    challenged_ns_ = link_now_ns();
    if (!context_.watch(socket_.fd(), EPOLLIN | EPOLLRDHUP, *this, id_) ||
        !answer(encode_challenge(nonce_))) {
      hang_up();
    }
  }
  ~InLink() override { close(); }

  bool closed() const { return !socket_; }
  bool trusted() const { return inbox_ != nullptr; }
  bool is_from(uint32_t rank) const { return trusted() && rank_ == rank; }

  int64_t due() const { return trusted() ? ack_due_ : due_; }
  void tick() {
    if (closed() || context_.now < due()) return;
    if (trusted()) return acknowledge();
    refuse("no proof of the token in time");
  }

  // Room is needed for one that came later.
  void make_way() { refuse("too many connections that have not proved themselves"); }

  void ready(uint32_t) override {
    if (ring_) return take_signals();
    int64_t budget = trusted() ? context_.options.read_per_poll_bytes : kStranger;
    while (!closed() && budget > 0) {
      make_room();
      const ssize_t n = receive(chunk_.data() + end_, size_t(capacity_ - end_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) return hang_up();
      const bool filled = end_ + n == capacity_;
      budget -= n;
      came(n);
      if (!filled || ring_) return;  // the connection was read empty: do not ask it again
    }
  }

  // Takes what is in the ring.
  void poll() {
    if (!ring_ || closed()) return;
    int64_t budget = context_.options.read_per_poll_bytes;
    while (budget > 0) {
      const uint64_t there = ring_->available();
      if (there == 0) return;
      if (there > ring_->size()) return refuse("a ring that is not sane");
      make_room();
      const auto n = std::min(int64_t(there), capacity_ - end_);
      ring_->read(chunk_.data() + end_, uint64_t(n));
      budget -= n;
      if (ring_->freed()) acknowledge();
      if (closed()) return;
      came(n);
      if (closed()) return;
    }
  }
  // Before a wait, and behind it. False: there is something in the ring.
  bool sleeps(bool on) { return !ring_ || closed() || ring_->sleeps(on); }

  void close() {
    if (inbox_ && inbox_->reader == this) inbox_->reader = nullptr;
    context_.unwatch(socket_.fd(), id_);
    socket_.close();
    context_.replan = true;
  }

 private:
  static constexpr int64_t kStranger = (64 << 10) - 64, kWorthReading = 16 << 10;
  static constexpr uint64_t kMostRing = 64 << 20;

  ssize_t receive(uint8_t* to, size_t most) {
    if (trusted()) return ::recv(socket_.fd(), to, most, MSG_DONTWAIT);
    return receive_with(socket_.fd(), to, most, offered_);
  }
  // So many bytes more are in the chunk.
  void came(int64_t n) {
    end_ += n;
    context_.moved = true;
    take_all();
  }
  // The bytes mean nothing; the end of the connection does, behind what was written before it.
  void take_signals() {
    uint8_t bytes[256];
    while (!closed()) {
      const ssize_t n = ::recv(socket_.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (n == ssize_t(sizeof bytes) || (n < 0 && errno == EINTR)) continue;
      if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))) return;
      while (!closed() && ring_->available() != 0) poll();
      return close();
    }
  }

  bool answer(const Encoded& e) {
    return ::send(socket_.fd(), e.bytes.data(), size_t(e.size), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           e.size;
  }

  void hang_up() {
    if (!trusted()) context_.refusals.left();
    close();
  }
  void refuse(const std::string& why) {
    context_.refusals.add(why, from_);
    turn_away(why);
  }
  // One of the job, which is no stranger.
  void turn_away(const std::string& why) {
    answer(encode_refuse(why));
    ::shutdown(socket_.fd(), SHUT_WR);
    const bool known = trusted();
    close();
    if (known) context_.handler.down(rank_, "node " + std::to_string(rank_) + " sent " + why);
  }

  // Room for all of the frame that has begun, or for a good piece of the next.
  void make_room() {
    const int64_t least = trusted() ? context_.options.read_chunk_bytes : kStranger;
    const int64_t have = end_ - begin_;
    if (chunk_ && have == 0 && chunk_.unique()) begin_ = end_ = 0;
    const bool fits = wanted_ ? begin_ + wanted_ <= capacity_ : capacity_ - end_ >= kWorthReading;
    if (chunk_ && fits) return;
    const int64_t capacity = std::max(least, wanted_);
    BufferRef next = BufferRef::make(capacity);
    if (have) std::memcpy(next.data(), chunk_.data() + begin_, size_t(have));
    chunk_ = std::move(next);
    capacity_ = capacity;
    begin_ = 0;
    end_ = have;
  }

  void take_all() {
    wanted_ = 0;
    while (!closed() && end_ - begin_ >= kPrefixBytes) {
      const uint8_t* at = chunk_.data() + begin_;
      const FrameLimits& limits = trusted() ? context_.options.limits : kHandshakeLimits;
      Prefix prefix;
      std::string why = read_prefix(at, limits, prefix);
      if (!why.empty()) return refuse(why);
      const int64_t size = prefix.frame_bytes();
      if (end_ - begin_ < size) {
        wanted_ = size;
        return;
      }
      begin_ += size;
      if (trusted()) {
        take(at, size, prefix.sequence);
      } else {
        greeted(at, size);
      }
    }
  }

  void take(const uint8_t* at, int64_t size, uint64_t sequence) {
    if (context_.drops() != drops_) {
      drops_ = context_.drops();
      if (context_.dropped(rank_)) return close();
    }
    counts_->bytes_received.fetch_add(size, std::memory_order_relaxed);
    if (sequence <= inbox_->last) {
      counts_->duplicates.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (sequence != inbox_->last + 1) {
      return refuse("frame " + std::to_string(sequence) + " behind frame " +
                    std::to_string(inbox_->last));
    }
    Frame frame;
    std::string why = decode(at, size, chunk_, context_.options.limits, frame);
    if (why.empty() && frame.kind == FrameKind::Ack) why = "an acknowledgement out of place";
    if (!why.empty()) return refuse("a frame that is refused: " + why);
    inbox_->last = sequence;
    counts_->frames_received.fetch_add(1, std::memory_order_relaxed);
    // Times travel in the clock of who sends them.
    if (frame.batch.ingest_ns != 0) frame.batch.ingest_ns -= clock_offset_ns_;
    if (frame.kind == FrameKind::Start) frame.number -= uint64_t(clock_offset_ns_);
    if (unacked_frames_++ == 0) {
      ack_due_ = context_.now + context_.options.ack_delay_ns;
      context_.replan = true;
    }
    unacked_bytes_ += size;
    context_.handler.frame(rank_, std::move(frame));
    if (closed()) return;
    if (unacked_frames_ >= context_.options.ack_frames ||
        unacked_bytes_ >= context_.options.ack_bytes) {
      acknowledge();
    }
  }

  void acknowledge() {
    Frame frame;
    frame.kind = FrameKind::Ack;
    frame.number = inbox_->last;
    unacked_frames_ = 0;
    unacked_bytes_ = 0;
    ack_due_ = INT64_MAX;
    context_.replan = true;
    // Full of acknowledgements that the peer does not read, or broken: a new connection is as good.
    if (!answer(encode_small(frame))) close();
  }

  void greeted(const uint8_t* at, int64_t size) {
    const int64_t now = link_now_ns();
    Handshake shake;
    const std::string why = decode_handshake(at, size, shake);
    if (!why.empty()) return refuse(why);
    const Hello& h = shake.hello;
    if (shake.kind != FrameKind::Hello) return refuse("a message out of place");
    if (h.job != context_.job) return refuse("this node belongs to another job");
    if (h.nonce.size() < 16 || !proof_holds(h.proof, hello_proof(context_.token, nonce_, h))) {
      return refuse("the proof of the job's token is wrong");
    }
    if (h.to != context_.rank) return refuse("this is node " + std::to_string(context_.rank));
    if (context_.dropped(h.rank))
      return turn_away("node " + std::to_string(h.rank) + " was dropped");
    if (offered_) {
      ring_ = LinkRing::adopt(offered_.fd(), kMostRing);
      offered_.close();
      if (!ring_) return refuse("memory that cannot be shared");
    }
    Inbox& inbox = context_.inboxes[{h.rank, h.bulk}];
    if (inbox.session != 0 && inbox.session != h.session) {
      return refuse("node " + std::to_string(h.rank) + " was another process before");
    }
    if (inbox.reader) static_cast<InLink*>(inbox.reader)->close();
    inbox.session = h.session;
    inbox.reader = this;
    Welcome w;
    w.session = context_.session;
    w.sequence = inbox.last;
    w.proof = welcome_proof(context_.token, nonce_, h, w);
    rank_ = h.rank;
    inbox_ = &inbox;
    counts_ = context_.counts_of(h.rank);
    ack_due_ = INT64_MAX;
    context_.moved = context_.replan = true;
    set_clock(h.now_ns - now, h.now_ns - challenged_ns_);
    if (!answer(encode_welcome(w))) close();
  }

  // The peer's clock is ahead of ours by something from `low` to `high`: it wrote the time between
  // our challenge and our reading of its answer.
  void set_clock(int64_t low, int64_t high) {
    LinkContext::PeerClock& clock = context_.clocks[rank_];
    const int64_t slack = context_.options.same_clock_ns;
    const bool agrees = low <= clock.offset_ns && clock.offset_ns <= high;
    if (low - slack <= 0 && high + slack >= 0) {
      clock = {0, high - low};
    } else if (!agrees || high - low < clock.error_ns) {
      clock = {low + (high - low) / 2, high - low};
    }
    clock_offset_ns_ = clock.offset_ns;
  }

  LinkContext& context_;
  Socket socket_;
  const std::string from_;          // where it comes from
  Socket offered_;                  // came with the greeting
  std::unique_ptr<LinkRing> ring_;  // from which bytes come; null: from the socket
  uint64_t id_ = 0;
  const std::string nonce_;
  int64_t due_, challenged_ns_ = 0, ack_due_ = INT64_MAX;
  uint32_t rank_ = 0;
  Inbox* inbox_ = nullptr;
  std::shared_ptr<LinkCounts> counts_;
  int64_t clock_offset_ns_ = 0;
  BufferRef chunk_;
  int64_t capacity_ = 0, begin_ = 0,
          end_ = 0;     // bytes begin_ to end_ of the chunk are not taken yet
  int64_t wanted_ = 0;  // size of the frame that has begun; 0: not known
  uint32_t unacked_frames_ = 0;
  int64_t unacked_bytes_ = 0;
  uint64_t drops_;
};

}  // namespace plait
