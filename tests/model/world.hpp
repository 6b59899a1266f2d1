// The world of the model test: real stores, driven through memlith.h only, and beside each one the content that it must
// have.
//
// Every call is counted by its name. A check that fails prints the seed, the number of the step and the last steps.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "memlith/memlith.h"

namespace memlith::test {

// Counts of calls, by function.
using Calls = std::map<std::string, std::uint64_t>;
Calls& calls();
inline std::uint64_t call_count() {
  std::uint64_t sum = 0;
  for (const auto& [name, count] : calls()) sum += count;
  return sum;
}
#define MEMLITH_CALL(function, ...) (++::memlith::test::calls()[#function], function(__VA_ARGS__))

// Makes the n-th write or flush of this process from now on fail with EIO; 0: none.
void fail_transfer(std::int64_t which);
bool transfer_failed();  // since then

// While one is there, no file gets more room: the disk is full.
class FullDisk {
 public:
  FullDisk();
  ~FullDisk();
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  [[nodiscard]] bool refused() const;  // a file asked for room
};

// The seed of this run; printed once.
inline std::uint64_t seed() {
  static const std::uint64_t drawn = [] {
    const char* const given = std::getenv("MEMLITH_SEED");
    const std::uint64_t number = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("seed %llu\n", static_cast<unsigned long long>(number));
    return number;
  }();
  return drawn;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }

 private:
  std::mt19937_64 engine_;
};

struct Range {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// A region's memory now, and as the last persist captured it.
struct ModelRegion {
  std::vector<unsigned char> now;
  std::vector<unsigned char> captured;
  std::vector<Range> by_others;  // stored to by other threads, not captured since
  std::vector<Range> own;        // touched by this thread, not captured since
  std::uint32_t tracker = 0;     // as asked for
  bool process_scope = false;    // opened with MEMLITH_REGION_PROCESS_SCOPE
  memlith_region* handle = nullptr;
};

struct ModelStore {
  std::string path;
  bool one_file = false;
  bool exists = false;
  bool read_only = false;
  memlith_store* handle = nullptr;
  int event = -1;
  std::map<std::string, ModelRegion> regions;
};

class World {
 public:
  // `seed` draws the steps; the run of `run_seed` is what repeats them.
  World(std::string folder, std::uint64_t run_seed, std::uint64_t seed);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // One step, drawn at random.
  void step();
  // Closes everything, reopens every store and compares all of it.
  void reopen_and_compare();

 private:
  struct Step {
    const char* name;
    unsigned weight;
    void (World::*run)();
  };
  static const std::vector<Step>& steps();

  // steps.cpp
  void open_store();
  void open_store_wrongly();
  void close_store();
  void look_at_store();
  void look_from_outside();
  void rename_store();
  void change_folder();
  void second_process();
  void fork_child();
  void open_region();
  void open_region_wrongly();
  void close_region();
  void remove_region();
  void grow_region();
  void fill_disk();
  void store_bytes();
  void store_by_thread();
  void read_into_region();
  void persist();
  void persist_soon();
  void persist_thread();
  void persist_range();
  void persist_often();
  void discard_pages();
  void roll_back();
  void transact();
  void change();
  void write_in_transaction();
  void release();
  void checkpoint();
  void look_at_region();
  void look_at_snapshot();
  void misuse();

  // world.cpp
  ModelStore& any_store() { return stores_[random_.below(stores_.size())]; }
  ModelStore* open_one(bool writable);
  ModelRegion* open_region_of(ModelStore& store, std::string* name = nullptr);
  std::string path_to(const ModelStore& store);
  memlith_store_options options(std::uint32_t flags);
  std::int32_t open(ModelStore& store, std::uint32_t flags, memlith_store** handle);
  void close(ModelStore& store);
  void forget_handles(ModelStore& store);
  void compare(const ModelStore& store, const std::string& name, const ModelRegion& region);
  void compare_part(const ModelRegion& region);
  void captured_all(ModelRegion& region);
  void store_into(ModelRegion& region);
  void undone(ModelRegion& region);
  // A growth goes along.
  static void captured_range(ModelRegion& region, const Range& range);
  // True if the region has the explicit tracker.
  bool finds_no_stores(const ModelRegion& region);
  std::vector<ModelRegion*> choose_regions(ModelStore& store, std::vector<memlith_region*>& handles);
  void note(const std::string& what);
  std::string story() const;
  void expect(std::int32_t code, std::int32_t category, const char* what);

  std::string folder_;
  std::uint64_t run_seed_;
  std::uint64_t seed_;
  Random random_;
  std::array<std::string, 3> folders_;  // where the program may stand
  std::string standing_;
  std::vector<ModelStore> stores_;
  std::deque<std::string> last_;
  std::uint64_t number_ = 0;
  std::uint64_t names_ = 0;
};

// The commits of a program that is killed, or whose disk fails: commit number n is drawn from the seed and n alone.
class Stream {
 public:
  static constexpr std::uint64_t kRegions = 2;
  static constexpr std::uint64_t kBytes = 64 * 1024;
  using State = std::array<std::vector<unsigned char>, kRegions>;

  explicit Stream(std::uint64_t seed) : seed_(seed) {}
  static State empty();
  // Brings the state from commit n - 1 to commit n; `stored` hears of each range.
  template <class Stored>
  void apply(std::uint64_t n, std::array<unsigned char*, kRegions> memory, const Stored& stored) const {
    Random random(seed_ * 1'000'003 + n);
    for (std::uint64_t changes = 1 + random.below(6); changes > 0; --changes) {
      const std::uint64_t region = random.below(kRegions);
      const std::uint64_t bytes = 1 + random.below(random.one_in(4) ? 9000 : 60);
      const std::uint64_t offset = random.below(kBytes - bytes);
      const auto value = static_cast<unsigned char>(random.below(256));
      for (std::uint64_t i = 0; i < bytes; ++i) memory[region][offset + i] = static_cast<unsigned char>(value + i);
      stored(region, Range{offset, bytes});
    }
  }

 private:
  std::uint64_t seed_;
};

}  // namespace memlith::test
