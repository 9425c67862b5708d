// RestingLane: the state of one native operator outside a run: bins come in as bytes, and go out as
// bins of other sizes, or as rows to look at.
//
// It is a lane of the operator itself, the only one, so that no second reader of the bytes exists.
// The bins that come may be more or fewer than the operator's (`put_bits`); take() gives those of
// `bin_bits`. rows() gives a row for each thing that is kept, columns as in list() of the lanes:
// running aggregates the key and the results; windows, sessions and last rows what they would give
// if time ended now; joins the records that wait. After a refusal the lane is of no use. One thread
// at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plait/joins/make_join_lane.hpp"
#include "plait/keyed/keyed_state.hpp"
#include "plait/windows/make_window_lane.hpp"

namespace plait {

class RestingLane {
 public:
  virtual ~RestingLane() = default;
  // Empty: the bin is in. Otherwise the reason.
  [[nodiscard]] virtual std::string put(uint32_t bin, const uint8_t* data, size_t size) = 0;
  // The bins as bytes, none of an empty one; they are not here any more.
  virtual std::vector<Bytes> take(const std::vector<uint32_t>& bins) = 0;
  // All that is here at the watermark `now`, in columns of these types.
  virtual Batch rows(const std::vector<Type>& types, int64_t now) = 0;

 protected:
  static Batch batch_of(const Emitter& out) {
    Batch batch;
    batch.length = out.length();
    for (const GrowingColumn& column : out.columns) batch.columns.push_back(column.finish());
    return batch;
  }
};

class RestingAggregate final : public RestingLane {
 public:
  RestingAggregate(KeyedPlan plan, unsigned put_bits)
      : plan_(with_bits(std::move(plan), put_bits)), state_(plan_, 0) {}

  std::string put(uint32_t, const uint8_t* data, size_t size) override {
    return state_.put_bin(data, size);
  }
  std::vector<Bytes> take(const std::vector<uint32_t>& bins) override {
    std::vector<Bytes> all(bins.size());
    for (size_t i = 0; i < bins.size(); ++i) {
      if (!state_.empty(bins[i])) all[i] = state_.take_bin(bins[i]);
    }
    return all;
  }
  Batch rows(const std::vector<Type>& types, int64_t) override {
    Emitter out(types);
    std::vector<int> columns;
    for (int c = 0; c < int(plan_.key_types.size()); ++c) columns.push_back(c);
    const KeyCodec codec(plan_.key_types, columns);
    std::vector<GroupOp> ops(plan_.ops.size());
    for (size_t i = 0; i < ops.size(); ++i) static_cast<AggregateOp&>(ops[i]) = plan_.ops[i];
    state_.each_slot([&](const uint64_t* slot, bool null) {
      Key key{slot[0], null, {}};
      if (plan_.wide) {
        const WideTable::StoredKey* stored = WideTable::key_of(slot);
        key.null = stored->size == kNullKey;
        key.bytes = {stored->bytes(), stored->length()};
      }
      out.at_once(0);
      codec.emit(key, out.columns);
      size_t c = columns.size();
      for (const GroupOp& op : ops) emit_result(op, slot, out.columns[c++]);
    });
    return batch_of(out);
  }

 private:
  static KeyedPlan with_bits(KeyedPlan plan, unsigned put_bits) {
    plan.put_bits = put_bits;
    return plan;
  }

  const KeyedPlan plan_;
  KeyedState state_;
};

class RestingTimed final : public RestingLane {
 public:
  // The spec of a run with one lane. Throws std::invalid_argument if it makes no sense.
  RestingTimed(TimedSpec spec, unsigned put_bits) {
    spec.put_bits = int(put_bits);
    const bool join = spec.kind == TimedSpec::Kind::Join || spec.kind == TimedSpec::Kind::Span;
    lane_ = join ? make_join_lane(spec, 0) : make_window_lane(spec, 0);
  }

  std::string put(uint32_t bin, const uint8_t* data, size_t size) override {
    return lane_->put_bin(bin, data, size);
  }
  std::vector<Bytes> take(const std::vector<uint32_t>& bins) override {
    std::vector<Bytes> all = lane_->copy_bins(bins);
    lane_->drop_bins(bins);
    return all;
  }
  Batch rows(const std::vector<Type>& types, int64_t now) override {
    Emitter out(types);
    lane_->list(now, out);
    return batch_of(out);
  }

 private:
  std::unique_ptr<LaneOperator> lane_;
};

}  // namespace plait
