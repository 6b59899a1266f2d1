#include "meter.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

namespace memlith::sqlite_bench {

namespace {

constexpr std::uint64_t kSectorBytes = 512;  // of the kernel's counters, whatever the device has

std::optional<std::uint64_t> process_bytes() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == "write_bytes:") return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> device_bytes(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  for (int column = 1; file >> value; ++column) {
    if (column == 7) return value * kSectorBytes;
  }
  return std::nullopt;
}

}  // namespace

Meter::Meter(std::string folder) : folder_(std::move(folder)) {
  struct stat status{};
  if (::stat(folder_.c_str(), &status) == 0) {
    stat_path_ = fmt::format("/sys/dev/block/{}:{}/stat", major(status.st_dev), minor(status.st_dev));
  }
}

Result<Reading> Meter::read() const {
  const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return tool::errno_failure(errno, fmt::format("cannot open {}", folder_));
  const int failed = ::syncfs(folder) != 0 ? errno : 0;
  ::close(folder);
  if (failed != 0) return tool::errno_failure(failed, fmt::format("cannot flush the file system of {}", folder_));
  return Reading{process_bytes(), device_bytes(stat_path_)};
}

ProcessorTime processor_time() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(time.tv_usec);
  };
  return {us(usage.ru_utime), us(usage.ru_stime)};
}

}  // namespace memlith::sqlite_bench
