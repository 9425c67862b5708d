// Bins that are written behind a mark against copies made at the mark: keys that change and come
// meanwhile, tables that grow, bins that leave and come, marks that come too early; int, text and
// null keys. Differences of the last mark are put together as a reader of checkpoints does it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "plait/keyed/keyed_state.hpp"

namespace {

using namespace plait;
using Random = std::mt19937_64;
using Entries = std::vector<std::string>;  // of a bin, sorted
using Contents = std::map<uint32_t, Entries>;

Column numbers(const std::vector<int64_t>& values, bool nulls) {
  Column c;
  c.type = Type::Int64;
  c.length = int64_t(values.size());
  c.data_owner = BufferRef::make(c.length * 8);
  c.data = c.data_owner.data();
  if (!values.empty()) std::memcpy(c.data_owner.data(), values.data(), values.size() * 8);
  if (!nulls) return c;
  c.validity_owner = BufferRef::make(c.length / 8 + 1);
  std::memset(c.validity_owner.data(), 0, size_t(c.length / 8 + 1));
  for (int64_t i = 0; i < c.length; ++i) {
    if (values[size_t(i)] % 11) c.validity_owner.data()[i / 8] |= uint8_t(1 << (i % 8));
  }
  c.validity = c.validity_owner.data();
  return c;
}

Column words(const std::vector<int64_t>& values) {
  Column c;
  c.type = Type::String;
  c.length = int64_t(values.size());
  c.offsets_owner = BufferRef::make(4 * (c.length + 1));
  std::string all;
  int32_t* offsets = c.offsets_owner.as<int32_t>();
  offsets[0] = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    all += std::string(size_t(values[i] % 7), 'w') + std::to_string(values[i]);
    offsets[i + 1] = int32_t(all.size());
  }
  c.offsets = offsets;
  c.data_owner = BufferRef::make(int64_t(all.size()));
  std::memcpy(c.data_owner.data(), all.data(), all.size());
  c.data = c.data_owner.data();
  return c;
}

Entries entries_of(const KeyedPlan& plan, uint32_t bin, const Bytes& bytes) {
  BinHeader h;
  CHECK(check_bin(plan, BinKind::Whole, bytes.data(), size_t(bytes.size), h).empty());
  CHECK(h.bin == bin && h.base == 0);
  Entries found;
  BinReader reader(plan, bytes.data() + sizeof h, bytes.end());
  const uint8_t* at = bytes.data() + sizeof h;
  BinEntry e;
  for (uint64_t i = 0; i < h.count; ++i) {
    CHECK(reader.next(e));
    const uint8_t* end = bytes.data() + (bytes.size - int64_t(reader.left()));
    found.emplace_back(reinterpret_cast<const char*>(at), size_t(end - at));
    if (h.has_null && i + 1 == h.count) found.back() += "null";
    at = end;
  }
  std::sort(found.begin(), found.end());
  return found;
}

class Twin {
 public:
  Twin(Random& random, KeyedPlan plan, bool text, bool nulls, int64_t keys)
      : random_(random), plan_(std::move(plan)), text_(text), nulls_(nulls), keys_(keys) {
    for (unsigned l = 0; l < plan_.lanes(); ++l) {
      lanes_.push_back(std::make_unique<KeyedState>(plan_, l));
    }
  }

  void rows(size_t n) {
    std::vector<int64_t> keys(n), values(n);
    const int64_t few = random_() % 3 ? keys_ : 9;
    for (auto& k : keys) k = int64_t(random_() % uint64_t(few));
    for (auto& v : values) v = int64_t(random_() % 1000);
    Batch in;
    in.length = int64_t(n);
    in.columns = {text_ ? words(keys) : numbers(keys, nulls_), numbers(values, false),
                  words(values)};
    SplitBatch s;
    split_by_lane(plan_, in, s);
    for (unsigned l = 0; l < plan_.lanes(); ++l) lanes_[l]->process(in, s, l);
  }
  void mark(bool all) {
    at_mark_.clear();
    for (uint32_t bin = 0; bin < 1u << plan_.bin_bits; ++bin) {
      if (!of(bin).empty(bin)) at_mark_[bin] = entries_of(plan_, bin, of(bin).copy_bin(bin));
    }
    if (all) base_.clear();
    for (auto& lane : lanes_) lane->begin_save(all);
  }
  // Writes for some looks at the clock; whether that was all.
  bool save(unsigned looks) {
    bool all = true;
    for (auto& lane : lanes_) {
      unsigned left = looks;
      all &= lane->save_some([&] { return left-- == 0; });
      for (SavedBin& saved : lane->take_saved()) {
        if (saved.writer) {
          base_[saved.bin] = entries_of(plan_, saved.bin, saved.writer->finish());
          ++written;
        } else {
          CHECK(base_.erase(saved.bin) == 1);
        }
      }
    }
    return all;
  }
  void check_saved() const { CHECK(base_ == at_mark_); }
  void move_away() {
    const auto bin = uint32_t(random_() % (1u << plan_.bin_bits));
    if (of(bin).empty(bin)) return;
    if (random_() % 3 == 0) return of(bin).discard_bin(bin);
    const Bytes bytes = of(bin).take_bin(bin);
    if (random_() % 2) CHECK(of(bin).put_bin(bytes.data(), size_t(bytes.size)).empty());
  }
  size_t filled() const { return at_mark_.size(); }

  uint64_t written = 0;  // bins

 private:
  KeyedState& of(uint32_t bin) { return *lanes_[bin >> (plan_.bin_bits - plan_.lane_bits)]; }

  Random& random_;
  const KeyedPlan plan_;
  const bool text_, nulls_;
  const int64_t keys_;
  std::vector<std::unique_ptr<KeyedState>> lanes_;
  Contents at_mark_, base_;  // as copied at the mark; as a reader of checkpoints puts it together
};

KeyedPlan plan_of(bool text, bool nulls, unsigned bin_bits, unsigned lane_bits) {
  using K = AggregateKind;
  std::vector<AggregateSpec> specs{{K::Count, -1, Type::Int64, false},
                                   {K::Sum, 1, Type::Int64, false}};
  if (text) specs.push_back({K::Last, 2, Type::String, false});
  (void)nulls;
  return KeyedPlan::make({0}, {text ? Type::String : Type::Int64}, specs, bin_bits, lane_bits);
}

void against_copies(Random& random, bool text, bool nulls, unsigned bin_bits, unsigned lane_bits,
                    unsigned marks) {
  Twin twin(random, plan_of(text, nulls, bin_bits, lane_bits), text, nulls, 6000);
  bool whole = true;
  for (unsigned i = 0; i < marks; ++i) {
    for (unsigned n = unsigned(random() % 4); n; --n) twin.rows(random() % 1200);
    if (random() % 4 == 0) twin.move_away();
    twin.mark(whole);
    const bool early = random() % 5 == 0;  // the next mark comes before all is written
    while (!twin.save(unsigned(random() % 4))) {
      if (early && random() % 3 == 0) break;
      if (random() % 2) twin.rows(random() % 900);
      if (random() % 6 == 0) twin.move_away();
    }
    whole = !twin.save(0);
    if (!whole) twin.check_saved();
  }
}

// Bins that did not change are not written.
void only_changes(Random& random) {
  Twin twin(random, plan_of(false, false, 8, 1), false, false, 100'000);
  twin.rows(50'000);
  twin.mark(true);
  while (!twin.save(100)) {
  }
  twin.check_saved();
  CHECK(twin.written == 256);
  twin.mark(false);
  CHECK(twin.save(0) && twin.written == 256);
  twin.check_saved();
  twin.rows(1);
  twin.mark(false);
  while (!twin.save(100)) {
  }
  twin.check_saved();
  CHECK(twin.written == 257);
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long marks = plait::testing::argument(argc, argv, 60);
  Random random(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  only_changes(random);
  for (unsigned bin_bits : {0u, 1u, 5u, 9u}) {
    for (unsigned lane_bits : {0u, 1u, 3u}) {
      if (lane_bits > bin_bits) continue;
      against_copies(random, false, false, bin_bits, lane_bits, unsigned(marks));
      against_copies(random, false, true, bin_bits, lane_bits, unsigned(marks));
      against_copies(random, true, false, bin_bits, lane_bits, unsigned(marks));
    }
  }
  return 0;
}
