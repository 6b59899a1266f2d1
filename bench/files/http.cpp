// memlith-files-http: clients of examples/tycoon. Each of THREADS connections replaces one record after the other, and
// waits for the reply: the change is durable then.
//
//   memlith-files-http PORT THREADS SECONDS
//
// Prints one JSON object.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "samples.hpp"

namespace {

using namespace memlith::tool;

constexpr std::uint64_t kRecords = 10'000;
constexpr std::size_t kValueBytes = 1024;

int connect_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

bool put(int fd, std::uint64_t number, const std::string& value) {
  const std::string request = "PUT /record-" + std::to_string(number) + " HTTP/1.1\r\nHost: localhost\r\n" +
                              "Content-Length: " + std::to_string(value.size()) + "\r\n\r\n" + value;
  if (::write(fd, request.data(), request.size()) != static_cast<ssize_t>(request.size())) return false;
  std::string reply;
  while (reply.find("\r\n\r\n") == std::string::npos) {
    char bytes[1024];
    const ssize_t got = ::read(fd, bytes, sizeof bytes);
    if (got <= 0) return false;
    reply.append(bytes, static_cast<std::size_t>(got));
  }
  return reply.starts_with("HTTP/1.1 204");
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return std::fprintf(stderr, "usage: %s PORT THREADS SECONDS\n", words[0]), 2;
  const auto port = static_cast<std::uint16_t>(std::atoi(words[1]));
  const auto threads_wanted = static_cast<std::size_t>(std::atoi(words[2]));
  const double seconds = std::atof(words[3]);
  std::vector<std::vector<std::uint64_t>> samples(threads_wanted);
  std::vector<std::thread> threads;
  const auto begin = now_ns();
  for (std::size_t i = 0; i < threads_wanted; ++i) {
    threads.emplace_back([&, i] {
      const int fd = connect_to(port);
      Random random(i + 1);
      const std::string value(kValueBytes, static_cast<char>('a' + i % 26));
      while (seconds_of(now_ns() - begin) < seconds) {
        const auto from = now_ns();
        if (fd < 0 || !put(fd, random.below(kRecords), value)) std::abort();
        samples[i].push_back(now_ns() - from);
      }
      ::close(fd);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double took = seconds_of(now_ns() - begin);
  std::vector<std::uint64_t> all;
  for (const auto& each : samples) all.insert(all.end(), each.begin(), each.end());
  print_samples(all, took);
}
