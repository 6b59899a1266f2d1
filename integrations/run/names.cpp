// Names of images: what becomes of a file and its log when the file is renamed, replaced or removed.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "helpers.hpp"
#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

int Images::tidy(const std::string& path) {
  if (!settings().matches(path) || !has_log(path)) return 0;
  const NoSignals no_signals;
  memlith_store* store = nullptr;
  memlith_store_options options = options_of_run();
  options.flags = 0;
  std::int32_t code = memlith_file_open(path.c_str(), &options, &store);
  if (code == 0) code = memlith_store_close(store);
  if (code != 0) return fail_with(code, path + " has a log beside it, which cannot be brought into it");
  ::unlink((path + ".memlith").c_str());
  return 0;
}

int Images::rename(const std::string& from, const std::string& to, unsigned flags, int (*call)(void*), void* context) {
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  const ImagePtr moved = find_name(from);
  const ImagePtr replaced = find_name(to);
  if (moved == nullptr && tidy(from) != 0) return -1;
  if (replaced == nullptr && tidy(to) != 0) return -1;
  if (moved != nullptr && moved == replaced) return call(context);  // two names of one
  keep_unseen_writes();
  const bool moved_log = moved != nullptr && moved->attached;
  const bool replaced_log = replaced != nullptr && replaced->attached;
  if (moved_log || replaced_log) commit_all_before_detaching();
  if (moved_log) {
    const std::unique_lock dead(moved->life);
    if (detach(*moved) != 0) return -1;
  }
  if (replaced_log) {
    const std::unique_lock dead(replaced->life);
    detach(*replaced);
  }
  const int result = call(context);
  const int error = errno;
  const bool exchanged = result == 0 && (flags & RENAME_EXCHANGE) != 0;
  if (moved_log) {
    const std::unique_lock dead(moved->life);
    attach(moved, result == 0 ? to : from);
  }
  const bool still_named = result != 0 || exchanged;
  if (replaced_log && still_named) {
    const std::unique_lock dead(replaced->life);
    attach(replaced, result == 0 ? from : to);
  }
  if (replaced != nullptr && !still_named) replaced->untouched = false;
  if (result == 0 && moved == nullptr) adopt(to);
  if (exchanged && replaced == nullptr) adopt(from);
  errno = error;
  return result;
}

void Images::adopt_unseen(int fd) {
  struct stat seen{};
  if (NoSignals::held() || real().fstat(fd, &seen) != 0 || !S_ISREG(seen.st_mode)) return;
  if ((::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) return;  // nothing was written by it
  const int error = errno;
  const std::string path = target_of(fd);
  if (settings().matches(path)) {
    const NoSignals no_signals;
    const std::unique_lock lock(lock_);
    if (find_name(path) == nullptr) {
      say(path + ": it was opened by a system call that memlith does not see; memlith keeps it from now on, and what " +
          "was written to it before was not failure-atomic");
      adopt(path);
    }
  }
  errno = error;
}

int Images::unlink(const std::string& path, int (*call)(void*), void* context) {
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  const ImagePtr image = find_name(path);
  if (image == nullptr) return tidy(path) != 0 ? -1 : call(context);
  if (image->attached) commit_all_before_detaching();
  const std::unique_lock dead(image->life);
  const bool had_log = image->attached;
  if (had_log) detach(*image);
  const int result = call(context);
  const int error = errno;
  if (result == 0) image->untouched = false;
  if (result != 0 && had_log) attach(image, path);
  errno = error;
  return result;
}

std::string Images::inherited() {
  std::string found;
  DIR* const folder = images_.empty() ? nullptr : ::opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) continue;
    struct stat seen{};
    if (real().fstat(fd, &seen) != 0) continue;
    for (const ImagePtr& image : images_) {
      if (image->memory == id_of(seen)) found = "descriptor " + std::to_string(fd) + " of " + image->path();
    }
  }
  ::closedir(folder);
  return found;
}

}  // namespace memlith::preload
