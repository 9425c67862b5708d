// Stress of both reorder buffers on real threads: argv[1] items. Workers finish out of order,
// downstream is full at times, and the output must be 0, 1, 2 ... with each payload visible.

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "check.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/queues/locked_reorder_buffer.hpp"
#include "plait/queues/reorder_buffer.hpp"
#include "policies.hpp"

namespace plait::testing {
namespace {

struct Item {
  std::uint64_t serial = 0;
  std::uint64_t content = 0;
};

// Plain memory: only the buffer's own protocol keeps two callers apart.
struct Downstream {
  std::uint64_t next = 0;
  std::uint64_t calls = 0;
  std::uint64_t refuse_every = 0;

  bool operator()(Item* item) {
    if (refuse_every != 0 && ++calls % refuse_every == 0) return false;
    CHECK(item->serial == next);
    CHECK(item->content == next * 3);
    ++next;
    return true;
  }
};

template <template <class, class> class Buffer>
void stress(std::uint64_t count, std::size_t capacity, std::uint64_t refuse_every) {
  Buffer<Item, TestAtomics> buffer(capacity);
  std::vector<Item> items(count);
  Downstream downstream{0, 0, refuse_every};
  const auto sink = [&](Item* item) { return downstream(item); };
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> workers;
  for (int w = 0; w < 4; ++w) {
    workers.emplace_back([&] {
      for (;;) {
        const std::uint64_t serial = taken.fetch_add(1, std::memory_order_relaxed);
        if (serial >= count) return;
        // Uneven work, so that serials finish out of order.
        for (std::uint64_t i = serial * 2654435761u % 64; i > 0; --i) cpu_relax();
        items[serial] = {serial, serial * 3};
        Backoff backoff;
        while (!buffer.send(serial, &items[serial], sink)) backoff.wait();
      }
    });
  }
  for (auto& worker : workers) worker.join();
  if (refuse_every != 0) {
    while (buffer.ready()) buffer.send_pending(sink);
  }
  // Without refusals nothing may be left behind for a later call.
  CHECK(downstream.next == count);
  CHECK(buffer.next() == count && !buffer.ready());
}

template <template <class, class> class Buffer>
void edges() {
  Buffer<Item, TestAtomics> buffer(2, 10);
  Item items[4] = {{0, 30}, {1, 33}, {2, 36}, {3, 39}};
  std::vector<std::uint64_t> sent;
  bool room = true;
  const auto sink = [&](Item* item) {
    if (room) sent.push_back(item->serial);
    return room;
  };
  CHECK(buffer.capacity() == 2 && buffer.next() == 10 && !buffer.ready());
  CHECK(!buffer.try_add(9, &items[0]) && !buffer.try_add(12, &items[2]));
  CHECK(buffer.send(11, &items[1], sink) && sent.empty() && !buffer.ready());
  room = false;
  CHECK(buffer.send(10, &items[0], sink) && sent.empty() && buffer.ready());
  CHECK(buffer.next() == 10 && !buffer.send(12, &items[2], sink));
  room = true;
  buffer.send_pending(sink);
  CHECK((sent == std::vector<std::uint64_t>{0, 1}) && buffer.next() == 12);
  CHECK(buffer.send(12, &items[2], sink) && sent.size() == 3 && buffer.next() == 13);
}

}  // namespace
}  // namespace plait::testing

int main(int argc, char** argv) {
  using namespace plait::testing;
  const std::uint64_t count = argument(argc, argv, 100'000);
  edges<plait::ReorderBuffer>();
  edges<plait::LockedReorderBuffer>();
  for (const std::size_t capacity : {1, 8, 64}) {
    stress<plait::ReorderBuffer>(count, capacity, 0);
    stress<plait::ReorderBuffer>(count, capacity, 7);
    stress<plait::LockedReorderBuffer>(count / 4, capacity, 7);
  }
  return 0;
}
