// docs/postgres.md, "What it promises": the page log on the simulated disk, with the power cut after every operation
// and what was not flushed kept, lost or torn. After the replay each page is one of its states, whole, not older than
// at the last flush that was acknowledged; a file that was cut, removed or made anew is as one of those states says. So
// it is when the replay is cut, too. Mutants are found.
#include <gtest/gtest.h>

#include <set>

#include "mutants/mutants.hpp"
#include "sim/power_cuts.hpp"
#include "sim_cluster.hpp"

namespace memlith_postgres::test {
namespace {

using core::CrashPoints;
using core::Mutant;
using core::PowerCuts;
using core::Random;
using core::SimTrace;
using core::SimVolume;

constexpr std::uint32_t kBlocks = 6;
const std::vector<std::string> kPaths{"base/5/1", "base/5/2", "global/3"};
constexpr std::size_t kNever = ~std::size_t{0};

// A state of a page: its bytes, or nothing if the file has no such page.
struct State {
  std::optional<PageBytes> bytes;
  std::size_t started = 0;
  std::size_t acknowledged = kNever;  // the operations of the disk until a flush said that it is durable
};

// A run that is written down, with what it did to each page.
class Story {
 public:
  // With files that are there at the start, and durable, if `settled`.
  explicit Story(bool settled = false) : volume_(settled ? with_files() : core::SimImage(), true) {
    log_ = SimLog::open(volume_);
    homes_ = std::make_unique<SimHomes>(volume_);
    page_log_ = std::make_unique<PageLog>(*log_, *homes_, 24 << 10);
    waiting_ = std::make_unique<SteppingWaiting>(world_.pages(), *page_log_);
    calls_ = std::make_unique<FileCalls>(world_.pages(), *waiting_);
    for (const std::string& path : kPaths) {
      for (std::uint32_t block = 0; block < kBlocks; ++block) {
        states_[{path, block}].push_back({settled ? std::optional(page_of(kFirst)) : std::nullopt, 0, 0});
      }
    }
    if (!settled) return;
    world_.memory().settled[0] = 1;
    for (const std::string& path : kPaths) {
      files_[path] = {world_.add(++inodes_, path, kBlocks), std::make_unique<SimAccess>(volume_, path), kBlocks};
    }
  }

  void run(Random& random, int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      const std::string& path = kPaths[random.below(kPaths.size())];
      const std::uint64_t what = random.below(20);
      if (!files_.contains(path)) create(path);
      if (what < 11) {
        write(random, path);
      } else if (what < 14) {
        flush(path);
      } else if (what == 14) {
        cut(path, static_cast<std::uint32_t>(random.below(files_.at(path).blocks + 1)));
      } else if (what == 15 && random.one_in(2)) {
        remove(path);
      } else if (what == 15) {
        lengthen(random, path);
      } else {
        keeper(random);
      }
    }
  }

  [[nodiscard]] const SimTrace& trace() const { return volume_.trace(); }

  // A sentence on the fault of these pages after a crash at operation `at`; empty: none.
  [[nodiscard]] std::string check(const Contents& contents, std::size_t at) const {
    for (const auto& [key, states] : states_) {
      std::size_t first = 0;
      std::size_t last = 0;
      for (std::size_t i = 0; i < states.size(); ++i) {
        if (states[i].acknowledged <= at) first = i;
        if (states[i].started <= at) last = i;
      }
      const auto found = contents.find(key);
      bool is_one = false;
      for (std::size_t i = first; i <= last && !is_one; ++i) {
        is_one =
            states[i].bytes ? found != contents.end() && found->second == *states[i].bytes : found == contents.end();
      }
      if (!is_one) {
        return key.first + " page " + std::to_string(key.second) + " is none of its states " + std::to_string(first) +
               " to " + std::to_string(last) + (found == contents.end() ? ": it is not there" : "");
      }
    }
    return {};
  }

 private:
  static constexpr int kFirst = 7;
  static core::SimImage with_files() {
    SimVolume volume;
    EXPECT_NE(SimLog::open(volume), nullptr);  // a store is made in an empty folder only
    for (const std::string& path : kPaths) {
      EXPECT_TRUE(volume.open(path, core::OpenMode::create, core::Caching::buffered).ok());
      SimAccess file(volume, path);
      for (std::uint32_t block = 0; block < kBlocks; ++block) file.write(block, page_of(kFirst).data());
    }
    return volume.image();
  }
  struct File {
    FileRef ref;
    std::unique_ptr<SimAccess> access;
    std::uint32_t blocks = 0;
  };

  void change(const std::string& path, std::uint32_t block, std::optional<PageBytes> bytes) {
    states_[{path, block}].push_back({std::move(bytes), volume_.operations(), kNever});
  }

  void create(const std::string& path) {
    ASSERT_EQ(calls_->before_creation(path), 0);
    ASSERT_TRUE(volume_.open(path, core::OpenMode::create, core::Caching::buffered).ok());
    File& file = files_[path];
    file.access = std::make_unique<SimAccess>(volume_, path);
    file.ref = world_.add(++inodes_, path);
  }

  void write(Random& random, const std::string& path) {
    File& file = files_.at(path);
    const bool extends = file.blocks < kBlocks && (file.blocks == 0 || random.one_in(3));
    const auto block = static_cast<std::uint32_t>(extends ? file.blocks : random.below(file.blocks));
    PageBytes page = page_of(0);
    if (extends) {
      change(path, block, page);  // the file is longer first
      file.blocks = block + 1;
    } else {
      page = *states_[{path, block}].back().bytes;
    }
    if (!extends || !random.one_in(3)) {
      for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
        const std::size_t begin = random.below(kPageBytes - 700);
        const std::size_t bytes = 1 + random.below(random.one_in(4) ? 700 : 20);
        for (std::size_t i = begin; i < begin + bytes; ++i) page[i] = static_cast<std::byte>(random.below(256));
      }
      change(path, block, page);
    }
    ASSERT_EQ(calls_->write(file.ref, *file.access, block, page.data()), 0);
    PageBytes seen(kPageBytes);
    if (!calls_->read(file.ref, block, 0, kPageBytes, seen.data())) file.access->read_cached(block, seen.data());
    ASSERT_EQ(seen, page) << "what was written is read";
  }

  void flush(const std::string& path) {
    File& file = files_.at(path);
    ASSERT_EQ(calls_->flush(file.ref, *file.access), 0);
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      State& newest = states_[{path, block}].back();
      if (newest.acknowledged == kNever) newest.acknowledged = volume_.operations();
    }
  }

  void cut(const std::string& path, std::uint32_t blocks) {
    File& file = files_.at(path);
    for (std::uint32_t block = blocks; block < file.blocks; ++block) change(path, block, {});
    file.blocks = std::min(file.blocks, blocks);
    ASSERT_EQ(calls_->cut(file.ref, *file.access, blocks), 0);
  }

  void lengthen(Random& random, const std::string& path) {
    File& file = files_.at(path);
    const auto blocks = static_cast<std::uint32_t>(file.blocks + random.below(kBlocks - file.blocks + 1));
    for (; file.blocks < blocks; ++file.blocks) change(path, file.blocks, page_of(0));
    ASSERT_EQ(calls_->lengthen(file.ref, *file.access, blocks), 0);
  }

  void remove(const std::string& path) {
    File& file = files_.at(path);
    ASSERT_EQ(calls_->before_removal(file.ref), 0);
    for (std::uint32_t block = 0; block < file.blocks; ++block) change(path, block, {});
    file.access = nullptr;
    ASSERT_TRUE(volume_.remove(path).ok());
    files_.erase(path);
  }

  void keeper(Random& random) {
    if (random.one_in(2)) world_.pages().want(world_.memory().filling.load());
    if (random.one_in(6)) world_.memory().checkpoint_wanted.store(1);
    ASSERT_TRUE(page_log_->step(world_.pages()).ok());
    ASSERT_TRUE(page_log_->settle(world_.pages()).ok());
  }

  SharedWorld world_;
  SimVolume volume_;
  std::unique_ptr<SimLog> log_;
  std::unique_ptr<SimHomes> homes_;
  std::unique_ptr<PageLog> page_log_;
  std::unique_ptr<SteppingWaiting> waiting_;
  std::unique_ptr<FileCalls> calls_;
  std::map<std::string, File> files_;
  std::map<std::pair<std::string, std::uint32_t>, std::vector<State>> states_;
  std::uint64_t inodes_ = 100;
};

// Cuts the power everywhere. Returns what is wrong first.
class Explorer {
 public:
  Explorer(const Story& story, Random& random) : story_(story), random_(random) {}

  std::string explore() {
    for (CrashPoints points(story_.trace(), 1); points.next();) {
      for (PowerCuts cuts(points.medium(), {3, memlith::test::scaled(6)}, random_); cuts.next();) {
        if (std::string wrong = look(cuts.image(), points.at()); !wrong.empty()) return wrong;
      }
    }
    return {};
  }

 private:
  std::string look(const core::SimImage& image, std::size_t at) {
    if (!seen_.insert(image.hash() * 31 + at).second) return {};
    memlith::test::count_distinct_state();
    SimVolume volume(image, true);
    const auto contents = recover(volume, kPaths);
    if (!contents) return "the replay failed after a cut at operation " + std::to_string(at);
    if (std::string wrong = story_.check(*contents, at); !wrong.empty()) {
      return "a cut at operation " + std::to_string(at) + ": " + wrong + "\n" + story_.trace().describe(at);
    }
    // Now and then the power goes again, during the recovery.
    if (!random_.one_in(6)) return {};
    if (volume.operations() == 0) return {};
    for (CrashPoints points(volume.trace(), 1); points.next();) {
      if (!random_.one_in(12)) continue;
      const std::string where =
          "a cut at operation " + std::to_string(at) + ", and at " + std::to_string(points.at()) + " of the recovery: ";
      for (PowerCuts cuts(points.medium(), {2, 1}, random_); cuts.next();) {
        SimVolume again(cuts.image());
        const auto later = recover(again, kPaths);
        if (!later) return where + "the replay failed";
        if (std::string wrong = story_.check(*later, at); !wrong.empty()) return where + wrong;
      }
    }
    return {};
  }

  const Story& story_;
  Random& random_;
  std::set<std::uint64_t> seen_;
};

std::string explore_stories(std::size_t stories, int steps) {
  const std::uint64_t seed = memlith::test::seed_for_this_run();
  for (std::size_t i = 0; i < stories; ++i) {
    Random random(seed + i);
    Story story(i % 2 == 1);
    story.run(random, steps);
    if (::testing::Test::HasFailure()) return "seed " + std::to_string(seed + i);
    if (const std::string wrong = Explorer(story, random).explore(); !wrong.empty()) {
      return "seed " + std::to_string(seed + i) + ": " + wrong;
    }
  }
  return {};
}

// True if one of 20 stories shows the mutant.
bool is_noticed(Mutant mutant) {
  memlith::core::active_mutant = mutant;
  const std::string wrong = explore_stories(20, 120);
  memlith::core::active_mutant = Mutant::none;
  return !wrong.empty();
}

TEST(PostgresCrash, EveryPageIsWholeAndNoneIsOlderThanItsFlush) {
  EXPECT_EQ(explore_stories(memlith::test::scaled(6), 120), "");
}
TEST(PostgresCrash, APageIsInTheLogBeforeItGoesHome) { EXPECT_TRUE(is_noticed(Mutant::home_before_log)); }
TEST(PostgresCrash, ACutIsInTheLogBeforeItIsDone) { EXPECT_TRUE(is_noticed(Mutant::cut_before_log)); }
TEST(PostgresCrash, TheLogStartsOverWhenTheHomesAreFlushed) { EXPECT_TRUE(is_noticed(Mutant::reset_before_flush)); }

}  // namespace
}  // namespace memlith_postgres::test
