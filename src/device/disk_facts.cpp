#include "device/disk_facts.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/descriptor.hpp"
#include "base/units.hpp"

namespace memlith::core {

namespace {

std::string line_of(const std::filesystem::path& file) {
  std::string text = text_of(file.c_str());
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

std::uint64_t number_of(const std::filesystem::path& file) { return std::strtoull(line_of(file).c_str(), nullptr, 10); }

}  // namespace

std::optional<DiskFacts> disk_facts_in(const std::string& folder) {
  std::error_code error;
  std::filesystem::path device = std::filesystem::canonical(folder, error);
  if (error) return std::nullopt;
  if (std::filesystem::exists(device / "partition", error)) device = device.parent_path();
  const std::filesystem::path queue = device / "queue";
  if (!std::filesystem::exists(queue, error)) return std::nullopt;
  DiskFacts facts;
  facts.name = device.filename().string();
  facts.volatile_cache = line_of(queue / "write_cache") == "write back";
  facts.forced_unit_access = number_of(queue / "fua") == 1;
  facts.logical_sector_bytes = static_cast<std::uint32_t>(number_of(queue / "logical_block_size"));
  facts.physical_sector_bytes = static_cast<std::uint32_t>(number_of(queue / "physical_block_size"));
  facts.request_bytes_max = number_of(queue / "max_sectors_kb") * kKiB;
  facts.atomic_write_bytes = number_of(queue / "atomic_write_unit_max_bytes");
  return facts;
}

std::optional<DiskFacts> disk_under(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return std::nullopt;
  const dev_t device = S_ISBLK(info.st_mode) ? info.st_rdev : info.st_dev;
  return disk_facts_in(fmt::format("/sys/dev/block/{}:{}", major(device), minor(device)));
}

std::uint64_t command_bytes_max_in(const std::string& folder) {
  const std::filesystem::path queue = std::filesystem::path(folder) / "queue";
  const std::uint64_t bytes = number_of(queue / "max_hw_sectors_kb") * kKiB;
  const std::uint64_t segments = number_of(queue / "max_segments");
  // Memory that begins within a page has a segment more than it has pages.
  return segments < 2 ? bytes : std::min(bytes, (segments - 1) * kPageBytes);
}

std::uint64_t command_bytes_max_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || !S_ISBLK(info.st_mode)) return 0;
  return command_bytes_max_in(fmt::format("/sys/dev/block/{}:{}", major(info.st_rdev), minor(info.st_rdev)));
}

std::uint64_t through_bytes_max(const std::optional<DiskFacts>& disk) {
  return disk.has_value() && disk->volatile_cache && disk->forced_unit_access ? disk->request_bytes_max : 0;
}

}  // namespace memlith::core
