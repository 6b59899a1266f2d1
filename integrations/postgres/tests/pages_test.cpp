// The pages in shared memory: what is read while it is on its way, batches that take turns, entries that are used
// again, and processes that die while they change something.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "shared_words.hpp"

namespace memlith_postgres::test {
namespace {

TEST(PagesTest, APageIsReadFromTheNewestBatchUntilItIsHome) {
  SharedWorld world;
  const FileRef file = world.add(10, "base/5/1");
  EXPECT_EQ(world.value(file, 0), -1);
  world.put(file, 0, 1);
  world.put(file, 1, 1);
  world.put(file, 0, 2);
  EXPECT_EQ(world.value(file, 0), 2);
  EXPECT_EQ(world.memory().batch[1].pages, 2u) << "a page that is written twice takes one place";
  EXPECT_EQ(world.memory().batch[1].records, 3u);
  {
    const Pages::Lock lock(world.pages());
    EXPECT_EQ(world.pages().seal(), nullptr) << "no reader wants it yet";
  }
  world.pages().want(1);
  {
    const Pages::Lock lock(world.pages());
    EXPECT_EQ(world.pages().seal(), &world.memory().batch[1]);
  }
  world.put(file, 0, 3);
  EXPECT_EQ(world.value(file, 0), 3);
  EXPECT_EQ(world.value(file, 1), 1);
  {
    const Pages::Lock lock(world.pages());
    EXPECT_EQ(world.pages().seal(), &world.memory().batch[1]) << "one at a time";
    world.pages().set_durable();
    world.pages().set_home();
  }
  EXPECT_EQ(world.value(file, 0), 3);
  EXPECT_EQ(world.value(file, 1), -1);
  EXPECT_FALSE(world.pages().is_empty());
}

TEST(PagesTest, ARemovedFileKeepsItsEntryUntilTheCheckpoint) {
  SharedWorld world;
  const FileRef file = world.add(10, "base/5/1");
  world.put(file, 0, 1);
  world.pages().want(1);
  const Pages::Lock lock(world.pages());
  world.pages().seal();
  world.pages().set_durable();
  world.pages().set_home();
  world.pages().remove_file(file);
  EXPECT_TRUE(world.pages().has_removed("base/5/1"));
  EXPECT_FALSE(world.pages().find_file(1, 10)) << "another file may have that inode";
  const FileRef other = world.pages().add_file(1, 10, "base/5/2", 0);
  EXPECT_NE(other.index, file.index);
  world.pages().set_checkpointed(1);
  EXPECT_FALSE(world.pages().has_removed("base/5/1"));
}

TEST(PagesTest, EntriesAreUsedAgain) {
  SharedWorld world;
  const FileRef busy = world.add(1, "base/5/1");
  world.put(busy, 0, 1);
  std::vector<FileRef> files{busy};
  for (std::uint64_t inode = 2; inode < PageLimits::kFiles + 1000; ++inode) {
    files.push_back(world.add(inode, "base/5/" + std::to_string(inode)));
    ASSERT_TRUE(bool(files.back())) << inode;
  }
  const Pages::Lock lock(world.pages());
  EXPECT_NE(world.pages().file(busy), nullptr) << "the log has records of it";
  EXPECT_EQ(world.pages().file(files[1]), nullptr);
  EXPECT_NE(world.pages().file(files.back()), nullptr);
}

TEST(PagesTest, PagesThatWereDurableAtTheStartAreVouchedFor) {
  SharedWorld world;
  EXPECT_EQ(world.memory().file[world.add(10, "base/5/1", 4).index].vouched, 0u);
  world.memory().settled[0] = 2;
  EXPECT_EQ(world.memory().file[world.add(11, "base/5/2", 4).index].vouched, 0u) << "another device";
  world.memory().settled[1] = 1;
  EXPECT_EQ(world.memory().file[world.add(12, "base/5/3", 4).index].vouched, 4u);
  EXPECT_EQ(world.memory().file[world.add(13, "base/5/4").index].vouched, 0u) << "it has just been made";
  // An entry that another file takes: the first file comes back with what was written to it.
  for (std::uint64_t inode = 100; inode < 101 + PageLimits::kFiles; ++inode) world.add(inode, "base/6/1");
  EXPECT_EQ(world.memory().file[world.add(12, "base/5/3", 4).index].vouched, 0u);
}

// Runs in a child, which is killed at a random moment.
template <class Body>
void kill_while(useconds_t microseconds, const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0;; ++i) body(i);
  }
  ::usleep(microseconds);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(PagesTest, ADeathAnywhereLeavesWholePagesAndWholeRecords) {
  SharedWorld world;
  std::uint32_t deaths = 0;
  for (int round = 0; round < 300; ++round) {
    const FileRef file =
        world.add(static_cast<std::uint64_t>(10 + round % 7), "base/5/" + std::to_string(10 + round % 7));
    kill_while(static_cast<useconds_t>(200 + round * 7 % 400), [&](int i) {
      bool is_full = false;
      {
        const Pages::Lock lock(world.pages());
        is_full = !world.pages().has_room();
        if (is_full) {
          world.pages().want(world.memory().filling.load());
          if (world.pages().seal() != nullptr) {
            world.pages().set_durable();
            world.pages().set_home();
          }
        }
      }
      if (!is_full) world.put(file, static_cast<std::uint32_t>(i % 50), i % 200 + 1);
      world.add(static_cast<std::uint64_t>(1000 + i), "base/6/" + std::to_string(1000 + i));
    });
    for (std::uint32_t block = 0; block < 50; ++block) ASSERT_NE(world.value(file, block), -2) << round;
    deaths = world.memory().deaths;
    const Pages::Lock lock(world.pages());
    for (const Batch& batch : world.memory().batch) {
      std::uint32_t records = 0;
      for (std::uint32_t at = 0; at < batch.bytes; ++records) {
        RecordHead head;
        std::memcpy(&head, batch.record.data() + at, sizeof head);
        at += static_cast<std::uint32_t>(sizeof head) + head.bytes;
        ASSERT_LE(at, batch.bytes);
      }
      ASSERT_EQ(records, batch.records);
    }
    for (std::uint32_t index = 0; index < world.memory().files; ++index) {
      const SharedFile& entry = world.memory().file[index];
      if (entry.state != FileState::live) continue;
      ASSERT_EQ(world.pages().find_file(entry.device, entry.inode).index, index) << "an entry that is not found";
    }
  }
  EXPECT_GT(deaths, 20u) << "this tests nothing";
}

TEST(PagesTest, ADeathWhileABatchIsClearedIsRepaired) {
  SharedWorld world;
  const FileRef file = world.add(10, "base/5/1");
  world.put(file, 0, 1);
  world.pages().want(1);
  {
    const Pages::Lock lock(world.pages());
    world.pages().seal();
    world.pages().set_durable();
  }
  const pid_t child = ::fork();
  if (child == 0) {  // what set_home does first
    const Pages::Lock lock(world.pages());
    world.memory().home.store(1);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(world.value(file, 0), -1);
  EXPECT_EQ(world.memory().batch[1].records, 0u);
  EXPECT_EQ(world.memory().deaths, 1u);
  EXPECT_TRUE(world.pages().is_empty());
}

}  // namespace
}  // namespace memlith_postgres::test
