// Temporary folders, free space, and the page cache.
#include "scratch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

Result<ScratchFolder> ScratchFolder::make(const std::string& parent) {
  if (parent.empty()) return tool_failure(MEMLITH_INVALID, "the folder's name is empty", "Give a folder with --dir.");
  std::string path = fmt::format("{}/memlith-bench-{}", parent, ::getpid());
  if (::mkdir(path.c_str(), 0700) != 0) {
    const int os_errno = errno;
    Failure failure = errno_failure(os_errno, fmt::format("cannot make the folder {}", path));
    if (os_errno == EEXIST) failure.advice = "An earlier run that was killed left it: remove it and try again.";
    if (os_errno == ENOENT) failure.advice = "Give a folder that exists with --dir.";
    return failure;
  }
  return ScratchFolder(std::move(path));
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  ignore_interrupts();
  std::error_code ignored;  // the process is ending, and the folder's name says what it is
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchFolder::path_of(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

void ScratchFolder::remove(std::string_view name) const {
  std::error_code ignored;
  std::filesystem::remove_all(path_of(name), ignored);
}

MaybeFailure require_space(const std::string& folder, std::uint64_t bytes) {
  struct statvfs status{};
  if (::statvfs(folder.c_str(), &status) != 0) return errno_failure(errno, fmt::format("cannot examine {}", folder));
  const std::uint64_t free_bytes = std::uint64_t{status.f_bavail} * status.f_frsize;
  if (free_bytes >= bytes) return {};
  Failure failure = tool_failure(MEMLITH_NO_SPACE, fmt::format("this benchmark needs {} in {}, but only {} are free",
                                                               human_bytes(bytes), folder, human_bytes(free_bytes)));
  failure.advice = "Choose another folder with --dir, or smaller sizes.";
  return failure;
}

MaybeFailure drop_page_cache(const std::string& folder) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator position(folder, error);
  for (; !error && position != std::filesystem::end(position); position.increment(error)) {
    std::error_code not_regular;
    if (!position->is_regular_file(not_regular)) continue;
    const int descriptor = ::open(position->path().c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return errno_failure(errno, fmt::format("cannot open {}", position->path().string()));
    // Dirty pages cannot be dropped, so they are written first.
    const int failed = ::fdatasync(descriptor) != 0 ? errno : ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    ::close(descriptor);
    if (failed != 0) return errno_failure(failed, fmt::format("cannot flush {}", position->path().string()));
  }
  if (error) return errno_failure(error.value(), fmt::format("cannot list {}", folder));
  return {};
}

}  // namespace memlith::tool
