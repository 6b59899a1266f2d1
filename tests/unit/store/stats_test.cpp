// docs/guarantees.md, "memlith stat": the counters of an open store can be looked at from outside, and are never a
// danger to it.
#include "store/stats.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/expect.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

class Stats : public ::testing::TestWithParam<bool> {
 protected:
  Stats() : volume_(make_posix_volume(folder_.path() + (GetParam() ? "" : "/store"))) {
    options_ = tiny_options();
    if (GetParam()) {
      options_.kind = StoreKind::one_file;
      options_.file_name = "data";
      std::ofstream(folder_ / "data") << std::string(16384, 'x');
    }
  }
  [[nodiscard]] std::string name() const { return Store::stats_name(options_.kind, options_.file_name); }
  [[nodiscard]] std::string path() const { return volume_->path_of(name()); }

  TempFolder folder_;
  std::unique_ptr<Volume> volume_;
  StoreOptions options_;
};
INSTANTIATE_TEST_SUITE_P(Of, Stats, ::testing::Bool(),
                         [](const auto& given) { return given.param ? "File" : "Folder"; });

// A page counts once a commit, however many extents lie in it or begin in it.
TEST_P(Stats, CountPagesOnce) {
  auto store = must(Store::open(*volume_, options_));
  if (!GetParam()) must(store->create("a", 16384, 0, 16384));
  const auto pages_of = [&](std::vector<Extent> extents) {
    FrameWriter writer = must(store->begin_commit(extents, {}));
    for (const Extent& extent : extents) writer.put(std::string(extent.bytes, 'x').data(), extent.bytes);
    EXPECT_OK(store->sync(must(writer.finish())));
    return store->counters().last_captured_pages.load();
  };
  const ObjectId a{1};
  EXPECT_EQ(pages_of({{a, 100, 8}, {a, 200, 8}, {a, 4088, 8}}), 1u);
  EXPECT_EQ(pages_of({{a, 100, 8}, {a, 4000, 200}, {a, 4300, 8}}), 2u);
  EXPECT_EQ(pages_of({{a, 0, 4096}, {a, 4096, 4096}, {a, 8192, 1}}), 3u);
  EXPECT_EQ(pages_of({{a, 0, 1}, {a, 4096, 8192}}), 3u);
  ASSERT_OK(store->close());
}

// There while the store is open, telling what it did; gone once it is closed.
TEST_P(Stats, AreThereWhileTheStoreIsOpen) {
  EXPECT_EQ(SeenStats::look(*volume_, name()).error().category, Errc::not_found);
  auto store = must(Store::open(*volume_, options_));
  if (!GetParam()) must(store->create("a", 8192, 0, 8192));
  StatsPage& page = *store->stats();
  EXPECT_EQ(page.process, static_cast<std::uint32_t>(::getpid()));
  const Extent extent{ObjectId{1}, 100, 8};
  const std::uint64_t frames = page.frames.load();
  const std::uint64_t pages = page.captured_pages.load();
  for (int i = 0; i < 3; ++i) {
    FrameWriter writer = must(store->begin_commit({&extent, 1}, {}));
    writer.put("12345678", 8);
    ASSERT_OK(store->sync(must(writer.finish())));
  }
  EXPECT_EQ(page.frames.load(), frames + 3);
  EXPECT_EQ(page.captured_pages.load(), pages + 3);
  EXPECT_EQ(page.last_captured_pages.load(), 1u);
  EXPECT_EQ(page.durable_lsn.load(), store->log().durable_lsn().value);
  EXPECT_GT(page.log_used_bytes.load(), 0u);
  ASSERT_OK(store->checkpoint());
  EXPECT_GE(page.checkpoints.load(), 1u);
  EXPECT_EQ(page.log_used_bytes.load(), 0u);
  EXPECT_EQ(page.checkpoint_total_bytes.load(), 0u);
  // Others see them soon, and the last of them also when nothing more happens.
  for (;;) {
    const SeenStats seen = must(SeenStats::look(*volume_, name()));
    EXPECT_EQ(seen->process, static_cast<std::uint32_t>(::getpid()));
    EXPECT_TRUE(seen.held());
    if (seen->frames.load() == page.frames.load() && seen->checkpoints.load() == page.checkpoints.load()) break;
  }
  // A store to a mapped page is a SIGBUS where the file system has no room for it any more.
  std::ifstream maps("/proc/self/maps");
  const std::string mapped((std::istreambuf_iterator<char>(maps)), {});
  EXPECT_EQ(mapped.find(path()), std::string::npos);
  ASSERT_OK(store->close());
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// Rubbish in its place, or a folder, is nothing to the store; and not taken for counters.
TEST_P(Stats, RubbishInItsPlaceIsHarmless) {
  ASSERT_OK(must(Store::open(*volume_, options_))->close());
  std::ofstream(path()) << "rubbish";
  EXPECT_EQ(SeenStats::look(*volume_, name()).error().category, Errc::incompatible);
  std::ofstream(path()) << std::string(sizeof(StatsPage), 'r');
  EXPECT_EQ(SeenStats::look(*volume_, name()).error().category, Errc::incompatible);
  {
    auto store = must(Store::open(*volume_, options_));
    EXPECT_TRUE(SeenStats::look(*volume_, name()).ok());
    ASSERT_OK(store->close());
  }
  std::filesystem::create_directory(path());
  const auto permissions = std::filesystem::status(path()).permissions();
  auto store = must(Store::open(*volume_, options_));
  EXPECT_FALSE(SeenStats::look(*volume_, name()).ok());
  EXPECT_EQ(std::filesystem::status(path()).permissions(), permissions);
  ASSERT_NE(store->stats(), nullptr);
  ASSERT_OK(store->close());
}

}  // namespace
}  // namespace memlith::test
