// Bytes from nobody knows whom: valid frames with changed bytes, and bytes that never were a frame.
//
// Whatever they are, decoding gives a frame that can be read to its end, or a reason. Each try lies
// in memory of exactly its size, so the address checks see a read beyond it. Arguments: tries,
// seed.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "frame_samples.hpp"
#include "links_samples.hpp"

using namespace plait;
using namespace plait::testing;

namespace {

constexpr FrameLimits kLimits{.max_header = 1 << 16,
                              .max_body = 1 << 20,
                              .max_columns = 64,
                              .max_rows = 1 << 16,
                              .max_letters = 1 << 10};

// Reads all of a batch, as an operator might.
uint64_t read_all(const Batch& b) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < b.length; ++i) {
    sum += uint64_t(b.row_number(i) & 0xFF) + (b.subs ? b.subs[i] : 0) + b.half(i);
    if (b.times) sum += uint64_t(b.times[i]);
  }
  for (const OriginReach& one : b.reach) {
    for (int64_t i = 0; i < one.reach->rows; ++i) {
      CHECK(one.reach->times[i] >= one.reach->row_times[i]);
      CHECK(i == 0 || one.reach->times[i] >= one.reach->times[i - 1]);
      sum += uint64_t(one.reach->times[i]);
    }
  }
  for (const Column& c : b.columns) {
    CHECK(c.length == b.length);
    for (int64_t i = 0; i < c.length; ++i) {
      sum += c.valid(i);
      if (c.type == Type::Bool) {
        sum += c.boolean(i);
      } else if (is_fixed64(c.type)) {
        sum += uint64_t(c.i64()[i]);
      } else {
        for (int64_t k = 0; k < c.size(i); ++k) sum += uint8_t(c.bytes(i)[k]);
      }
    }
  }
  if (b.letters) {
    for (const Letter& l : *b.letters) sum += l.message.size() + read_all(l.record);
  }
  if (b.failure) sum += read_all(b.failure->letter.record);
  return sum;
}

struct Tally {
  uint64_t taken = 0, refused = 0, sum = 0;
};

void attempt(const std::vector<uint8_t>& bytes, Tally& tally) {
  auto* memory = new uint8_t[bytes.size() ? bytes.size() : 1];
  if (!bytes.empty()) std::memcpy(memory, bytes.data(), bytes.size());
  const BufferRef owner =
      BufferRef::foreign(memory, memory, [](void* p) { delete[] static_cast<uint8_t*>(p); });
  Frame out;
  if (decode(memory, int64_t(bytes.size()), owner, kLimits, out).empty()) {
    ++tally.taken;
    CHECK(out.batch.length <= kLimits.max_rows);
    tally.sum += read_all(out.batch);
    for (int64_t i = 0; i < out.size; ++i) tally.sum += out.state[i];
  } else {
    ++tally.refused;
  }
  Handshake shake;
  if (decode_handshake(memory, int64_t(bytes.size()), shake).empty()) {
    tally.sum += shake.hello.job.size() + shake.reason.size();
  }
}

std::vector<uint8_t> bytes_of(const Encoded& e) {
  const Wire wire(e);
  return std::vector<uint8_t>(wire.owner.data(), wire.owner.data() + wire.size);
}

std::vector<std::vector<uint8_t>> examples(Random& random) {
  std::vector<std::vector<uint8_t>> out;
  for (int i = 0; i < 200; ++i) {
    const int64_t n = below(random, chance(random, 70) ? 40 : 700);
    out.push_back(bytes_of(encode_data(1, random_batch(random, n, true), nullptr, n)));
  }
  Frame frame;
  frame.kind = FrameKind::Credit;
  frame.bytes = BufferRef::zeroed(100);
  frame.size = 100;
  Hello hello;
  hello.job = "job";
  hello.nonce = hello.proof = std::string(32, 'n');
  for (int i = 0; i < 10; ++i) {
    out.push_back(bytes_of(encode_small(frame)));
    out.push_back(bytes_of(encode_state(frame)));
    out.push_back(bytes_of(encode_control(3, 4)));
    out.push_back(bytes_of(encode_hello(hello)));
    out.push_back(bytes_of(encode_welcome({.session = 1, .sequence = 2, .proof = "p"})));
    out.push_back(bytes_of(encode_refuse("no")));
    out.push_back(bytes_of(encode_challenge("nonce")));
  }
  return out;
}

// Keeps the lengths in the prefix true to what is there, so that the rest is looked at.
void repair(std::vector<uint8_t>& bytes) {
  if (bytes.size() < size_t(kPrefixBytes)) return;
  uint32_t header = 0;
  std::memcpy(&header, bytes.data() + 4, 4);
  const auto body = int64_t(bytes.size()) - kPrefixBytes - header;
  std::memcpy(bytes.data() + 8, &body, 8);
}

void change(std::vector<uint8_t>& bytes, Random& random) {
  static constexpr uint8_t telling[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, 0xC2, 0xC3, 0xCC, 0xCF,
                                        0xD3, 0xC4, 0xDB, 0xDC, 0xDD, 0x90, 0x9F, 0xA0, 0xBF};
  const int64_t changes = 1 + below(random, 4);
  for (int64_t i = 0; i < changes; ++i) {
    const int64_t kind = below(random, 20);
    if (kind == 0) {
      bytes.resize(size_t(below(random, int64_t(bytes.size()) + 1)) / 8 * 8);
    } else if (kind == 1) {
      bytes.resize(bytes.size() + size_t(8 * (1 + below(random, 8))));
    } else if (!bytes.empty()) {
      // Most of what decides lies in front.
      const auto size = int64_t(bytes.size());
      const int64_t at = below(random, chance(random, 70) ? std::min<int64_t>(size, 90) : size);
      bytes[size_t(at)] = chance(random, 50)
                              ? telling[size_t(below(random, sizeof telling))]
                              : uint8_t(bytes[size_t(at)] ^ (1u << below(random, 8)));
    }
  }
  if (chance(random, 70)) repair(bytes);
}

// Sends changed greetings and frames to a node; it lives on, and still lets the right one in.
void over_the_wire(Random& random, unsigned long tries) {
  LinkOptions options;
  options.limits = kLimits;
  LinkNode a(0, "token", options);
  std::atomic<uint64_t> good{0};
  a.on_frame = [&](uint32_t, Frame&& f) {
    const uint64_t sum = read_all(f.batch);
    if (f.number == 12345) good.fetch_add(1 + 0 * sum, std::memory_order_relaxed);
  };
  a.start();
  const auto frames = examples(random);
  for (unsigned long i = 0; i < tries; ++i) {
    RawLink raw(a.port);
    std::vector<uint8_t> hello = bytes_of(encode_hello(raw.hello(uint32_t(100 + i), 0, "token")));
    const bool proper = chance(random, 60);
    if (!proper) change(hello, random);
    if (!raw.send(hello.data(), int64_t(hello.size()))) continue;
    if (!proper) continue;
    for (uint64_t sequence = 1; sequence < 5; ++sequence) {
      std::vector<uint8_t> bytes = frames[size_t(below(random, int64_t(frames.size())))];
      std::memcpy(bytes.data() + 16, &sequence, 8);
      if (sequence > 2) change(bytes, random);
      if (!raw.send(bytes.data(), int64_t(bytes.size()))) break;
    }
  }
  LinkNode b(1);
  b.links.add_peer(0, "127.0.0.1", a.port);
  b.start();
  Frame last;
  last.kind = FrameKind::Progress;
  last.number = 12345;
  b.links.send(0, encode_small(last));
  until([&] { return good.load(std::memory_order_relaxed) == 1; });
  std::printf("%ld connections refused, the last: %s\n", long(a.links.refusals().count),
              a.links.refusals().why.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long tries = argument(argc, argv, 100'000);
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  std::printf("seed %lu\n", seed);
  std::fflush(stdout);
  story() = "seed " + std::to_string(seed) + ": ";
  Random random(seed);
  const auto frames = examples(random);
  Tally changed, noise;
  for (unsigned long i = 0; i < tries; ++i) {
    std::vector<uint8_t> bytes = frames[size_t(below(random, int64_t(frames.size())))];
    change(bytes, random);
    attempt(bytes, changed);
  }
  for (unsigned long i = 0; i < tries / 4; ++i) {
    std::vector<uint8_t> bytes(size_t(below(random, 30)) * 8);
    for (uint8_t& b : bytes) b = uint8_t(random());
    if (bytes.size() >= size_t(kPrefixBytes) && chance(random, 90)) {
      Prefix prefix;
      prefix.header = below(random, int64_t(bytes.size()) - kPrefixBytes + 1) / 8 * 8;
      write_prefix(bytes.data(), prefix);
      repair(bytes);
    }
    attempt(bytes, noise);
  }
  CHECK(changed.taken > tries / 50 && changed.refused > tries / 50);
  over_the_wire(random, tries / 500);
  std::printf("changed frames: %lu taken, %lu refused; noise: %lu taken, %lu refused\n",
              (unsigned long)changed.taken, (unsigned long)changed.refused,
              (unsigned long)noise.taken, (unsigned long)noise.refused);
  return 0;
}
