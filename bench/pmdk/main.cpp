// One side of `bench pmdk`: side FOLDER SUITE OPERATIONS RECORDS [DELAY-NS CACHE-MIB]. Prints a line of JSON for each
// workload. With a delay, the files in the folder lie on a slow medium (slow_medium.hpp); a line says how many pages
// took the delay since the line before.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(PMDK_SIDE)
#include "pmdk_memory.hpp"
#elif defined(MSYNC_SIDE)
#include "msync_memory.hpp"
#else
#include "memlith_memory.hpp"
#endif
#include "slow_medium.hpp"
#include "structures.hpp"

namespace pmdk_bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string folder;
  std::string suite;
  std::uint64_t operations = 0;
  std::uint64_t records = 0;
  std::uint64_t delay_ns = 0;
  std::uint64_t cache_mib = 0;
  SlowMedium* slow = nullptr;
};

std::uint64_t state = 88172645463325252u;
std::uint64_t next_random() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}
std::uint64_t below(std::uint64_t bound) {
  return static_cast<std::uint64_t>((__uint128_t{next_random()} * bound) >> 64);
}

// Skewed towards few records, as YCSB's Zipfian: the distribution's approximation for theta 0.99, spread by a hash.
class Skewed {
 public:
  explicit Skewed(std::uint64_t records) : cumulative_(records) {
    double sum = 0;
    for (std::uint64_t i = 0; i < records; ++i)
      cumulative_[i] = sum += 1 / __builtin_pow(static_cast<double>(i + 1), 0.99);
    for (double& each : cumulative_) each /= sum;
  }
  [[nodiscard]] std::uint64_t rank() const {
    const double drawn = static_cast<double>(next_random() >> 11) / 9007199254740992.0;
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), drawn);
    return std::min<std::uint64_t>(found - cumulative_.begin(), cumulative_.size() - 1);
  }

 private:
  std::vector<double> cumulative_;
};
std::uint64_t spread(std::uint64_t rank, std::uint64_t records) { return rank * 0x9e3779b97f4a7c15u % records; }

// Times each operation, and prints what came of it.
template <class Act>
void measure(const Options& options, const char* workload, std::uint64_t operations, const Act& act) {
  std::vector<std::uint32_t> times(operations);
  const auto begin = Clock::now();
  auto before = begin;
  for (std::uint64_t i = 0; i < operations; ++i) {
    act(i);
    const auto now = Clock::now();
    times[i] = static_cast<std::uint32_t>(std::min<std::int64_t>((now - before).count(), ~std::uint32_t{0}));
    before = now;
  }
  const double seconds = std::chrono::duration<double>(before - begin).count();
  std::sort(times.begin(), times.end());
  const auto at = [&times](double part) {
    return times[std::min(times.size() - 1, static_cast<std::size_t>(part * static_cast<double>(times.size())))] /
           1000.0;
  };
  std::printf(
      "{\"suite\": \"pmdk\", \"side\": \"%s\", \"workload\": \"%s, %s\", \"durability\": \"%s\", \"threads\": 1, "
      "\"medium\": \"%s\", \"ops_per_s\": %.0f, \"p50_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f",
      Memory::kSide, options.suite.c_str(), workload, Memory::kDurability,
      options.slow != nullptr ? "slow" : Memory::kMedium, static_cast<double>(operations) / seconds, at(0.5), at(0.99),
      at(0.999));
  if (options.slow != nullptr) std::printf(", \"slow_pages\": %" PRIu64, options.slow->take_pages());
  std::printf("}\n");
  std::fflush(stdout);
}

[[noreturn]] void wrong(const char* what) {
  std::fprintf(stderr, "%s: %s\n", Memory::kSide, what);
  std::exit(1);
}

// Every operation that changes something is a transaction of its own.
template <class Act>
void change(Memory& memory, const Act& act) {
  memory.begin();
  act();
  memory.commit();
}

void run_list(Memory& memory, const Options& options) {
  List<Memory> list(memory, memory.root<List<Memory>::Root>());
  std::uint64_t expected = 0;
  measure(options, "insert", options.operations, [&](std::uint64_t i) {
    change(memory, [&] { list.insert(i); });
    expected += i;
  });
  measure(options, "read all", std::max<std::uint64_t>(10, 10'000'000 / options.operations), [&](std::uint64_t) {
    if (list.sum() != expected) wrong("the list lost something");
  });
  measure(options, "delete", options.operations, [&](std::uint64_t) { change(memory, [&] { list.remove_first(); }); });
  if (list.sum() != 0) wrong("the list has something left");
}

void run_btree(Memory& memory, const Options& options) {
  BTree<Memory> tree(memory, memory.root<BTree<Memory>::Root>());
  const auto key = [](std::uint64_t i) { return (i + 1) * 0x9e3779b97f4a7c15u; };
  measure(options, "insert", options.operations,
          [&](std::uint64_t i) { change(memory, [&] { tree.insert(key(i), i); }); });
  measure(options, "read", 4 * options.operations, [&](std::uint64_t) {
    const std::uint64_t i = below(options.operations);
    std::uint64_t value = 0;
    if (!tree.find(key(i), value) || value != i) wrong("the tree lost a key");
  });
  measure(options, "delete", options.operations, [&](std::uint64_t i) {
    change(memory, [&] {
      if (!tree.remove(key(i))) wrong("the tree lost a key");
    });
  });
}

struct Mix {
  const char* name;
  unsigned reads;  // of 100 operations; the rest updates, unless
  enum { updates, inserts, read_modify_write } rest;
  bool latest;
  bool scans;
};
constexpr Mix kMixes[] = {
    {"A", 50, Mix::updates, false, false},
    {"B", 95, Mix::updates, false, false},
    {"C", 100, Mix::updates, false, false},
    {"D", 95, Mix::inserts, true, false},
    {"E", 50, Mix::read_modify_write, false, false},
    {"F", 95, Mix::inserts, false, true},
    {"G", 0, Mix::updates, false, false},
};

void run_kv(Memory& memory, const Options& options) {
  using Table = HashTable<Memory>;
  Table table(memory, memory.root<Table::Root>());
  char value[Table::kValueBytes] = "value";
  change(memory, [&] { table.make(); });
  std::uint64_t records = options.records;
  measure(options, "load", records, [&](std::uint64_t i) { change(memory, [&] { table.put(i, value); }); });
  const Skewed skewed(options.records);
  for (const Mix& mix : kMixes) {
    measure(options, mix.name, options.operations, [&](std::uint64_t i) {
      const std::uint64_t rank = skewed.rank();
      const std::uint64_t key = mix.latest ? records - 1 - rank % records : spread(rank, options.records);
      const bool reads = below(100) < mix.reads;
      value[1] = static_cast<char>(i);
      if (reads && mix.scans) {
        if (table.scan(key, 1 + below(100), value) == 0) wrong("a scan found nothing");
      } else if (reads) {
        if (!table.get(key, value)) wrong("the table lost a record");
      } else if (mix.rest == Mix::inserts) {
        change(memory, [&] { table.put(records, value); });
        ++records;
      } else {
        if (mix.rest == Mix::read_modify_write && !table.get(key, value)) wrong("the table lost a record");
        ++value[2];
        change(memory, [&] { table.put(key, value); });
      }
    });
  }
}

// Blocks of 16 to 512 bytes: each operation frees one of 10,000 and allocates another, or only one of the two.
void run_allocate(Memory& memory, const Options& options) {
  constexpr std::uint64_t kBlocks = 10'000;
  std::vector<Memory::Block> blocks(kBlocks);
  measure(options, "allocate", kBlocks,
          [&](std::uint64_t i) { change(memory, [&] { blocks[i] = memory.allocate_bytes(16 + below(497)); }); });
  measure(options, "free and allocate", options.operations, [&](std::uint64_t) {
    const std::uint64_t i = below(kBlocks);
    change(memory, [&] {
      memory.release(blocks[i]);
      blocks[i] = memory.allocate_bytes(16 + below(497));
    });
  });
  measure(options, "free", kBlocks, [&](std::uint64_t i) { change(memory, [&] { memory.release(blocks[i]); }); });
}

int run(int count, char** words) {
  if (count < 5) return std::fprintf(stderr, "side FOLDER SUITE OPERATIONS RECORDS [DELAY-NS CACHE-MIB]\n"), 2;
  Options options{words[1], words[2], std::strtoull(words[3], nullptr, 10), std::strtoull(words[4], nullptr, 10)};
  if (count > 6) {
    options.delay_ns = std::strtoull(words[5], nullptr, 10);
    options.cache_mib = std::strtoull(words[6], nullptr, 10);
  }
  const std::uint64_t bytes = (256u << 20) + 512 * (options.operations + options.records);
  Memory memory(options.folder, bytes);
  if (options.delay_ns > 0) {
    options.slow = SlowMedium::over(options.folder, options.delay_ns, options.cache_mib << 20);
    if (options.slow == nullptr) return 77;
  }
  if (options.suite == "list") run_list(memory, options);
  if (options.suite == "btree") run_btree(memory, options);
  if (options.suite == "kv") run_kv(memory, options);
  if (options.suite == "allocate") run_allocate(memory, options);
  return 0;
}

}  // namespace
}  // namespace pmdk_bench

int main(int count, char** words) { return pmdk_bench::run(count, words); }
