// A program that persists for ever what follows from the number of the persist, and whether a store is what so many
// persists left. For tests that kill.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "memlith/memlith.hpp"
#include "support/child.hpp"

namespace memlith::test {

inline constexpr std::uint64_t kPages = 96;
inline constexpr std::uint64_t kPageWords = 512;
inline constexpr std::uint64_t kPagesEach = 5;  // change with every persist

inline Result<Store> open_at(const std::string& path, bool one_file, const StoreOptions& options) {
  return one_file ? Store::open_file(path, options) : Store::open(path, options);
}

inline Result<Region> region_of(const Store& store, const std::string& name, bool create) {
  RegionOptions options;
  options.create = create;
  options.size = create ? kPages * 4096 : 0;
  options.tracker = Tracker::touched;
  return store.region(name, options);
}

inline std::uint64_t* words(const Region& region) { return static_cast<std::uint64_t*>(region.address()); }

// The word that a page has when `count` persists were made: the newest of them that changed the page.
inline std::uint64_t word_of(std::uint64_t page, std::uint64_t count) {
  for (std::uint64_t number = count; number > 0; --number) {
    for (std::uint64_t i = 0; i < kPagesEach; ++i) {
      if ((number * 7 + i * 13) % (kPages - 1) + 1 == page) return number;
    }
  }
  return 0;
}

// Persists for ever, the number of persists in the first word; says which one was acknowledged.
[[noreturn]] inline void write_for_ever(const std::string& path, bool one_file,
                                        std::atomic<std::uint64_t>& acknowledged, useconds_t pause_us,
                                        std::uint64_t log_max_bytes) {
  StoreOptions options;
  options.create = true;
  options.log_bytes = 2 << 20;  // wraps soon, and checkpoints are many
  options.log_max_bytes = log_max_bytes;
  auto store = open_at(path, one_file, options);
  if (!store.ok()) ::_exit(3);
  auto region = region_of(*store, one_file ? "file" : "a", true);
  if (!region.ok()) ::_exit(4);
  for (std::uint64_t number = words(*region)[0] + 1;; ++number) {
    words(*region)[0] = number;
    (void)region->touch(words(*region), 8);
    for (std::uint64_t i = 0; i < kPagesEach; ++i) {
      std::uint64_t* const page = words(*region) + ((number * 7 + i * 13) % (kPages - 1) + 1) * kPageWords;
      page[0] = page[kPageWords - 1] = number;
      (void)region->touch(page, 4096);
    }
    if (!region->persist().ok()) ::_exit(5);
    acknowledged.store(number);
    if (pause_us != 0) ::usleep(pause_us);
  }
}

// Checks the copy's content and returns the number of persists that left it.
inline std::uint64_t check_copy(const std::string& path, bool one_file) {
  StoreOptions options;
  options.create = true;  // a restored file has no log
  auto store = open_at(path, one_file, options);
  EXPECT_TRUE(store.ok()) << store.error().message();
  if (!store.ok()) return 0;
  auto region = region_of(*store, one_file ? "file" : "a", one_file);
  EXPECT_TRUE(region.ok()) << region.error().message();
  if (!region.ok()) return 0;
  const std::uint64_t count = words(*region)[0];
  for (std::uint64_t page = 1; page < kPages; ++page) {
    const std::uint64_t wanted = word_of(page, count);
    EXPECT_EQ(words(*region)[page * kPageWords], wanted) << "page " << page << " of a copy of persist " << count;
    EXPECT_EQ(words(*region)[page * kPageWords + kPageWords - 1], wanted) << "page " << page;
    if (::testing::Test::HasFailure()) break;
  }
  return count;
}

// A process that does it, and can be started anew after it was killed.
class PersistingProcess {
 public:
  PersistingProcess(std::string path, bool one_file, useconds_t pause_us = 0, std::uint64_t log_max_bytes = 2 << 20)
      : path_(std::move(path)), one_file_(one_file), pause_us_(pause_us), log_max_bytes_(log_max_bytes) {
    void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    acknowledged_ = new (memory) std::atomic<std::uint64_t>(0);
  }
  ~PersistingProcess() {
    process_.kill();
    ::munmap(acknowledged_, 4096);
  }
  PersistingProcess(const PersistingProcess&) = delete;
  PersistingProcess& operator=(const PersistingProcess&) = delete;

  // Returns when one more persist was acknowledged.
  void start() {
    if (process_.started()) return;
    const std::uint64_t before = acknowledged();
    process_.start([this] { write_for_ever(path_, one_file_, *acknowledged_, pause_us_, log_max_bytes_); },
                   [this, before] { return acknowledged() != before; });
  }
  void kill() { process_.kill(); }
  [[nodiscard]] std::uint64_t acknowledged() const { return acknowledged_->load(); }

 private:
  const std::string path_;
  const bool one_file_;
  const useconds_t pause_us_;
  const std::uint64_t log_max_bytes_;
  std::atomic<std::uint64_t>* acknowledged_ = nullptr;
  KilledProcess process_;
};

}  // namespace memlith::test
