#include "device/posix_notice.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/not_for_children.hpp"
#include "device/posix_device.hpp"

namespace memlith::core {

namespace {

constexpr std::size_t kBeginBytes = sizeof(std::uint64_t);

struct flock whole_file() {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// The file is written and not mapped: a store to a mapped page for which the file system has no space, or that it has
// given up, would raise SIGBUS. The owner holds a lock of the open file description (fcntl(2)) on the file. Other
// processes can query this lock without taking it, also from another process namespace.
class PosixNotice final : public Notice {
 public:
  PosixNotice(Descriptor descriptor, std::shared_ptr<Folder> folder, std::string name)
      : descriptor_(std::move(descriptor)),
        not_for_children_(descriptor_.get()),
        folder_(std::move(folder)),
        name_(std::move(name)) {}
  void show(std::span<const std::byte> bytes) override {
    // No process shall read old bytes: a file that cannot be written loses its name.
    if (::pwrite(descriptor_.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) remove();
  }
  void remove() override {
    struct stat own{};
    struct stat named{};
    if (::fstat(descriptor_.get(), &own) != 0) return;
    if (::fstatat(folder_->fd(), name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (identity_in(own) == identity_in(named)) (void)::unlinkat(folder_->fd(), name_.c_str(), 0);
  }

 private:
  Descriptor descriptor_;
  NotForChildren not_for_children_;
  std::shared_ptr<Folder> folder_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Notice> make_posix_notice(Descriptor descriptor, std::shared_ptr<Folder> folder, std::string name,
                                          std::span<const std::byte> first) {
  struct flock held = whole_file();
  const auto rest = first.subspan(kBeginBytes);
  const int fd = descriptor.get();
  // The first bytes are written last: a reader that finds zeros there knows that the notice is being created.
  if (::fcntl(fd, F_OFD_SETLK, &held) == 0 &&
      ::pwrite(fd, rest.data(), rest.size(), kBeginBytes) == static_cast<ssize_t>(rest.size()) &&
      ::pwrite(fd, first.data(), kBeginBytes, 0) == static_cast<ssize_t>(kBeginBytes)) {
    return std::make_unique<PosixNotice>(std::move(descriptor), std::move(folder), std::move(name));
  }
  return nullptr;
}

Result<SeenNotice> look_at_posix_notice(int fd, const std::string& path, std::uint64_t bytes) {
  SeenNotice seen{std::vector<std::byte>(bytes)};
  ssize_t got = ::pread(fd, seen.bytes.data(), bytes, 0);
  // The file grows while it is being created.
  if (got >= 0 && static_cast<std::uint64_t>(got) < bytes) got = ::pread(fd, seen.bytes.data(), bytes, 0);
  if (got < 0) return fail_errno(errno, Detail::read, "{}: cannot read it", path);
  std::uint64_t begin = 0;
  std::memcpy(&begin, seen.bytes.data(), sizeof begin);
  if (begin == 0) return fail(Errc::not_found, Detail::open, "{}: it is being created", path);
  if (static_cast<std::uint64_t>(got) < bytes) {
    return fail(Errc::incompatible, Detail::open, "{}: {} bytes are too few", path, got);
  }
  struct flock asked = whole_file();
  seen.held = ::fcntl(fd, F_OFD_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
  return seen;
}

}  // namespace memlith::core
