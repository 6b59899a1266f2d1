// One side of `bench instrumented kyoto`: transactions of a Kyoto Cabinet database. It knows nothing of memlith.
//
//   kyoto run DATABASE transactions|synchronize UPDATES SECONDS RECORDS VALUE_BYTES
//   kyoto check DATABASE STAMP RECORDS VALUE_BYTES
//
// The name of the database ends with .kch (HashDB) or .kct (TreeDB). Each transaction replaces UPDATES records, far
// from each other, with values that say its number, and is durable: by begin_transaction(true) and
// end_transaction(true), or by synchronize(true), which promises nothing about a crash in the middle. `run` prints a
// JSON object, and compares every record with what was written. With SECONDS 0 it goes on until it is killed, and
// prints each number once its transaction has returned. `check`: transactions of RECORDS updates were killed, and the
// last one that was reported was number STAMP; every record has the same number, STAMP or a higher one.
#include <kchashdb.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace {

using kyotocabinet::BasicDB;
using Clock = std::chrono::steady_clock;

struct Plan {
  std::string path;
  bool in_transactions = false;
  std::uint64_t updates = 1;
  double seconds = 1;
  std::uint64_t records = 0;
  std::size_t value_bytes = 0;
};

std::uint64_t state = 88172645463325252u;
std::uint64_t below(std::uint64_t bound) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<std::uint64_t>((__uint128_t{state} * bound) >> 64);
}

std::string key_of(std::uint64_t number) {
  char text[24];
  return {text, static_cast<std::size_t>(std::snprintf(text, sizeof text, "record-%09llu",
                                                       static_cast<unsigned long long>(number)))};
}

std::string value_of(std::uint64_t stamp, std::size_t bytes) {
  std::string value(bytes, static_cast<char>('a' + stamp % 26));
  char text[24];
  const int length = std::snprintf(text, sizeof text, "%012llu", static_cast<unsigned long long>(stamp));
  return value.replace(0, static_cast<std::size_t>(length), text, static_cast<std::size_t>(length));
}

int fail(const BasicDB& database, const char* what) {
  return std::fprintf(stderr, "%s: %s\n", what, database.error().message()), 1;
}

int wrong(const std::string& what) { return std::fprintf(stderr, "%s\n", what.c_str()), 1; }

// All of the file lies in its mapping, so that no store goes by another way than memory.
template <class Database>
void tune(Database& database, const Plan& plan) {
  database.tune_map(static_cast<std::int64_t>((64u << 20) + 4 * plan.records * (plan.value_bytes + 64)));
}

bool transaction(BasicDB& database, const Plan& plan, std::uint64_t stamp, std::vector<std::uint64_t>& stamps) {
  const std::string value = value_of(stamp, plan.value_bytes);
  const std::uint64_t first = below(plan.records);
  const std::uint64_t stride = std::max<std::uint64_t>(1, plan.records / plan.updates);
  if (plan.in_transactions && !database.begin_transaction(true)) return false;
  for (std::uint64_t i = 0; i < plan.updates; ++i) {
    const std::uint64_t number = (first + i * stride) % plan.records;
    if (!database.set(key_of(number), value)) return false;
    stamps[number] = stamp;
  }
  return plan.in_transactions ? database.end_transaction(true) : database.synchronize(true);
}

void print(std::vector<std::uint64_t>& times_ns, double seconds) {
  std::sort(times_ns.begin(), times_ns.end());
  const auto at = [&times_ns](double part) {
    const auto index = static_cast<std::size_t>(part * static_cast<double>(times_ns.size()));
    return static_cast<double>(times_ns[std::min(times_ns.size() - 1, index)]) / 1000;
  };
  std::printf("{\"ops_per_s\": %.1f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f}\n",
              static_cast<double>(times_ns.size()) / seconds, at(0.5), at(0.99), at(0.999));
}

template <class Database>
int run(const Plan& plan) {
  Database database;
  tune(database, plan);
  if (!database.open(plan.path, BasicDB::OWRITER | BasicDB::OCREATE)) return fail(database, "open");
  std::vector<std::uint64_t> stamps(plan.records, 0);
  const std::string first = value_of(0, plan.value_bytes);
  for (std::uint64_t i = 0; i < plan.records; ++i) {
    if (!database.set(key_of(i), first)) return fail(database, "set");
  }
  // Work that a side put off while records were loaded is not the price of what follows.
  if (!database.close() || !database.open(plan.path, BasicDB::OWRITER)) return fail(database, "open again");
  std::vector<std::uint64_t> times_ns;
  const auto begin = Clock::now();
  auto before = begin;
  for (std::uint64_t stamp = 1; plan.seconds == 0 || before - begin < std::chrono::duration<double>(plan.seconds);
       ++stamp) {
    if (!transaction(database, plan, stamp, stamps)) return fail(database, "a transaction");
    const auto now = Clock::now();
    times_ns.push_back(static_cast<std::uint64_t>((now - before).count()));
    before = now;
    if (plan.seconds > 0) continue;
    const std::string line = std::to_string(stamp) + "\n";
    if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
  }
  print(times_ns, std::chrono::duration<double>(before - begin).count());
  if (!database.close() || !database.open(plan.path, BasicDB::OREADER | BasicDB::ONOREPAIR)) {
    return fail(database, "open to compare");
  }
  for (std::uint64_t i = 0; i < plan.records; ++i) {
    std::string value;
    if (!database.get(key_of(i), &value)) return fail(database, "a record is missing");
    if (value != value_of(stamps[i], plan.value_bytes)) return wrong(key_of(i) + " is not what was written");
  }
  return database.close() ? 0 : fail(database, "close");
}

template <class Database>
int check(const Plan& plan, std::uint64_t reported) {
  Database database;
  tune(database, plan);
  if (!database.open(plan.path, BasicDB::OWRITER)) return fail(database, "open");
  std::string first;
  if (!database.get(key_of(0), &first)) return fail(database, "the first record");
  const std::uint64_t stamp = std::strtoull(first.c_str(), nullptr, 10);
  if (stamp < reported) return wrong(std::to_string(reported) + " was reported, this is " + std::to_string(stamp));
  for (std::uint64_t i = 0; i < plan.records; ++i) {
    std::string value;
    if (!database.get(key_of(i), &value)) return fail(database, "a record is missing");
    if (value != value_of(stamp, plan.value_bytes)) return wrong("half of a transaction is there");
  }
  if (database.count() != static_cast<std::int64_t>(plan.records)) return fail(database, "count");
  return database.close() ? 0 : fail(database, "close");
}

}  // namespace

int main(int count, char** words) {
  const std::string mode = count > 1 ? words[1] : "";
  if (!(mode == "run" && count == 8) && !(mode == "check" && count == 6)) {
    return std::fprintf(stderr, "usage: the head of kyoto.cpp\n"), 2;
  }
  Plan plan;
  plan.path = words[2];
  plan.records = std::strtoull(words[count - 2], nullptr, 10);
  plan.value_bytes = std::strtoull(words[count - 1], nullptr, 10);
  const bool tree = plan.path.size() > 4 && plan.path.compare(plan.path.size() - 4, 4, ".kct") == 0;
  if (mode == "check") {
    const std::uint64_t reported = std::strtoull(words[3], nullptr, 10);
    return tree ? check<kyotocabinet::TreeDB>(plan, reported) : check<kyotocabinet::HashDB>(plan, reported);
  }
  plan.in_transactions = std::strcmp(words[3], "transactions") == 0;
  plan.updates = std::strtoull(words[4], nullptr, 10);
  plan.seconds = std::strtod(words[5], nullptr);
  if (plan.updates == 0 || plan.updates > plan.records) return std::fprintf(stderr, "more updates than records\n"), 2;
  return tree ? run<kyotocabinet::TreeDB>(plan) : run<kyotocabinet::HashDB>(plan);
}
