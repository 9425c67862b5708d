// The slots of a lane against an unordered map: tables of many segments are flat when keys are
// spread evenly, however many there are; they stay right, and small, when they are not.
#include <algorithm>
#include <cstdint>
#include <random>
#include <unordered_map>
#include <vector>

#include "check.hpp"
#include "plait/keyed/bin_table.hpp"
#include "plait/keyed/hot_aggregate.hpp"

namespace {

using namespace plait;
using Random = std::mt19937_64;
using Model = std::unordered_map<uint64_t, uint64_t>;

void count(BinTable& table, Model& model, std::vector<uint64_t> hashes) {
  const std::vector<uint64_t> given = hashes;
  Part part;
  part.hash = hashes.data();
  part.n = uint32_t(hashes.size());
  table.even_out(part.n);
  run_hot<2>(table, part, [](uint64_t*, uint64_t, uint32_t) {});
  for (size_t i = 0; i < given.size(); ++i) CHECK(hashes[i] == ++model[given[i]]);
}

void compare(BinTable& table, const Model& model) {
  CHECK(table.size() == model.size());
  for (const auto& [hash, seen] : model) {
    const uint64_t* slot = table.find<2>(hash);
    CHECK(slot[0] == hash && slot[1] == seen);
    if (table.flat().slots) CHECK(StateTable::find<2>(table.flat(), hash) == slot);
  }
  size_t keys = 0;
  table.each([&](uint64_t* slot) { keys += model.count(slot[0]); });
  CHECK(keys == model.size());
}

// Batches until nothing is left to be evened out.
void rest(BinTable& table, Model& model) {
  for (int i = 0; i < 16; ++i)
    count(table, model, std::vector<uint64_t>(4096, model.begin()->first));
}

void spread(Random& random, unsigned segment_bits, unsigned bin_bits, size_t most) {
  BinTable table(2, 0, segment_bits, bin_bits);
  Model model;
  size_t flat = 0, looks = 0;
  while (model.size() < most) {
    // Looked at whenever they are twice as many.
    const size_t next = std::max<size_t>(64, model.size() * 2);
    while (model.size() < std::min(most, next)) {
      std::vector<uint64_t> hashes(1 + random() % 4096);
      for (uint64_t& h : hashes) h = random();
      count(table, model, hashes);
    }
    rest(table, model);
    const uint64_t least = uint64_t(16) << segment_bits;
    CHECK(table.byte_size() <= 16 * std::max<uint64_t>(4 * least, 6 * model.size()));
    flat += table.flat().slots != nullptr;
    ++looks;
    compare(table, model);
  }
  // By chance a segment may hold far more than most, but not often.
  CHECK(flat + 1 >= looks && looks > 2);
}

// Nearly all keys are of few bins.
void crowd(Random& random, unsigned segment_bits, unsigned bin_bits, size_t most) {
  BinTable table(2, 0, segment_bits, bin_bits);
  Model model;
  while (model.size() < most) {
    std::vector<uint64_t> hashes(1 + random() % 2048);
    for (uint64_t& h : hashes)
      h = random() % 8 ? random() >> 8 | uint64_t(random() % 3) << 62 : random();
    count(table, model, hashes);
  }
  rest(table, model);
  compare(table, model);
  const uint64_t least = uint64_t(16) << segment_bits;
  CHECK(table.byte_size() <= 16 * std::max<uint64_t>(4 * least, 16 * model.size()));
}

// Half of the bins go and come again, some keys go one by one.
void leave_and_return(Random& random, unsigned bin_bits, size_t keys) {
  BinTable table(2, 0, bin_bits), other(2, 0, bin_bits);
  Model model;
  std::vector<uint64_t> hashes(keys);
  for (uint64_t& h : hashes) h = random();
  count(table, model, hashes);
  for (int round = 0; round < 3; ++round) {
    std::vector<uint32_t> bins;
    for (uint32_t bin = 0; bin < 1u << bin_bits; bin += 2) bins.push_back(bin);
    other.prepare(bins, keys >> bin_bits);
    for (uint32_t bin : bins) {
      const uint64_t n = table.bin_keys(bin);
      std::vector<uint64_t> slots((n + 1) * 2);
      const uint64_t* end = table.copy_bin<2, 2>(bin, 2, slots.data());
      CHECK(uint64_t(end - slots.data()) == 2 * n);
      table.erase_bin(bin);
      const auto* bytes = reinterpret_cast<const uint8_t*>(slots.data());
      CHECK((other.put_bin<2, 2>(bin, 2, bytes, n)));
      CHECK((n == 0 || !other.put_bin<2, 2>(bin, 2, bytes, 1)));
      CHECK((other.put_bin<2, 2>(bin, 2, bytes, n)));
    }
    table.even_out(1);
    other.even_out(1);
    CHECK(table.size() + other.size() == model.size());
    for (uint32_t bin : bins) {
      std::vector<uint64_t> slots((other.bin_keys(bin) + 1) * 2);
      other.copy_bin<2, 2>(bin, 2, slots.data());
      const auto* bytes = reinterpret_cast<const uint8_t*>(slots.data());
      CHECK((table.put_bin<2, 2>(bin, 2, bytes, other.bin_keys(bin))));
      other.erase_bin(bin);
    }
    CHECK(other.size() == 0);
    compare(table, model);
    for (size_t i = 0; i < keys / 8; ++i) {
      const uint64_t h = hashes[random() % keys];
      if (model.erase(h)) table.remove(table.find<2>(h));
    }
    count(table, model, hashes);
  }
  compare(table, model);
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long keys = plait::testing::argument(argc, argv, 100'000);
  Random random(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  spread(random, 0, 0, keys);
  spread(random, 6, 10, keys);
  spread(random, 12, 12, keys);
  spread(random, 8, 16, keys / 2);
  crowd(random, 6, 6, keys / 2);
  crowd(random, 12, 12, keys / 2);
  crowd(random, 8, 16, keys / 2);
  leave_and_return(random, 4, keys / 8);
  leave_and_return(random, 10, keys / 4);
  return 0;
}
