// LinkRing: the bytes of one connection between nodes of one host, in memory that both have mapped.
//
// The dialler makes the ring and sends its descriptor with its greeting; once it is welcome, what
// it would write to the socket it copies into the ring, and the socket carries only signals. The
// writer moves `head` behind what it has copied, the reader moves `tail` behind what it has taken.
// Who is about to sleep says so first and then looks again, and the other looks for that behind
// every move, all in seq_cst: one of the two sees the other, so no signal is missed.
//
// Threads: one writer at a time, one reader at a time; each trusts only its own place and checks
// the other's. Progress: nothing waits. Full: try_write gives 0, and the reader will say when half
// is free. Empty: available is 0. The memory goes when both sides have let go of it, whichever
// dies; it cannot shrink under the other (sealed).
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#ifdef __linux__
#include <fcntl.h>
#endif

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>

#include "plait/core/cache_line.hpp"
#include "plait/links/link_socket.hpp"

namespace plait {

class LinkRing {
 public:
  // A power of two of bytes, and its descriptor; null where the system has no such memory.
  static std::unique_ptr<LinkRing> make(uint64_t bytes, Socket& descriptor) {
#ifdef __linux__
    if (!std::has_single_bit(bytes)) return nullptr;
    Socket fd(::memfd_create("plait-link", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) return nullptr;
    if (::ftruncate(fd.fd(), off_t(kHeadBytes + bytes)) != 0) return nullptr;
    if (::fcntl(fd.fd(), F_ADD_SEALS, kSeals) != 0) return nullptr;
    auto ring = map(fd.fd(), bytes);
    if (ring) new (ring->head_) Head();
    descriptor = std::move(fd);
    return ring;
#else
    (void)bytes, (void)descriptor;
    return nullptr;
#endif
  }
  // The ring of another process; null: it is none, or is larger than `most`.
  static std::unique_ptr<LinkRing> adopt(int fd, uint64_t most) {
#ifdef __linux__
    struct stat found{};
    if (::fstat(fd, &found) != 0 || found.st_size <= off_t(kHeadBytes)) return nullptr;
    const uint64_t bytes = uint64_t(found.st_size) - kHeadBytes;
    if (bytes > most || !std::has_single_bit(bytes)) return nullptr;
    if ((::fcntl(fd, F_GET_SEALS) & kSeals) != kSeals) return nullptr;
    return map(fd, bytes);
#else
    (void)fd, (void)most;
    return nullptr;
#endif
  }
  ~LinkRing() { ::munmap(head_, kHeadBytes + size_); }
  LinkRing(const LinkRing&) = delete;

  // The writer. Copies as much as there is room for: 0 is none, -1 that the reader is not sane.
  int64_t try_write(const iovec* pieces, size_t count) {
    uint64_t free = room();
    if (free > size_) return -1;
    if (free == 0) {
      head_->writer_waits.store(true, std::memory_order_seq_cst);  // pairs with freed
      free = room();
      if (free > size_) return -1;
      if (free < size_ / 4) return 0;
      head_->writer_waits.store(false, std::memory_order_relaxed);
    }
    uint64_t at = at_;
    for (size_t i = 0; i < count && free > 0; ++i) {
      const uint64_t n = std::min<uint64_t>(pieces[i].iov_len, free);
      copy_in(at, static_cast<const uint8_t*>(pieces[i].iov_base), n);
      at += n;
      free -= n;
    }
    const auto wrote = int64_t(at - at_);
    at_ = at;
    head_->head.store(at, std::memory_order_seq_cst);  // pairs with available
    return wrote;
  }
  // Whether it is worth trying again after a 0.
  bool has_room() const { return room() >= size_ / 4; }
  // Behind a write: whether the reader is to be woken.
  bool must_wake() {
    return head_->reader_sleeps.load(std::memory_order_seq_cst) &&  // pairs with sleeps
           head_->reader_sleeps.exchange(false, std::memory_order_relaxed);
  }

  // The reader. How many bytes are there; more than size() if the writer is not sane.
  uint64_t available() const { return head_->head.load(std::memory_order_seq_cst) - at_; }
  uint64_t size() const { return size_; }
  // At most `available` bytes.
  void read(uint8_t* to, uint64_t n) {
    const uint64_t from = at_ & (size_ - 1), first = std::min(n, size_ - from);
    std::memcpy(to, data_ + from, first);
    std::memcpy(to + first, data_, n - first);
    at_ += n;
    head_->tail.store(at_, std::memory_order_seq_cst);  // pairs with room
  }
  // Behind a read: whether the writer is to hear that there is room.
  bool freed() {
    return head_->writer_waits.load(std::memory_order_seq_cst) &&  // pairs with try_write
           available() <= size_ / 2 &&
           head_->writer_waits.exchange(false, std::memory_order_relaxed);
  }
  // Before a sleep and behind it. False: there is something to read.
  bool sleeps(bool on) {
    head_->reader_sleeps.store(on, std::memory_order_seq_cst);  // pairs with must_wake
    return available() == 0;
  }

 private:
  struct Head {
    alignas(kCacheLine) std::atomic<uint64_t> head{0};  // written so far
    std::atomic<bool> writer_waits{false};
    alignas(kCacheLine) std::atomic<uint64_t> tail{0};  // read so far
    std::atomic<bool> reader_sleeps{false};
  };
  static constexpr uint64_t kHeadBytes = 4096;
  static_assert(sizeof(Head) <= kHeadBytes && std::atomic<uint64_t>::is_always_lock_free);
#ifdef __linux__
  static constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
#endif

  LinkRing(void* memory, uint64_t bytes)
      : head_(static_cast<Head*>(memory)),
        data_(static_cast<uint8_t*>(memory) + kHeadBytes),
        size_(bytes) {}

  static std::unique_ptr<LinkRing> map(int fd, uint64_t bytes) {
    void* memory = ::mmap(nullptr, kHeadBytes + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return nullptr;
    return std::unique_ptr<LinkRing>(new LinkRing(memory, bytes));
  }

  uint64_t room() const { return size_ - (at_ - head_->tail.load(std::memory_order_seq_cst)); }
  void copy_in(uint64_t at, const uint8_t* from, uint64_t n) {
    const uint64_t to = at & (size_ - 1), first = std::min(n, size_ - to);
    std::memcpy(data_ + to, from, first);
    std::memcpy(data_, from + first, n - first);
  }

  Head* const head_;
  uint8_t* const data_;
  const uint64_t size_;
  uint64_t at_ = 0;  // this side's own place
};

}  // namespace plait
