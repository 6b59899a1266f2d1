// The data directory and its log: the mark that keeps a PostgreSQL without memlith out, logs of other directories.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "postgres/src/cluster.hpp"
#include "postgres/src/keeper.hpp"
#include "postgres/src/records.hpp"
#include "settled/settled_log.hpp"
#include "shared_words.hpp"
#include "support/temp_folder.hpp"

namespace memlith_postgres::test {
namespace {

using memlith::test::TempFolder;

void write(const std::string& path, const std::string& content) { std::ofstream(path) << content; }
std::string text(const std::string& path) { return read_file(path)->value_or("(none)"); }

struct ClusterWorld {
  TempFolder folder;
  std::string data = folder / "data";
  ClusterWorld() {
    std::filesystem::create_directories(data + "/base/5");
    write(data + "/PG_VERSION", "15\n");
  }
};

TEST(ClusterTest, TheMarkHidesTheVersionAndGoesAway) {
  ClusterWorld world;
  auto cluster = Cluster::open(world.data, "");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message();
  EXPECT_FALSE(Cluster::is_marked(world.data));
  ASSERT_TRUE(cluster->mark().ok());
  EXPECT_TRUE(Cluster::is_marked(world.data));
  EXPECT_TRUE(text(world.data + "/PG_VERSION").starts_with(kMarkWord));
  EXPECT_EQ(text(cluster->version()), "15\n");
  auto again = Cluster::open(world.data, "");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_TRUE(again->marked());
  ASSERT_TRUE(again->unmark().ok());
  EXPECT_EQ(text(world.data + "/PG_VERSION"), "15\n");
}

TEST(ClusterTest, AnotherLogAndAMissingOneAreRefused) {
  ClusterWorld world;
  ASSERT_TRUE(Cluster::open(world.data, "")->mark().ok());
  const auto other = Cluster::open(world.data, world.folder / "other");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().category(), MEMLITH_CORRUPT);
  EXPECT_NE(other.error().message().find("is missing"), std::string::npos) << other.error().message();
  write(world.data + ".memlith/id", "another");
  const auto changed = Cluster::open(world.data, "");
  ASSERT_FALSE(changed.ok());
  EXPECT_NE(changed.error().message().find("is not the log of"), std::string::npos) << changed.error().message();
}

TEST(ClusterTest, OtherVersionsAndOtherFoldersAreRefused) {
  ClusterWorld world;
  write(world.data + "/PG_VERSION", "14\n");
  EXPECT_EQ(Cluster::open(world.data, "").error().category(), MEMLITH_UNSUPPORTED);
  std::filesystem::remove(world.data + "/PG_VERSION");
  EXPECT_EQ(Cluster::open(world.data, "").error().category(), MEMLITH_NOT_FOUND);
  EXPECT_EQ(Cluster::open(world.folder / "nothing", "").error().category(), MEMLITH_NOT_FOUND);
}

TEST(ClusterTest, OneServerAtATime) {
  ClusterWorld world;
  const auto cluster = Cluster::open(world.data, "");
  const auto life = cluster->take_life(0);
  ASSERT_TRUE(life.ok());
  EXPECT_EQ(cluster->take_life(50).error().category(), MEMLITH_BUSY);
}

std::string logged_page(const std::string& path, int value) {
  const PageBytes page = page_of(value);
  std::array<std::byte, kContentBytesMax> target;
  const auto made = encode(target.data(), nullptr, page.data(), kContentBytesMax);
  std::string bytes;
  const auto add = [&bytes](const auto& part) { bytes.append(reinterpret_cast<const char*>(&part), sizeof part); };
  add(BatchHead{.magic = kBatchMagic, .files = 1, .records = 1});
  add(FileHead{.number = 1, .path_bytes = static_cast<std::uint32_t>(path.size())});
  bytes += path;
  add(RecordHead{.file = 1, .block = 1, .kind = RecordKind::whole, .ranges = made->ranges, .bytes = made->bytes});
  return bytes.append(reinterpret_cast<const char*>(target.data()), made->bytes);
}

TEST(ClusterTest, RecoveringBringsPagesHomeAndRefusesAnotherLog) {
  ClusterWorld world;
  auto cluster = Cluster::open(world.data, "");
  write(world.data + "/base/5/1", std::string(kPageBytes, 'x'));
  {
    auto log = memlith_settled::StoredLog::open(cluster->store(),
                                                {.name = "pages", .bytes = 16 << 20, .redo_bytes = 16 << 20});
    ASSERT_TRUE(log.ok()) << log.error().message();
    ASSERT_TRUE((*log)->append(logged_page("base/5/1", 'y')).ok());
    ASSERT_TRUE((*log)->append(logged_page("base/5/2", 'y')).ok());
    ASSERT_TRUE((*log)->close().ok());
  }
  // Without a mark nothing is missing in the directory.
  auto keeper_memory = Pages::make(cluster->data(), cluster->log());
  ASSERT_TRUE(keeper_memory.ok());
  EXPECT_FALSE(recover(world.data, "")->was_marked);
  EXPECT_EQ(text(world.data + "/base/5/1"), std::string(kPageBytes, 'x'));
  ASSERT_TRUE(cluster->mark().ok());
  const auto recovered = recover(world.data, "");
  ASSERT_TRUE(recovered.ok()) << recovered.error().message();
  EXPECT_TRUE(recovered->was_marked);
  EXPECT_EQ(recovered->replayed.pages, 1u);
  EXPECT_EQ(recovered->replayed.skipped, 1u);
  EXPECT_EQ(text(world.data + "/base/5/1"), std::string(kPageBytes, 'x') + std::string(kPageBytes, 'y'));
  EXPECT_FALSE(std::filesystem::exists(world.data + "/base/5/2"));
  EXPECT_FALSE(Cluster::is_marked(world.data));
  EXPECT_FALSE(recover(world.data, "")->was_marked);
}

}  // namespace
}  // namespace memlith_postgres::test
