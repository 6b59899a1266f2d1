// pwrite + fsync, and mmap + msync, over preallocated files; and what file system a folder is on.
#include "peers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kSourceBytes = 64 * kKiB;  // as on memlith's side: in a core's cache
constexpr std::uint64_t kWordBytes = 8;

struct MagicName {
  std::uint64_t magic;
  const char* name;
};
constexpr MagicName kFileSystems[] = {{0xef53, "ext4"},          {0x58465342, "xfs"}, {0x9123683e, "btrfs"},
                                      {0x01021994, "tmpfs"},     {0x2fc12fc1, "zfs"}, {0xf2f52010, "f2fs"},
                                      {0x794c7630, "overlayfs"}, {0x65735546, "fuse"}};

// The file that a loop device shows; empty where the folder is on no loop device.
std::string loop_file_of(dev_t device) {
  std::ifstream file(fmt::format("/sys/dev/block/{}:{}/loop/backing_file", major(device), minor(device)));
  std::string path;
  std::getline(file, path);
  return path;
}

bool loop_is_direct(dev_t device) {
  std::ifstream file(fmt::format("/sys/dev/block/{}:{}/loop/dio", major(device), minor(device)));
  return file.get() == '1';
}

}  // namespace

Result<FileSystem> file_system_of(const std::string& folder) {
  struct statfs status{};
  struct stat attributes{};
  if (::statfs(folder.c_str(), &status) != 0 || ::stat(folder.c_str(), &attributes) != 0) {
    return errno_failure(errno, fmt::format("cannot examine {}", folder));
  }
  FileSystem result;
  const auto magic = static_cast<std::uint64_t>(status.f_type) & 0xffffffffu;
  for (const MagicName& each : kFileSystems) {
    if (each.magic == magic) result.name = each.name;
  }
  if (result.name.empty()) result.name = fmt::format("file system {:#x}", magic);
  if (!loop_file_of(attributes.st_dev).empty()) {
    result.note = fmt::format(
        "{} lies on a loop device ({} I/O), an image in a file of another file system: its flushes "
        "are also flushes of that file",
        result.name, loop_is_direct(attributes.st_dev) ? "direct" : "buffered");
  }
  return result;
}

PeerFile::PeerFile(std::string path, int descriptor, std::uint64_t bytes, HugeBuffer source, PageOrder order)
    : path_(std::move(path)),
      descriptor_(descriptor),
      bytes_(bytes),
      source_(std::move(source)),
      pages_(bytes / kPageBytes, order),
      random_(kSeed) {}

PeerFile::PeerFile(PeerFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_),
      mapping_(std::exchange(other.mapping_, nullptr)),
      source_(std::move(other.source_)),
      pages_(std::move(other.pages_)),
      random_(other.random_) {}

PeerFile::~PeerFile() {
  if (mapping_ != nullptr) ::munmap(mapping_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<PeerFile> PeerFile::create(const std::string& path, std::uint64_t bytes, PageOrder order) {
  Result<HugeBuffer> source = HugeBuffer::random(kSourceBytes);
  if (!source.ok()) return std::move(source.failure());
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return errno_failure(errno, fmt::format("cannot create {}", path));
  PeerFile file(path, descriptor, bytes, std::move(*source), order);
  const int allocated = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  if (allocated == ENOSPC) return errno_failure(allocated, fmt::format("cannot reserve {} bytes for {}", bytes, path));
  // Page by page: a write of more may make large folios in the page cache (Linux 6.16 and later on ext4), and a store
  // to a shared mapping then dirties, and msync writes, all of one. That would be a worse peer than there has to be.
  for (std::uint64_t offset = 0; offset < bytes; offset += kPageBytes) {
    if (offset % kMiB == 0 && interrupted()) return interrupted_failure();
    if (MaybeFailure failure = file.write(offset, {file.content(), kPageBytes})) return std::move(*failure);
  }
  if (::fsync(descriptor) != 0) return errno_failure(errno, fmt::format("cannot flush {}", path));
  return file;
}

// A page of random content, each time from elsewhere.
const std::byte* PeerFile::content() {
  return source_.data() + random_.below((kSourceBytes - kPageBytes) / kWordBytes) * kWordBytes;
}

MaybeFailure PeerFile::write(std::uint64_t offset, std::span<const std::byte> source) const {
  while (!source.empty()) {
    const ssize_t written = ::pwrite(descriptor_, source.data(), source.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return errno_failure(written < 0 ? errno : EIO, fmt::format("cannot write to {}", path_));
    source = source.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

// Pages behind each other. A page that was written in part is written again.
MaybeFailure PeerFile::write_run(std::span<const std::uint32_t> pages) {
  while (!pages.empty()) {
    pieces_.clear();
    for (std::size_t i = 0; i < std::min<std::size_t>(pages.size(), IOV_MAX); ++i) {
      pieces_.push_back({const_cast<std::byte*>(content()), kPageBytes});
    }
    const ssize_t written = ::pwritev(descriptor_, pieces_.data(), static_cast<int>(pieces_.size()),
                                      static_cast<off_t>(pages.front() * kPageBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < static_cast<ssize_t>(kPageBytes)) {
      return errno_failure(written < 0 ? errno : EIO, fmt::format("cannot write to {}", path_));
    }
    pages = pages.subspan(static_cast<std::size_t>(written) / kPageBytes);
  }
  return {};
}

MaybeFailure PeerFile::flush() const {
  if (::fdatasync(descriptor_) == 0) return {};
  return errno_failure(errno, fmt::format("cannot flush {}", path_));
}

MaybeFailure PeerFile::pwrite_round(std::uint64_t pages, std::uint64_t& elapsed_ns) {
  const std::span<const std::uint32_t> chosen = pages_.choose(random_, pages);
  const std::uint64_t start = now_ns();
  if (pages_.sequential()) {
    if (MaybeFailure failure = write_run(chosen)) return failure;
  } else {
    for (const std::uint64_t page : chosen) {
      if (MaybeFailure failure = write(page * kPageBytes, {content(), kPageBytes})) return failure;
    }
  }
  if (::fsync(descriptor_) != 0) return errno_failure(errno, fmt::format("cannot flush {}", path_));
  elapsed_ns = now_ns() - start;
  return {};
}

MaybeFailure PeerFile::msync_round(std::uint64_t pages, std::uint64_t bytes_per_page, std::uint64_t& elapsed_ns) {
  if (mapping_ == nullptr) {
    void* const mapping = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (mapping == MAP_FAILED) return errno_failure(errno, fmt::format("cannot map {}", path_));
    mapping_ = static_cast<std::byte*>(mapping);
  }
  const std::span<const std::uint32_t> chosen = pages_.choose(random_, pages);
  const std::uint64_t start = now_ns();
  for (const std::uint64_t page : chosen) std::memcpy(mapping_ + page * kPageBytes, content(), bytes_per_page);
  if (::msync(mapping_, bytes_, MS_SYNC) != 0) return errno_failure(errno, fmt::format("cannot flush {}", path_));
  elapsed_ns = now_ns() - start;
  return {};
}

}  // namespace memlith::tool
