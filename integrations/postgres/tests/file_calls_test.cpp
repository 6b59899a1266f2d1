// Files of unlogged relations go around the page log, and files get longer in one call: what a file, the shared pages
// and the log have of both.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim_cluster.hpp"

namespace memlith_postgres::test {
namespace {

using core::SimVolume;

// A file whose flushes are counted.
class CountedAccess final : public FileAccess {
 public:
  CountedAccess(SimVolume& volume, const std::string& path) : file_(volume, path) {}
  std::uint32_t blocks() override { return file_.blocks(); }
  bool read_cached(std::uint32_t block, std::byte* page) override { return file_.read_cached(block, page); }
  int write(std::uint32_t block, const std::byte* page) override { return file_.write(block, page); }
  int flush() override {
    ++flushes;
    return file_.flush();
  }
  int cut(std::uint32_t blocks) override { return file_.cut(blocks); }
  int lengthen(std::uint32_t blocks) override { return file_.lengthen(blocks); }
  int home(std::uint32_t block) {
    PageBytes page(kPageBytes);
    return file_.read_cached(block, page.data()) ? static_cast<int>(page[0]) : -1;
  }
  int flushes = 0;

 private:
  SimAccess file_;
};

struct CallsWorld {
  SimVolume volume{{}, true};
  std::unique_ptr<SimLog> log = SimLog::open(volume);
  SimHomes homes{volume};
  PageLog page_log{*log, homes, 24 << 10};
  SharedWorld shared;
  SteppingWaiting waiting{shared.pages(), page_log};
  FileCalls calls{shared.pages(), waiting};
  std::string path = "base/5/1";
  std::unique_ptr<CountedAccess> access;
  FileRef file;

  CallsWorld() {
    EXPECT_TRUE(volume.open(path, core::OpenMode::create, core::Caching::buffered).ok());
    access = std::make_unique<CountedAccess>(volume, path);
    file = shared.add(7, path);
  }
  void write(std::uint32_t block, int value) { EXPECT_EQ(calls.write(file, *access, block, page_of(value).data()), 0); }
  std::uint32_t records() { return shared.memory().batch[shared.memory().filling.load() % 2].records; }
};

TEST(FileCallsTest, PagesOfAnUnloggedFileGoHomeAtOnceAndAreFlushedThere) {
  CallsWorld world;
  world.calls.make_unlogged(world.file);
  world.write(0, 1);
  world.write(1, 2);
  world.write(0, 3);
  EXPECT_EQ(world.records(), 0u);
  EXPECT_EQ(world.access->home(0), 3);
  EXPECT_EQ(world.access->home(1), 2);
  EXPECT_EQ(world.calls.flush(world.file, *world.access), 0);
  EXPECT_EQ(world.access->flushes, 1);
  EXPECT_EQ(world.calls.flush(world.file, *world.access), 0);
  EXPECT_EQ(world.access->flushes, 1) << "nothing was written since";
  world.write(1, 4);
  EXPECT_EQ(world.calls.flush(world.file, *world.access), 0);
  EXPECT_EQ(world.access->flushes, 2);
}

// The first changes after a start, of pages that were durable by then, and of others.
TEST(FileCallsTest, OfAPageThatWasDurableAtTheStartTheDifferenceIsLogged) {
  for (const bool settled : {true, false}) {
    CallsWorld world;
    constexpr std::uint32_t kPages = 16;
    const std::string path = "base/5/9";
    ASSERT_TRUE(world.volume.open(path, core::OpenMode::create, core::Caching::buffered).ok());
    CountedAccess access(world.volume, path);
    for (std::uint32_t block = 0; block < kPages; ++block) {
      ASSERT_EQ(access.write(block, page_of(static_cast<int>(block) + 1).data()), 0);
    }
    if (settled) world.shared.memory().settled[0] = 1;
    const FileRef file = world.shared.add(9, path, kPages);
    for (std::uint32_t block = 0; block < kPages; ++block) {
      PageBytes page = page_of(static_cast<int>(block) + 1);
      std::fill_n(page.begin() + 100, 200, std::byte{0xff});
      ASSERT_EQ(world.calls.write(file, access, block, page.data()), 0);
    }
    const std::uint32_t bytes = world.shared.memory().batch[world.shared.memory().filling.load() % 2].bytes;
    if (settled) {
      EXPECT_LE(bytes, kPages * 256);
    } else {
      EXPECT_GE(bytes, kPages * kPageBytes);
    }
  }
}

TEST(FileCallsTest, APageOnItsWayStaysThereWhenItsFileBecomesUnlogged) {
  CallsWorld world;
  world.write(0, 1);
  world.write(1, 1);
  world.calls.make_unlogged(world.file);
  world.write(0, 2);
  EXPECT_EQ(world.shared.value(world.file, 0), 2) << "or the older page would be read, and written over it";
  EXPECT_EQ(world.calls.bring_home(), 0);
  EXPECT_EQ(world.access->home(0), 2);
  world.write(0, 3);
  EXPECT_EQ(world.shared.value(world.file, 0), -1);
  EXPECT_EQ(world.access->home(0), 3);
}

TEST(FileCallsTest, AFileThatGetsLongerHasPagesOfZerosThatAreLoggedWholeWhenTheyChange) {
  CallsWorld world;
  ASSERT_EQ(world.calls.lengthen(world.file, *world.access, 4), 0);
  EXPECT_EQ(world.access->blocks(), 4u);
  EXPECT_EQ(world.access->home(3), 0);
  EXPECT_EQ(world.records(), 0u);
  EXPECT_EQ(world.calls.flush(world.file, *world.access), 0);
  EXPECT_EQ(world.access->flushes, 1) << "the length is the file's own";
  world.write(3, 5);
  EXPECT_EQ(world.shared.value(world.file, 3), 5);
  ASSERT_EQ(world.calls.lengthen(world.file, *world.access, 2), 0);
  EXPECT_EQ(world.access->blocks(), 4u) << "it does not cut";
}

TEST(FileCallsTest, AFileThatWasCutGetsLongerWhenTheLogHasTheCut) {
  CallsWorld world;
  world.write(0, 1);
  world.write(1, 1);
  ASSERT_EQ(world.calls.cut(world.file, *world.access, 0), 0);
  ASSERT_EQ(world.calls.lengthen(world.file, *world.access, 2), 0);
  EXPECT_GE(world.shared.memory().durable.load(), world.shared.memory().file[world.file.index].cut_batch);
  EXPECT_EQ(world.access->home(1), 0);
}

// The replay cuts the file as it was cut, and makes it as long as a flush said that it is.
TEST(FileCallsTest, AFileThatWasCutAndGotLongerIsLongAfterTheReplay) {
  CallsWorld world;
  world.write(0, 1);
  world.write(1, 1);
  ASSERT_EQ(world.calls.cut(world.file, *world.access, 1), 0);
  ASSERT_EQ(world.calls.lengthen(world.file, *world.access, 4), 0);
  ASSERT_EQ(world.calls.flush(world.file, *world.access), 0);
  const core::SimMedium medium(world.volume.trace(), world.volume.operations());
  SimVolume after(medium.cut([](std::size_t) { return true; }), true);
  const auto contents = recover(after, {world.path});
  ASSERT_TRUE(contents);
  ASSERT_EQ(contents->size(), 4u);
  EXPECT_EQ(contents->at({world.path, 0}), page_of(1));
  for (std::uint32_t block = 1; block < 4; ++block) EXPECT_EQ(contents->at({world.path, block}), page_of(0)) << block;
}

// The record of the cut is in a batch that is being filled, and no other process asks for that batch.
TEST(FileCallsTest, AFileThatWasCutAndRemovedComesBack) {
  CallsWorld world;
  world.write(0, 1);
  ASSERT_EQ(world.calls.bring_home(), 0);
  ASSERT_TRUE(world.page_log.finish(world.shared.pages()));
  ASSERT_EQ(world.calls.cut(world.file, *world.access, 0), 0);
  ASSERT_EQ(world.calls.before_removal(world.file), 0);
  ASSERT_TRUE(world.volume.remove(world.path).ok());
  ASSERT_EQ(world.records(), 1u);
  EXPECT_EQ(world.calls.before_creation(world.path), 0);
  EXPECT_EQ(world.records(), 0u);
}

// While a checkpoint flushes, the file is removed, and a process wants another checkpoint.
class ChangingHomes final : public Homes {
 public:
  explicit ChangingHomes(SharedMemory& memory) : memory_(memory) {}
  Result<std::unique_ptr<HomeFile>> open(const std::string&) override {
    memory_.checkpoint_wanted.store(1);
    return std::unique_ptr<HomeFile>();
  }
  Result<void> flush_folder_of(const std::string& path) override {
    flushed.push_back(path);
    return {};
  }
  std::vector<std::string> flushed;

 private:
  SharedMemory& memory_;
};

TEST(FileCallsTest, ACheckpointMissesNothingThatComesWhileItFlushes) {
  CallsWorld world;
  world.write(0, 1);
  ASSERT_EQ(world.calls.bring_home(), 0);
  ChangingHomes homes(world.shared.memory());
  ASSERT_TRUE(PageLog(*world.log, homes, 1).finish(world.shared.pages()));
  EXPECT_EQ(homes.flushed, std::vector{world.path}) << "the removal is not durable";
  EXPECT_EQ(world.shared.memory().checkpoint_wanted.load(), 1u) << "the next checkpoint is forgotten";
}

TEST(NamesTest, AnUnloggedRelationIsKnownByTheFileBesideIt) {
  for (const char* const path : {"base/5/16384", "base/5/16384.2", "base/5/16384_fsm", "base/5/16384_vm.1"}) {
    EXPECT_EQ(init_of(path), "base/5/16384_init") << path;
  }
  EXPECT_EQ(init_of("base/5/16384_init"), "");
  EXPECT_EQ(init_of("pg_tblspc/16400/PG_15_202209061/5/16384_vm"), "pg_tblspc/16400/PG_15_202209061/5/16384_init");
}

}  // namespace
}  // namespace memlith_postgres::test
