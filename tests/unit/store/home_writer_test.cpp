// docs/architecture.md, "Life of a checkpoint": home files get every extent and nothing else changes, in few calls.
#include "store/home_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "support/expect.hpp"
#include "support/store_words.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

using namespace core;

constexpr std::uint64_t kFileBytes = 1 * kMiB;
constexpr std::uint64_t kWriteBytesMax = 256 * kKiB;

using Bytes = std::vector<std::byte>;

// The calls of this process that wrote; other threads write nothing meanwhile.
std::uint64_t write_calls() {
  std::ifstream counts("/proc/self/io");
  std::string name;
  for (std::uint64_t count = 0; counts >> name >> count;) {
    if (name == "syscw:") return count;
  }
  ADD_FAILURE() << "the kernel does not count";
  return 0;
}

struct HomeExtent {
  std::uint64_t offset;
  Bytes bytes;
};

class HomeWriter : public testing::Test {
 protected:
  void SetUp() override {
    Random random(7);
    for (std::byte& byte : expected_) byte = static_cast<std::byte>(random.next());
    ASSERT_OK(file_->write(0, expected_));
  }
  // `expected_` has them, too, afterwards.
  std::vector<HomeExtent> pieces(std::uint64_t gap_max, std::uint64_t bytes_max) {
    Random random(gap_max * 31 + bytes_max);
    std::vector<HomeExtent> all;
    for (std::uint64_t offset = random.below(gap_max + 1);;) {
      Bytes bytes(1 + random.below(bytes_max));
      if (offset + bytes.size() > kFileBytes) return all;
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
      std::copy(bytes.begin(), bytes.end(), expected_.begin() + static_cast<std::ptrdiff_t>(offset));
      all.push_back({offset, std::move(bytes)});
      offset += all.back().bytes.size() + (random.one_in(4) ? 0 : random.below(gap_max + 1));
    }
  }
  // Returns the number of calls.
  std::uint64_t write(const std::vector<HomeExtent>& all, bool is_ours) {
    const std::uint64_t before = write_calls();
    BufferedHome home(*file_, kWriteBytesMax, is_ours, home_bytes_, [this](std::uint64_t page_bytes) -> Status {
      page_bytes_ += page_bytes;
      return kOk;
    });
    for (const HomeExtent& each : all) EXPECT_OK(home.put(each.offset, each.bytes));
    EXPECT_OK(home.finish());
    return write_calls() - before;
  }
  Bytes content() {
    Bytes found(kFileBytes);
    EXPECT_OK(file_->read(0, found));
    return found;
  }
  static std::size_t stretches(const std::vector<HomeExtent>& all) {
    std::size_t count = 0;
    std::uint64_t end = ~std::uint64_t{0};
    for (const HomeExtent& each : all) {
      if (each.offset != end) ++count;
      end = each.offset + each.bytes.size();
    }
    return count;
  }

  TempFolder folder_;
  std::unique_ptr<Volume> volume_ = make_posix_volume(folder_.path());
  std::unique_ptr<Device> file_ = must(volume_->open("home", OpenMode::create, Caching::buffered));
  Bytes expected_ = Bytes(kFileBytes);
  std::atomic<std::uint64_t> home_bytes_{0};
  std::uint64_t page_bytes_ = 0;
};

TEST_F(HomeWriter, EveryExtentIsWrittenAndNothingElseChanges) {
  for (const bool is_ours : {true, false}) {
    for (const std::uint64_t gap_max : {0u, 1u, 100u, 1'024u, 1'500u, 9'000u}) {
      for (const std::uint64_t bytes_max : {1u, 124u, 5'000u, 100'000u}) {
        home_bytes_ = page_bytes_ = 0;
        const std::vector<HomeExtent> all = pieces(gap_max, bytes_max);
        write(all, is_ours);
        ASSERT_TRUE(content() == expected_) << "gaps up to " << gap_max << ", pieces up to " << bytes_max;
        std::uint64_t bytes = 0;
        std::set<std::uint64_t> pages;
        for (const HomeExtent& each : all) {
          bytes += each.bytes.size();
          const std::uint64_t last = (each.offset + each.bytes.size() - 1) / kPageBytes;
          for (std::uint64_t page = each.offset / kPageBytes; page <= last; ++page) pages.insert(page);
        }
        EXPECT_EQ(home_bytes_.load(), bytes);
        EXPECT_EQ(page_bytes_, pages.size() * kPageBytes);
      }
    }
  }
}

TEST_F(HomeWriter, SmallExtentsCloseToEachOtherTakeOneCall) {
  const std::vector<HomeExtent> all = pieces(200, 124);
  EXPECT_LT(write(all, true), all.size() / 100);
}

// Other programs may write to it: what they wrote between the extents stays.
TEST_F(HomeWriter, OfAUsersFileOnlyTheExtentsAreWritten) {
  const std::vector<HomeExtent> all = pieces(200, 124);
  EXPECT_GE(write(all, false), stretches(all));
}

// A block that no extent touches must not be in flight.
TEST_F(HomeWriter, ABlockWithoutAnExtentIsNotWritten) {
  std::vector<HomeExtent> all;
  for (std::uint64_t offset = 0; offset < kFileBytes; offset += 100 + 1 * kKiB) {
    if (offset + 100 <= kFileBytes) all.push_back({offset, Bytes(100)});
  }
  EXPECT_EQ(write(all, true), all.size());
}

}  // namespace
}  // namespace memlith::test
