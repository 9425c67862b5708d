// Frame: one message between two nodes, its limits, and the 24 bytes each begins with on the wire.
//
// On the wire a frame is a prefix (magic, protocol version, header length, body length, sequence
// number; little endian), a MessagePack array, and a body of buffers; header, each buffer and so
// the whole frame are multiples of 8 bytes long, so that a frame received at an aligned place can
// be used where it lies. The sequence number belongs to a connection, not to the frame: the link
// writes it when it sends, and one encoded frame may go to several peers. Plain data: any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "plait/columns/batch.hpp"

namespace plait {

static_assert(std::endian::native == std::endian::little, "frames hold columns as they lie");

inline constexpr uint16_t kProtocolVersion = 7;
inline constexpr int64_t kPrefixBytes = 24;

inline constexpr int64_t padded8(int64_t n) { return (n + 7) & ~int64_t(7); }

// The first three and the last two are the links' own; the others carry what the engine sends.
enum class FrameKind : uint8_t {
  Challenge,
  Hello,
  Welcome,
  Data,
  Credit,
  Progress,
  State,
  Expect,
  Start,
  Ack,
  Refuse
};

// How the row tags of a batch lie in a body: not at all, 4 bytes each, or a bit for each row number
// from the first to the last.
enum class TagForm : uint8_t { Dense, List, Bitmap };

struct Frame {
  FrameKind kind = FrameKind::Data;
  uint32_t channel = 0;
  uint64_t number = 0, other = 0;  // free for the engine, in every kind of its frames
  bool flag = false;
  uint32_t op = 0, bin = 0;  // State: operator and bin
  Batch batch;               // Data
  bool control = false;      // Data: a control item and no rows; the receiver knows it by its epoch
  uint64_t control_epoch = 0;
  BufferRef bytes;  // State: keeps `state` alive
  const uint8_t* state = nullptr;
  int64_t size = 0;
};

// What a receiver takes. Checked before anything is allocated.
struct FrameLimits {
  int64_t max_header = 1 << 20;
  int64_t max_body = int64_t(1) << 30;
  uint32_t max_columns = 4096;
  int64_t max_rows = 1 << 24;
  uint32_t max_letters = 1 << 18;
};

// One whole frame, ready for the wire: `bytes` up to `head`, then the tails, each with zeros up to
// a multiple of 8. Tails are what is sent from where it lies: columns and state.
struct Encoded {
  static constexpr size_t kTails = 32;  // at most, so that a frame fits in one system call
  struct Tail {
    BufferRef owner;
    const uint8_t* data = nullptr;
    int64_t size = 0;
  };
  BufferRef bytes;
  int64_t head = 0;
  std::vector<Tail> tails;
  int64_t size = 0;
};

struct Prefix {
  uint16_t version = kProtocolVersion;
  int64_t header = 0, body = 0;
  uint64_t sequence = 0;

  int64_t frame_bytes() const { return kPrefixBytes + header + body; }
};

inline void write_prefix(uint8_t* to, const Prefix& p) {
  const auto header = uint32_t(p.header);
  to[0] = 'P';
  to[1] = 'L';
  std::memcpy(to + 2, &p.version, 2);
  std::memcpy(to + 4, &header, 4);
  std::memcpy(to + 8, &p.body, 8);
  std::memcpy(to + 16, &p.sequence, 8);
}

// Reads the 24 bytes at `from`. Empty: they begin a frame that is within the limits.
inline std::string read_prefix(const uint8_t* from, const FrameLimits& limits, Prefix& out) {
  uint32_t header = 0;
  std::memcpy(&out.version, from + 2, 2);
  std::memcpy(&header, from + 4, 4);
  std::memcpy(&out.body, from + 8, 8);
  std::memcpy(&out.sequence, from + 16, 8);
  out.header = header;
  if (from[0] != 'P' || from[1] != 'L') return "these bytes are not a frame";
  if (out.version != kProtocolVersion) {
    return "protocol version " + std::to_string(out.version) + ", this node speaks " +
           std::to_string(kProtocolVersion) + ": use the same plait everywhere";
  }
  if (out.header > limits.max_header || out.header % 8 != 0) {
    return "a header of " + std::to_string(out.header) + " bytes";
  }
  if (out.body < 0 || out.body > limits.max_body || out.body % 8 != 0) {
    return "a body of " + std::to_string(out.body) + " bytes";
  }
  return {};
}

}  // namespace plait
