// RingSlot: what lies in the shared memory of a PoolRing: its head, slots and workers, and views of
// it.
//
// Plain data that processes share: every word that more than one of them writes is atomic and
// lock-free, and pool_ring.hpp says who writes what when. A slot's state is one word, so a process
// that dies leaves it in a known state. A RingView belongs to one process; mapping may throw.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "plait/core/cache_line.hpp"

namespace plait {

inline constexpr uint64_t kRingMagic = 0x31474e4952544c50;  // PLTRING1
inline constexpr int64_t kRingPage = 4096;

enum class SlotKind : uint8_t { Free, Filled, Claimed, Done };

// A slot's state as one word.
struct SlotState {
  uint64_t serial = 0;
  uint32_t worker = 0;
  SlotKind kind = SlotKind::Free;

  static constexpr int kKindBits = 2, kWorkerBits = 10;
  static SlotState of(uint64_t word) {
    return {word >> (kKindBits + kWorkerBits),
            uint32_t(word >> kKindBits) & ((1u << kWorkerBits) - 1), SlotKind(word & 3)};
  }
  uint64_t word() const {
    return serial << (kKindBits + kWorkerBits) | uint64_t(worker) << kKindBits | uint64_t(kind);
  }
};

// Where a block is in the file. Offset 0 (the ring's head): nowhere.
struct Extent {
  int64_t offset = 0, size = 0;
};

// A row that killed worker processes: those who claim its batch leave it out and say why.
struct Poison {
  uint32_t row = 0, step = 0;  // of the input of the function of this number
  char why[120] = {};
};

struct alignas(kCacheLine) RingSlot {
  static constexpr uint32_t kPoisons = 4;
  std::atomic<uint64_t> state{0};
  uint32_t program = 0;               // what to do with the batch
  std::atomic<uint32_t> pin{0};       // 1 + the only worker that may claim it; 0: any
  uint32_t without_rows = 0;          // the worker is to take no rows of it: they are deadly
  uint32_t attempts = 0;              // workers that died on it since a row was named
  uint32_t poisons = 0;               // rows that were named
  std::atomic<uint32_t> reserved{0};  // the owner's: not free to be reserved
  int64_t cpu_ns = 0;                 // what its worker used for it
  Extent in, out;                     // the batch and its outcome
  Extent beyond[2];                   // extents of their own, if they have them
  Poison poison[kPoisons];
};

// Where a worker is: row | step << 32; a function of whole batches is at row kWholeBatch.
inline constexpr uint64_t kNowhere = ~uint64_t(0);
inline constexpr uint32_t kWholeBatch = ~uint32_t(0);

struct alignas(kCacheLine) RingWorker {
  std::atomic<uint32_t> asleep{0};
  std::atomic<uint64_t> beat{0};  // rises with every record it has done; `at` is behind it
  std::atomic<uint64_t> at{kNowhere};
};

struct alignas(kCacheLine) RingHead {
  uint64_t magic = kRingMagic;
  uint32_t slots = 0, workers = 0;
  int64_t slot_bytes = 0, data = 0;
  std::atomic<int64_t> end{0};  // of the file: the next extent begins here
  std::atomic<uint32_t> closing{0};
  alignas(kCacheLine) std::atomic<uint64_t> tail{0};    // serials reserved so far
  alignas(kCacheLine) std::atomic<uint32_t> filled{0};  // futex of the workers
  alignas(kCacheLine) std::atomic<uint32_t> done{0};    // futex of the owner ...
  std::atomic<uint32_t> waiting{0};                     // ... which sleeps on it
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(alignof(RingSlot) == kCacheLine && sizeof(RingSlot) % kCacheLine == 0);
static_assert(offsetof(RingWorker, at) == offsetof(RingWorker, beat) + sizeof(uint64_t));

// A part of the file in this process's memory.
class RingView {
 public:
  RingView() = default;
  RingView(int fd, int64_t offset, int64_t size) : size_(size) {
    void* at = mmap(nullptr, size_t(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (at == MAP_FAILED) {
      throw std::runtime_error(std::string("shared memory: ") + std::strerror(errno));
    }
    data_ = static_cast<uint8_t*>(at);
  }
  RingView(RingView&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  RingView& operator=(RingView&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
  }
  ~RingView() {
    if (data_) munmap(data_, size_t(size_));
  }
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace plait
