// What a keyed aggregation does, decided when the job is built: keys, aggregates, bins, lanes and
// the slot's layout.
//
// A slot of a state table is: hash, rows seen (0 = empty slot), in wide tables the key's address,
// then the cells of the aggregates. Count of rows needs no cell. A fixed-width value takes one cell
// and, where its input may be null, a second one that counts the values seen; a string takes one
// cell that owns its bytes. Immutable after make(): any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/core/xxh64.hpp"

namespace plait {

// Distinct, the number of different values that are not null, is in windows only. A record that
// does not fit a Sum of int64 fails; a WrappingSum wraps around.
enum class AggregateKind : uint8_t {
  Count,
  Sum,
  Min,
  Max,
  Mean,
  First,
  Last,
  Distinct,
  WrappingSum
};

inline bool is_sum(AggregateKind kind) {
  return kind == AggregateKind::Sum || kind == AggregateKind::WrappingSum;
}

struct AggregateSpec {
  AggregateKind kind = AggregateKind::Count;
  int input = -1;  // column of the batch; -1: count of rows
  Type type = Type::Int64;
  bool nullable = false;  // whether the input column may hold nulls
};

struct AggregateOp : AggregateSpec {
  int cell = -1;  // first word of the slot that is the op's; -1: it is the rows seen
  int seen = -1;  // word that counts the values that were not null; -1: it is the rows seen
  Type result = Type::Int64;
  bool text = false;  // the cell owns a Blob

  bool counts_rows() const { return kind == AggregateKind::Count && cell < 0; }
  // Whether there are values that it cannot take.
  bool checked() const { return kind == AggregateKind::Sum && type != Type::Float64; }
};

struct KeyedPlan {
  static constexpr unsigned kMaxSegmentBits = 6;

  std::vector<int> key_columns;
  std::vector<Type> key_types;
  std::vector<AggregateOp> ops;
  std::vector<size_t> sums;  // the numbers of those that are checked
  unsigned bin_bits = 0, lane_bits = 0, segment_bits = 0;
  unsigned put_bits = 0;    // of the bins that come: bin_bits, but where bins are made anew
  bool wide = false;        // the slot holds the key's address
  unsigned used_words = 2;  // of a slot
  unsigned words =
      2;  // and with what keeps it inside cache lines: 24-byte slots ran 3 times slower than 32
  uint64_t fingerprint = 0;     // of key types and aggregates; bins move only between equal ones
  std::vector<int> text_words;  // words of a slot that own a Blob
  // Hot: a narrow key, any number of counts of rows, and at most one other aggregate over 64-bit
  // values.
  bool hot = false;
  int hot_op = -1;

  unsigned lanes() const { return 1u << lane_bits; }
  int first_cell() const { return wide ? 3 : 2; }

  // Throws std::invalid_argument with the reason when the plan makes no sense.
  static KeyedPlan make(std::vector<int> key_columns, std::vector<Type> key_types,
                        const std::vector<AggregateSpec>& aggregates, unsigned bin_bits,
                        unsigned lane_bits, unsigned max_segment_bits = kMaxSegmentBits) {
    KeyedPlan p;
    p.key_columns = std::move(key_columns);
    p.key_types = std::move(key_types);
    p.bin_bits = p.put_bits = bin_bits;
    p.lane_bits = lane_bits;
    require(p.key_columns.size() == p.key_types.size(), "each key column needs a type");
    require(bin_bits <= 24 && lane_bits <= bin_bits, "there must be at least one bin a lane");
    for (Type t : p.key_types) require(t != Type::Object, "an object column cannot be a key");
    p.segment_bits = std::min(max_segment_bits, bin_bits - lane_bits);
    p.wide = p.key_types.size() > 1 || (p.key_types.size() == 1 && is_varlen(p.key_types[0]));
    p.used_words = unsigned(p.first_cell());
    for (const AggregateSpec& spec : aggregates) p.add(spec);
    p.words = p.used_words <= 8 ? std::bit_ceil(p.used_words) : (p.used_words + 7) / 8 * 8;
    p.find_hot();
    p.fingerprint = p.identity();
    return p;
  }

 private:
  static void require(bool holds, const char* reason) {
    if (!holds) throw std::invalid_argument(reason);
  }

  void add(const AggregateSpec& spec) {
    using K = AggregateKind;
    AggregateOp op;
    static_cast<AggregateSpec&>(op) = spec;
    require(op.input >= 0 || op.kind == K::Count, "only a count may be without an input");
    require(op.kind != K::Distinct, "a running aggregate cannot count different values");
    if (op.input < 0) op.nullable = false;
    const bool fits = !is_sum(op.kind) && op.kind != K::Mean;
    const bool number = op.type == Type::Int64 || op.type == Type::Float64 || op.type == Type::Bool;
    require(fits || number, "sum and mean are of numbers");
    const bool ordered = op.type != Type::Object || (op.kind != K::Min && op.kind != K::Max);
    require(ordered, "objects have no order");
    op.text = op.kind != K::Count && is_varlen(op.type);
    if (op.kind == K::Count) {
      if (op.nullable) op.seen = op.cell = int(used_words++);
    } else {
      op.cell = int(used_words++);
      if (op.text) text_words.push_back(op.cell);
      if (op.nullable && !op.text) op.seen = int(used_words++);
    }
    switch (op.kind) {
      case K::Count:
        op.result = Type::Int64;
        break;
      case K::Mean:
        op.result = Type::Float64;
        break;
      case K::Sum:
      case K::WrappingSum:
        op.result = op.type == Type::Float64 ? Type::Float64 : Type::Int64;
        break;
      default:
        op.result = op.type;
    }
    if (op.checked()) sums.push_back(ops.size());
    ops.push_back(op);
  }

  void find_hot() {
    hot = !wide;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].counts_rows()) continue;
      if (hot_op >= 0 || ops[i].kind == AggregateKind::Count || !is_fixed64(ops[i].type)) {
        hot = false;
        break;
      }
      hot_op = int(i);
    }
    if (!hot) hot_op = -1;
  }

  uint64_t identity() const {
    std::vector<uint8_t> bytes{uint8_t(key_types.size())};
    for (Type t : key_types) bytes.push_back(uint8_t(t));
    for (const AggregateOp& op : ops) {
      for (int v : {int(op.kind), int(op.input >= 0), int(op.type), int(op.nullable)}) {
        bytes.push_back(uint8_t(v));
      }
    }
    return xxh64(bytes.data(), bytes.size(), 0);
  }
};

}  // namespace plait
