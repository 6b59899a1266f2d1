// Facts that tell a file of the operating system from its copies.
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <array>

#include "device/posix_device.hpp"

namespace memlith::core {

namespace {

constexpr std::uint32_t kXfs = 0x58465342;
constexpr std::uint32_t kBtrfs = 0x9123683e;
constexpr std::uint32_t kF2fs = 0xf2f52010;
constexpr std::uint32_t kZfs = 0x2fc12fc1;
constexpr std::uint32_t kBcachefs = 0xca451a4e;
constexpr std::uint32_t kOverlay = 0x794c7630;

// A file there keeps its number and, if it has one, its birth time, as long as it exists, also over a remount. The
// numbers of FAT and of many a FUSE are made up at each mount, and the times of FAT move with the time zone.
constexpr std::array kKeepsBoth{std::uint32_t{EXT4_SUPER_MAGIC}, kXfs, kBtrfs, kF2fs, kZfs, kBcachefs,
                                std::uint32_t{TMPFS_MAGIC}};

}  // namespace

FileBirth birth_of(int fd) {
  struct statx info{};
  struct statfs system{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &info) != 0 || !S_ISREG(info.stx_mode) ||
      ::fstatfs(fd, &system) != 0) {
    return {};
  }
  const auto kind = static_cast<std::uint32_t>(system.f_type);
  const bool keeps_both = std::find(kKeepsBoth.begin(), kKeepsBoth.end(), kind) != kKeepsBoth.end();
  if (!keeps_both && kind != kOverlay) return {};
  FileBirth birth;
  if (keeps_both) birth.number = info.stx_ino;
  if ((info.stx_mask & STATX_BTIME) != 0 && info.stx_btime.tv_sec > 0) {
    birth.ns = static_cast<std::uint64_t>(info.stx_btime.tv_sec) * 1'000'000'000 + info.stx_btime.tv_nsec;
  }
  return birth;
}

}  // namespace memlith::core
