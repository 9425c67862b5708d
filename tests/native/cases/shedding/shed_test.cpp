// The hash of rows and keys is what it always was (the same numbers as in
// tests/unit/shedding/test_plan.py), and the shedder keeps what a plain loop keeps.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "check.hpp"
#include "plait/shedding/shed_operator.hpp"

using namespace plait;

namespace {

void test_golden_values() {
  CHECK(mix64(0) == 0);
  CHECK(mix64(1) == 0x5692161D100B05E5);
  CHECK(mix64(UINT64_MAX) == 0xB4D055FCF2CBBD7B);
  const uint64_t first = rows_seed(0, 0), fourth = rows_seed(0, 3);
  CHECK(row_sample(first, 0) == 0x48218226FF3CD4BF);
  CHECK(row_sample(first, 1) == 0xA706DD2F4D197E6F);
  CHECK(row_sample(fourth, 7) == 0xC463CA3EA7AB6C71);
  CHECK(row_sample(first, int64_t(1) << 40) == 0xAD65DFF703DED179);
  const uint64_t keys = keys_seed(0);
  CHECK(key_sample(keys, 0) == 0x6DF11A8F5B3E8EFB);
  CHECK(key_sample(keys, 1) == 0x73496E0B867E5E82);
  CHECK(key_sample(keys, UINT64_MAX) == 0xA3F92D1F62C13FDF);
  CHECK(key_sample(keys, kGolden) == 0x71E253287DFDF336);
}

void test_plans_by_epoch() {
  Keeps keeps;
  CHECK(!keeps.any() && !keeps.at(5));
  keeps.add(3, {});
  CHECK(!keeps.any());  // nothing has changed
  keeps.add(3, {10, kKeepAll});
  keeps.add(7, {10, kKeepAll});
  keeps.add(9, {});
  CHECK(keeps.any() && keeps.all().size() == 2);
  CHECK(!keeps.at(2) && keeps.at(3) && keeps.at(8) && !keeps.at(9));
  CHECK(keeps.at(4)->most({0}) == 10 && keeps.at(4)->most({0, 1}) == kKeepAll);
  keeps.add(9, {5, 5});
  CHECK(keeps.at(9)->most({1}) == 5);  // in place of the one for the same epoch
}

Column ints(const std::vector<int64_t>& values) {
  Column c;
  c.length = int64_t(values.size());
  c.data_owner = BufferRef::make(8 * c.length + 8);
  std::copy(values.begin(), values.end(), c.data_owner.as<int64_t>());
  c.data = c.data_owner.data();
  return c;
}

// Random batches, whole and in slices, with and without tags, by row and by key.
void test_against_a_loop(unsigned tries, unsigned long seed) {
  std::mt19937_64 random(seed);
  auto keys = std::make_shared<KeyedPlan>(KeyedPlan::make({0}, {Type::Int64}, {}, 0, 0));
  for (unsigned n = 0; n < tries; ++n) {
    Shared shared(1);
    Worker worker(0, 1, shared);
    Batch batch;
    batch.length = int64_t(random() % 200);
    batch.epoch = random() % 4;
    batch.source = uint32_t(random() % 3);
    batch.first_row = int64_t(random() % 1'000'000);
    std::vector<int64_t> values;
    for (int64_t i = 0; i < batch.length; ++i) values.push_back(int64_t(random() % 50));
    batch.columns = {ints(values)};
    std::vector<uint32_t> tags;
    for (int64_t i = 0; i < batch.length; ++i) tags.push_back(uint32_t(i + i / 3));
    const bool tagged = random() % 2;
    if (tagged) {
      batch.tags_owner = BufferRef::make(4 * batch.length + 4);
      std::copy(tags.begin(), tags.end(), batch.tags_owner.as<uint32_t>());
      batch.tags = batch.tags_owner.as<uint32_t>();
    }
    const uint64_t by_row = random() % 4 ? random() : kKeepAll,
                   by_key = random() % 4 ? random() : 0;
    shared.keeps.add(2, {by_row, by_key});
    std::vector<int64_t> wanted;
    for (int64_t i = 0; i < batch.length; ++i) {
      const int64_t row = batch.first_row + (tagged ? tags[size_t(i)] : i);
      const uint64_t hash = uint64_t(values[size_t(i)]) * kGolden;
      const bool kept = batch.epoch < 2 || by_row == kKeepAll ||
                        row_sample(rows_seed(9, batch.source), row) < by_row ||
                        key_sample(keys_seed(9), hash) < by_key;
      if (kept) wanted.push_back(row);
    }
    const int64_t in = batch.length;
    ShedOperator shed(0, 9, {{nullptr, {0}}, {keys, {1}}}, random() % 2);
    shed.run(batch, worker);
    CHECK(batch.length == int64_t(wanted.size()));
    for (int64_t i = 0; i < batch.length; ++i) CHECK(batch.row_number(i) == wanted[size_t(i)]);
    const auto counts = shared.counts.all(0);
    CHECK(counts[0] == in && counts[1] == batch.length && counts[9] == in - batch.length);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto tries = unsigned(plait::testing::argument(argc, argv, 2000));
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  test_golden_values();
  test_plans_by_epoch();
  test_against_a_loop(tries, seed);
  std::printf("seed %lu: %u batches shed\n", seed, tries);
}
