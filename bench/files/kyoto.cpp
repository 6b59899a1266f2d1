// memlith-files-kyoto: a program that keeps records in a Kyoto Cabinet database and knows nothing of memlith. Each
// operation replaces one record and makes it durable.
//
//   memlith-files-kyoto DATABASE hash|tree HOW THREADS THINK_MS SECONDS
//
// HOW: `synchronize`, `transactions` (hard ones), or `write`, which writes 4 KiB of an ordinary file and flushes it,
// the least that any program pays for being durable. Prints one JSON object.
#include <fcntl.h>
#include <kchashdb.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "samples.hpp"

namespace {

using namespace memlith::tool;
using kyotocabinet::BasicDB;

constexpr std::uint64_t kRecords = 10'000;
constexpr std::size_t kValueBytes = 1024;
constexpr std::size_t kPageBytes = 4096;

struct Plan {
  std::string how;
  int threads = 1;
  int think_ms = 0;
  double seconds = 1;
};

std::string key_of(std::uint64_t number) {
  char text[20];
  std::snprintf(text, sizeof text, "record-%09llu", static_cast<unsigned long long>(number));
  return text;
}

// Calls operation(random) from each thread; false ends the program.
template <class Operation>
int measure(const Plan& plan, Operation operation) {
  std::vector<std::vector<std::uint64_t>> samples(static_cast<std::size_t>(plan.threads));
  const auto begin = now_ns();
  std::vector<std::thread> threads;
  for (int i = 0; i < plan.threads; ++i) {
    threads.emplace_back([&, i] {
      Random random(static_cast<std::uint64_t>(i) + 1);
      while (seconds_of(now_ns() - begin) < plan.seconds) {
        const auto from = now_ns();
        if (!operation(random)) std::abort();
        samples[static_cast<std::size_t>(i)].push_back(now_ns() - from);
        if (plan.think_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(plan.think_ms));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = seconds_of(now_ns() - begin);
  std::vector<std::uint64_t> all;
  for (const auto& each : samples) all.insert(all.end(), each.begin(), each.end());
  print_samples(all, seconds);
  return 0;
}

template <class Database>
int measure_database(const char* path, const Plan& plan) {
  Database database;
  if (!database.open(path, BasicDB::OWRITER | BasicDB::OCREATE)) {
    std::fprintf(stderr, "%s: %s\n", path, database.error().message());
    return 1;
  }
  for (std::uint64_t i = 0; i < kRecords; ++i) database.set(key_of(i), std::string(kValueBytes, 'v'));
  // Work that a side put off while records were loaded is not the price of what follows.
  if (!database.close() || !database.open(path, BasicDB::OWRITER)) return 1;
  const bool in_transactions = plan.how == "transactions";
  const int result = measure(plan, [&](Random& random) {
    const std::string key = key_of(random.below(kRecords));
    const std::string value(kValueBytes, static_cast<char>('a' + random.below(26)));
    if (!in_transactions) return database.set(key, value) && database.synchronize(true);
    return database.begin_transaction(true) && database.set(key, value) && database.end_transaction(true);
  });
  return database.close() ? result : 1;
}

int measure_writes(const char* path, const Plan& plan) {
  const int fd = ::open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const std::string page(kPageBytes, 'v');
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    if (::write(fd, page.data(), page.size()) != static_cast<ssize_t>(page.size())) return 1;
  }
  if (::fsync(fd) != 0) return 1;
  return measure(plan, [&](Random& random) {
    const auto at = static_cast<off_t>(random.below(kRecords) * kPageBytes);
    return ::pwrite(fd, page.data(), page.size(), at) == static_cast<ssize_t>(page.size()) && ::fdatasync(fd) == 0;
  });
}

}  // namespace

int main(int count, char** words) {
  if (count != 7) return std::fprintf(stderr, "usage: %s DATABASE KIND HOW THREADS THINK_MS SECONDS\n", words[0]), 2;
  const Plan plan{words[3], std::atoi(words[4]), std::atoi(words[5]), std::atof(words[6])};
  if (plan.how == "write") return measure_writes(words[1], plan);
  if (std::strcmp(words[2], "hash") == 0) return measure_database<kyotocabinet::HashDB>(words[1], plan);
  return measure_database<kyotocabinet::TreeDB>(words[1], plan);
}
