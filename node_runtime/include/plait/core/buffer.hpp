// Pooled, reference-counted memory for column buffers.
//
// `BufferRef` is an intrusive shared pointer; the last one to go gives the memory back to the pool
// of its size class, where the next batch finds it warm (fresh pages cost a factor of 5 on the hot
// path). Any thread may allocate and free; the pool of a size class is a short spin-locked list per
// thread slot. A foreign buffer (Arrow memory) carries a function that gives it back instead.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace plait {

struct Buffer {
  std::atomic<int64_t> refs{1};
  uint8_t* data = nullptr;
  int64_t capacity =
      0;  // usable bytes; at least 64 bytes beyond what was asked for are readable and writable
  int size_class = -1;  // -1: foreign
  void (*release)(void*) = nullptr;
  void* owner = nullptr;
};

// Size classes are powers of two from 256 bytes to 1 GiB; larger ones go to the allocator each
// time.
class BufferPool {
 public:
  static constexpr int kMinBits = 8, kMaxBits = 30, kSlots = 16, kKeep = 64;
  static constexpr int64_t kKeepBytes = 64 << 20;  // idle bytes kept per slot and class at most

  static BufferPool& instance() {
    static BufferPool* pool =
        new BufferPool();  // never destroyed: buffers may outlive any order of exit
    return *pool;
  }

  Buffer* take(int64_t bytes) {
    const int64_t need = bytes + 64;
    const int bits = std::max<int>(kMinBits, std::bit_width(uint64_t(need - 1)));
    if (bits <= kMaxBits) {
      Shelf& shelf = shelves_[slot()][bits - kMinBits];
      shelf.lock();
      Buffer* b = shelf.count ? shelf.items[--shelf.count] : nullptr;
      shelf.unlock();
      if (b) {
        b->refs.store(1, std::memory_order_relaxed);
        return b;
      }
    }
    auto* b = new Buffer();
    const int64_t size = bits <= kMaxBits ? int64_t(1) << bits : need;
    b->data = static_cast<uint8_t*>(std::aligned_alloc(64, size_t((size + 63) / 64 * 64)));
    if (!b->data) {
      delete b;
      throw std::bad_alloc();
    }
    b->capacity = size;
    b->size_class = bits <= kMaxBits ? bits - kMinBits : kMaxBits;
    return b;
  }

  void give(Buffer* b) {
    if (b->size_class < 0) {
      if (b->release) b->release(b->owner);
      delete b;
      return;
    }
    if (b->size_class < kMaxBits) {
      Shelf& shelf = shelves_[slot()][b->size_class];
      shelf.lock();
      const bool kept = shelf.count < kKeep && int64_t(shelf.count + 1) * b->capacity <= kKeepBytes;
      if (kept) shelf.items[shelf.count++] = b;
      shelf.unlock();
      if (kept) return;
    }
    std::free(b->data);
    delete b;
  }

 private:
  struct alignas(64) Shelf {
    std::atomic_flag busy = ATOMIC_FLAG_INIT;
    int count = 0;
    Buffer* items[kKeep];
    void lock() {
      while (busy.test_and_set(std::memory_order_acquire)) {  // pairs with unlock
      }
    }
    void unlock() { busy.clear(std::memory_order_release); }  // pairs with lock
  };
  static int slot() {
    static std::atomic<int> next{0};
    thread_local int mine = next.fetch_add(1, std::memory_order_relaxed) % kSlots;
    return mine;
  }
  Shelf shelves_[kSlots][kMaxBits - kMinBits + 1];
};

class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* b) : b_(b) {}  // takes over one reference
  BufferRef(const BufferRef& o) : b_(o.b_) {
    if (b_) b_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  BufferRef(BufferRef&& o) noexcept : b_(std::exchange(o.b_, nullptr)) {}
  BufferRef& operator=(BufferRef o) noexcept {
    std::swap(b_, o.b_);
    return *this;
  }
  ~BufferRef() { reset(); }

  // Memory for `bytes` bytes, 64-byte aligned, not cleared, with 64 bytes of slack behind them.
  static BufferRef make(int64_t bytes) { return BufferRef(BufferPool::instance().take(bytes)); }
  static BufferRef zeroed(int64_t bytes) {
    BufferRef r = make(bytes);
    std::memset(r.data(), 0, size_t(bytes) + 64);
    return r;
  }
  // Wraps memory of somebody else; `release(owner)` is called once, by the thread that drops the
  // last reference.
  static BufferRef foreign(const void* data, void* owner, void (*release)(void*)) {
    auto* b = new Buffer();
    b->data = static_cast<uint8_t*>(const_cast<void*>(data));
    b->owner = owner;
    b->release = release;
    return BufferRef(b);
  }

  void reset() {
    if (!b_) return;
    // acq_rel: the last owner sees every other owner's reads done before the memory is used again.
    if (b_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) BufferPool::instance().give(b_);
    b_ = nullptr;
  }
  uint8_t* data() const { return b_->data; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(b_->data);
  }
  explicit operator bool() const { return b_ != nullptr; }
  bool unique() const { return b_ && b_->refs.load(std::memory_order_acquire) == 1; }

 private:
  Buffer* b_ = nullptr;
};

}  // namespace plait
