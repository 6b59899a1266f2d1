// docs/architecture.md, "Packed commits": what small asynchronous commits cost in the log, and that a store that was
// dropped shows all of those that were durable, in their order.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "store/store.hpp"
#include "support/expect.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

constexpr std::uint64_t kPackedBytes = 64 * kKiB;
constexpr std::uint64_t kChanges = 4;
constexpr std::uint64_t kCommits = 1000;

StoreOptions roomy() {
  StoreOptions options;
  options.create = true;
  options.manual_checkpoint = true;
  options.manual_flush = true;
  return options;
}

class PackedCommits : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  PackedCommits() {
    StoreOptions options = roomy();
    options.physical_block_bytes = GetParam();
    store_ = must(Store::open(volume_, options));
    object_ = must(store_->create("a", kPackedBytes, 0, kPackedBytes)).id;
  }
  // Sets four words to the commit's number.
  Lsn commit(std::uint64_t number) {
    std::array<Extent, kChanges> extents;
    std::array<const std::byte*, kChanges> sources;
    for (std::uint64_t i = 0; i < kChanges; ++i) {
      const std::uint64_t word = (number * 7 + i * 61) % (kPackedBytes / sizeof number);
      extents[i] = {object_, word * sizeof number, sizeof number};
      sources[i] = reinterpret_cast<const std::byte*>(&number);
      std::memcpy(expected_.data() + word * sizeof number, &number, sizeof number);
    }
    return must(store_->commit_weak({extents, sources, {}}, false));
  }

  SimVolume volume_;
  std::unique_ptr<Store> store_;
  ObjectId object_;
  std::vector<std::byte> expected_ = std::vector<std::byte>(kPackedBytes);
};
INSTANTIATE_TEST_SUITE_P(Blocks, PackedCommits, ::testing::Values(0u, 4096u),
                         [](const auto& given) { return given.param == 0 ? "Sectors" : "PhysicalBlocks"; });

TEST_P(PackedCommits, CostTheirBytesAndLittleMore) {
  const std::uint64_t before = store_->log().counters().bytes;
  Lsn end;
  for (std::uint64_t number = 1; number <= kCommits; ++number) end = commit(number);
  ASSERT_OK(store_->sync(end));
  const std::uint64_t bytes = store_->log().counters().bytes - before;
  EXPECT_LE(bytes, kCommits * (kChanges * sizeof(std::uint64_t) + kChanges * 16 + 24));
  EXPECT_EQ(store_->counters().replayed_commits, 0u);
  store_ = nullptr;  // as a kill -9 would
  StoreOptions options = roomy();
  store_ = must(Store::open(volume_, options));
  EXPECT_EQ(store_->counters().replayed_commits, kCommits + 1) << "and the creation of the object";
  EXPECT_EQ(must(store_->read_home(object_)), expected_);
}

TEST_P(PackedCommits, ACheckpointTakesThemInTheirOrder) {
  Lsn end;
  for (std::uint64_t number = 1; number <= kCommits; ++number) end = commit(number);
  ASSERT_OK(store_->sync(end));
  ASSERT_OK(store_->checkpoint());
  EXPECT_GE(store_->home_lsn(), end);
  EXPECT_EQ(must(store_->read_home(object_)), expected_);
  ASSERT_OK(store_->close());
}

}  // namespace
}  // namespace memlith::test
