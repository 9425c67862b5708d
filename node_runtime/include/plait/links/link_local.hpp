// The short way between nodes of one host: a socket of the host that has the name of the TCP port.
//
// Besides its port a node listens on an abstract Unix socket named by that port; both names belong
// to the same network namespace. Who dials an address of its own host tries the name first, and TCP
// when nothing listens there. Either side asks the system who the other is and goes no further with
// another user: on TCP no other user could have come between. The handshake is the same on both
// ways. Only Linux has such names; elsewhere nothing is ever found. Any thread; nothing waits.
#pragma once

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "plait/links/link_socket.hpp"

namespace plait {

inline bool is_local(const Address& a) { return a.bytes.ss_family == AF_UNIX; }

inline Address local_name(uint16_t port) {
  const std::string name = "plait-links-" + std::to_string(port);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path + 1, name.data(), name.size());
  Address out;
  std::memcpy(&out.bytes, &to, sizeof to);
  out.size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return out;
}

namespace local_detail {
inline bool same_host(const sockaddr* a, const sockaddr* b) {
  if (!a || !b || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  if (a->sa_family != AF_INET6) return false;
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}
}  // namespace local_detail

// The addresses, and in front of them the short way if one of them is this host.
inline std::vector<Address> with_local(std::vector<Address> addresses, uint16_t port) {
#ifdef __linux__
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return addresses;
  bool own = false;
  for (const ifaddrs* i = all; i && !own; i = i->ifa_next) {
    for (const Address& a : addresses) {
      own =
          own || local_detail::same_host(i->ifa_addr, reinterpret_cast<const sockaddr*>(&a.bytes));
    }
  }
  ::freeifaddrs(all);
  if (own) addresses.insert(addresses.begin(), local_name(port));
#endif
  return addresses;
}

// No socket if the name is taken: the node is then found by TCP alone.
inline Socket open_local(uint16_t port) {
  Socket s;
#ifdef __linux__
  s = Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const Address name = local_name(port);
  if (s && (::bind(s.fd(), reinterpret_cast<const sockaddr*>(&name.bytes), name.size) != 0 ||
            ::listen(s.fd(), 128) != 0)) {
    s.close();
  }
#endif
  return s;
}

// Sends bytes and a descriptor with them; whether all went.
inline bool send_with(int fd, const void* data, size_t size, int descriptor) {
  iovec piece{const_cast<void*>(data), size};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  return ::sendmsg(fd, &message, MSG_NOSIGNAL) == ssize_t(size);
}

// As recv; a descriptor that came along is left in `with`. More than one is not let in.
inline ssize_t receive_with(int fd, void* data, size_t size, Socket& with) {
  iovec piece{data, size};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = CMSG_LEN(sizeof(int));
#ifdef MSG_CMSG_CLOEXEC
  const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
#else
  const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT);
#endif
  if (n < 0) return n;
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
      head->cmsg_len == CMSG_LEN(sizeof(int))) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
    with = Socket(descriptor);
  }
  return n;
}

// Whether the other end of a local connection is the same user, or the system's own.
inline bool same_user(int fd) {
#ifdef __linux__
  ucred other{};
  socklen_t size = sizeof other;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) != 0) return false;
  return other.uid == ::geteuid() || other.uid == 0;
#else
  (void)fd;
  return false;
#endif
}

}  // namespace plait
