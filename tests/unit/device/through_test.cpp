// The contract at the head of device/device.hpp: write_through() makes its own bytes durable, and nothing else. What
// the kernel says of the disk decides whether it is one command (device/disk_facts.hpp).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/buffer.hpp"
#include "base/units.hpp"
#include "device/direct_io.hpp"
#include "device/disk_facts.hpp"
#include "device/posix_device.hpp"
#include "sim/sim.hpp"
#include "support/expect.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::through_test {
namespace {

using namespace core;

SimImage disk_with_access() {
  SimImage image;
  image.forced_unit_access = true;
  image.files["file"] = std::make_shared<const std::vector<std::byte>>(4 * kSimSectorBytes);
  return image;
}

std::vector<std::byte> sector_of(int value) {
  return std::vector<std::byte>(kSimSectorBytes, static_cast<std::byte>(value));
}

Status through(Device& device, std::uint64_t offset, std::span<const std::byte> bytes) {
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return device.write_through(offset, {&piece, 1});
}

std::byte at(const SimImage& image, std::uint64_t sector) {
  const auto& bytes = *image.files.at("file");
  return bytes.size() > sector * kSimSectorBytes ? bytes[sector * kSimSectorBytes] : std::byte{0};
}

TEST(WriteThrough, SurvivesWithoutAFlushAndFlushesNothingElse) {
  SimVolume volume(disk_with_access(), true);
  const auto device = must(volume.open("file", OpenMode::read_write, Caching::direct));
  ASSERT_TRUE(device->can_write_through(kSimThroughBytes));
  EXPECT_FALSE(device->can_write_through(kSimThroughBytes + 1));
  EXPECT_OK(device->write(0, sector_of(1)));
  EXPECT_OK(device->write(kSimSectorBytes, sector_of(2)));
  EXPECT_OK(through(*device, kSimSectorBytes, sector_of(3)));
  SimMedium medium(volume.trace());
  while (medium.position() < volume.trace().records.size()) medium.step();
  const SimImage cut = medium.cut([](std::size_t) { return false; });
  EXPECT_EQ(at(cut, 0), std::byte{0}) << "an earlier write is not flushed by it";
  EXPECT_EQ(at(cut, 1), std::byte{3});
  const SimImage kept = medium.cut([](std::size_t) { return true; });
  EXPECT_EQ(at(kept, 0), std::byte{1});
  EXPECT_EQ(at(kept, 1), std::byte{3}) << "an earlier write of the same sector does not come after it";
}

TEST(WriteThrough, IsTornBeforeItReturns) {
  SimVolume volume(disk_with_access(), true);
  const auto device = must(volume.open("file", OpenMode::read_write, Caching::direct));
  std::vector<std::byte> two(2 * kSimSectorBytes, std::byte{7});
  EXPECT_OK(through(*device, 0, two));
  SimMedium medium(volume.trace());
  medium.step();
  ASSERT_EQ(medium.pending_count(), 2u);
  const SimImage cut = medium.cut([](std::size_t item) { return item == 1; });
  EXPECT_EQ(at(cut, 0), std::byte{0});
  EXPECT_EQ(at(cut, 1), std::byte{7});
}

TEST(WriteThrough, SurvivesAFlushThatFails) {
  SimVolume volume(disk_with_access(), true);
  const auto device = must(volume.open("file", OpenMode::read_write, Caching::direct));
  EXPECT_OK(device->write(0, sector_of(1)));
  EXPECT_OK(through(*device, kSimSectorBytes, sector_of(3)));
  volume.faults().plan(SimFaults::Kind::fail_flush, 0);
  EXPECT_FALSE(device->flush().ok());
  const SimImage left = volume.image();
  EXPECT_EQ(at(left, 0), std::byte{0});
  EXPECT_EQ(at(left, 1), std::byte{3});
}

TEST(WriteThrough, AFailureLatches) {
  SimVolume volume(disk_with_access());
  const auto device = must(volume.open("file", OpenMode::read_write, Caching::direct));
  volume.faults().plan(SimFaults::Kind::fail_write, 0);
  EXPECT_EQ(through(*device, 0, sector_of(1)).category, Errc::io);
  EXPECT_EQ(device->write(0, sector_of(1)).category, Errc::poisoned);
}

TEST(WriteThrough, IsAWriteAndAFlushWhereTheDiskCannot) {
  SimImage image = disk_with_access();
  image.forced_unit_access = false;
  SimVolume volume(image, true);
  const auto device = must(volume.open("file", OpenMode::read_write, Caching::direct));
  EXPECT_FALSE(device->can_write_through(1));
  EXPECT_OK(through(*device, 0, sector_of(1)));
  ASSERT_EQ(volume.trace().records.size(), 2u);
  EXPECT_EQ(volume.trace().records[0].op, SimOp::write);
  EXPECT_EQ(volume.trace().records[1].op, SimOp::flush);
}

// The call of the kernel, on whatever disk this is: a file with direct I/O takes it; one without goes the other way.
TEST(WriteThrough, WritesAFile) {
  const TempFolder folder;
  for (const bool direct : {true, false}) {
    const std::string path = folder.path() + (direct ? "/direct" : "/buffered");
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    auto descriptor = std::make_shared<const Descriptor>(fd);
    ASSERT_EQ(::ftruncate(fd, 4 * kPageBytes), 0);
    if (direct && (direct_block_bytes(fd, true) == 0 || ::fcntl(fd, F_SETFL, O_DIRECT) != 0)) continue;
    DeviceCaps caps;
    caps.block_bytes = direct ? kPageBytes : 1;
    caps.through_bytes_max = kMiB;
    const auto device = make_posix_device(descriptor, caps, path, direct);
    EXPECT_EQ(device->can_write_through(kPageBytes), direct);
    AlignedBuffer buffer = must(AlignedBuffer::allocate(2 * kPageBytes));
    std::memset(buffer.data(), 0x5a, buffer.size());
    const iovec pieces[2] = {{buffer.data(), kPageBytes}, {buffer.data() + kPageBytes, kPageBytes}};
    EXPECT_OK(device->write_through(kPageBytes, pieces));
    AlignedBuffer read = must(AlignedBuffer::allocate(4 * kPageBytes));
    EXPECT_OK(device->read(0, read.span()));
    EXPECT_EQ(read.data()[kPageBytes - 1], std::byte{0});
    EXPECT_EQ(read.data()[kPageBytes], std::byte{0x5a});
    EXPECT_EQ(read.data()[3 * kPageBytes - 1], std::byte{0x5a});
    EXPECT_EQ(read.data()[3 * kPageBytes], std::byte{0});
  }
}

// A folder like those of /sys/dev/block, of a disk or of a partition on it.
class DiskFolder {
 public:
  DiskFolder(std::string_view cache, std::string_view access) {
    std::filesystem::create_directories(disk() + "/queue");
    std::filesystem::create_directories(disk() + "/nvme9n1p2");
    put("queue/write_cache", cache);
    put("queue/fua", access);
    put("queue/logical_block_size", "512");
    put("queue/physical_block_size", "4096");
    put("queue/max_sectors_kb", "128");
    put("queue/max_hw_sectors_kb", "1024");
    put("queue/max_segments", "33");
    put("queue/atomic_write_unit_max_bytes", "16384");
    put("nvme9n1p2/partition", "2");
  }
  [[nodiscard]] std::string disk() const { return folder_.path() + "/nvme9n1"; }
  void put(const std::string& name, std::string_view line) const { std::ofstream(disk() + "/" + name) << line << "\n"; }

 private:
  TempFolder folder_;
};

TEST(DiskFacts, AreThoseOfTheDiskAlsoForAPartition) {
  const DiskFolder folder("write back", "1");
  for (const std::string& path : {folder.disk(), folder.disk() + "/nvme9n1p2"}) {
    const auto facts = disk_facts_in(path);
    ASSERT_TRUE(facts.has_value()) << path;
    EXPECT_EQ(facts->name, "nvme9n1");
    EXPECT_TRUE(facts->volatile_cache);
    EXPECT_TRUE(facts->forced_unit_access);
    EXPECT_EQ(facts->logical_sector_bytes, 512u);
    EXPECT_EQ(facts->physical_sector_bytes, 4096u);
    EXPECT_EQ(facts->request_bytes_max, 128 * kKiB);
    EXPECT_EQ(facts->atomic_write_bytes, 16 * kKiB);
    EXPECT_EQ(through_bytes_max(facts), 128 * kKiB);
  }
}

TEST(DiskFacts, ACommandTakesNoMoreThanItsSegments) {
  const DiskFolder folder("write back", "1");
  EXPECT_EQ(command_bytes_max_in(folder.disk()), 32 * kPageBytes);
  folder.put("queue/max_hw_sectors_kb", "64");
  EXPECT_EQ(command_bytes_max_in(folder.disk()), 64 * kKiB);
  EXPECT_EQ(command_bytes_max_in("/nowhere"), 0u);
}

TEST(DiskFacts, ForcedUnitAccessIsUsedOnlyWhereThereIsSomethingToForce) {
  EXPECT_EQ(through_bytes_max(disk_facts_in(DiskFolder("write through", "1").disk())), 0u);
  EXPECT_EQ(through_bytes_max(disk_facts_in(DiskFolder("write back", "0").disk())), 0u);
  EXPECT_EQ(through_bytes_max(disk_facts_in("/nowhere")), 0u);
}

}  // namespace
}  // namespace memlith::test::through_test
