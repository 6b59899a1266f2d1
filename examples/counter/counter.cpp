// A server that counts: every increment that it acknowledges is counted exactly once, however often it is killed.
//
// Three threads take increments. Each appends its increment to an application log and writes the log before it
// acknowledges, so that a client waits for one flush and for nothing else. A thread behind moves the increments into a
// key-value store, many with one commit, which also moves the log's read position: an increment is in the store or in
// the log, never in both. So the server needs no flush for the store, and a restart continues where the commit ended.
//
//   counter STORE [SECONDS]
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "memlith/applog.hpp"
#include "memlith/kv.hpp"

namespace {

constexpr int kClients = 3;
constexpr int kIncrementsPerCommit = 100;

template <class T>
T or_exit(memlith::Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "counter: %s\n", result.error().message().c_str());
  std::_Exit(1);
}
void or_exit(const memlith::Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "counter: %s\n", result.error().message().c_str());
  std::_Exit(1);
}

class Server {
 public:
  explicit Server(const std::string& path)
      : store_(or_exit(memlith::Store::open(path, {.create = true}))),
        log_(or_exit(memlith::AppLog::open(store_, "log", {.create = true, .size = 1 << 20}))),
        kv_(or_exit(memlith::Kv::open(store_, "kv", {.create = true}))),
        counts_(or_exit(kv_.map("counts", {.create = true}))) {
    recover();
  }

  // A client's increment. When it returns, the increment is durable.
  void increment(const std::string& counter) {
    or_exit(log_.append(counter));
    or_exit(log_.write());
  }

  // Moves increments from the log into the key-value store until `done`, and then those that are left.
  void consume(const std::atomic<bool>& done) {
    for (;;) {
      const bool last = done;
      if (!move_some() && last) return;
    }
  }

  // The counts that the server answers with at once after a restart: those in the store, and those only in the log.
  const std::map<std::string, std::uint64_t>& found() const { return found_; }

  void close() {
    or_exit(kv_.close());  // makes the last commits durable
    or_exit(log_.close());
    or_exit(store_.close());
  }

 private:
  // Reads what the log has into memory, and rewinds: the thread behind will move the same entries into the store.
  void recover() {
    auto reader = or_exit(kv_.begin({.read_only = true}));
    or_exit(reader.get_range(counts_, {}, {}, [this](std::string_view counter, std::string_view count) {
      found_[std::string(counter)] = std::stoull(std::string(count));
      return true;
    }));
    while (auto entry = or_exit(log_.read())) ++found_[std::string(entry->content)];
    or_exit(log_.rewind());
  }

  // False: there was no entry for a while.
  bool move_some() {
    auto entry = or_exit(log_.read(50));
    if (!entry) return false;
    auto txn = or_exit(kv_.begin());
    std::uint64_t newest = 0;
    for (int moved = 0; entry; entry = or_exit(log_.read())) {
      const std::string counter(entry->content);
      const auto count = or_exit(txn.find(counts_, counter));
      or_exit(txn.put(counts_, counter, std::to_string(1 + (count ? std::stoull(std::string(*count)) : 0))));
      newest = entry->number;
      if (++moved == kIncrementsPerCommit) break;
    }
    auto both = or_exit(store_.begin());  // the counts and the read position, both or neither
    or_exit(txn.join(both));
    or_exit(log_.consume_in(both, newest));
    or_exit(both.commit_weak());  // not waited for: if a crash loses it, the entries are still in the log
    return true;
  }

  memlith::Store store_;
  memlith::AppLog log_;
  memlith::Kv kv_;
  memlith::KvMap counts_;
  std::map<std::string, std::uint64_t> found_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count < 2) return std::fprintf(stderr, "usage: counter STORE [SECONDS]\n"), 2;
  const double seconds = argument_count > 2 ? std::atof(arguments[2]) : 1;
  Server server(arguments[1]);
  for (int i = 0; i < kClients; ++i) {
    const std::string counter = "client" + std::to_string(i);
    const auto count = server.found().find(counter);
    std::printf("found %s %llu\n", counter.c_str(),
                static_cast<unsigned long long>(count == server.found().end() ? 0 : count->second));
  }
  std::fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::atomic<bool> done{false};
  std::thread behind([&] { server.consume(done); });
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, counter = "client" + std::to_string(i)] {
      const std::string acknowledgement = "counted " + counter + "\n";
      do {
        server.increment(counter);
        std::fputs(acknowledgement.c_str(), stdout);
        std::fflush(stdout);
      } while (std::chrono::steady_clock::now() < end);
    });
  }
  for (std::thread& each : clients) each.join();
  done = true;
  behind.join();
  server.close();
}
