// device.hpp, copy_to_memory() and skip_hole(): the bytes of a file, as they were, without memory for holes and zeros.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host.hpp"
#include "base/random.hpp"
#include "base/units.hpp"
#include "device/posix.hpp"
#include "support/expect.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::copy_test {
namespace {

using namespace core;

class CopyTest : public ::testing::Test {
 protected:
  void SetUp() override { device_ = must(volume_->open("file", OpenMode::create, Caching::buffered)); }
  void write(std::uint64_t offset, std::uint64_t bytes, int value) {
    ASSERT_OK(device_->write(offset, std::vector<std::byte>(bytes, static_cast<std::byte>(value))));
  }
  static std::vector<std::byte> content(const Descriptor& copy, std::uint64_t bytes) {
    std::vector<std::byte> all(bytes);
    EXPECT_EQ(::pread(copy.get(), all.data(), bytes, 0), static_cast<ssize_t>(bytes));
    return all;
  }
  static std::uint64_t memory_of(const Descriptor& copy) {
    struct stat info{};
    EXPECT_EQ(::fstat(copy.get(), &info), 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  }

  TempFolder folder_;
  std::unique_ptr<Volume> volume_ = make_posix_volume(folder_.path());
  std::unique_ptr<Device> device_;
};

TEST_F(CopyTest, HasTheBytesAsTheyWere) {
  Random random(7);
  const std::uint64_t bytes = 3 * kMiB + 4567;
  ASSERT_OK(device_->reserve(bytes));
  for (int i = 1; i < 60; ++i) write(random.below(bytes - 20000), 1 + random.below(20000), i % 3);  // some of it zeros
  std::vector<std::byte> expected(bytes);
  ASSERT_OK(device_->read(0, expected));
  const Descriptor copy = must(device_->copy_to_memory(bytes));
  write(0, bytes, 9);
  EXPECT_TRUE(content(copy, bytes) == expected);
  const Descriptor part = must(device_->copy_to_memory(5001));
  EXPECT_TRUE(content(part, 5001) == std::vector<std::byte>(5001, std::byte{9}));
  EXPECT_EQ(memory_of(must(device_->copy_to_memory(0))), 0u);
}

// A file of a terabyte, most of it holes and reserved space, is copied in no time and takes three pages.
TEST_F(CopyTest, HolesAndZerosTakeNothing) {
  const std::uint64_t bytes = 1ull << 40;
  ASSERT_OK(device_->reserve(32 * kMiB));
  ASSERT_OK(device_->truncate(bytes));
  write(5 * kPageBytes + 1, 1, 1);
  write(20 * kMiB, 1, 2);
  write(21 * kMiB, 64 * kKiB, 0);
  write(bytes - 1, 1, 3);
  ASSERT_OK(device_->flush());
  const Descriptor copy = must(device_->copy_to_memory(bytes));
  EXPECT_LE(memory_of(copy), 3 * host_page_bytes());
  struct stat info{};
  ASSERT_EQ(::fstat(copy.get(), &info), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(info.st_size), bytes);
  for (const auto& [offset, value] : {std::pair<std::uint64_t, int>{5 * kPageBytes, 0},
                                      {5 * kPageBytes + 1, 1},
                                      {20 * kMiB, 2},
                                      {21 * kMiB, 0},
                                      {bytes - 1, 3}}) {
    std::byte byte{};
    ASSERT_EQ(::pread(copy.get(), &byte, 1, static_cast<off_t>(offset)), 1);
    EXPECT_EQ(static_cast<int>(byte), value) << offset;
  }
}

// A file that is shorter than asked is damage.
TEST_F(CopyTest, AShortFileIsAnError) {
  write(0, 10, 1);
  EXPECT_ERROR(Errc::corrupt, device_->copy_to_memory(11));
  EXPECT_ERROR(Errc::corrupt, device_->copy_to_memory(3 * kMiB));
}

}  // namespace
}  // namespace memlith::test::copy_test
