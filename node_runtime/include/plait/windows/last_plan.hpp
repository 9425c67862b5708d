// LastPlan: which values of its last n records a key keeps, and how each aggregate over them is
// found.
//
// Sums of integers, counts, least and greatest values and the ends are kept up while records come
// and go, so that a result takes as long at any n. Sums of floats are added anew, from the oldest
// to the newest, since only then they are those of a plain loop; so are sets of different values
// and least and greatest texts. A mean is such a sum of floats: that of integers is kept up as long
// as no part of it can be rounded. Immutable: any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "plait/groups/group_plan.hpp"

namespace plait {

struct LastPlan {
  enum class How { Rows, Seen, Sum, Mean, Extreme, First, Last, Anew };
  struct LastInput {
    int column;
    Type type;
    bool nullable = false;
    // Words of the head, -1: not needed.
    int nulls = -1;             // how many of the rows have none
    int sum = -1;               // of integers, wrapped around
    int size = -1;              // two words: the sum of what they are without their sign
    int first = -1, last = -1;  // numbers of the oldest and the newest record that has a value
  };
  struct Result {
    How how = How::Rows;
    int input = -1;
    int queue = -1;  // of extremes
  };
  struct Queue {
    int input;
    bool greatest;
  };

  std::vector<LastInput> inputs;
  std::vector<Result> results;  // by aggregate
  std::vector<Queue> queues;
  std::vector<size_t> sums;  // the inputs of checked sums
  uint64_t n = 1;
  size_t head = 0;       // words before the rows
  bool running = false;  // some word of the head or queue is kept up

  LastPlan(const GroupPlan& plan, uint64_t n) : n(n) {
    for (const GroupOp& op : plan.ops) results.push_back(of(op));
    if (inputs.size() > 64) throw std::invalid_argument("more than 64 inputs of aggregates");
    running = head != 0 || !queues.empty();
  }
  size_t stride() const { return inputs.size() + 1; }

 private:
  Result of(const GroupOp& op) {
    using K = AggregateKind;
    Result r;
    if (op.input < 0) return r;
    r.input = input(op);
    LastInput& in = inputs[size_t(r.input)];
    if (op.checked()) sums.push_back(size_t(r.input));
    if (in.nullable) word(in.nulls);
    const bool texts = is_varlen(op.type), floats = op.type == Type::Float64;
    if (op.kind == K::Count) {
      r.how = op.counts_rows() ? How::Rows : How::Seen;
    } else if (is_sum(op.kind) && !floats) {
      r.how = How::Sum;
      word(in.sum);
    } else if (op.kind == K::Mean && !floats) {
      r.how = How::Mean;
      word(in.sum);
      if (in.size < 0) word(in.size), ++head;
    } else if ((op.kind == K::Min || op.kind == K::Max) && !texts) {
      r.how = How::Extreme;
      r.queue = queue(r.input, op.kind == K::Max);
      if (in.nullable) word(in.last);
    } else if (op.kind == K::First || op.kind == K::Last) {
      r.how = op.kind == K::First ? How::First : How::Last;
      if (in.nullable) word(op.kind == K::First ? in.first : in.last);
    } else {
      r.how = How::Anew;
    }
    return r;
  }
  int input(const GroupOp& op) {
    const auto at = std::find_if(inputs.begin(), inputs.end(),
                                 [&](const LastInput& in) { return in.column == op.input; });
    if (at == inputs.end()) {
      inputs.push_back({op.input, op.type, op.nullable});
      return int(inputs.size()) - 1;
    }
    at->nullable |= op.nullable;
    return int(at - inputs.begin());
  }
  void word(int& at) {
    if (at < 0) at = int(head++);
  }
  int queue(int input, bool greatest) {
    for (size_t q = 0; q < queues.size(); ++q) {
      if (queues[q].input == input && queues[q].greatest == greatest) return int(q);
    }
    queues.push_back({input, greatest});
    return int(queues.size()) - 1;
  }
};

}  // namespace plait
