// Heart: says that this process is there, by datagrams, whatever its interpreter does.
//
// A thread of its own sends a key and a number that ascends to one address, at equal intervals; no
// lock of Python, of the engine or of the links is involved, so a call that holds the interpreter
// for minutes, or workers that are all busy, do not silence it. `aim` and `stop` may be called by
// any thread; `aim` again changes the address. A datagram that is lost, or an address that cannot
// be reached, is no error: the next one may arrive.
#pragma once

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

namespace plait {

class Heart {
 public:
  static constexpr size_t kKey = 16;
  // On the wire: the key, then the number of the beat, little-endian.
  static constexpr size_t kBeat = kKey + 8;
  using Clock = std::chrono::steady_clock;

  Heart() = default;
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;
  ~Heart() { stop(); }

  // Begins to beat, or beats for another from now on. False: there is no such address.
  bool aim(const std::string& host, uint16_t port, const std::string& key, int64_t every_ms) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
      return false;
    std::lock_guard<std::mutex> one_by_one(control_);
    std::unique_lock<std::mutex> hold(lock_);
    close_socket();
    socket_ = ::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    std::memcpy(&to_, found->ai_addr, found->ai_addrlen);
    to_size_ = found->ai_addrlen;
    ::freeaddrinfo(found);
    if (socket_ < 0) return false;
    beat_.fill(0);
    std::memcpy(beat_.data(), key.data(), std::min(key.size(), kKey));
    every_ = std::chrono::milliseconds(std::max<int64_t>(every_ms, 1));
    if (!thread_.joinable()) {
      stopping_ = false;
      thread_ = std::thread([this] { run(); });
    }
    hold.unlock();
    changed_.notify_all();
    return true;
  }
  void stop() {
    std::lock_guard<std::mutex> one_by_one(control_);
    {
      std::lock_guard<std::mutex> hold(lock_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    std::lock_guard<std::mutex> hold(lock_);
    close_socket();
  }

 private:
  void run() {
    std::unique_lock<std::mutex> hold(lock_);
    while (!stopping_) {
      send();
      changed_.wait_for(hold, every_);
    }
  }
  void send() {
    ++number_;
    for (size_t i = 0; i < 8; ++i) beat_[kKey + i] = char(number_ >> (8 * i));
    // Nobody may listen yet or any more: the next beat is as good as this one.
    [[maybe_unused]] const auto sent = ::sendto(socket_, beat_.data(), beat_.size(), 0,
                                                reinterpret_cast<sockaddr*>(&to_), to_size_);
  }
  void close_socket() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  std::mutex control_;  // one caller starts, aims or ends the thread at a time
  std::mutex lock_;
  std::condition_variable changed_;
  std::thread thread_;
  bool stopping_ = false;
  int socket_ = -1;
  sockaddr_storage to_{};
  socklen_t to_size_ = 0;
  std::array<char, kBeat> beat_{};
  std::chrono::milliseconds every_{1000};
  uint64_t number_ = 0;
};

}  // namespace plait
