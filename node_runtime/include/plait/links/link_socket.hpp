// Sockets for the links: non-blocking, closed on exec, without delay, never a signal.
//
// A Socket owns one descriptor. Names are looked up by `look_up`, which may take as long as the
// system's resolver does: call it where waiting is allowed. Errors of set-up are thrown in words;
// errors of a running connection are return values. A Socket belongs to one thread at a time.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace plait {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Socket& operator=(Socket&& o) noexcept {
    if (this != &o) {
      close();
      fd_ = std::exchange(o.fd_, -1);
    }
    return *this;
  }
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Ends the connection for both sides; the descriptor stays until `close`.
  void shut() const {
    if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
  }

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

inline std::string errno_text(int error) { return std::strerror(error); }

inline std::vector<Address> look_up(const std::string& host, uint16_t port, bool to_listen) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const int code =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &found);
  if (code != 0)
    throw std::runtime_error("cannot look up host '" + host + "': " + gai_strerror(code));
  std::vector<Address> out;
  for (const addrinfo* a = found; a; a = a->ai_next) {
    Address address;
    std::memcpy(&address.bytes, a->ai_addr, a->ai_addrlen);
    address.size = socklen_t(a->ai_addrlen);
    out.push_back(address);
  }
  freeaddrinfo(found);
  return out;
}

inline void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

// A silent peer is noticed after about 10 s: the connection ends and is dialled again. On a socket
// of the host these options mean nothing.
inline void tune(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
#endif
#ifdef TCP_USER_TIMEOUT
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 10'000);
#endif
}

inline uint16_t port_of(int fd) {
  sockaddr_storage bytes{};
  socklen_t size = sizeof bytes;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bytes), &size) != 0) return 0;
  if (bytes.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&bytes)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bytes)->sin_port);
}

inline Socket open_listener(const std::string& host, uint16_t port) {
  std::string why = "no address";
  for (const Address& a : look_up(host, port, true)) {
    Socket s(::socket(a.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (s) {
      set_option(s.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
      const auto* to = reinterpret_cast<const sockaddr*>(&a.bytes);
      if (::bind(s.fd(), to, a.size) == 0 && ::listen(s.fd(), 128) == 0) return s;
    }
    why = errno_text(errno);
  }
  throw std::runtime_error("cannot listen on " + host + " port " + std::to_string(port) + ": " +
                           why);
}

// Begins to connect; `error` is 0 when it is on its way.
inline Socket begin_connect(const Address& a, int& error) {
  Socket s(::socket(a.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  error = s ? 0 : errno;
  if (!s) return s;
  tune(s.fd());
  if (::connect(s.fd(), reinterpret_cast<const sockaddr*>(&a.bytes), a.size) != 0 &&
      errno != EINPROGRESS) {
    error = errno;
    s.close();
  }
  return s;
}

inline int pending_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

}  // namespace plait
