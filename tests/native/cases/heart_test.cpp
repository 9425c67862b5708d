// Hearts that are aimed, aimed elsewhere and stopped by several threads: argv[1] times.

#include "plait/links/heart.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

namespace plait::testing {
namespace {

struct Listener {
  int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  uint16_t port = 0;

  Listener() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(socket, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    socklen_t size = sizeof at;
    CHECK(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port = ntohs(at.sin_port);
  }
  ~Listener() { ::close(socket); }

  // The next beat: its key, and its number.
  std::pair<std::string, uint64_t> hear() const {
    char beat[64];
    const auto size = ::recv(socket, beat, sizeof beat, 0);
    CHECK(size == ssize_t(Heart::kBeat));
    uint64_t number = 0;
    for (size_t i = 0; i < 8; ++i) number |= uint64_t(uint8_t(beat[Heart::kKey + i])) << (8 * i);
    return {std::string(beat, Heart::kKey), number};
  }
};

void beats_ascend_and_follow_the_aim() {
  const Listener first, second;
  const std::string one(Heart::kKey, 'a'), two(Heart::kKey, 'b');
  Heart heart;
  CHECK(heart.aim("127.0.0.1", first.port, one, 1));
  uint64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    const auto [key, number] = first.hear();
    CHECK(key == one && number > last);
    last = number;
  }
  CHECK(heart.aim("127.0.0.1", second.port, two, 1));
  const auto [key, number] = second.hear();
  CHECK(key == two && number > last);
  heart.stop();
  heart.stop();
  CHECK(heart.aim("127.0.0.1", first.port, one, 1));
  while (first.hear().second <= number) {
  }
}

void an_address_that_is_none_is_refused() {
  Heart heart;
  CHECK(!heart.aim("no such host", 1, "", 1));
}

void many_threads_aim_and_stop(int times) {
  const Listener listener;
  Heart heart;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      const std::string key(Heart::kKey, char('a' + thread));
      for (int i = 0; i < times; ++i) {
        if (thread == 2) {
          heart.stop();
        } else {
          CHECK(heart.aim("127.0.0.1", listener.port, key, 1));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace plait::testing

int main(int, char** argv) {
  using namespace plait::testing;
  beats_ascend_and_follow_the_aim();
  an_address_that_is_none_is_refused();
  many_threads_aim_and_stop(std::atoi(argv[1]));
  std::printf("hearts beat\n");
}
