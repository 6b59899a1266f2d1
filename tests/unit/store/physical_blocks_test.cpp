// Stores for disks that may spoil the whole physical block around what is being written.
#include <gtest/gtest.h>

#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

StoreOptions blocks(std::uint32_t bytes) {
  StoreOptions options;
  options.create = true;
  options.manual_checkpoint = true;
  options.log_bytes = 256 * kKiB;
  options.physical_block_bytes = bytes;
  return options;
}

TEST(PhysicalBlocks, TheLogIsLaidOutInThem) {
  for (const std::uint32_t bytes : {0u, 512u, 4096u}) {
    SimVolume volume;
    const std::unique_ptr<Store> store = must(Store::open(volume, blocks(bytes)));
    const ObjectId a = create_object(*store, "a", 64 * kKiB);
    const Lsn before = store->log().head();
    ASSERT_OK(commit(*store, {{a, 10, filled(20, 1)}}));
    EXPECT_EQ(bytes_between(before, store->log().head()), bytes == 4096 ? 4096u : 512u);
  }
}

// A store keeps the block size of its creation, and does not ask again; it cannot be changed later.
TEST(PhysicalBlocks, AreAPropertyOfTheStore) {
  SimVolume small;
  EXPECT_OK(must(Store::open(small, blocks(0)))->close());
  EXPECT_ERROR(Errc::invalid, Store::open(small, blocks(4096)));
  EXPECT_NE(last_error_text().find("create a new store"), std::string::npos) << last_error_text();
  SimVolume large;
  EXPECT_OK(must(Store::open(large, blocks(4096)))->close());
  for (const std::uint32_t bytes : {0u, 512u, 4096u}) {
    const std::unique_ptr<Store> store = must(Store::open(large, blocks(bytes)));
    EXPECT_EQ(store->log().superblock().block_bytes, 4096u);
    EXPECT_OK(store->close());
  }
  SimVolume none;
  EXPECT_ERROR(Errc::invalid, Store::open(none, blocks(1024)));
}

// The blocks that a checkpoint kept go with the store's clean end; the next one keeps its own.
TEST(PhysicalBlocks, AreKeptUntilTheStoreIsClosed) {
  SimVolume volume;
  for (int round = 0; round < 2; ++round) {
    const std::unique_ptr<Store> store = must(Store::open(volume, blocks(4096)));
    if (round == 0) (void)create_object(*store, "a", 64 * kKiB);
    ASSERT_OK(commit(*store, {{store->find("a")->id, 10, filled(20, round + 1)}}));
    ASSERT_OK(store->checkpoint());
    EXPECT_TRUE(must(volume.exists("blocks")));
    EXPECT_OK(store->close());
    EXPECT_FALSE(must(volume.exists("blocks")));
  }
}

}  // namespace
}  // namespace memlith::test
