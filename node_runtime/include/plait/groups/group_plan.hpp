// What the state of a group (the records of a key in a window) holds, decided when the job is
// built.
//
// A slot is some words of its table (hash, rows seen and what else it needs), then the cells of the
// results. Count of rows needs no cell. A fixed-width value takes one cell and, where its input may
// be null, a second one that counts the values seen; a text, a set of different values or the top
// rows take one cell that owns them; first and last of groups that are combined remember the place
// of their value. Immutable: any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "plait/groups/key_codec.hpp"
#include "plait/groups/top_rows.hpp"
#include "plait/time/timed_spec.hpp"

namespace plait {

struct GroupOp : AggregateOp {
  int place = -1;  // word with the place of the value; -1: groups are not combined
};

struct GroupPlan {
  KeyCodec keys;
  std::vector<GroupOp> ops;
  std::vector<GroupOp> sums;  // those of them that are checked
  bool tops = false;          // the groups are of top rows, in `top_cell`
  int top_cell = -1;
  TopRule top;
  bool owns = false;         // some cells own memory
  bool counts_only = false;  // no cells at all
  bool needs_places = false;
  bool complete = false;  // the last column of a result says whether the window was over
  unsigned first_cell = 2, used_words = 2, words = 2;
  unsigned bin_bits = 0, lane_bits = 0, put_bits = 0;
  uint64_t fingerprint = 0;

  // `header`: words of a slot before the cells, of which the first two are hash and rows seen.
  // `combined`: groups are put together out of several. Throws std::invalid_argument.
  GroupPlan(const TimedSpec& spec, unsigned header, bool combined)
      : keys(spec.types, spec.key_columns),
        first_cell(header),
        used_words(header),
        bin_bits(spec.bin_bits),
        lane_bits(spec.lane_bits),
        put_bits(spec.bits_put()) {
    require(bin_bits <= 24 && lane_bits <= bin_bits, "there must be at least one bin a lane");
    if (spec.kind == TimedSpec::Kind::Top) {
      require(spec.k > 0, "the top of a window has at least one row");
      require(spec.by >= 0 && spec.types[size_t(spec.by)] != Type::Object, "objects have no order");
      tops = owns = true;
      top_cell = int(used_words++);
      top = {spec.types, spec.k, spec.by, spec.greatest, spec.ties};
      needs_places = true;
    } else {
      for (const AggregateSpec& a : spec.aggregates) add(a, combined);
    }
    complete = spec.complete;
    counts_only = used_words == header;
    words = used_words <= 8 ? std::bit_ceil(used_words) : (used_words + 7) / 8 * 8;
    fingerprint = identity(spec);
  }

  uint32_t bin(uint64_t hash) const { return uint32_t(top_bits(hash, bin_bits)); }
  // Whether a key is of a bin that comes, by that bin's number.
  bool came_with(uint64_t hash, uint32_t bin) const { return top_bits(hash, put_bits) == bin; }
  uint32_t bin_in_lane(uint32_t bin) const {
    return bin & ((uint32_t(1) << (bin_bits - lane_bits)) - 1);
  }

 private:
  static void require(bool holds, const char* reason) {
    if (!holds) throw std::invalid_argument(reason);
  }

  void add(const AggregateSpec& spec, bool combined) {
    using K = AggregateKind;
    GroupOp op;
    static_cast<AggregateSpec&>(op) = spec;
    require(op.input >= 0 || op.kind == K::Count, "only a count may be without an input");
    if (op.input < 0) op.nullable = false;
    const bool number = op.type == Type::Int64 || op.type == Type::Float64 || op.type == Type::Bool;
    require((!is_sum(op.kind) && op.kind != K::Mean) || number, "sum and mean are of numbers");
    const bool ordered = op.type != Type::Object || (op.kind != K::Min && op.kind != K::Max);
    require(ordered, "objects have no order");
    op.result = op.type;
    if (op.kind == K::Count) {
      if (op.nullable) op.seen = op.cell = int(used_words++);
      op.result = Type::Int64;
    } else if (op.kind == K::Distinct) {
      op.cell = int(used_words++);
      op.result = Type::Int64;
      owns = true;
    } else {
      op.text = is_varlen(op.type);
      op.cell = int(used_words++);
      if (op.text) owns = true;
      if (op.nullable && !op.text) op.seen = int(used_words++);
      if (combined && (op.kind == K::First || op.kind == K::Last)) {
        op.place = int(used_words++);
        needs_places = true;
      }
      if (op.kind == K::Mean) op.result = Type::Float64;
      if (is_sum(op.kind) && op.type != Type::Float64) op.result = Type::Int64;
    }
    if (op.checked()) sums.push_back(op);
    ops.push_back(op);
  }

  uint64_t identity(const TimedSpec& s) const {
    std::vector<int64_t> facts{
        int64_t(s.kind), int64_t(s.within), s.size,       s.every,    s.offset,   s.gap,
        s.lateness,      s.early,           s.k,          s.by,       s.greatest, s.ties,
        s.time,          s.window_start,    s.window_end, used_words, s.ttl > 0};
    facts.push_back(int64_t(s.types.size()));
    for (Type t : s.types) facts.push_back(int64_t(t));
    for (int c : s.key_columns) facts.push_back(c);
    for (const GroupOp& op : ops) {
      for (int v : {int(op.kind), op.input, int(op.type), int(op.nullable)}) facts.push_back(v);
    }
    return xxh64(facts.data(), facts.size() * 8, 0);
  }
};

}  // namespace plait
