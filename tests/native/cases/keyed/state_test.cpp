// The keyed state against ordered maps: many keys, so that segments grow; bins that come and go;
// crafted bytes.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "plait/keyed/keyed_state.hpp"

namespace {

using namespace plait;
using Random = std::mt19937_64;
using States = std::vector<std::unique_ptr<KeyedState>>;

Column ints(const std::vector<int64_t>& values, Type type = Type::Int64) {
  Column c;
  c.type = type;
  c.length = int64_t(values.size());
  c.data_owner = BufferRef::make(c.length * 8);
  c.data = c.data_owner.data();
  if (!values.empty()) std::memcpy(c.data_owner.data(), values.data(), values.size() * 8);
  return c;
}

Column texts(const std::vector<std::string>& values) {
  Column c;
  c.type = Type::String;
  c.length = int64_t(values.size());
  c.offsets_owner = BufferRef::make(4 * (c.length + 1));
  std::string all;
  int32_t* offsets = c.offsets_owner.as<int32_t>();
  offsets[0] = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    all += values[i];
    offsets[i + 1] = int32_t(all.size());
  }
  c.offsets = offsets;
  c.data_owner = BufferRef::make(int64_t(all.size()));
  std::memcpy(c.data_owner.data(), all.data(), all.size());
  c.data = c.data_owner.data();
  return c;
}

States states_of(const KeyedPlan& plan) {
  States states;
  for (unsigned l = 0; l < plan.lanes(); ++l) {
    states.push_back(std::make_unique<KeyedState>(plan, l));
  }
  return states;
}

Batch run(const KeyedPlan& plan, States& states, const Batch& in) {
  SplitBatch s;
  Batch out;
  split_by_lane(plan, in, s);
  for (unsigned l = plan.lanes(); l-- > 0;) states[l]->process(in, s, l);
  merge_lanes(plan, in, s, out);
  CHECK(out.length == in.length);
  return out;
}

uint64_t keys_in(const States& states) {
  uint64_t n = 0;
  for (const auto& s : states) n += s->key_count();
  return n;
}

KeyedState& of_bin(const KeyedPlan& plan, States& states, uint32_t bin) {
  return *states[bin >> (plan.bin_bits - plan.lane_bits)];
}

void move_bins(const KeyedPlan& from_plan, States& from, const KeyedPlan& to_plan, States& to) {
  for (uint32_t bin = 0; bin < 1u << from_plan.bin_bits; ++bin) {
    const Bytes bytes = of_bin(from_plan, from, bin).take_bin(bin);
    CHECK(of_bin(to_plan, to, bin).put_bin(bytes.data(), size_t(bytes.size)).empty());
  }
  CHECK(keys_in(from) == 0);
}

struct Total {
  int64_t count = 0, sum = 0, max = 0;
};

// Count and one more over int64 keys: the hot loops, with 1, 2 and 8 lanes, moving between them.
void narrow(Random& random, AggregateKind kind, unsigned rows) {
  using K = AggregateKind;
  const std::vector<AggregateSpec> specs{{K::Count, -1, Type::Int64, false},
                                         {kind, 1, Type::Int64, false}};
  std::vector<KeyedPlan> plans;
  for (unsigned lane_bits : {0u, 1u, 3u}) {
    plans.push_back(KeyedPlan::make({0}, {Type::Int64}, specs, 7, lane_bits));
    CHECK(plans.back().hot);
  }
  std::map<int64_t, Total> model;
  const KeyedPlan* plan = &plans[0];
  States states = states_of(*plan);
  for (unsigned done = 0; done < rows;) {
    const size_t n = random() % 3000;
    std::vector<int64_t> keys(n), values(n);
    for (auto& k : keys)
      k = random() % 4 ? int64_t(random() % 40) : int64_t(random() % 100000) << 20;
    for (auto& v : values) v = int64_t(random()) >> 24;  // their sums fit
    Batch in;
    in.length = int64_t(n);
    in.columns = {ints(keys), ints(values)};
    const Batch out = run(*plan, states, in);
    for (size_t i = 0; i < n; ++i) {
      Total& t = model[keys[i]];
      t.max = t.count ? std::max(t.max, values[i]) : values[i];
      t.sum = int64_t(uint64_t(t.sum) + uint64_t(values[i]));
      ++t.count;
      CHECK(out.columns[0].i64()[i] == keys[i]);
      CHECK(out.columns[1].i64()[i] == t.count);
      CHECK(out.columns[2].i64()[i] == (kind == K::Sum ? t.sum : t.max));
    }
    CHECK(keys_in(states) == model.size());
    done += unsigned(n) + 1;
    const KeyedPlan* next = &plans[random() % plans.size()];
    States target = states_of(*next);
    move_bins(*plan, states, *next, target);
    states = std::move(target);
    plan = next;
  }
}

// Last and max of strings by (string, int64) or by string: wide tables, texts in the cells.
void wide(Random& random, bool composite, unsigned rows) {
  using K = AggregateKind;
  const std::vector<AggregateSpec> specs{{K::Last, 0, Type::String, false},
                                         {K::Max, 2, Type::String, false},
                                         {K::Sum, 1, Type::Int64, false}};
  std::vector<int> columns{0};
  std::vector<Type> types{Type::String};
  if (composite) {
    columns.push_back(1);
    types.push_back(Type::Int64);
  }
  std::vector<KeyedPlan> plans;
  for (unsigned lane_bits : {0u, 1u, 2u}) {
    plans.push_back(KeyedPlan::make(columns, types, specs, 5, lane_bits));
  }
  struct Row {
    std::string max;
    int64_t sum = 0;
    bool any = false;
  };
  std::map<std::pair<std::string, int64_t>, Row> model;
  const KeyedPlan* plan = &plans[0];
  States states = states_of(*plan);
  for (unsigned done = 0; done < rows;) {
    const size_t n = random() % 1500;
    std::vector<std::string> names(n), notes(n);
    std::vector<int64_t> numbers(n);
    for (auto& s : names) s = std::string(random() % 20, 'k') + std::to_string(random() % 500);
    for (auto& s : notes) s = std::string(random() % 40, char('a' + random() % 26));
    for (auto& v : numbers) v = int64_t(random() % 5);
    Batch in;
    in.length = int64_t(n);
    in.columns = {texts(names), ints(numbers), texts(notes)};
    const Batch out = run(*plan, states, in);
    const size_t first = types.size();
    for (size_t i = 0; i < n; ++i) {
      Row& r = model[{names[i], composite ? numbers[i] : 0}];
      if (!r.any || notes[i] > r.max) r.max = notes[i];
      r.any = true;
      r.sum += numbers[i];
      const auto text = [&](size_t c) {
        return std::string(out.columns[c].bytes(int64_t(i)),
                           size_t(out.columns[c].size(int64_t(i))));
      };
      CHECK(text(first) == names[i]);
      CHECK(text(first + 1) == r.max);
      CHECK(out.columns[first + 2].i64()[i] == r.sum);
    }
    CHECK(keys_in(states) == model.size());
    for (auto& s : states) CHECK(s->byte_size() > 0);
    done += unsigned(n) + 1;
    const KeyedPlan* next = &plans[random() % plans.size()];
    States target = states_of(*next);
    move_bins(*plan, states, *next, target);
    states = std::move(target);
    plan = next;
  }
}

std::vector<uint8_t> sealed(BinHeader h, const std::vector<uint64_t>& words) {
  h.length = words.size() * 8;
  std::vector<uint8_t> bytes(sizeof h + h.length);
  std::memcpy(bytes.data() + sizeof h, words.data(), h.length);
  h.checksum = h.right_checksum(bytes.data() + sizeof h);
  std::memcpy(bytes.data(), &h, sizeof h);
  return bytes;
}

// Bytes with a right checksum and wrong contents are refused, and nothing is left of them.
void crafted() {
  using K = AggregateKind;
  const KeyedPlan plan =
      KeyedPlan::make({0}, {Type::Int64}, {{K::Sum, 1, Type::Int64, false}}, 4, 1);
  KeyedState state(plan, 0);
  const auto refused = [&](const std::vector<uint8_t>& bytes, const char* reason) {
    const std::string got = state.put_bin(bytes.data(), bytes.size());
    CHECK(got.find(reason) != std::string::npos);
    CHECK(state.key_count() == 0);
  };
  BinHeader h;
  h.bin_bits = 4;
  h.bin = 3;
  h.fingerprint = plan.fingerprint;
  const uint64_t a = uint64_t(3) << 60 | 5, b = uint64_t(3) << 60 | 6, other = uint64_t(4) << 60;
  h.count = 2;
  refused(sealed(h, {a, 1, 10, a, 1, 11}), "twice");
  refused(sealed(h, {a, 1, 10, other, 1, 11}), "not of this bin");
  refused(sealed(h, {a, 1, 10, b, 0, 11}), "not of this bin");
  refused(sealed(h, {a, 1, 10, b, 1}), "cut short");
  refused(sealed(h, {a, 1, 10, b, 1, 11, 12}), "behind the last");
  h.count = ~uint64_t(0);
  refused(sealed(h, {a, 1, 10}), "cut short");
  h.count = 2;
  h.has_null = 1;
  refused(sealed(h, {a, 1, 10, b, 1, 11}), "not of this bin");
  h.has_null = 2;
  refused(sealed(h, {a, 1, 10, b, 1, 11}), "null mark");
  h.has_null = 0;
  h.version = 9;
  refused(sealed(h, {a, 1, 10, b, 1, 11}), "version 9");
  h.version = BinHeader::kVersion;
  h.bin_bits = 5;
  refused(sealed(h, {a, 1, 10, b, 1, 11}), "2^5 bins");
  h.bin_bits = 4;
  h.fingerprint ^= 1;
  refused(sealed(h, {a, 1, 10, b, 1, 11}), "another plan");
  h.fingerprint ^= 1;
  h.bin = 99;
  refused(sealed(h, {a, 1, 10, b, 1, 11}), "no such bin");
  h.bin = 12;
  refused(sealed(h, {uint64_t(12) << 60, 1, 10, uint64_t(12) << 60 | 1, 1, 11}), "lane 0");
  h.bin = 3;
  const auto good = sealed(h, {a, 1, 10, b, 1, 11});
  CHECK(state.put_bin(good.data(), good.size()).empty());
  CHECK(state.key_count() == 2);
  CHECK(state.put_bin(good.data(), good.size()).find("already") != std::string::npos);
  CHECK(size_t(state.copy_bin(3).size) == good.size());
}

std::string put(KeyedState& state, const Bytes& bytes) {
  return state.put_bin(bytes.data(), size_t(bytes.size));
}
std::string apply(KeyedState& state, const Bytes& bytes) {
  return state.apply_difference(bytes.data(), size_t(bytes.size));
}

// A crafted difference changes a key, brings one, takes one away and names one that is not there.
void crafted_difference() {
  using K = AggregateKind;
  const KeyedPlan plan =
      KeyedPlan::make({0}, {Type::Int64}, {{K::Sum, 1, Type::Int64, false}}, 4, 1);
  KeyedState state(plan, 0);
  BinHeader h;
  h.bin_bits = 4;
  h.bin = 3;
  h.fingerprint = plan.fingerprint;
  h.base = 77;
  const uint64_t top = uint64_t(3) << 60;
  h.count = 4;
  // All at home in one slot: the key behind the one that goes must still be found.
  const auto copy = sealed(h, {top | 1, 1, 10, top | 2, 1, 20, top | 3, 1, 30, top | 4, 1, 40});
  h.magic[3] = BinHeader::mark(BinKind::Difference);
  h.count = 5;
  const std::vector<uint64_t> words{top | 2, 0,       0, top | 3, 5,       31, top | 9, 1,
                                    90,      top | 8, 0, 0,       top | 1, 0,  0};
  const auto difference = sealed(h, words);
  const auto refused = [&](const std::vector<uint8_t>& bytes, const char* reason) {
    const std::string got = state.apply_difference(bytes.data(), bytes.size());
    CHECK(got.find(reason) != std::string::npos);
  };
  refused(difference, "copy is not here");
  CHECK(state.put_bin(difference.data(), difference.size()).find("whole") != std::string::npos);
  CHECK(state.key_count() == 0);
  CHECK(state.put_bin(copy.data(), copy.size()).empty());
  CHECK(state.waits_for_difference(3));
  refused(copy, "not the difference");
  h.base = 78;
  refused(sealed(h, words), "another copy");
  h.base = 77;
  h.bin = 4;
  refused(sealed(h, words), "not of this bin");
  CHECK(state.bin_keys(3) == 4);
  CHECK(state.apply_difference(difference.data(), difference.size()).empty());
  CHECK(!state.waits_for_difference(3));
  refused(difference, "copy is not here");
  CHECK(state.bin_keys(3) == 3 && state.key_count() == 3);
  BinHeader w;
  w.bin_bits = 4;
  w.bin = 3;
  w.fingerprint = plan.fingerprint;
  w.count = 3;
  KeyedState same(plan, 0);
  const auto whole = sealed(w, {top | 3, 5, 31, top | 4, 1, 40, top | 9, 1, 90});
  CHECK(same.put_bin(whole.data(), whole.size()).empty());
  for (uint64_t key : {3, 4, 9}) {  // equal as sets: the order in the bytes is that of the slots
    const Bytes a = state.copy_bin(3), b = same.copy_bin(3);
    const auto has = [&](const Bytes& bytes) {
      for (int64_t at = sizeof(BinHeader); at < bytes.size; at += 24) {
        if (std::memcmp(bytes.data() + at, whole.data() + sizeof w + (key / 4) * 24, 24) == 0)
          return true;
      }
      return false;
    };
    CHECK(a.size == b.size && has(a) && has(b));
  }
}

Batch counted(const std::vector<int64_t>& keys) {
  Batch in;
  in.length = int64_t(keys.size());
  in.columns = {ints(keys)};
  return in;
}

// Bins move with a copy ahead and a difference, between states of other lanes, while both count the
// records of the bins they own.
void moving(Random& random, unsigned rows) {
  constexpr unsigned kBits = 6;
  const std::vector<AggregateSpec> counts{{AggregateKind::Count, -1, Type::Int64, false}};
  const KeyedPlan plans[] = {KeyedPlan::make({0}, {Type::Int64}, counts, kBits, 1, 3),
                             KeyedPlan::make({0}, {Type::Int64}, counts, kBits, 2, 1)};
  States sides[] = {states_of(plans[0]), states_of(plans[1])};
  unsigned owner[1 << kBits] = {};
  bool copied[1 << kBits] = {};
  std::map<int64_t, int64_t> model;
  const auto state = [&](unsigned side, uint32_t bin) -> KeyedState& {
    return of_bin(plans[side], sides[side], bin);
  };
  for (unsigned done = 0; done < rows;) {
    std::vector<int64_t> part[2];
    const unsigned n = unsigned(random() % 500);
    for (unsigned i = 0; i < n; ++i) {
      const int64_t key = int64_t(random() % (rows / 2 + 1));
      part[owner[top_bits(hash_fixed(uint64_t(key), Type::Int64), kBits)]].push_back(key);
    }
    done += n + 1;
    for (unsigned side : {0u, 1u}) {
      run(plans[side], sides[side], counted(part[side]));
      for (int64_t key : part[side]) ++model[key];
    }
    for (int i = 0; i < 3; ++i) {
      const uint32_t bin = uint32_t(random() % (1 << kBits));
      const unsigned from = owner[bin], to = 1 - from;
      KeyedState &here = state(from, bin), &there = state(to, bin);
      if (!copied[bin] && random() % 4 == 0) {  // without a copy
        CHECK(put(there, here.take_bin(bin)).empty());
        owner[bin] = to;
      } else if (!copied[bin]) {
        if (random() % 2) there.prepare({bin}, here.bin_keys(bin));
        here.track(bin);
        CHECK(put(there, here.copy_bin(bin)).empty());
        copied[bin] = true;
      } else if (random() % 4 == 0) {  // the copy was in vain
        here.untrack(bin);
        there.discard_bin(bin);
        CHECK(there.empty(bin));
        copied[bin] = false;
      } else {
        const uint64_t keys = here.bin_keys(bin);
        CHECK(apply(there, here.take_difference(bin)).empty());
        CHECK(here.empty(bin) && there.bin_keys(bin) == keys);
        CHECK(!here.tracked(bin));
        copied[bin] = false;
        owner[bin] = to;
      }
    }
  }
  uint64_t keys = 0;
  for (uint32_t bin = 0; bin < 1 << kBits; ++bin) {
    keys += state(owner[bin], bin).bin_keys(bin);
    if (copied[bin]) state(1 - owner[bin], bin).discard_bin(bin);
  }
  CHECK(keys == model.size());
  CHECK(keys_in(sides[0]) + keys_in(sides[1]) == keys);
  for (const auto& [key, n] : model) {
    const unsigned side = owner[top_bits(hash_fixed(uint64_t(key), Type::Int64), kBits)];
    const Batch out = run(plans[side], sides[side], counted({key}));
    CHECK(out.columns[1].i64()[0] == n + 1);
  }
}

// One bin of many in a segment, with many keys: it must not fill its range and run over.
void lonely_bin(unsigned rows) {
  const KeyedPlan plan =
      KeyedPlan::make({0}, {Type::Int64}, {{AggregateKind::Count, -1, Type::Int64, false}}, 12, 0);
  std::vector<int64_t> keys;
  for (int64_t k = 0; keys.size() < rows / 4; ++k) {
    if (top_bits(hash_fixed(uint64_t(k), Type::Int64), 12) == 1234) keys.push_back(k);
  }
  States one = states_of(plan), two = states_of(plan);
  run(plan, one, counted(keys));
  two[0]->prepare({1234}, keys.size());
  // From now on the table has the size it needs.
  for (const auto& [at, bytes] : two[0]->untouched()) CHECK(ZeroedRegion::populate(at, bytes));
  CHECK(put(*two[0], one[0]->take_bin(1234)).empty());
  CHECK(two[0]->bin_keys(1234) == keys.size() && one[0]->key_count() == 0);
  run(plan, two, counted({keys[0]}));  // brings the empty segments to the same size
  const size_t bytes = two[0]->byte_size();
  const Batch out = run(plan, two, counted(keys));
  for (size_t i = 0; i < keys.size(); ++i) CHECK(out.columns[1].i64()[i] == (i == 0 ? 3 : 2));
  CHECK(two[0]->byte_size() == bytes);
  two[0]->prepare({}, 0);
  CHECK(two[0]->untouched().empty());
}

// The memory of a table to come is populated by another thread while the bins come in.
void populated_meanwhile() {
  const KeyedPlan plan =
      KeyedPlan::make({0}, {Type::Int64}, {{AggregateKind::Count, -1, Type::Int64, false}}, 8, 0);
  std::vector<int64_t> keys(100'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = int64_t(i);
  States one = states_of(plan), two = states_of(plan);
  run(plan, one, counted(keys));
  std::vector<uint32_t> bins(256);
  for (uint32_t bin = 0; bin < 256; ++bin) bins[bin] = bin;
  two[0]->prepare(bins, keys.size());
  const auto pieces = two[0]->untouched();
  CHECK(!pieces.empty());
  std::thread other([&] {
    for (const auto& [at, bytes] : pieces) CHECK(ZeroedRegion::populate(at, bytes));
  });
  for (uint32_t bin : bins) CHECK(put(*two[0], one[0]->take_bin(bin)).empty());
  other.join();
  const Batch out = run(plan, two, counted(keys));
  for (size_t i = 0; i < keys.size(); ++i) CHECK(out.columns[1].i64()[i] == 2);
  // It is kept when they have all gone again, until somebody says that none will come.
  for (uint32_t bin : bins) CHECK(put(*one[0], two[0]->take_bin(bin)).empty());
  run(plan, two, counted({keys[0]}));  // empty segments become as small as that of this one
  for (uint32_t bin : bins) two[0]->discard_bin(bin);
  two[0]->prepare(bins, keys.size());
  CHECK(two[0]->untouched().empty());
  for (uint32_t bin : bins) CHECK(put(*two[0], one[0]->take_bin(bin)).empty());
  const Batch again = run(plan, two, counted(keys));
  for (size_t i = 0; i < keys.size(); ++i) CHECK(again.columns[1].i64()[i] == 3);
  for (uint32_t bin : bins) two[0]->discard_bin(bin);
  two[0]->prepare({}, 0);
  two[0]->prepare(bins, keys.size());
  CHECK(!two[0]->untouched().empty());
}

// The mask way of two lanes gives what the row-number way gives, at every length around a step.
void masks(Random& random) {
  if (!have_lane_mask()) return;
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<uint64_t> keys(static_cast<size_t>(n)), back(size_t(n) + 8);
    for (auto& k : keys) k = random();
    std::vector<uint64_t> h0(size_t(n) + 8), h1(size_t(n) + 8), v0(size_t(n) + 8),
        v1(size_t(n) + 8);
    std::vector<uint8_t> mask(size_t(n) / 4 + 1);
    const uint32_t ones =
        hash_compress2<false>(keys.data(), n, 9, mask.data(), h0.data(), h1.data());
    compress2(keys.data(), n, mask.data(), v0.data(), v1.data());
    size_t at[2] = {0, 0};
    for (uint64_t k : keys) {
      const uint64_t h = (k ^ 9) * kGolden;
      const size_t i = at[h >> 63]++;
      CHECK((h >> 63 ? h1 : h0)[i] == h);
      CHECK((h >> 63 ? v1 : v0)[i] == k);
    }
    CHECK(at[1] == ones);
    expand2(v0.data(), v1.data(), mask.data(), n, back.data());
    CHECK(std::equal(keys.begin(), keys.end(), back.begin()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long rows = plait::testing::argument(argc, argv, 20000);
  Random random(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  masks(random);
  crafted();
  crafted_difference();
  moving(random, unsigned(rows));
  lonely_bin(unsigned(rows));
  populated_meanwhile();
  narrow(random, plait::AggregateKind::Sum, unsigned(rows));
  narrow(random, plait::AggregateKind::Max, unsigned(rows));
  wide(random, false, unsigned(rows));
  wide(random, true, unsigned(rows));
  // One key set that makes every segment grow more than once.
  const plait::KeyedPlan plan = plait::KeyedPlan::make({0}, {plait::Type::Int64}, {}, 6, 1);
  States states = states_of(plan);
  for (int64_t from = 0; from < int64_t(rows) * 4; from += 5000) {
    std::vector<int64_t> keys(5000);
    for (int64_t i = 0; i < 5000; ++i) keys[size_t(i)] = from + i;
    plait::Batch in;
    in.length = 5000;
    in.columns = {ints(keys)};
    run(plan, states, in);
    CHECK(keys_in(states) == uint64_t(from) + 5000);
  }
  return 0;
}
