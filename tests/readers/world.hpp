// A store on a simulated disk whose every commit leaves a content of its own, and what is wrong with what others make
// of it. For tests of those who read beside a writer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "mutants/mutants.hpp"
#include "readers/page_volume.hpp"
#include "store/store.hpp"

namespace memlith::test {

using namespace core;

inline constexpr std::uint64_t kAddress = 0x550000000000;
inline constexpr std::uint64_t kReserve = 1 * kMiB;

using Content = std::map<std::string, std::vector<std::byte>>;

inline StoreOptions options_of(StoreKind kind) {
  StoreOptions options;
  options.kind = kind;
  if (kind == StoreKind::one_file) options.file_name = "file";
  options.create = true;
  options.manual_checkpoint = true;
  options.manual_flush = true;
  options.log_bytes = 128 * kKiB;
  options.log_max_bytes = 128 * kKiB;
  options.slot_bytes = 16 * kKiB;
  return options;
}

inline StoreOptions reading(StoreOptions options) {
  options.create = false;
  options.read_only = options.follow = true;
  options.follow_patience = std::chrono::milliseconds(0);
  return options;
}

// The content that a recovery finds.
inline Content recovered(SimImage image, const StoreOptions& options) {
  SimVolume volume(std::move(image));
  auto store = Store::open(volume, options);
  EXPECT_TRUE(store.ok()) << last_error_text();
  Content content;
  if (!store.ok()) return content;
  for (const ObjectInfo& info : (*store)->objects()) content[info.name] = *(*store)->read_home(info.id);
  return content;
}

// A writer whose every commit leaves a content of its own.
class World {
 public:
  World(StoreKind kind, std::uint64_t seed) : World(options_of(kind), seed) {}
  World(StoreOptions given, std::uint64_t seed, SimImage start = {})
      : options(std::move(given)), volume(std::move(start), true), random(seed) {
    const StoreKind kind = options.kind;
    pages.writer = std::this_thread::get_id();
    states.emplace_back();
    lsns.emplace_back();
    if (kind == StoreKind::one_file) states.back()["file"];
  }

  void open() {
    auto opened = Store::open(pages_volume, options);
    ASSERT_TRUE(opened.ok()) << last_error_text();
    store = std::move(*opened);
  }
  void show() { show_page(pages, *store, Store::stats_name(options.kind, options.file_name)); }
  void create(const std::string& name, std::uint64_t bytes) {
    Content next = states.back();
    next[name].resize(bytes);
    states.push_back(next);
    ASSERT_TRUE(store->create(name, bytes, kAddress, kReserve).ok()) << last_error_text();
    lsns.push_back(store->log().durable_lsn());
  }
  void remove(const std::string& name) {
    Content next = states.back();
    next.erase(name);
    states.push_back(next);
    ASSERT_TRUE(store->remove(store->find(name)->id).ok()) << last_error_text();
    lsns.push_back(store->log().durable_lsn());
  }
  // Changes a part of every object, in one commit; the first may grow.
  void commit(bool grow = false) {
    Content next = states.back();
    std::vector<Extent> extents;
    std::vector<SizeChange> sizes;
    for (auto& [name, bytes] : next) {
      const ObjectInfo info = *store->find(name);
      if (grow && sizes.empty()) {
        bytes.resize(bytes.size() + kPageBytes);
        ASSERT_TRUE(store->reserve_home(info.id, bytes.size()).ok());
        sizes.push_back({info.id, bytes.size()});
      }
      for (int part = 0; part < 3; ++part) {
        const std::uint64_t count = 1 + random.below(1200);
        const std::uint64_t offset = random.below(bytes.size() - count);
        for (std::uint64_t i = 0; i < count; ++i) bytes[offset + i] = static_cast<std::byte>(random.next());
        extents.push_back({info.id, offset, count});
      }
    }
    std::vector<const std::byte*> sources;
    for (const Extent& extent : extents) {
      for (const auto& [name, bytes] : next) {
        if (store->find(name)->id == extent.object) sources.push_back(bytes.data() + extent.offset);
      }
    }
    states.push_back(next);
    ASSERT_TRUE(store->commit({extents, sources, sizes}).ok()) << last_error_text();
    lsns.push_back(store->log().durable_lsn());
  }
  void checkpoint() { ASSERT_TRUE(store->checkpoint().ok()) << last_error_text(); }
  void write_home() { ASSERT_TRUE(store->write_home(store->log().durable_lsn()).ok()) << last_error_text(); }
  void close() {
    ASSERT_TRUE(store->close().ok()) << last_error_text();
    store = nullptr;
  }

  // The state that the commits before that place left.
  [[nodiscard]] std::size_t state_at(Lsn lsn) const {
    const auto behind = std::upper_bound(lsns.begin(), lsns.end(), lsn);
    return static_cast<std::size_t>(behind - lsns.begin()) - 1;
  }

  // The newest state that looks so, or -1.
  [[nodiscard]] std::int64_t state_of(const Content& content) const {
    for (std::size_t i = states.size(); i-- > 0;) {
      if (states[i] == content) return static_cast<std::int64_t>(i);
    }
    return -1;
  }

  const StoreOptions options;
  SimVolume volume;
  Pages pages;
  PageVolume pages_volume{volume, pages};
  std::unique_ptr<Store> store;
  std::vector<Content> states;
  std::vector<Lsn> lsns;  // behind the commit that left it
  Random random;
};

// Each time that the volume is read, the writer is killed and comes back, `lives_max` times in all.
inline void come_back_at_each_read(World& world, PageVolume& readers_volume, int& lives, int lives_max) {
  const auto inside = std::make_shared<bool>(false);
  readers_volume.before_read = [&world, &lives, lives_max, inside] {
    if (*inside || lives == lives_max) return;
    *inside = true;
    world.store = nullptr;
    world.open();
    ++lives;
    *inside = false;
  };
}

struct Seen {
  std::size_t at = 0;  // operations done
  std::int64_t state = 0;
};

// The faults; counted instead of reported where a fault is planted.
struct Faults {
  bool planted = active_mutant != Mutant::none;
  std::uint64_t found = 0;
  std::string first;
  void add(const std::string& what) {
    ++found;
    if (first.empty()) first = what;
  }
  void judge() const {
    if (planted) {
      EXPECT_GT(found, 0u) << "the planted fault was not noticed";
    } else {
      EXPECT_EQ(found, 0u) << first;
    }
  }
};

// Trials of stores of both kinds; and with a planted fault, until it is noticed.
using Trial = void (*)(StoreKind kind, std::uint64_t seed, Faults& faults);

inline void expect_sound(Trial trial, StoreKind kind, std::uint64_t seeds = 3) {
  Faults faults;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFatalFailure(); ++seed) trial(kind, seed, faults);
  faults.judge();
}

inline void expect_noticed(Mutant mutant, Trial trial, StoreKind kind, std::uint64_t seeds = 20) {
  SCOPED_TRACE(static_cast<int>(mutant));
  active_mutant = mutant;
  Faults faults;
  for (std::uint64_t seed = 1; seed <= seeds && faults.found == 0; ++seed) trial(kind, seed, faults);
  active_mutant = Mutant::none;
  faults.judge();
}

class OfBothKinds : public ::testing::TestWithParam<StoreKind> {};
inline const auto kBothKinds = ::testing::Values(StoreKind::folder, StoreKind::one_file);
inline std::string name_of_kind(const ::testing::TestParamInfo<StoreKind>& given) {
  return given.param == StoreKind::folder ? "Folder" : "File";
}

// Every state that a reader saw must be what a power cut at that moment keeps, or an older one.
inline void check_durable(const World& world, const std::vector<Seen>& seen, Faults& faults) {
  SimMedium medium(world.volume.trace());
  for (const Seen& each : seen) {
    while (medium.position() < each.at) medium.step();
    const Content kept = recovered(medium.durable(), world.options);
    const std::int64_t state = world.state_of(kept);
    if (state < each.state) {
      faults.add("after operation " + std::to_string(each.at) + " a reader saw state " + std::to_string(each.state) +
                 ", and a power cut keeps " + std::to_string(state));
    }
  }
}

inline void run_writer(World& world) {
  world.open();
  const bool folder = world.options.kind == StoreKind::folder;
  if (folder) {
    world.create("a", 3 * kPageBytes);
    world.create("b", 2 * kPageBytes);
  } else {
    world.create("file", 3 * kPageBytes);
  }
  for (int round = 0; round < 14; ++round) {
    world.commit(round % 5 == 3);
    if (world.random.one_in(2)) world.show();
    if (round == 4 && folder) world.create("c", kPageBytes);
    if (round == 9 && folder) world.remove("b");
    if (world.random.one_in(3)) world.checkpoint();
    if (world.random.one_in(3)) world.write_home();
    if (round == 6) {
      world.close();
      world.open();
    }
    if (round == 11) {
      world.store = nullptr;  // killed
      world.open();
    }
  }
  world.show();
  world.close();
}

}  // namespace memlith::test
