// Links over loopback: order, no loss and no doubles over broken connections; who is let in and who
// is not. Arguments: frames of each sender, breaks, seed.
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "links_samples.hpp"

using namespace plait;
using namespace plait::testing;

namespace {

constexpr uint32_t kSenders = 2;

// What one node expects of the others: on each channel numbers from 1, in order, each once.
struct Expecting {
  explicit Expecting(LinkNode& node) {
    node.on_frame = [this](uint32_t from, Frame&& f) {
      if (f.kind == FrameKind::State) {
        CHECK(f.number == ++bulk[from]);
        for (int64_t i = 0; i < f.size; i += 997)
          CHECK(f.state[i] == uint8_t(f.number + uint64_t(i)));
        return;
      }
      uint64_t& last = data[from][f.channel];
      CHECK(f.number == ++last);
      if (f.kind == FrameKind::Progress) return;
      CHECK(f.kind == FrameKind::Data && f.batch.length == int64_t(f.other));
      for (int64_t i = 0; i < f.batch.length; ++i) {
        CHECK(f.batch.columns[0].i64()[i] == int64_t(f.number));
      }
      // Some batches outlive the connection's chunk.
      if (f.number % 16 == 0) kept.push_back(std::move(f));
      if (kept.size() > 50) kept.erase(kept.begin());
    };
  }
  uint64_t data[3][kSenders] = {}, bulk[3] = {};
  std::vector<Frame> kept;
};

void send_all(Links& links, const std::vector<uint32_t>& to, uint32_t channel, uint64_t frames,
              uint64_t seed) {
  std::mt19937_64 random(seed);
  for (uint64_t number = 1; number <= frames; ++number) {
    Frame head;
    head.channel = channel;
    head.number = number;
    head.other = random() % 50 == 0 ? random() % 60'000 : random() % 100;
    Encoded frame;
    if (random() % 4 == 0) {
      head.kind = FrameKind::Progress;
      frame = encode_small(head);
    } else {
      frame = encode_data(head, rows_of(int64_t(number), int64_t(head.other)), nullptr,
                          int64_t(head.other));
    }
    for (const uint32_t peer : to) links.send(peer, frame);  // one frame for both
    if (channel == 0 && number % 20 == 0) {
      Frame state;
      state.number = number / 20;
      state.size = int64_t(random() % 400'000);
      state.bytes = BufferRef::make(state.size);
      for (int64_t i = 0; i < state.size; ++i) {
        state.bytes.data()[i] = uint8_t(state.number + uint64_t(i));
      }
      for (const uint32_t peer : to) links.send_bulk(peer, encode_state(state));
    }
    // As the engine's workers do: whoever comes by polls, and credits bound what is sent.
    if (number % 2 == 0) links.poll(0);
    for (const uint32_t peer : to) until([&] { return links.unsent_bytes(peer) < 4 << 20; });
  }
}

// Three nodes, each sends to both others from two threads, while connections break.
void three_nodes(uint64_t frames, uint64_t breaks, uint64_t seed) {
  std::vector<std::unique_ptr<LinkNode>> nodes;
  std::vector<std::unique_ptr<Expecting>> expecting;
  for (uint32_t i = 0; i < 3; ++i) {
    LinkOptions options;
    options.redial_least_ns = 1'000'000;
    nodes.push_back(std::make_unique<LinkNode>(i, "secret", options));
    expecting.push_back(std::make_unique<Expecting>(*nodes.back()));
  }
  for (auto& a : nodes) {
    for (uint32_t b = 0; b < 3; ++b) {
      if (nodes[b] != a) a->links.add_peer(b, "127.0.0.1", nodes[b]->port);
    }
    a->start();
  }
  std::vector<std::thread> senders;
  for (uint32_t i = 0; i < 3; ++i) {
    for (uint32_t channel = 0; channel < kSenders; ++channel) {
      senders.emplace_back([&nodes, i, channel, frames, seed] {
        send_all(nodes[i]->links, {(i + 1) % 3, (i + 2) % 3}, channel, frames,
                 seed + i * 8 + channel);
      });
    }
  }
  const uint64_t each = 2 * (kSenders * frames + frames / 20);
  const auto total = [&nodes] {
    return nodes[0]->received() + nodes[1]->received() + nodes[2]->received();
  };
  std::mt19937_64 random(seed);
  int64_t expected[3][3] = {{2, 2, 2}, {2, 2, 2}, {2, 2, 2}};
  for (uint64_t i = 0; i < breaks; ++i) {
    // Spread over the run by what has arrived, not by time; and each breaks what is up.
    until([&] { return total() * breaks >= i * 3 * each * 9 / 10; });
    const auto at = uint32_t(random() % 3), peer = (at + 1 + uint32_t(random() % 2)) % 3;
    Links& links = nodes[at]->links;
    until([&] { return links.traffic(peer).connected == expected[at][peer]; });
    links.reconnect(peer);
    expected[at][peer] += 2;
  }
  for (auto& s : senders) s.join();
  until([&] { return total() == 3 * each; });
  for (uint32_t i = 0; i < 3; ++i) {
    for (const uint32_t peer : {(i + 1) % 3, (i + 2) % 3}) {
      until([&] { return nodes[i]->links.traffic(peer).connected == expected[i][peer]; });
      until([&] { return nodes[i]->links.held_frames(peer) == 0; });
    }
  }
  for (auto& node : nodes) node->stop();
  int64_t connected = 0, duplicates = 0;
  for (uint32_t i = 0; i < 3; ++i) {
    for (uint32_t from = 0; from < 3; ++from) {
      if (from == i) continue;
      for (const uint64_t last : expecting[i]->data[from]) CHECK(last == frames);
      CHECK(expecting[i]->bulk[from] == frames / 20);
      const LinkTraffic t = nodes[i]->links.traffic(from);
      CHECK(t.frames_received == int64_t(each / 2) && t.unsent_bytes == 0);
      connected += t.connected;
      duplicates += t.duplicates;
    }
  }
  CHECK(connected == int64_t(12 + 2 * breaks));
  CHECK(duplicates == 0);  // the welcome says what is there: nothing is sent twice
  std::printf("three nodes: %lu frames, %ld connections\n", (unsigned long)(3 * each),
              long(connected));
}

void refused_node(const char* why, uint32_t rank, const std::string& token,
                  const std::string& job) {
  LinkNode a(0), b(rank, token, {}, job);
  b.links.add_peer(rank == 0 ? 5 : 0, "127.0.0.1", a.port);
  b.links.send(0, encode_control(0, 1));
  a.start();
  b.start();
  until([&] { return b.was_down(rank == 0 ? 5 : 0, why); });
  a.stop();
  b.stop();
  CHECK(a.received() == 0 && a.ups() == 0 && b.ups() == 0);
  CHECK(a.links.refusals().count > 0);
  CHECK(b.links.down_peers().size() == 1);
  CHECK(b.links.traffic(rank == 0 ? 5 : 0).why_down.find(why) != std::string::npos);
}

void wrong_version() {
  LinkNode a(0);
  a.start();
  RawLink raw(a.port);
  const Encoded e = encode_hello(raw.hello(1, 0, "token"));
  e.bytes.data()[2] = 9;
  CHECK(raw.send(e));
  const Handshake answer = raw.handshake();
  CHECK(answer.kind == FrameKind::Refuse);
  CHECK(answer.reason.find("protocol version 9, this node speaks " +
                           std::to_string(kProtocolVersion)) != std::string::npos);
  CHECK(raw.read().empty());
}

// A listener that does not know the token gets nothing but the greeting.
void false_listener() {
  LinkNode a(0);
  const Socket door = open_listener("127.0.0.1", 0);
  a.links.add_peer(1, "127.0.0.1", port_of(door.fd()));
  a.links.send(1, encode_control(0, 1));
  a.start();
  Socket in;
  until([&] { return bool(in = Socket(::accept4(door.fd(), nullptr, nullptr, SOCK_CLOEXEC))); });
  RawLink raw(std::move(in));
  CHECK(raw.send(encode_challenge("sixteen bytes...")));
  const Handshake hello = raw.handshake();
  CHECK(hello.kind == FrameKind::Hello);
  Welcome w;
  w.session = 5;
  w.proof = welcome_proof("guess", "sixteen bytes...", hello.hello, w);
  CHECK(raw.send(encode_welcome(w)));
  until([&] { return a.was_down(1, "does not know the job's token"); });
  CHECK(raw.read().empty());
}

// Doubles are left out, a gap is refused, another clock is translated, garbage ends the connection.
void by_hand() {
  LinkNode a(0);
  std::vector<int64_t> ingested;
  std::atomic<size_t> seen{0};
  a.on_frame = [&](uint32_t from, Frame&& f) {
    CHECK(from == 7);
    ingested.push_back(f.batch.ingest_ns);
    seen.store(ingested.size(), std::memory_order_release);  // pairs with the loop's acquire
  };
  a.start();
  constexpr int64_t hour = 3'600'000'000'000;
  for (const int64_t ahead : {int64_t(0), hour, -hour}) {
    const size_t before = seen.load(std::memory_order_acquire);
    const int64_t start = link_now_ns();
    RawLink raw(a.port);
    CHECK(raw.send(encode_hello(raw.hello(7, 0, "token", ahead))));
    const Handshake welcome = raw.handshake();
    const int64_t end = link_now_ns();
    CHECK(welcome.kind == FrameKind::Welcome && welcome.welcome.sequence == before);
    Batch b = rows_of(1, 1);
    b.ingest_ns = start + ahead;
    CHECK(raw.send(encode_data(0, b, nullptr, 1), before));  // a double
    CHECK(raw.send(encode_data(0, b, nullptr, 1), before + 1));
    until([&] { return seen.load(std::memory_order_acquire) == before + 1; });
    if (ahead == 0) CHECK(ingested.back() == start);
    CHECK(std::abs(ingested.back() - start) <= end - start);
    if (ahead < 0) {
      CHECK(raw.send(encode_control(0, 1), before + 3));
      until([&] { return a.was_down(7, "frame 5 behind frame 3"); });
      continue;
    }
    // Bytes that are no frame.
    CHECK(raw.send("this is not what was agreed upon", 32));
    until([&] { return a.was_down(7, "not a frame"); });
  }
  a.stop();
  CHECK(a.links.traffic(7).duplicates == 3 && a.links.traffic(7).frames_received == 3);
}

void strangers() {
  LinkOptions options;
  options.max_strangers = 4;
  options.handshake_ns = 20'000'000;
  LinkNode a(0, "token", options);
  std::vector<std::unique_ptr<RawLink>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<RawLink>(a.port));
  a.start();
  until([&] { return a.links.refusals().count == 10; });
  // Each had a challenge and a refusal: the oldest six when others came, the rest in time.
  for (auto& raw : silent) {
    int frames = 0;
    while (!raw->read().empty()) ++frames;
    CHECK(frames == 2);
  }
  RawLink noisy(a.port);
  const std::string noise(200'000, 'P');
  noisy.send(noise.data(), int64_t(noise.size()));
  until([&] { return a.links.refusals().count == 11; });
  CHECK(a.received() == 0);
}

// Hundreds of connections that hold their tongue, talk nonsense, lie, or hang up, while a node
// sends and another one joins: all it sends arrives, the new one comes in, and all are counted.
void flood() {
  constexpr int kEach = 75;
  LinkNode a(0), b(1), late(2);
  std::atomic<uint64_t> next{1};
  a.on_frame = [&](uint32_t from, Frame&& f) {
    if (from == 1) CHECK(f.control_epoch == next.fetch_add(1, std::memory_order_relaxed));
  };
  b.links.add_peer(0, "127.0.0.1", a.port);
  a.start();
  b.start();
  until([&] { return b.ups() > 0; });
  std::vector<std::unique_ptr<RawLink>> silent;
  const std::string noise(300, 'x');
  uint64_t sent = 0;
  for (int i = 0; i < kEach; ++i) {
    silent.push_back(std::make_unique<RawLink>(a.port));
    RawLink noisy(a.port), liar(a.port), gone(a.port);
    noisy.send(noise.data(), int64_t(noise.size()));
    Hello h;
    h.job = "job";
    h.rank = 1;
    h.nonce = h.proof = std::string(32, '?');
    liar.send(encode_hello(h));
    b.links.send(0, encode_control(0, ++sent));
    if (i == kEach / 2) late.links.add_peer(0, "127.0.0.1", a.port);
    if (i == kEach / 2) late.start();
  }
  until([&] { return late.ups() > 0; });
  b.links.send(0, encode_control(0, ++sent));
  until([&] { return next.load(std::memory_order_relaxed) == sent + 1; });
  silent.clear();
  const auto counted = [&] { return a.links.refusals().count + a.links.refusals().left; };
  until([&] { return counted() == 4 * kEach; });
  CHECK(a.links.refusals().left > 0);
  CHECK(a.links.refusals().from.starts_with("127.0.0.1:"));
  CHECK(b.links.traffic(0).connected == 2);
}

void dropped() {
  LinkNode a(0), b(1);
  a.links.add_peer(1, "127.0.0.1", 1);  // nobody is there
  for (int i = 0; i < 10; ++i) a.links.send(1, encode_data(0, rows_of(1, 1000), nullptr, 1000));
  CHECK(a.links.unsent_bytes(1) > 10'000);
  a.links.drop_peer(1);
  CHECK(a.links.unsent_bytes(1) == 0 && a.links.down_peers().empty());
  a.links.send(1, encode_control(0, 1));
  b.links.add_peer(0, "127.0.0.1", a.port);
  a.start();
  b.start();
  until([&] { return b.was_down(0, "node 1 was dropped"); });
  a.links.add_peer(1, "127.0.0.1", b.port);  // after all
  a.links.send(1, encode_control(0, 2));
  b.links.send(0, encode_control(0, 3));
  until([&] { return a.received() == 1 && b.received() == 1; });
  b.links.drop_peer(0);
  until([&] { return a.was_down(1, "refused"); });
}

// A node that died and came back is another one: nothing is sent to it as if nothing had been.
void replaced() {
  LinkOptions options;
  options.redial_most_ns = 20'000'000;
  LinkNode a(0, "token", options);
  auto b = std::make_unique<LinkNode>(1, "token", options);
  const uint16_t port = b->port;
  a.links.add_peer(1, "127.0.0.1", port);
  b->links.add_peer(0, "127.0.0.1", a.port);
  a.start();
  b->start();
  a.links.send(1, encode_control(0, 1));
  b->links.send(0, encode_control(0, 1));
  until([&] { return a.received() == 1 && b->received() == 1; });
  b.reset();
  b = std::make_unique<LinkNode>(1, "token", options, "job", port);
  b->links.add_peer(0, "127.0.0.1", a.port);
  b->start();
  until([&] { return a.was_down(1, "another process has come in its place"); });
  until([&] { return b->was_down(0, "was another process before"); });
  CHECK(b->received() == 0);
  a.links.drop_peer(1);
  a.links.add_peer(1, "127.0.0.1", port);
  a.links.send(1, encode_control(0, 2));
  b->links.send(0, encode_control(0, 2));
  until([&] { return a.received() == 2 && b->received() == 1; });
}

void words() {
  LinkNode a(0);
  const auto thrown = [](const std::function<void()>& act) {
    try {
      act();
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  LinkNode b(1);
  CHECK(thrown([&] { b.links.listen("127.0.0.1", a.port); }).find("cannot listen") == 0);
  CHECK(thrown([&] { b.links.listen("256.1.1.1", 0); }).find("cannot look up") == 0);
  CHECK(thrown([&] { b.links.add_peer(2, "no such host", 1); }).find("cannot look up") == 0);
  // One thread at a time, and a wait that is ended.
  std::atomic<bool> over{false};
  std::thread waiter([&] {
    while (!over.load(std::memory_order_acquire)) a.links.poll(int64_t(100) * 1'000'000'000);
  });
  until([&] { return a.links.waiting(); });
  CHECK(!a.links.poll(0));
  over.store(true, std::memory_order_release);  // pairs with the acquire in the thread
  a.links.wake();
  waiter.join();
}

// Somebody else has the node's local name and says nothing sensible: it is found by TCP.
void taken_name() {
  over_local() = false;
  LinkNode a(0);
  over_local() = true;
  LinkNode b(1);
  const Socket thief = open_local(a.port);
  CHECK(bool(thief));
  b.links.add_peer(0, "127.0.0.1", a.port);
  a.start();
  b.start();
  b.links.send(0, encode_control(0, 1));
  // Both connections, data and bulk, come here first.
  for (int caught = 0; caught < 2;) {
    const Socket s(::accept(thief.fd(), nullptr, nullptr));
    if (s) ::send(s.fd(), "nothing of interest to a node...", 32, MSG_NOSIGNAL);
    caught += bool(s);
  }
  until([&] { return a.received() == 1; });
  CHECK(!b.was_down(0, ""));
}

// What is no ring, or not a safe one, is not mapped; a place that cannot be is noticed.
void ring_refused() {
  Socket memory;
  const auto ring = LinkRing::make(4096, memory);
  CHECK(ring && memory);
  CHECK(!LinkRing::adopt(memory.fd(), 2048));
  auto other = LinkRing::adopt(memory.fd(), 4096);
  CHECK(other && other->size() == 4096 && other->available() == 0);
  Socket none;
  CHECK(!LinkRing::make(5000, none) && !none);
  const Socket open(::memfd_create("not sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(::ftruncate(open.fd(), 8192) == 0 && !LinkRing::adopt(open.fd(), 1 << 20));
  int ends[2];
  CHECK(::pipe(ends) == 0);
  const Socket in(ends[0]), out(ends[1]);
  CHECK(!LinkRing::adopt(in.fd(), 1 << 20));
  uint8_t bytes[64] = {1, 2, 3};
  const iovec piece{bytes, sizeof bytes};
  CHECK(ring->try_write(&piece, 1) == 64 && other->available() == 64);
  auto late = LinkRing::adopt(memory.fd(), 4096);
  late->read(bytes, 32);
  // A head below the reader's place, or more than the ring holds.
  void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0);
  CHECK(shared != MAP_FAILED);
  auto& head = *static_cast<std::atomic<uint64_t>*>(shared);
  for (const uint64_t wrong : {uint64_t(7), uint64_t(1) << 40}) {
    head.store(wrong, std::memory_order_relaxed);
    CHECK(late->available() > late->size());
  }
  ::munmap(shared, 4096);
}

bool has_ipv6() {
  const Socket s(::socket(AF_INET6, SOCK_STREAM, 0));
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  return s && ::bind(s.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

void ipv6() {
  if (!has_ipv6()) return;
  LinkNode a(0, "token", {}, "job", 0, "::1"), b(1);
  b.links.add_peer(0, "::1", a.port);
  a.start();
  b.start();
  b.links.send(0, encode_control(0, 1));
  until([&] { return a.received() == 1; });
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long frames = argument(argc, argv, 2000);
  const unsigned long breaks = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 200;
  const unsigned long seed = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 1;
  story() = "seed " + std::to_string(seed) + ": ";
  ring_refused();
  // TCP; a socket of the host; a ring that is nearly always full; one as it is used.
  for (const int64_t way : {-1, 0, 128, 512 << 10}) {
    over_local() = way >= 0;
    ring_bytes() = uint64_t(std::max<int64_t>(way, 0));
    three_nodes(frames / 2, 0, seed);
    three_nodes(frames / 2, breaks / 2, seed);
    refused_node("the proof of the job's token is wrong", 1, "wrong", "job");
    refused_node("this node belongs to another job", 1, "token", "another");
    refused_node("this is node 0", 0, "token", "job");
    wrong_version();
    false_listener();
    by_hand();
    strangers();
    flood();
    dropped();
    replaced();
    words();
    ipv6();
  }
  taken_name();
  std::printf("all well, seed %lu\n", seed);
  return 0;
}
