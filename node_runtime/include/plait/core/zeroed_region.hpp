// Zeroed memory for tables. Large regions are mapped at a 2 MiB edge and ask for huge pages; their
// pages come when touched, or ahead of that from another thread by populate().
//
// One owner, no locks. A table over megabytes of small pages spends much on address translation:
// with huge pages a count over 1 M keys ran 1.2 times and a sum 1.5 times as fast. A fresh page in
// the middle of a batch is worse still, hence populate(): any thread, waits for the kernel only.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace plait {

class ZeroedRegion {
 public:
  static constexpr size_t kHuge = size_t(2) << 20, kMapped = kHuge;

  // Makes the pages of a range present without changing a byte of it. The kernel does the touching:
  // no data race with the owner, and a range that is gone meanwhile is no fault but `false`.
  static bool populate(void* at, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
    if (::madvise(at, bytes, MADV_POPULATE_WRITE) == 0) return true;
#endif
    // Older kernels: a locked range is a present one.
    return ::mlock(at, bytes) == 0 && ::munlock(at, bytes) == 0;
  }

  ZeroedRegion() = default;
  explicit ZeroedRegion(size_t bytes) : bytes_(bytes) {
    if (bytes < kMapped) {
      data_ = static_cast<uint64_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      if (!data_) throw std::bad_alloc();
      std::memset(data_, 0, bytes);
      return;
    }
    map_bytes_ = bytes + kHuge;
    map_ = ::mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) {
      map_ = nullptr;
      throw std::bad_alloc();
    }
    const auto at = (reinterpret_cast<uintptr_t>(map_) + kHuge - 1) / kHuge * kHuge;
    data_ = reinterpret_cast<uint64_t*>(at);
#ifdef MADV_HUGEPAGE
    ::madvise(data_, bytes, MADV_HUGEPAGE);
#endif
  }
  ZeroedRegion(ZeroedRegion&& o) noexcept { swap(o); }
  ZeroedRegion& operator=(ZeroedRegion&& o) noexcept {
    swap(o);
    return *this;
  }
  ~ZeroedRegion() {
    if (map_) {
      ::munmap(map_, map_bytes_);
    } else {
      std::free(data_);
    }
  }
  uint64_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool mapped() const { return map_ != nullptr; }

 private:
  void swap(ZeroedRegion& o) {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(map_, o.map_);
    std::swap(map_bytes_, o.map_bytes_);
  }
  uint64_t* data_ = nullptr;
  size_t bytes_ = 0, map_bytes_ = 0;
  void* map_ = nullptr;
};

}  // namespace plait
