// Rows numbered from 0 with a timestamp each, at a given rate. For the holder of its source.
#pragma once

#include <cmath>

#include "plait/sources/origins.hpp"

namespace plait {

class RateOrigin final : public Origin {
 public:
  RateOrigin(double rate_per_s, int64_t total, int64_t start_us, int64_t first, bool paced)
      : rate_(rate_per_s),
        total_(total),
        start_us_(start_us),
        next_(first),
        first_(first),
        paced_(paced) {}

  void poll(int64_t max_rows, Polled& out) override {
    int64_t n = max_rows;
    if (total_ >= 0) n = std::min(n, total_ - next_);
    if (n <= 0) return;  // End
    if (paced_) {
      n = rows_due(rate_, next_ - first_, n, begin_, out);
      if (n == 0) return;
    }
    fill(next_, n, out);
    next_ += n;
  }

  bool paced() const override { return paced_; }
  void start_at(int64_t ns, int64_t row) override {
    begin_ = ns - int64_t(double(row) * 1e9 / rate_);
  }
  int64_t rows() const override { return total_ < 0 ? kEndless : total_ - first_; }
  void slice(int64_t first, int64_t count, Polled& out) override {
    if (paced_ && !slice_due(rate_, first, count, begin_, out)) return;
    fill(first_ + first, count, out);
  }

 private:
  void fill(int64_t from, int64_t n, Polled& out) const {
    out.kind = Polled::Kind::Rows;
    out.batch.length = n;
    out.batch.columns.resize(2);
    for (int c = 0; c < 2; ++c) {
      Column& column = out.batch.columns[size_t(c)];
      column.type = c == 0 ? Type::Int64 : Type::Timestamp;
      column.length = n;
      column.data_owner = BufferRef::make(8 * n);
      auto* values = column.data_owner.as<int64_t>();
      for (int64_t i = 0; i < n; ++i) {
        values[i] = c == 0 ? from + i : start_us_ + offset_us(from + i);
      }
      column.data = column.data_owner.data();
    }
  }
  int64_t offset_us(int64_t i) const {
    // Exact for whole rates: whole seconds first, so that nothing overflows or rounds.
    if (rate_ == std::floor(rate_) && rate_ < double(int64_t(1) << 40)) {
      const auto rate = int64_t(rate_);
      return i / rate * 1'000'000 + i % rate * 1'000'000 / rate;
    }
    return int64_t(std::floor(double(i) * (1e6 / rate_)));
  }

  const double rate_;
  const int64_t total_, start_us_;
  int64_t next_, first_, begin_ = kNoStart;
  const bool paced_;
};

}  // namespace plait
