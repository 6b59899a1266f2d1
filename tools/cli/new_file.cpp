// Writing under a temporary name, then flush, rename, flush of the folder.
#include "new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kDirectBytes = 4096;

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

Result<NewFile> NewFile::create(const std::string& target, std::uint64_t bytes, mode_t mode) {
  std::string temporary = fmt::format("{}.memlith-copy-{}", target, ::getpid());
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  bool direct = true;
  Descriptor descriptor(::open(temporary.c_str(), kFlags | O_DIRECT, 0600));
  if (!descriptor.ok() && errno == EINVAL) {  // no direct I/O on this file system; some make the file all the same
    direct = false;
    (void)::unlink(temporary.c_str());
    descriptor = Descriptor(::open(temporary.c_str(), kFlags, 0600));
  }
  if (!descriptor.ok()) {
    const int os_errno = errno;
    Failure failure = errno_failure(os_errno, fmt::format("cannot make the file {}", temporary));
    if (os_errno == ENOENT)
      failure.advice = fmt::format("The folder {} does not exist: create it first.", folder_of(target));
    if (os_errno == EEXIST) failure.advice = "An earlier copy that was killed left it: remove it and try again.";
    return failure;
  }
  NewFile file(target, std::move(temporary), std::move(descriptor), direct);
  if (::fchmod(file.descriptor_.get(), mode & 0777) != 0) {
    return errno_failure(errno, fmt::format("cannot set the permissions of {}", file.temporary_));
  }
  if (bytes > 0 && ::fallocate(file.descriptor_.get(), 0, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS) {
    return errno_failure(errno, fmt::format("cannot reserve {} bytes for {}", bytes, target));
  }
  return file;
}

NewFile::NewFile(std::string target, std::string temporary, Descriptor descriptor, bool direct)
    : target_(std::move(target)),
      temporary_(std::move(temporary)),
      descriptor_(std::move(descriptor)),
      direct_(direct) {}

NewFile::NewFile(NewFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::move(other.descriptor_)),
      direct_(other.direct_) {}

NewFile::~NewFile() {
  // The process is ending, and the file's name says what it is.
  if (!temporary_.empty()) (void)::unlink(temporary_.c_str());
}

MaybeFailure NewFile::leave_direct_io() {
  direct_ = false;
  const int flags = ::fcntl(descriptor_.get(), F_GETFL);
  if (flags >= 0 && ::fcntl(descriptor_.get(), F_SETFL, flags & ~O_DIRECT) == 0) return {};
  return errno_failure(errno, fmt::format("cannot leave direct I/O on {}", temporary_));
}

MaybeFailure NewFile::write(std::uint64_t offset, std::span<const std::byte> source) {
  while (!source.empty()) {
    const bool aligned = (offset | source.size() | reinterpret_cast<std::uintptr_t>(source.data())) % kDirectBytes == 0;
    if (direct_ && !aligned) {
      if (MaybeFailure failure = leave_direct_io()) return failure;
    }
    const ssize_t wrote = ::pwrite(descriptor_.get(), source.data(), source.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EINVAL && direct_) {  // wants a larger alignment, or only said that it takes direct I/O
      if (MaybeFailure failure = leave_direct_io()) return failure;
      continue;
    }
    if (wrote < 0 && errno == EFAULT) {  // the memory is a mapping of the source, and its disk did not deliver
      return tool_failure(MEMLITH_IO, fmt::format("cannot read the source of {} at offset {}", target_, offset),
                          "Check the kernel's messages about the disk (dmesg).");
    }
    if (wrote <= 0) {
      return errno_failure(wrote == 0 ? ENOSPC : errno, fmt::format("cannot write {}", temporary_));
    }
    offset += static_cast<std::uint64_t>(wrote);
    source = source.subspan(static_cast<std::size_t>(wrote));
  }
  return {};
}

int NewFile::rename(Replace replace) const {
  if (replace == Replace::yes) return std::rename(temporary_.c_str(), target_.c_str()) == 0 ? 0 : errno;
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that knows no such rename; a second name does the same, and the first one goes.
  if (::link(temporary_.c_str(), target_.c_str()) != 0) return errno;
  (void)::unlink(temporary_.c_str());
  return 0;
}

MaybeFailure NewFile::publish(Replace replace) {
  // ORDER content-before-name: a name that survives a power cut has the whole content behind it.
  if (::fsync(descriptor_.get()) != 0) return errno_failure(errno, fmt::format("cannot flush {}", temporary_));
  const std::string folder = folder_of(target_);
  const Descriptor folder_descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_descriptor.ok()) return errno_failure(errno, fmt::format("cannot open the folder {}", folder));
  if (const int os_errno = rename(replace); os_errno != 0) {
    Failure failure = errno_failure(os_errno, fmt::format("cannot give {} its name", target_));
    if (os_errno == EEXIST) {
      failure.advice = "Another program has just made it: look at it, then remove it or use --force.";
    }
    return failure;
  }
  temporary_.clear();
  if (::fsync(folder_descriptor.get()) != 0) {
    Failure failure = errno_failure(errno, fmt::format("cannot flush the folder {}", folder));
    failure.advice = fmt::format("{} is complete, but its name may not survive a power cut.", target_);
    return failure;
  }
  return {};
}

}  // namespace memlith::tool
