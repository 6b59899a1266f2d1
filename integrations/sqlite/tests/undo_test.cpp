// The undo log of a transaction: whatever was stored, in whatever order and how often, it tells what changed and puts
// it back.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/pages.hpp"
#include "base/random.hpp"
#include "sqlite/src/difference.hpp"
#include "sqlite/src/undo_log.hpp"

namespace memlith::test {
namespace {

using core::kPageBytes;
using sqlite::Image;
using sqlite::UndoLog;

constexpr std::uint64_t kBytes = 16 * kPageBytes;

class Undo : public ::testing::Test {
 protected:
  void SetUp() override {
    descriptor_ = ::memfd_create("undo", MFD_CLOEXEC);
    ASSERT_GE(descriptor_, 0);
    ASSERT_EQ(::ftruncate(descriptor_, kBytes), 0);
    image_ = std::make_unique<Image>(descriptor_);
    ASSERT_TRUE(image_->cover(kBytes).ok());
    committed_.resize(kBytes);
    for (auto& byte : committed_) byte = static_cast<std::byte>(random_.below(256));
    image_->write(0, committed_.data(), kBytes);
    wanted_ = committed_;
  }
  void TearDown() override {
    image_.reset();
    ::close(descriptor_);
  }

  // A page of 512 to 4096 bytes with a few runs of new bytes in it: or as it was committed; or zeros.
  void store_something(UndoLog& undo) {
    const std::uint64_t bytes = std::uint64_t{512} << random_.below(4);
    const std::uint64_t offset = random_.below(kBytes / bytes) * bytes;
    const auto at = wanted_.begin() + static_cast<std::ptrdiff_t>(offset);
    const std::uint64_t kind = random_.below(8);
    if (kind == 0) {
      std::fill_n(at, bytes, std::byte{0});
      undo.zero(*image_, offset, bytes);
      return;
    }
    if (kind == 1) {
      std::copy_n(committed_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, at);
    } else {
      for (std::uint64_t run = 0; run < kind; ++run) {
        const std::uint64_t begin = random_.below(bytes);
        const std::uint64_t count = std::min(random_.below(80) + 1, bytes - begin);
        for (std::uint64_t i = 0; i < count; ++i)
          at[static_cast<std::ptrdiff_t>(begin + i)] = static_cast<std::byte>(random_.below(256));
      }
    }
    const std::vector<std::byte> page(at, at + static_cast<std::ptrdiff_t>(bytes));
    undo.write(*image_, offset, page.data(), bytes);
  }

  [[nodiscard]] std::vector<std::byte> shown() const {
    std::vector<std::byte> bytes(kBytes);
    image_->read(0, bytes.data(), kBytes);
    return bytes;
  }

  // As a commit would do: the changes alone turn the committed bytes into the wanted ones.
  void expect_changes_tell(UndoLog& undo) {
    std::vector<std::byte> home = committed_;
    std::uint64_t end = 0;
    for (const UndoLog::Change& change : undo.merge(*image_)) {
      ASSERT_GE(change.offset, end);
      ASSERT_GT(change.bytes, 0u);
      end = change.offset + change.bytes;
      ASSERT_LE(end, kBytes);
      image_->read(change.offset, home.data() + change.offset, change.bytes);
    }
    ASSERT_TRUE(home == wanted_);
  }

  int descriptor_ = -1;
  std::unique_ptr<Image> image_;
  core::Random random_{7};
  std::vector<std::byte> committed_;  // what the last commit left
  std::vector<std::byte> wanted_;     // what was stored since
};

// The runs told are those that a look at word after word finds: of every length, differing anywhere, and nearer than a
// record costs joined.
TEST(Difference, IsTheSameWordByWord) {
  core::Random random(11);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> before(random.below(400));
    for (auto& byte : before) byte = static_cast<std::byte>(random.below(256));
    std::vector<std::byte> after = before;
    for (std::uint64_t change = random.below(9); change > 0 && !after.empty(); --change) {
      const std::uint64_t begin = random.below(after.size());
      const std::uint64_t end =
          std::min<std::uint64_t>(after.size(), begin + 1 + random.below(round % 2 == 0 ? 8 : 150));
      for (std::uint64_t at = begin; at < end; ++at) after[at] = static_cast<std::byte>(random.below(256));
    }
    using Run = std::pair<std::uint64_t, std::uint64_t>;  // begin, end
    std::vector<Run> wanted;
    for (std::uint64_t word = 0; word < before.size(); word += 8) {
      const std::uint64_t end = std::min<std::uint64_t>(before.size(), word + 8);
      if (std::equal(before.begin() + static_cast<std::ptrdiff_t>(word),
                     before.begin() + static_cast<std::ptrdiff_t>(end),
                     after.begin() + static_cast<std::ptrdiff_t>(word))) {
        continue;
      }
      if (!wanted.empty() && word - wanted.back().second <= sqlite::kJoinBytes) {
        wanted.back().second = end;
      } else {
        wanted.emplace_back(word, end);
      }
    }
    std::vector<Run> told;
    sqlite::for_each_difference(before.data(), after.data(), before.size(),
                                [&](std::uint64_t begin, std::uint64_t count) {
                                  told.emplace_back(begin, begin + count);
                                });
    ASSERT_EQ(told, wanted) << "round " << round;
  }
}

TEST_F(Undo, TellsWhatChangedAndPutsItBack) {
  // The smaller limit merges what was stored several times in the middle of a transaction.
  for (const std::uint64_t merge_bytes : {std::uint64_t{2048}, kBytes * 64}) {
    UndoLog undo(merge_bytes);
    for (int transaction = 0; transaction < 300; ++transaction) {
      const std::uint64_t stores = random_.below(40);
      for (std::uint64_t i = 0; i < stores; ++i) store_something(undo);
      ASSERT_TRUE(shown() == wanted_);
      if (random_.below(2) == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_changes_tell(undo));
      }
      if (random_.below(3) == 0) {
        undo.roll_back(*image_);
        wanted_ = committed_;
        ASSERT_TRUE(shown() == committed_);
      } else {
        ASSERT_NO_FATAL_FAILURE(expect_changes_tell(undo));
        undo.clear();
        committed_ = wanted_;
      }
      ASSERT_TRUE(undo.empty());
    }
  }
}

TEST_F(Undo, KeepsOnlyWhatDiffers) {
  UndoLog undo;
  undo.write(*image_, kPageBytes, committed_.data() + kPageBytes, kPageBytes);
  EXPECT_TRUE(undo.empty());
  std::vector<std::byte> page(committed_.begin(), committed_.begin() + kPageBytes);
  page[100] ^= std::byte{1};
  page[3000] ^= std::byte{1};
  undo.write(*image_, 0, page.data(), kPageBytes);
  const auto& changes = undo.merge(*image_);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_LE(changes[0].offset, 100u);
  EXPECT_LE(changes[0].bytes, 8u);
  EXPECT_LE(changes[1].offset, 3000u);
  EXPECT_GT(changes[1].offset + changes[1].bytes, 3000u);
}

// A program may have its memory locked, and a budget of it (memory_max_mib).
TEST_F(Undo, LockedPagesOfTheImageAreGivenBack) {
  if (::mlock(image_->find(kPageBytes, 1), kPageBytes) != 0) GTEST_SKIP() << "no memory can be locked here";
  if (!core::drop_pages(image_->find(kPageBytes, 1), kPageBytes)) GTEST_SKIP() << "not before Linux 5.18";
  ASSERT_TRUE(image_->release().ok());
  std::vector<std::byte> found(kBytes);
  image_->read(0, found.data(), found.size());
  EXPECT_TRUE(std::equal(committed_.begin(), committed_.begin() + kPageBytes, found.begin()));
  EXPECT_TRUE(std::all_of(found.begin() + kPageBytes, found.end(), [](std::byte b) { return b == std::byte{0}; }));
}

// SQLite rolls back by storing the old pages again; the commit that follows has nothing to do.
TEST_F(Undo, NothingChangedWhenTheOldBytesWereStoredAgain) {
  UndoLog undo;
  for (int i = 0; i < 20; ++i) store_something(undo);
  ASSERT_FALSE(undo.merge(*image_).empty());
  undo.write(*image_, 0, committed_.data(), kBytes);
  EXPECT_TRUE(undo.merge(*image_).empty());
  EXPECT_TRUE(shown() == committed_);
}

}  // namespace
}  // namespace memlith::test
