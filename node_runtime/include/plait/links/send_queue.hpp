// SendQueue: the frames for one connection to one peer, kept until the peer says it has them.
//
// A frame gets the next sequence number when it is pushed and goes when it is acknowledged. The
// thread that pushes also writes, unless another does already: the writer leaves the lock while it
// is in the system call and looks again before it ends, so no thread waits for the network and no
// frame is left behind. When a connection comes up, the peer names the last frame it has, and
// writing goes on after that one: nothing is lost, and nothing is there twice.
//
// Threads: push, flush, forget, held, unsent_bytes, ready: any. open, close, acknowledge, writable:
// the thread that polls. Progress: push takes a short lock and one non-blocking write; close waits
// for at most one such write of another thread.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "plait/links/frame.hpp"
#include "plait/links/link_options.hpp"
#include "plait/links/link_ring.hpp"

namespace plait {

class SendQueue {
 public:
  explicit SendQueue(std::shared_ptr<LinkCounts> counts) : counts_(std::move(counts)) {}

  // Appends the frame and writes what can be written at once, `most` bytes at most. True: more
  // could be written, somebody should flush.
  bool push(Encoded frame, int64_t most) {
    std::unique_lock<std::mutex> hold(lock_);
    if (forgotten_) return false;
    QueuedFrame& e = entries_.emplace_back();
    std::memcpy(e.prefix.data(), frame.bytes.data(), size_t(kPrefixBytes));
    const uint64_t sequence = base_ + entries_.size();
    std::memcpy(e.prefix.data() + 16, &sequence, 8);
    unsent_.fetch_add(frame.size, std::memory_order_relaxed);
    e.frame = std::move(frame);
    write(hold, most);
    return can_write();
  }

  // Writes up to `most` bytes; whether anything was written.
  bool flush(int64_t most) {
    std::unique_lock<std::mutex> hold(lock_);
    return write(hold, most);
  }

  // The connection can take more: its last refusal to do so is over.
  bool writable(int64_t most) {
    std::unique_lock<std::mutex> hold(lock_);
    blocked_ = false;
    retry_ = true;
    return write(hold, most);
  }

  // A connection is up, and the peer has all frames up to `has`. Empty: writing goes on from there.
  // `ring`: what takes the bytes in place of the descriptor, until `close`.
  std::string open(int fd, uint64_t has, LinkRing* ring = nullptr) {
    std::unique_lock<std::mutex> hold(lock_);
    if (has < base_ || has > base_ + entries_.size()) {
      return "it has frame " + std::to_string(has) + ", not one of " + std::to_string(base_) +
             " to " + std::to_string(base_ + entries_.size());
    }
    fd_ = fd;
    ring_ = ring;
    blocked_ = retry_ = false;
    written_ = acked_ = has;
    offset_ = 0;
    trim();
    int64_t unsent = 0;
    for (const QueuedFrame& e : entries_) unsent += e.frame.size;
    unsent_.store(unsent, std::memory_order_relaxed);
    return {};
  }

  // Nothing is written to the descriptor or the ring after this returns.
  void close() {
    std::unique_lock<std::mutex> hold(lock_);
    fd_ = -1;
    while (writing_) {
      hold.unlock();
      std::this_thread::yield();
      hold.lock();
    }
    ring_ = nullptr;
    trim();
  }

  // The peer has all frames up to this one. False: it cannot have it.
  bool acknowledge(uint64_t sequence) {
    std::unique_lock<std::mutex> hold(lock_);
    if (sequence > base_ + entries_.size()) return false;
    acked_ = std::max(acked_, sequence);
    trim();
    return true;
  }

  // Lets all frames go, and all that come later.
  void forget() {
    std::unique_lock<std::mutex> hold(lock_);
    forgotten_ = true;
    fd_ = -1;
    unsent_.store(0, std::memory_order_relaxed);
    trim();
  }

  // Frames that the peer has not acknowledged.
  int64_t held() const {
    std::unique_lock<std::mutex> hold(lock_);
    return int64_t(entries_.size());
  }
  int64_t unsent_bytes() const { return unsent_.load(std::memory_order_relaxed); }
  // Whether flush could write something now.
  bool ready() const {
    if (unsent_bytes() == 0) return false;
    std::unique_lock<std::mutex> hold(lock_);
    return can_write();
  }

 private:
  struct QueuedFrame {
    std::array<uint8_t, size_t(kPrefixBytes)> prefix{};
    Encoded frame;
  };
  static constexpr size_t kPieces = 128;

  bool can_write() const {
    return fd_ >= 0 && !stuck() && !writing_ && written_ < base_ + entries_.size();
  }
  // A ring shows by itself that there is room again.
  bool stuck() const { return blocked_ && !(ring_ && fd_ >= 0 && ring_->has_room()); }

  // As sendmsg: how many bytes were taken, or -1 and the error.
  static ssize_t give(int fd, LinkRing* ring, const msghdr& message, int& error) {
    if (!ring) {
      const ssize_t n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      error = errno;
      return n;
    }
    const int64_t n = ring->try_write(message.msg_iov, message.msg_iovlen);
    error = n == 0 ? EAGAIN : EPROTO;
    // A socket full of signals needs no further one.
    if (n > 0 && ring->must_wake()) (void)!::send(fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n == 0 ? -1 : n;
  }

  bool write(std::unique_lock<std::mutex>& hold, int64_t most) {
    if (writing_ || stuck()) return false;
    bool wrote = false;
    blocked_ = false;
    writing_ = true;
    while (fd_ >= 0 && most > 0 && written_ < base_ + entries_.size()) {
      std::array<iovec, kPieces> pieces;
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = collect(pieces, most);
      const int fd = fd_;
      LinkRing* const ring = ring_;  // as long as writing_ is set
      int error = 0;
      retry_ = false;
      hold.unlock();
      const ssize_t n = give(fd, ring, message, error);
      hold.lock();
      if (fd_ < 0) break;
      if (n > 0) {
        advance(n);
        most -= n;
        wrote = true;
      } else if (n < 0 && (error == EAGAIN || error == EWOULDBLOCK)) {
        // The word that there is room again may have come while the lock was open.
        if (retry_) continue;
        blocked_ = true;
        break;
      } else if (n < 0 && error != EINTR) {
        ::shutdown(fd, SHUT_RDWR);  // the thread that polls sees it, closes and dials again
        blocked_ = true;
        break;
      }
    }
    writing_ = false;
    trim();
    return wrote;
  }

  size_t collect(std::array<iovec, kPieces>& pieces, int64_t most) {
    static constexpr uint8_t zeros[8] = {};
    size_t used = 0;
    int64_t skip = offset_;
    const auto add = [&](const uint8_t* data, int64_t size) {
      const int64_t cut = std::min(skip, size);
      skip -= cut;
      size = std::min(size - cut, most);
      if (size <= 0) return;
      pieces[used++] = {const_cast<uint8_t*>(data + cut), size_t(size)};
      most -= size;
    };
    for (size_t i = size_t(written_ - base_); i < entries_.size(); ++i) {
      if (most <= 0 || used + 2 + 2 * entries_[i].frame.tails.size() > kPieces) break;
      const QueuedFrame& e = entries_[i];
      const Encoded& f = e.frame;
      add(e.prefix.data(), kPrefixBytes);
      add(f.bytes.data() + kPrefixBytes, f.head - kPrefixBytes);
      for (const Encoded::Tail& tail : f.tails) {
        add(tail.data, tail.size);
        add(zeros, padded8(tail.size) - tail.size);
      }
    }
    return used;
  }

  void advance(int64_t n) {
    unsent_.fetch_sub(n, std::memory_order_relaxed);
    counts_->bytes_sent.fetch_add(n, std::memory_order_relaxed);
    offset_ += n;
    while (written_ < base_ + entries_.size()) {
      const int64_t size = entries_[size_t(written_ - base_)].frame.size;
      if (offset_ < size) break;
      offset_ -= size;
      ++written_;
      counts_->frames_sent.fetch_add(1, std::memory_order_relaxed);
    }
  }

  // A frame goes when it is acknowledged and the writer is past it; references to the others stay.
  void trim() {
    if (forgotten_) {
      if (writing_) return;
      base_ += entries_.size();
      entries_.clear();
      return;
    }
    while (!entries_.empty() && base_ < acked_ && base_ < written_) {
      entries_.pop_front();
      ++base_;
    }
  }

  mutable std::mutex lock_;
  std::deque<QueuedFrame> entries_;  // entry i has sequence number base_ + 1 + i
  uint64_t base_ = 0;                // all up to this one were let go
  uint64_t acked_ = 0;               // the peer has all up to this one
  uint64_t written_ = 0;             // all up to this one were written to the present connection
  int64_t offset_ = 0;               // bytes written of the one behind
  int fd_ = -1;
  LinkRing* ring_ = nullptr;
  bool writing_ = false, blocked_ = false, retry_ = false, forgotten_ = false;
  std::atomic<int64_t> unsent_{0};
  const std::shared_ptr<LinkCounts> counts_;
};

}  // namespace plait
