// docs/dax.md: writing by lines. What LineWriter does to a medium, and the device on a file in memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "base/units.hpp"
#include "device/dax.hpp"
#include "device/lines.hpp"
#include "device/posix.hpp"
#include "support/expect.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::dax_test {
namespace {

using namespace core;

std::vector<std::byte> noise(std::uint64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

// ---- lines -----------------------------------------------------------------------------------------------------

struct RecordedLines {
  std::vector<std::byte>& medium;
  std::vector<std::uint64_t> streamed;
  bool fenced = false;

  void stream(std::uint64_t offset, const std::byte* line) {
    EXPECT_EQ(offset % kLineBytes, 0u);
    EXPECT_FALSE(fenced);
    streamed.push_back(offset);
    std::memcpy(medium.data() + offset, line, kLineBytes);
  }
  void read(std::uint64_t offset, std::byte* line) const { std::memcpy(line, medium.data() + offset, kLineBytes); }
  void fence() { fenced = true; }
};

// Each line is stored once, in order, with the bytes around those that are written; the fence comes last.
TEST(Lines, AreWrittenOnceAndWhole) {
  Random random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> medium = noise(2048, 1);
    std::vector<std::byte> wanted = medium;
    const std::uint64_t offset = random.below(600);
    RecordedLines lines{medium, {}};
    LineWriter writer(lines, offset);
    std::uint64_t end = offset;
    for (std::uint64_t pieces = random.below(4); pieces > 0; --pieces) {
      const auto piece = noise(random.below(random.one_in(2) ? 300 : 20), random.next());
      if (!piece.empty()) std::memcpy(wanted.data() + end, piece.data(), piece.size());
      end += piece.size();
      writer.put(piece);
    }
    writer.finish();
    ASSERT_EQ(medium, wanted) << "round " << round;
    ASSERT_TRUE(lines.fenced);
    std::vector<std::uint64_t> expected;
    if (end > offset) {
      for (std::uint64_t line = round_down(offset, kLineBytes); line < end; line += kLineBytes)
        expected.push_back(line);
    }
    ASSERT_EQ(lines.streamed, expected) << "round " << round;
  }
}

// ---- the device ------------------------------------------------------------------------------------------------

class DaxDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm to write to";
  }
  static std::vector<std::byte> content(Device& device) {
    std::vector<std::byte> bytes(must(device.size()));
    EXPECT_OK(device.read(0, bytes));
    return bytes;
  }
  std::unique_ptr<Device> create(const std::string& name) {
    return must(volume_->open(name, OpenMode::create, Caching::direct));
  }

  TempFolder folder_{::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ""};
  std::unique_ptr<Volume> volume_ = make_posix_volume(folder_.path(), IoBackend::dax);
};

TEST_F(DaxDevice, SaysWhatItIs) {
  const auto device = create("a");
  EXPECT_EQ(device->caps().io, IoBackend::dax);
  EXPECT_EQ(device->caps().block_bytes, 1u);
  EXPECT_EQ(device->caps().log_block_bytes, kLineBytes);
  EXPECT_EQ(device->caps().atomic_bytes, kWordBytes);
  EXPECT_EQ(device->caps().file_system.medium, Medium::memory);
  EXPECT_FALSE(device->direct());
  // A file that is only read needs no writable mapping.
  const auto read = must(volume_->open("a", OpenMode::read_only, Caching::direct));
  EXPECT_EQ(read->caps().log_block_bytes, 512u);
}

// Random writes, growth, cuts and discards, compared with a copy. A second device reads what the first wrote.
TEST_F(DaxDevice, HoldsWhatWasWritten) {
  Random random(3);
  auto device = create("a");
  const auto other = must(volume_->open("a", OpenMode::read_only, Caching::buffered));
  std::vector<std::byte> wanted;
  for (int round = 0; round < 2000; ++round) {
    switch (random.below(8)) {
      case 0:
        wanted.resize(random.below(600'000));
        ASSERT_OK(device->truncate(wanted.size()));
        break;
      case 1: {
        const std::uint64_t bytes = random.below(600'000);
        if (bytes > wanted.size()) wanted.resize(bytes);
        ASSERT_OK(device->reserve(bytes));
        break;
      }
      case 2: {
        const std::uint64_t pages = wanted.size() / kPageBytes;
        if (pages < 2) break;
        const std::uint64_t first = random.below(pages);
        const std::uint64_t count = 1 + random.below(pages - first);
        ASSERT_OK(device->discard(first * kPageBytes, count * kPageBytes));
        std::memset(wanted.data() + first * kPageBytes, 0, count * kPageBytes);
        break;
      }
      default: {
        const std::uint64_t offset = random.below(wanted.size() + 100);
        const auto bytes = noise(random.below(random.one_in(8) ? 20'000 : 200), random.next());
        if (bytes.empty()) break;
        if (wanted.size() < offset + bytes.size()) wanted.resize(offset + bytes.size());
        std::memcpy(wanted.data() + offset, bytes.data(), bytes.size());
        ASSERT_OK(device->write(offset, bytes));
      }
    }
    if (round % 10 == 0) {
      ASSERT_OK(device->flush());
      ASSERT_EQ(content(*device), wanted) << "round " << round;
      ASSERT_EQ(content(*other), wanted) << "round " << round;
    }
  }
}

// Threads write beside each other while the file outgrows its mappings.
TEST_F(DaxDevice, GrowsUnderWriters) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kStride = 40 * kMiB;
  auto device = create("a");
  ASSERT_OK(device->truncate(10 * kMiB));
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&device, thread] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        ASSERT_OK(device->write(i * kPageBytes + thread * kLineBytes, noise(kLineBytes, thread * 1000 + i)));
      }
    });
  }
  for (std::uint64_t i = 1; i < 6; ++i) {
    ASSERT_OK(device->truncate(i * kStride));
    ASSERT_OK(device->write(i * kStride - 100, noise(100, i)));
  }
  for (std::thread& each : threads) each.join();
  std::vector<std::byte> found(kLineBytes);
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    for (std::uint64_t i = 0; i < 200; ++i) {
      ASSERT_OK(device->read(i * kPageBytes + thread * kLineBytes, found));
      ASSERT_EQ(found, noise(kLineBytes, thread * 1000 + i));
    }
  }
  found.resize(100);
  ASSERT_OK(device->read(5 * kStride - 100, found));
  EXPECT_EQ(found, noise(100, 5));
}

// A file system without memory for a page is an error, not a signal.
TEST_F(DaxDevice, AFullFileSystemIsAnError) {
  if (::geteuid() != 0 || ::mount("none", folder_.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  {
    const auto volume = make_posix_volume(folder_.path(), IoBackend::dax);
    const auto device = must(volume->open("a", OpenMode::create, Caching::buffered));
    ASSERT_OK(device->truncate(1 * kMiB));  // a hole
    Status status = kOk;
    for (std::uint64_t offset = 0; offset < 1 * kMiB && status.ok(); offset += kPageBytes) {
      status = device->write(offset, noise(100, offset));
    }
    EXPECT_EQ(status.category, Errc::io) << "a write that failed";
    EXPECT_EQ(device->write(0, noise(10, 1)).category, Errc::poisoned);
  }
  EXPECT_EQ(::umount(folder_.path().c_str()), 0);
}

// A file system whose files go through the page cache is refused, with what to do.
TEST(DaxVolume, RefusesADisk) {
  const TempFolder folder;
  const int fd = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool in_memory = is_byte_addressable(fd);
  ::close(fd);
  if (in_memory) GTEST_SKIP() << folder.path() << " lies in memory; set MEMLITH_TEST_DIR to a folder on a disk";
  const auto opened = make_posix_volume(folder.path(), IoBackend::dax)->open("a", OpenMode::create, Caching::direct);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().category, Errc::unsupported);
  EXPECT_NE(std::string(last_error_text()).find("MEMLITH_IO_AUTO"), std::string::npos) << last_error_text();
}

}  // namespace
}  // namespace memlith::test::dax_test
