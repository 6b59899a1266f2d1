// Facts about the disk under a file, as the kernel or the disk tells. Floor: device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace memlith::core {

struct DiskFacts {
  std::string name;                        // sda, nvme0n1, ng0n1
  bool passthrough = false;                // used by commands of its own, without the kernel's block layer
  bool volatile_cache = false;             // what was written is durable only after a flush
  bool forced_unit_access = false;         // a single write can be made durable by itself
  std::uint32_t logical_sector_bytes = 0;  // 0: not told, as below
  std::uint32_t physical_sector_bytes = 0;
  std::uint64_t request_bytes_max = 0;   // of one command
  std::uint64_t atomic_write_bytes = 0;  // a write of up to so much is whole after a power cut, or not there
};

// Facts of the block device that the file lies on, or that `fd` is. Nothing where there is not one such device (tmpfs,
// Btrfs, overlayfs, network file systems), or no /sys.
std::optional<DiskFacts> disk_under(int fd);

// The same of the device that /sys/dev/block has a folder for. For tests: any folder.
std::optional<DiskFacts> disk_facts_in(const std::string& folder);

// How much one command to the block device may transfer from or to memory whose pages lie anywhere; 0: not told.
std::uint64_t command_bytes_max_of(const std::string& path);
// The same of the device that /sys/dev/block has a folder for. For tests: any folder.
std::uint64_t command_bytes_max_in(const std::string& folder);

// How much of a file on this disk may be written with forced unit access by one command; 0 where that gains nothing.
std::uint64_t through_bytes_max(const std::optional<DiskFacts>& disk);

}  // namespace memlith::core
