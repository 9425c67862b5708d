// How two nodes come to trust a connection: challenge, hello, welcome; or a refusal with its
// reason.
//
// The acceptor sends a random challenge. The dialler answers with who it is, a challenge of its
// own, and a proof: HMAC-SHA-256, keyed by the job's token, of both challenges and all it says. The
// acceptor checks it and proves itself the same way in its welcome, which names the last frame it
// has. So the token never travels, an old answer is of no use, and neither side sends a record to a
// stranger. Pure functions over bytes: any thread, no waiting.
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "plait/core/sha256.hpp"
#include "plait/links/frame_codec.hpp"

namespace plait {

// Limits of what is read before the other side has proved itself.
inline constexpr FrameLimits kHandshakeLimits{.max_header = 16 << 10, .max_body = 0};

inline std::string random_bytes(size_t n) {
  std::string out(n, '\0');
  size_t have = 0;
  while (have < n) {
    const ssize_t got = getrandom(out.data() + have, n - have, 0);
    if (got < 0) throw std::runtime_error("no random bytes from the system");
    have += size_t(got);
  }
  return out;
}

struct Hello {
  std::string job;
  uint32_t rank = 0, to = 0;  // who dials whom
  bool bulk = false;
  uint64_t session = 0;  // of the process that dials: a rank that was restarted has another
  int64_t now_ns = 0;    // its clock, just before it was sent
  std::string nonce, proof;
};

struct Welcome {
  uint64_t session = 0;   // of the process that accepts
  uint64_t sequence = 0;  // the last frame it has from this dialler on this kind of connection
  std::string proof;
};

namespace handshake_detail {

inline std::string proof_of(std::string_view token, std::string_view role, std::string_view theirs,
                            const Hello& h, uint64_t session, uint64_t sequence) {
  std::string text;
  PackWriter out(text);
  out.array(10);
  out.text(role);
  out.bytes(theirs);
  out.bytes(h.nonce);
  out.text(h.job);
  out.uint(h.rank);
  out.uint(h.to);
  out.boolean(h.bulk);
  out.uint(h.session);
  out.uint(session);
  out.uint(sequence);
  const Digest digest = hmac_sha256(token, text);
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

inline bool equal(std::string_view a, std::string_view b) {
  Digest digest{};
  if (b.size() != digest.size()) return false;
  std::memcpy(digest.data(), b.data(), digest.size());
  return same(a, digest);
}

}  // namespace handshake_detail

inline std::string hello_proof(std::string_view token, std::string_view challenge, const Hello& h) {
  return handshake_detail::proof_of(token, "hello", challenge, h, 0, 0);
}
inline std::string welcome_proof(std::string_view token, std::string_view challenge, const Hello& h,
                                 const Welcome& w) {
  return handshake_detail::proof_of(token, "welcome", challenge, h, w.session, w.sequence);
}
inline bool proof_holds(std::string_view given, std::string_view right) {
  return handshake_detail::equal(given, right);
}

inline Encoded encode_challenge(std::string_view nonce) {
  std::string header;
  PackWriter out(header);
  out.array(2);
  out.uint(uint64_t(FrameKind::Challenge));
  out.bytes(nonce);
  return frame_detail::start(header, 0, 0);
}

inline Encoded encode_hello(const Hello& h) {
  std::string header;
  PackWriter out(header);
  out.array(9);
  out.uint(uint64_t(FrameKind::Hello));
  out.text(h.job);
  out.uint(h.rank);
  out.uint(h.to);
  out.boolean(h.bulk);
  out.uint(h.session);
  out.sint(h.now_ns);
  out.bytes(h.nonce);
  out.bytes(h.proof);
  return frame_detail::start(header, 0, 0);
}

inline Encoded encode_welcome(const Welcome& w) {
  std::string header;
  PackWriter out(header);
  out.array(4);
  out.uint(uint64_t(FrameKind::Welcome));
  out.uint(w.session);
  out.uint(w.sequence);
  out.bytes(w.proof);
  return frame_detail::start(header, 0, 0);
}

inline Encoded encode_refuse(std::string_view reason) {
  std::string header;
  PackWriter out(header);
  out.array(2);
  out.uint(uint64_t(FrameKind::Refuse));
  out.text(reason.substr(0, 1000));
  return frame_detail::start(header, 0, 0);
}

// One frame of a handshake: the fields of its kind are set.
struct Handshake {
  FrameKind kind = FrameKind::Refuse;
  std::string nonce, reason;
  Hello hello;
  Welcome welcome;
};

// Reads a frame that is whole. Empty: it is a handshake of that kind.
inline std::string decode_handshake(const uint8_t* data, int64_t size, Handshake& out) {
  Prefix prefix;
  if (size < kPrefixBytes) return "the handshake is cut off";
  if (std::string why = read_prefix(data, kHandshakeLimits, prefix); !why.empty()) return why;
  if (prefix.frame_bytes() != size) return "the handshake is cut off";
  PackReader in(data + kPrefixBytes, prefix.header);
  const uint64_t fields = in.array(9);
  out.kind = FrameKind(in.uint(uint64_t(FrameKind::Refuse)));
  uint64_t wanted = 0;
  if (out.kind == FrameKind::Challenge) {
    wanted = 2;
    out.nonce = in.text();
  } else if (out.kind == FrameKind::Hello) {
    wanted = 9;
    Hello& h = out.hello;
    h.job = in.text();
    h.rank = uint32_t(in.uint(UINT32_MAX));
    h.to = uint32_t(in.uint(UINT32_MAX));
    h.bulk = in.boolean();
    h.session = in.uint();
    h.now_ns = in.sint();
    h.nonce = in.text();
    h.proof = in.text();
  } else if (out.kind == FrameKind::Welcome) {
    wanted = 4;
    out.welcome.session = in.uint();
    out.welcome.sequence = in.uint();
    out.welcome.proof = in.text();
  } else if (out.kind == FrameKind::Refuse) {
    wanted = 2;
    out.reason = in.text();
  }
  return in.ok() && fields == wanted ? "" : "the handshake does not read";
}

}  // namespace plait
