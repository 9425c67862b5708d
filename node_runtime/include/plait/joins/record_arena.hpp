// RecordArena: memory for the records of one lane, in pieces of any size, used again when given
// back.
//
// Pieces up to 64 KiB are cut from chunks, in size classes with a free list each; larger ones come
// from the allocator. All memory goes when the arena goes. One thread at a time: the holder of the
// lane; never waits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <unordered_set>
#include <vector>

#include "plait/core/zeroed_region.hpp"

namespace plait {

class RecordArena {
 public:
  RecordArena() = default;
  RecordArena(const RecordArena&) = delete;
  RecordArena& operator=(const RecordArena&) = delete;
  ~RecordArena() { drop_large(); }

  [[gnu::always_inline]] void* take(size_t bytes) {
    const unsigned c = class_of(bytes);
    if (c >= kClasses) [[unlikely]]
      return take_large(bytes);
    used_ += room(c);
    if (Free* f = free_[c]) {
      free_[c] = f->next;
      __builtin_prefetch(f->next, 1);
      return f;
    }
    const size_t n = room(c);
    if (left_ < n) [[unlikely]]
      add_chunk(n);
    void* piece = at_;
    at_ += n;
    left_ -= n;
    return piece;
  }
  // `bytes` as it was taken.
  void give(void* piece, size_t bytes) {
    const unsigned c = class_of(bytes);
    if (c >= kClasses) [[unlikely]] {
      large_.erase(piece);
      used_ -= bytes;
      std::free(piece);
      return;
    }
    used_ -= room(c);
    auto* f = static_cast<Free*>(piece);
    f->next = free_[c];
    free_[c] = f;
  }
  // All pieces at once.
  void clear() {
    drop_large();
    free_.fill(nullptr);
    chunks_.clear();
    at_ = nullptr;
    left_ = used_ = 0;
    next_chunk_ = kFirstChunk;
  }
  size_t used() const { return used_; }

 private:
  struct Free {
    Free* next;
  };
  static constexpr size_t kSmall = 512, kLargest = 65536;
  static constexpr unsigned kSmallClasses = kSmall / 8 + 1, kClasses = kSmallClasses + 7;
  static constexpr size_t kFirstChunk = 65536, kLastChunk = size_t(4) << 20;

  // Steps of 8 bytes up to 512, then powers of two.
  static unsigned class_of(size_t bytes) {
    if (bytes <= kSmall) return unsigned((bytes + 7) / 8);
    if (bytes > kLargest) return kClasses;
    return kSmallClasses + unsigned(std::bit_width(bytes - 1)) - 10;
  }
  static size_t room(unsigned c) {
    return c < kSmallClasses ? size_t(8) * std::max(c, 1u) : size_t(1024) << (c - kSmallClasses);
  }
  void* take_large(size_t bytes) {
    void* piece = std::malloc(bytes);
    if (!piece) throw std::bad_alloc();
    large_.insert(piece);
    used_ += bytes;
    return piece;
  }
  void add_chunk(size_t least) {
    chunks_.emplace_back(std::max(next_chunk_, least));
    next_chunk_ = std::min(next_chunk_ * 2, kLastChunk);
    at_ = reinterpret_cast<char*>(chunks_.back().data());
    left_ = chunks_.back().bytes();
  }
  void drop_large() {
    for (void* piece : large_) std::free(piece);
    large_.clear();
  }

  std::array<Free*, kClasses> free_{};
  char* at_ = nullptr;
  size_t left_ = 0, used_ = 0, next_chunk_ = kFirstChunk;
  std::vector<ZeroedRegion> chunks_;
  std::unordered_set<void*> large_;
};

}  // namespace plait
