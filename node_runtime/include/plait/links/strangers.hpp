// Strangers: connections to a node's port that have not proved that they belong to its job.
//
// Anybody who reaches the port can open some. They are greeted at most so fast (GreetLimit), so
// that a flood of them takes little of the time of the workers who serve the links; what became of
// those that were refused is kept as a number and the last of them (Refusals). Threads: GreetLimit:
// the thread that polls; Refusals: any.
#pragma once

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>

#include "plait/links/link_socket.hpp"

namespace plait {

// Who is at the other end, as `host:port`.
inline std::string text_of(const Address& a) {
  char host[INET6_ADDRSTRLEN] = {};
  if (a.bytes.ss_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&a.bytes);
    ::inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
    return std::string(host) + ":" + std::to_string(ntohs(in->sin_port));
  }
  if (a.bytes.ss_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(&a.bytes);
    ::inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(in->sin6_port));
  }
  return "this host";
}

struct Refusal {
  int64_t count = 0;      // refused so far
  int64_t left = 0;       // gone by themselves before they proved anything
  std::string why, from;  // of the last one that was refused
};

class Refusals {
 public:
  void add(const std::string& why, const std::string& from) {
    std::lock_guard<std::mutex> hold(lock_);
    ++last_.count;
    last_.why = why;
    last_.from = from;
  }
  void left() {
    std::lock_guard<std::mutex> hold(lock_);
    ++last_.left;
  }
  Refusal last() const {
    std::lock_guard<std::mutex> hold(lock_);
    return last_;
  }

 private:
  mutable std::mutex lock_;
  Refusal last_;
};

// So many at once, and so many a second in the long run.
class GreetLimit {
 public:
  GreetLimit(uint32_t per_s, uint32_t at_once)
      : each_ns_(1'000'000'000 / std::max(per_s, 1u)), room_ns_(each_ns_ * at_once) {}

  // Whether one may be greeted now; if not, `next_ns` says when.
  bool take(int64_t now) {
    full_ns_ = std::max(full_ns_, now - room_ns_);
    if (next_ns() > now) return false;
    full_ns_ += each_ns_;
    return true;
  }
  int64_t next_ns() const { return full_ns_ + each_ns_; }

 private:
  const int64_t each_ns_, room_ns_;
  int64_t full_ns_ = 0;  // all that was allowed up to then is used up
};

}  // namespace plait
