// Frames: every kind out and in again, texts of limits and digests; arguments: rounds, seed.
#include <cstdio>
#include <string>
#include <vector>

#include "frame_samples.hpp"
#include "plait/columns/merge_parts.hpp"
#include "plait/exchange/row_split.hpp"
#include "plait/links/link_handshake.hpp"

using namespace plait;
using namespace plait::testing;

namespace {

std::string hex(const Digest& digest) {
  std::string out;
  for (const uint8_t b : digest) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", b);
    out += two;
  }
  return out;
}

// FIPS 180-4's own examples, and RFC 4231's.
void digests() {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(sha256(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  CHECK(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

void numbers(Random& random) {
  const std::vector<uint64_t> edges = {0, 127, 128, 255, 256, 65535, 65536, UINT32_MAX, UINT64_MAX};
  for (int i = 0; i < 3000; ++i) {
    const uint64_t u = i < 9 ? edges[size_t(i)] : random() >> below(random, 64);
    const int64_t s = chance(random, 50) ? -int64_t(u >> 1) - 1 : int64_t(u >> 1);
    std::string text;
    PackWriter out(text);
    out.uint(u);
    out.sint(s);
    out.array(u & 0xFFFFF);
    out.text(std::string(size_t(u % 70'000), 'y'));
    out.bytes(std::string(size_t(u % 300), 'z'));
    out.boolean(u & 1);
    PackReader in(reinterpret_cast<const uint8_t*>(text.data()), int64_t(text.size()));
    CHECK(in.uint() == u);
    CHECK(in.sint() == s);
    CHECK(in.array(UINT64_MAX) == (u & 0xFFFFF));
    CHECK(in.text() == std::string(size_t(u % 70'000), 'y'));
    CHECK(in.text() == std::string(size_t(u % 300), 'z'));
    CHECK(in.boolean() == bool(u & 1));
    CHECK(in.ok() && in.left() == 0);
    CHECK(in.uint() == 0 && !in.ok());
  }
}

void batches(Random& random, unsigned long rounds) {
  for (unsigned long i = 0; i < rounds; ++i) {
    const int64_t n = chance(random, 10) ? 0 : below(random, chance(random, 5) ? 3000 : 80);
    const Batch batch = random_batch(random, n, true);
    const std::vector<uint32_t> chosen = some_rows(random, n);
    const uint32_t* rows = chance(random, 60) ? chosen.data() : nullptr;
    const int64_t count = rows ? int64_t(chosen.size()) : n;
    Frame head;
    head.channel = uint32_t(random());
    head.number = random();
    head.other = random();
    head.flag = chance(random, 50);
    const Wire wire(encode_data(head, batch, rows, count));
    CHECK(wire.size % 8 == 0);
    Frame out = decoded(wire);
    CHECK(out.kind == FrameKind::Data && out.channel == head.channel && !out.control);
    CHECK(out.number == head.number && out.other == head.other && out.flag == head.flag);
    check_batch(batch, rows, out.batch, count);
    out.batch.spread_tags();
    check_batch(batch, rows, out.batch, count);
  }
}

// Columns whose values agree in their high bits are sent in fewer bytes, others are not.
void widths() {
  const auto bytes = [](uint64_t above, uint64_t most) {
    Batch b;
    b.length = 1000;
    Column c;
    c.length = b.length;
    c.data_owner = BufferRef::make(8 * b.length);
    for (int64_t i = 0; i < b.length; ++i) {
      c.data_owner.as<uint64_t>()[i] = above | (i % 7 == 3 ? most : std::min(uint64_t(i), most));
    }
    c.data = c.data_owner.data();
    b.columns.push_back(std::move(c));
    const Wire wire(encode_data(1, b, nullptr, b.length));
    check_batch(b, nullptr, decoded(wire).batch, b.length);
    return wire.size / b.length;
  };
  CHECK(bytes(0, 0) == 1 && bytes(0, 255) == 1 && bytes(uint64_t(-1) << 8, 255) == 1);
  CHECK(bytes(0, 256) == 2 && bytes(uint64_t(7) << 60, 65535) == 2);
  CHECK(bytes(0, 65536) == 4 && bytes(uint64_t(1) << 63, UINT32_MAX) == 4);
  CHECK(bytes(0, uint64_t(1) << 32) == 8 && bytes(0, ~uint64_t(0)) == 8);
}

// x * inverse(x) = 1 in 64 bits, for odd x: each step doubles the bits that are right.
uint64_t inverse(uint64_t x) {
  uint64_t y = x;
  for (int i = 0; i < 6; ++i) y *= 2 - x * y;
  return y;
}

// Two nodes' rows apart by bits: the own ones stay, the others go, and together they are as before.
void sides(Random& random, unsigned long rounds) {
  if (!have_lane_mask()) return;
  for (unsigned long i = 0; i < rounds; ++i) {
    Batch batch;
    batch.length = 2 + below(random, 400);
    batch.first_row = below(random, 1000);
    for (int64_t c = 1 + below(random, 3); c > 0; --c) {
      batch.columns.push_back(random_column(random, Type::Int64, batch.length, false));
    }
    const Batch before = batch;
    std::vector<uint64_t> hashes(size_t(batch.length), 0);
    const int ones = int(below(random, 101));
    // 16 bins, the upper ones at place 1; keys with these hashes.
    for (uint64_t& h : hashes) h = uint64_t(chance(random, ones)) << 63 | random() >> 1;
    const uint16_t places[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0};
    const uint64_t salt = random();
    std::vector<uint64_t> keys;
    for (uint64_t h : hashes) keys.push_back(h * inverse(kGolden) ^ salt);
    const RowSides split = sides_of(keys.data(), batch.length, salt, 60, places);
    if (split.ones == 0 || split.ones == batch.length) continue;
    const bool mine = chance(random, 50), tags = chance(random, 80);
    const Wire wire(part_by_bits(Frame(), batch, split, mine, tags));
    const Frame other = decoded(wire);
    std::vector<uint32_t> rows[2];
    for (int64_t r = 0; r < before.length; ++r) {
      rows[hashes[size_t(r)] >> 63].push_back(uint32_t(r));
    }
    CHECK(batch.length == int64_t(rows[mine].size()));
    CHECK(other.batch.length == int64_t(rows[!mine].size()));
    for (size_t c = 0; c < before.columns.size(); ++c) {
      check_column(before.columns[c], rows[mine].data(), batch.columns[c], batch.length);
      check_column(before.columns[c], rows[!mine].data(), other.batch.columns[c],
                   other.batch.length);
    }
    if (!tags) continue;
    check_rows(before, rows[mine].data(), batch, batch.length);
    check_rows(before, rows[!mine].data(), other.batch, other.batch.length);
    std::vector<Batch> parts = {batch, other.batch};
    if (chance(random, 50)) std::swap(parts[0], parts[1]);
    const Batch merged = merge_parts(parts, true);
    CHECK(merged.length == before.length);
    for (int64_t r = 0; r < merged.length; ++r) {
      CHECK(merged.row_number(r) == before.row_number(r));
    }
    for (size_t c = 0; c < before.columns.size(); ++c) {
      check_column(before.columns[c], nullptr, merged.columns[c], before.length);
    }
  }
}

Batch tagged(const std::vector<uint32_t>& tags) {
  Batch b;
  b.length = int64_t(tags.size());
  b.tags_owner = BufferRef::make(4 * b.length);
  std::copy(tags.begin(), tags.end(), b.tags_owner.as<uint32_t>());
  b.tags = b.tags_owner.as<uint32_t>();
  return b;
}

// Each form of the tags is chosen where it is the smallest.
void tag_forms() {
  Batch dense;
  dense.length = 4096;
  CHECK(!decoded(Wire(encode_data(1, dense, nullptr, 4096))).batch.tags);
  const int64_t bare = encode_data(1, dense, nullptr, 4096).size;
  std::vector<uint32_t> half, sparse, repeated;
  for (uint32_t i = 0; i < 1000; ++i) {
    half.push_back(2 * i + 7);
    sparse.push_back(1000 * i);
    repeated.push_back(i / 2);
  }
  const auto cost = [bare](const std::vector<uint32_t>& tags) {
    const Batch b = tagged(tags);
    const Wire wire(encode_data(1, b, nullptr, b.length));
    check_batch(b, nullptr, decoded(wire).batch, b.length);
    return wire.size - bare;
  };
  CHECK(cost(half) <= 2000 / 8 + 24);
  CHECK(cost(sparse) >= 4000 && cost(sparse) <= 4024);
  CHECK(cost(repeated) >= 4000 && cost(repeated) <= 4024);
  CHECK(cost({5}) <= 24 && cost({UINT32_MAX}) <= 24);
  cost({UINT32_MAX - 3, UINT32_MAX - 1, UINT32_MAX});
}

void others(Random& random) {
  Frame control = decoded(Wire(encode_control(7, 1234567890123)));
  CHECK(control.kind == FrameKind::Data && control.control && control.channel == 7);
  CHECK(control.control_epoch == 1234567890123);
  for (const FrameKind kind : {FrameKind::Credit, FrameKind::Progress, FrameKind::Ack}) {
    Frame small;
    small.kind = kind;
    small.number = random();
    small.other = 5;
    small.flag = true;
    const Frame out = decoded(Wire(encode_small(small)));
    CHECK(out.kind == kind && out.number == small.number && out.other == 5 && out.flag);
  }
  for (int64_t size : {0, 1, 7, 8, 100'000}) {
    Frame state;
    state.channel = 3;
    state.op = 4;
    state.bin = 5;
    state.size = size;
    state.bytes = BufferRef::make(size);
    for (int64_t i = 0; i < size; ++i) state.bytes.data()[i] = uint8_t(random());
    const int64_t half = size / 2;
    const std::vector<Piece> pieces = {{state.bytes.data(), half},
                                       {state.bytes.data() + half, size - half}};
    for (const Wire& wire : {Wire(encode_state(state)), Wire(encode_state(state, pieces))}) {
      const Frame out = decoded(wire);
      CHECK(out.kind == FrameKind::State && out.op == 4 && out.bin == 5 && out.channel == 3);
      CHECK(out.size == size);
      CHECK(std::memcmp(out.state, state.bytes.data(), size_t(size)) == 0);
    }
  }
}

// A frame within the limits is taken, one step beyond it is not.
void limits(Random& random) {
  Batch b = random_batch(random, 100, false);
  b.reach.clear();
  b.columns = {random_column(random, Type::Int64, 100, false),
               random_column(random, Type::String, 100, true)};
  const Wire wire(encode_data(1, b, nullptr, 100));
  const auto taken = [&wire](const FrameLimits& limits) {
    Frame out;
    return decode(wire.owner.data(), wire.size, wire.owner, limits, out).empty();
  };
  Prefix prefix;
  CHECK(read_prefix(wire.owner.data(), FrameLimits(), prefix).empty());
  CHECK(taken({.max_header = prefix.header, .max_body = prefix.body}));
  CHECK(!taken({.max_header = prefix.header - 1}));
  CHECK(!taken({.max_body = prefix.body - 1}));
  CHECK(taken({.max_columns = 2, .max_rows = 100}));
  CHECK(!taken({.max_columns = 1}));
  CHECK(!taken({.max_rows = 99}));
}

void handshakes() {
  Hello h;
  h.job = "a job";
  h.rank = 3;
  h.to = 9;
  h.bulk = true;
  h.session = 77;
  h.now_ns = -5;
  h.nonce = random_bytes(16);
  h.proof = hello_proof("token", "challenge", h);
  const Wire wire(encode_hello(h));
  Handshake out;
  CHECK(decode_handshake(wire.owner.data(), wire.size, out).empty());
  CHECK(out.kind == FrameKind::Hello && out.hello.job == h.job && out.hello.rank == 3);
  CHECK(out.hello.to == 9 && out.hello.bulk && out.hello.session == 77 && out.hello.now_ns == -5);
  CHECK(proof_holds(out.hello.proof, hello_proof("token", "challenge", out.hello)));
  CHECK(!proof_holds(out.hello.proof, hello_proof("tokem", "challenge", out.hello)));
  CHECK(!proof_holds(out.hello.proof, hello_proof("token", "challengf", out.hello)));
  out.hello.rank = 4;
  CHECK(!proof_holds(out.hello.proof, hello_proof("token", "challenge", out.hello)));
  CHECK(!proof_holds("", hello_proof("token", "challenge", out.hello)));
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long rounds = argument(argc, argv, 2000);
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  story() = "seed " + std::to_string(seed) + ": ";
  Random random(seed);
  digests();
  numbers(random);
  batches(random, rounds);
  widths();
  sides(random, rounds / 4);
  tag_forms();
  others(random);
  limits(random);
  handshakes();
  std::printf("%lu batches, seed %lu\n", rounds, seed);
  return 0;
}
