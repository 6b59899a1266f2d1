// The file system below a file, by the name of its mount.
#include "device/medium.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/descriptor.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::medium_test {
namespace {

using namespace core;

constexpr std::string_view kMounts =
    "21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "34 21 0:30 / /tmp rw shared:5 master:2 - tmpfs tmpfs rw\n"
    "41 21 0:45 / /mnt/a\\040b rw - fuse.sshfs user@host:/srv rw,user_id=0\n"
    "42 21 0:46 / /mnt/c rw shared:9 - 9p drvfs rw,aname=drvfs\n"
    "43 21 0:47 /x /mnt/d rw - nfs4 host:/x rw\n"
    "44 21 0:48 / /mnt/e rw - virtiofs tag rw\n"
    "45 21 0:49 / /mnt/f rw - fuseblk /dev/sda1 rw\n"
    "46 a line that is cut";

TEST(Medium, IsThatOfTheMountWithTheNumber) {
  const auto is = [](std::uint64_t mount, Medium medium, std::string_view name) {
    const FileSystem found = file_system_in(kMounts, mount);
    EXPECT_EQ(found.medium, medium) << mount;
    EXPECT_EQ(found.name, name) << mount;
  };
  is(21, Medium::disk, "ext4");
  is(34, Medium::memory, "tmpfs");
  is(41, Medium::network, "fuse.sshfs");
  is(42, Medium::program, "9p");
  is(43, Medium::network, "nfs4");
  is(44, Medium::program, "virtiofs");
  is(45, Medium::program, "fuseblk");
  is(46, Medium::disk, "");
  is(4, Medium::disk, "");
}

TEST(Medium, OfAnOpenFileIsTheKernels) {
  const TempFolder folder("/dev/shm");
  const Descriptor in_memory(::open((folder / "f").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  EXPECT_EQ(file_system_of(in_memory.get()).medium, Medium::memory);
  const Descriptor device(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(file_system_of(device.get()).medium, Medium::disk);
}

}  // namespace
}  // namespace memlith::test::medium_test
