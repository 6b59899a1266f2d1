// docs/how-to/sizing.md, "What lies on the disk": a log begins with 4 MiB, that of one file with 1 MiB, and grows at
// once while commits fill it quickly. A clean close leaves a folder's log as large as what was logged meanwhile.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

class LogSize : public ::testing::TestWithParam<StoreKind> {
 protected:
  static constexpr std::uint64_t kDataBytes = 256 * kKiB;

  // Opens the store without any sizes.
  void open() {
    StoreOptions options;
    options.create = true;
    options.kind = GetParam();
    if (options.kind == StoreKind::one_file) options.file_name = "data";
    store_ = must(Store::open(*volume_, options));
    if (const auto found = store_->find(name()); found.has_value() && found->size_bytes == kDataBytes) {
      object_ = found->id;
    } else {
      object_ = create_object(*store_, name(), kDataBytes);
    }
  }
  static const char* name() { return GetParam() == StoreKind::one_file ? "file" : "a"; }
  static std::uint64_t small_log_bytes() { return (GetParam() == StoreKind::one_file ? 1 : 4) * kMiB + kSlotsOffset; }
  [[nodiscard]] std::filesystem::path log() const {
    return folder_ / (GetParam() == StoreKind::one_file ? "data.memlith" : "log");
  }
  // Its length, and what the file system has given it.
  void expect_log(std::uint64_t bytes, const char* when) const {
    struct stat found{};
    ASSERT_EQ(::stat(log().c_str(), &found), 0) << when;
    EXPECT_EQ(static_cast<std::uint64_t>(found.st_size), bytes) << when;
    EXPECT_LE(static_cast<std::uint64_t>(found.st_blocks) * 512, bytes + 64 * kKiB) << when;
  }
  void commit_bytes(std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes; done += 64 * kKiB) {
      ASSERT_OK(commit(*store_, {{object_, done % kDataBytes, filled(64 * kKiB, static_cast<int>(++value_ % 250))}}));
    }
  }

  TempFolder folder_;
  std::unique_ptr<Volume> volume_ = make_posix_volume(folder_.path());
  std::unique_ptr<Store> store_;
  ObjectId object_;
  std::uint64_t value_ = 0;
};

TEST_P(LogSize, IsSmallForAStoreThatCommitsLittle) {
  open();
  expect_log(small_log_bytes(), "new");
  commit_bytes(128 * kKiB);
  expect_log(small_log_bytes(), "in use");
  ASSERT_OK(store_->close());
  expect_log(small_log_bytes(), "closed");
  open();
  commit_bytes(128 * kKiB);
  store_ = nullptr;
  expect_log(small_log_bytes(), "crashed");
}

// The first half of a minute fills it many times: it grows to where it used to begin, whatever checkpoints have cost.
TEST_P(LogSize, GrowsAtOnceWhileItIsFilledQuickly) {
  open();
  commit_bytes(24 * kMiB);
  const std::uint64_t grown = store_->log().capacity_bytes();  // and may be growing still
  EXPECT_GE(grown, 8 * kMiB);
  EXPECT_LE(grown, 128 * kMiB);
  const Bytes before = content_of(*store_, object_);
  store_ = nullptr;
  EXPECT_GE(std::filesystem::file_size(log()), 8 * kMiB) << "crashed";
  open();
  EXPECT_GE(store_->log().capacity_bytes(), grown);
  EXPECT_TRUE(content_of(*store_, object_) == before);
  // Nothing was logged since this opening.
  ASSERT_OK(store_->close());
  expect_log(small_log_bytes(), "closed");
  open();
  EXPECT_TRUE(content_of(*store_, object_) == before);
}

// The next user of a busy store finds the log as large as it was, and need not fill it with zeros again.
TEST_P(LogSize, IsLeftAsLargeAsWhatWasLogged) {
  open();
  commit_bytes(24 * kMiB);
  const std::uint64_t grown = store_->log().capacity_bytes();
  ASSERT_OK(store_->close());
  if (GetParam() == StoreKind::one_file) return expect_log(small_log_bytes(), "closed");
  const std::uint64_t left = std::filesystem::file_size(log());
  EXPECT_GE(left, std::min(grown, 24 * kMiB));
  open();
  EXPECT_TRUE(store_->was_clean());
  EXPECT_EQ(std::filesystem::file_size(log()), left);
  EXPECT_GE(store_->log().capacity_bytes(), std::min(grown, 23 * kMiB));
  const Bytes before = content_of(*store_, object_);
  commit_bytes(8 * kMiB);  // less: the log shrinks to that
  ASSERT_OK(store_->close());
  EXPECT_LT(std::filesystem::file_size(log()), 16 * kMiB);
  EXPECT_GE(std::filesystem::file_size(log()), 8 * kMiB);
  open();
  EXPECT_EQ(content_of(*store_, object_).size(), before.size());
  store_ = nullptr;  // as a crash leaves it
  open();
  EXPECT_FALSE(store_->was_clean());
}

// A transaction larger than the log makes it as large, and 1 GiB is in reach of slots that are so small.
TEST_P(LogSize, TakesATransactionThatIsLargerThanIt) {
  open();
  const std::uint64_t most = store_->log().slot_count_max() * store_->log().geometry().slot_bytes;
  EXPECT_EQ(most, 1 * kGiB);
  std::vector<Piece> pieces;
  for (int i = 0; i < 40; ++i) pieces.push_back({object_, 0, filled(kDataBytes, i)});
  ASSERT_OK(commit(*store_, pieces));
  EXPECT_GT(store_->log().capacity_bytes(), 40 * kDataBytes);
  store_ = nullptr;
  open();
  EXPECT_TRUE(content_of(*store_, object_) == filled(kDataBytes, 39));
  ASSERT_OK(store_->close());
  expect_log(small_log_bytes(), "closed");
}

INSTANTIATE_TEST_SUITE_P(Kinds, LogSize, ::testing::Values(StoreKind::folder, StoreKind::one_file),
                         [](const auto& kind) {
                           return std::string(kind.param == StoreKind::folder ? "folder" : "one_file");
                         });

}  // namespace
}  // namespace memlith::test
