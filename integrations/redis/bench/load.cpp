// memlith-redis-load: clients of a Redis server that wait for each reply, a part of whose commands are SET and the rest
// GET, with random keys. Prints one line of JSON. With --fill, sets each key once, in pipelines. plugin redis.
//
// redis-benchmark cannot mix reads and writes, and does not tell the 99.9th percentile.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string socket;
  unsigned clients = 10;
  unsigned writes_percent = 100;
  unsigned keys = 100000;
  unsigned value_bytes = 100;
  double seconds = 1;
  bool fill = false;
};

[[noreturn]] void end(const char* what) {
  std::perror(what);
  std::exit(1);
}

int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) end("the socket's path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) end("connect");
  return fd;
}

void send_all(int fd, const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = write(fd, bytes.data() + sent, bytes.size() - sent);
    if (count <= 0) end("write");
    sent += static_cast<std::size_t>(count);
  }
}

class Commands {
 public:
  explicit Commands(const Options& options) : options_(options), value_(options.value_bytes, 'v') {}

  std::string next() {
    const std::string key = key_of(random_() % options_.keys);
    return random_() % 100 < options_.writes_percent ? set(key) : "*2\r\n$3\r\nGET\r\n$16\r\n" + key + "\r\n";
  }
  std::string set_number(unsigned number) { return set(key_of(number)); }

 private:
  static std::string key_of(std::uint64_t number) {
    std::string digits = std::to_string(number);
    return "key:" + std::string(12 - digits.size(), '0') + digits;
  }
  std::string set(const std::string& key) {
    // Every value differs from the last one.
    const std::string count = std::to_string(++count_);
    value_.replace(0, std::min(count.size(), value_.size()), count, 0, std::min(count.size(), value_.size()));
    return "*3\r\n$3\r\nSET\r\n$16\r\n" + key + "\r\n$" + std::to_string(value_.size()) + "\r\n" + value_ + "\r\n";
  }

  const Options& options_;
  std::string value_;
  std::uint64_t count_ = 0;
  std::mt19937_64 random_{std::random_device{}()};
};

// True if `reply` is a whole one. Ends the program if it is an error.
bool whole(const std::string& reply) {
  const std::size_t line = reply.find("\r\n");
  if (line == std::string::npos) return false;
  if (reply[0] == '-') {
    std::fprintf(stderr, "the server answers: %s", reply.c_str());
    std::exit(1);
  }
  long bytes = -1;
  if (reply[0] == '$') std::from_chars(reply.data() + 1, reply.data() + line, bytes);
  return bytes < 0 || reply.size() >= line + 2 + static_cast<std::size_t>(bytes) + 2;
}

void read_some(int fd, std::string& reply) {
  char bytes[65536];
  const ssize_t count = read(fd, bytes, sizeof bytes);
  if (count <= 0) end("the server closed the connection");
  reply.append(bytes, static_cast<std::size_t>(count));
}

void fill(const Options& options) {
  constexpr unsigned kPipeline = 1000;
  Commands commands(options);
  const int fd = connect_to(options.socket);
  for (unsigned done = 0; done < options.keys;) {
    std::string all;
    const unsigned count = std::min(kPipeline, options.keys - done);
    for (unsigned i = 0; i < count; ++i) all += commands.set_number(done + i);
    send_all(fd, all);
    std::string replies;
    while (replies.size() < count * std::strlen("+OK\r\n")) {
      read_some(fd, replies);
      (void)whole(replies);
    }
    done += count;
  }
  close(fd);
}

struct Connection {
  int fd = -1;
  Clock::time_point sent;
  std::string reply;
};

class Load {
 public:
  explicit Load(const Options& options) : options_(options), commands_(options), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (unsigned i = 0; i < options.clients; ++i) {
      connections_.push_back({connect_to(options.socket), {}, {}});
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = i;
      if (epoll_ctl(epoll_, EPOLL_CTL_ADD, connections_[i].fd, &event) != 0) end("epoll_ctl");
    }
  }

  void run() {
    const auto began = Clock::now();
    const auto until =
        began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.seconds));
    for (Connection& each : connections_) send(each);
    std::size_t waiting = connections_.size();
    epoll_event events[64];
    while (waiting > 0) {
      const int count = epoll_wait(epoll_, events, 64, 60000);
      if (count <= 0) end("no reply for a minute");
      for (int i = 0; i < count; ++i) {
        Connection& each = connections_[events[i].data.u32];
        read_some(each.fd, each.reply);
        if (!whole(each.reply)) continue;
        const auto now = Clock::now();
        took_us_.push_back(std::chrono::duration<double, std::micro>(now - each.sent).count());
        if (now < until) {
          send(each);
        } else {
          --waiting;
        }
      }
    }
    seconds_ = std::chrono::duration<double>(Clock::now() - began).count();
  }

  void print() {
    std::sort(took_us_.begin(), took_us_.end());
    const auto at = [&](double part) { return took_us_[static_cast<std::size_t>(part * double(took_us_.size() - 1))]; };
    std::printf(
        "{\"ops\": %zu, \"seconds\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
        took_us_.size(), seconds_, at(0.5), at(0.99), at(0.999), took_us_.back());
  }

 private:
  void send(Connection& to) {
    to.reply.clear();
    const std::string command = commands_.next();
    to.sent = Clock::now();
    send_all(to.fd, command);
  }

  const Options& options_;
  Commands commands_;
  int epoll_;
  std::vector<Connection> connections_;
  std::vector<double> took_us_;
  double seconds_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Clients of a Redis server; prints how many commands it answered and how long they took.");
  app.add_option("--socket", options.socket, "the server's Unix socket")->required();
  app.add_option("--clients", options.clients)->check(CLI::Range(1U, 10000U));
  app.add_option("--writes", options.writes_percent, "per cent of SET")->check(CLI::Range(0U, 100U));
  app.add_option("--keys", options.keys)->check(CLI::Range(1U, 1000000000U));
  app.add_option("--value-bytes", options.value_bytes)->check(CLI::Range(1U, 1U << 20));
  app.add_option("--seconds", options.seconds)->check(CLI::PositiveNumber);
  app.add_flag("--fill", options.fill, "set each key once");
  CLI11_PARSE(app, argc, argv);
  if (options.fill) {
    fill(options);
    return 0;
  }
  Load load(options);
  load.run();
  load.print();
}
