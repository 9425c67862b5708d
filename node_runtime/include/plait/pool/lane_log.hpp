// LaneLog: what brings the state of a lane back if its worker process dies.
//
// The last copy of its bins, and the messages that were given since. A new process is given the
// copy and does the answered messages again, without their results; those that were not answered
// it finds in the ring. When the messages take too many bytes a copy of what has changed is asked
// for, and with its answer those before it are let go. So the log takes at most `most` bytes, or
// twice the copy if that is more, and what is under way. One thread at a time: the lane's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/pool/lane_message.hpp"

namespace plait {

class LaneLog {
 public:
  explicit LaneLog(int64_t most) : most_(most) {}

  // The number of a message that is given now.
  uint64_t add(std::shared_ptr<const LaneMessage> message) {
    const uint64_t number = ++last_;
    if (!message->changes()) {
      copying_ = number;
      return number;
    }
    bytes_ += message->byte_size();
    kept_.push_back({number, std::move(message)});
    return number;
  }
  void answered(uint64_t number, const LaneMessage& message, const LaneTold& told) {
    if (message.what == LaneDo::Copy) return copied(number, message, told);
    if (LoggedMessage* entry = find(number)) entry->done = true;
  }
  // Processes died on it: it never was, or had no rows.
  void forget(uint64_t number) {
    const LoggedMessage* entry = find(number);
    if (!entry) return;
    bytes_ -= entry->message->byte_size();
    std::erase_if(kept_, [&](const LoggedMessage& e) { return e.number == number; });
  }
  void forget_rows(uint64_t number) {
    if (LoggedMessage* entry = find(number)) entry->rows = false;
  }
  // A copy has to be asked for before more is given.
  bool full() const { return !copying_ && bytes_ > std::max(most_, 2 * copy_bytes_); }
  // The next copy has to be of all bins: one that was refused had some that have not changed since.
  bool needs_all() const { return needs_all_; }
  bool empty() const {
    return copy_.empty() &&
           std::none_of(kept_.begin(), kept_.end(), [](auto& e) { return e.done; });
  }
  int64_t bytes() const { return bytes_; }

  // For a new process: the copy, then what is to be done again.
  void write(FlatWriter& out) const {
    out.put(int64_t(copy_.size()));
    for (const auto& [bin, bytes] : copy_) {
      out.put(bin);
      out.text(bytes);
    }
    int64_t done = 0;
    for (const LoggedMessage& e : kept_) done += e.done;
    out.put(done);
    for (const LoggedMessage& e : kept_) {
      if (e.done) flat_message(out, *e.message, e.rows);
    }
  }

 private:
  struct LoggedMessage {
    uint64_t number = 0;
    std::shared_ptr<const LaneMessage> message;
    bool done = false, rows = true;
  };
  LoggedMessage* find(uint64_t number) {
    for (LoggedMessage& e : kept_) {
      if (e.number == number) return &e;
    }
    return nullptr;
  }
  void copied(uint64_t number, const LaneMessage& message, const LaneTold& told) {
    if (copying_ == number) copying_ = 0;
    // Answers may be looked at in any order. An older copy has nothing that a newer one lacks,
    // since one of changes only is not asked for before the last one is there.
    if (!told.refused.empty()) needs_all_ = true;
    if (!told.refused.empty() || number < copied_) return;
    copied_ = number;
    if (message.all) {
      copy_.clear();
      needs_all_ = false;
    }
    for (uint32_t bin : message.bins) copy_.erase(bin);
    for (const LaneBin& b : told.bins) copy_[b.bin] = b.bytes;
    copy_bytes_ = 0;
    for (const auto& [bin, bytes] : copy_) copy_bytes_ += 64 + int64_t(bytes.size());
    while (!kept_.empty() && kept_.front().number < number) {
      bytes_ -= kept_.front().message->byte_size();
      kept_.pop_front();
    }
  }

  const int64_t most_;
  // Numbers: of the last message; of the last copy under way, or 0; of the one that is here.
  uint64_t last_ = 0, copying_ = 0, copied_ = 0;
  int64_t bytes_ = 0, copy_bytes_ = 0;
  bool needs_all_ = false;
  std::deque<LoggedMessage> kept_;  // by number
  std::map<uint32_t, std::string> copy_;
};

}  // namespace plait
