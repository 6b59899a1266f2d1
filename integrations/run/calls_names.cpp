// The names, sizes and attributes of files, as programs ask for them and change them.
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string>

#include "calls.hpp"
#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

namespace {

// The file's attributes, with the size and the times of its image. Other processes see the file as of a checkpoint.
void put_size(const Image& image, struct stat& seen) {
  const NoSignals no_signals;
  struct stat memory{};
  if (image.handle == nullptr || real().fstat(memlith_image_descriptor(image.handle), &memory) != 0) return;
  if (is_unwritten(memory)) return;
  seen.st_size = memory.st_size;
  seen.st_blocks = memory.st_blocks;
  seen.st_mtim = memory.st_mtim;
  seen.st_ctim = memory.st_ctim;
}

int with_size(int result, struct stat* seen) {
  if (result != 0 || !images().any()) return result;
  const int error = errno;
  if (const ImagePtr image = images().of_file(*seen)) put_size(*image, *seen);
  errno = error;
  return result;
}

int stat_descriptor(int fd, struct stat* seen) {
  const int result = real().fstat(fd, seen);
  if (result != 0 || !images().any() || !S_ISREG(seen->st_mode)) return result;
  if (const ImagePtr image = images().of_descriptor(fd)) {
    real().fstat(image->home_fd, seen);
    put_size(*image, *seen);
  }
  return 0;
}

// The path, with its folder as the kernel would find it.
std::string whole_path(int folder, const char* path) {
  std::string given(path);
  if (given.empty()) return given;
  if (given[0] != '/' && folder != AT_FDCWD) given = "/proc/self/fd/" + std::to_string(folder) + "/" + given;
  while (given.size() > 1 && given.back() == '/') given.pop_back();
  const std::size_t slash = given.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : given.substr(0, slash + 1);
  std::array<char, PATH_MAX> found{};
  if (::realpath(parent.c_str(), found.data()) == nullptr) return given;
  const std::string name = slash == std::string::npos ? given : given.substr(slash + 1);
  return std::string(found.data()) + (found[1] == '\0' ? "" : "/") + name;
}

// A file that a crashed program left is recovered before anybody looks at its size.
void tidy_before(int folder, const char* path) {
  if (path == nullptr || path[0] == '\0' || settings().patterns.empty() || NoSignals::held()) return;
  const int error = errno;
  const std::string whole = whole_path(folder, path);
  struct stat seen{};
  if (settings().matches(whole) && real().lstat(whole.c_str(), &seen) == 0 && S_ISREG(seen.st_mode) &&
      images().of_file(seen) == nullptr) {
    images().tidy(whole);
  }
  errno = error;
}

struct Renaming {
  int from_folder;
  const char* from;
  int to_folder;
  const char* to;
  unsigned flags;
};

int rename_file(Renaming renaming) {
  const auto call = [](void* context) {
    const Renaming& each = *static_cast<Renaming*>(context);
    return each.flags == 0 ? real().renameat(each.from_folder, each.from, each.to_folder, each.to)
                           : real().renameat2(each.from_folder, each.from, each.to_folder, each.to, each.flags);
  };
  if (settings().patterns.empty()) return call(&renaming);
  return images().rename(whole_path(renaming.from_folder, renaming.from), whole_path(renaming.to_folder, renaming.to),
                         renaming.flags, call, &renaming);
}

struct Removing {
  int folder;
  const char* path;
  int flags;
};

int unlink_file(Removing removing) {
  const auto call = [](void* context) {
    const Removing& each = *static_cast<Removing*>(context);
    return real().unlinkat(each.folder, each.path, each.flags);
  };
  if (settings().patterns.empty() || (removing.flags & AT_REMOVEDIR) != 0) return call(&removing);
  return images().unlink(whole_path(removing.folder, removing.path), call, &removing);
}

int link_file(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  struct stat seen{};
  const bool known = real().fstatat(from_folder, from, &seen, AT_SYMLINK_NOFOLLOW) == 0;
  const bool is_other = known && !S_ISREG(seen.st_mode) && !S_ISLNK(seen.st_mode);
  const bool ours = (known && images().of_file(seen) != nullptr) || settings().matches(whole_path(from_folder, from)) ||
                    settings().matches(whole_path(to_folder, to));
  if (!ours || is_other) return real().linkat(from_folder, from, to_folder, to, flags);
  say(std::string(from) + ": a file that memlith keeps can have one name only, because its log lies beside the name");
  errno = EPERM;
  return -1;
}

template <class Call>
int on_home(int fd, Call call) {
  const ImagePtr image = images().of_descriptor(fd);
  return image == nullptr ? 1 : call(("/proc/self/fd/" + std::to_string(image->home_fd)).c_str());
}

}  // namespace

MEMLITH_INTERPOSE(int, stat, const char* path, struct stat* seen) {
  tidy_before(AT_FDCWD, path);
  return with_size(real().stat(path, seen), seen);
}
MEMLITH_INTERPOSE_ALSO(stat64, stat);
MEMLITH_INTERPOSE(int, lstat, const char* path, struct stat* seen) {
  tidy_before(AT_FDCWD, path);
  return with_size(real().lstat(path, seen), seen);
}
MEMLITH_INTERPOSE_ALSO(lstat64, lstat);
MEMLITH_INTERPOSE(int, fstat, int fd, struct stat* seen) { return stat_descriptor(fd, seen); }
MEMLITH_INTERPOSE_ALSO(fstat64, fstat);
MEMLITH_INTERPOSE(int, fstatat, int folder, const char* path, struct stat* seen, int flags) {
  if ((flags & AT_EMPTY_PATH) != 0 && path[0] == '\0' && folder != AT_FDCWD) return stat_descriptor(folder, seen);
  tidy_before(folder, path);
  return with_size(real().fstatat(folder, path, seen, flags), seen);
}
MEMLITH_INTERPOSE_ALSO(fstatat64, fstatat);
// Programs that were built before glibc 2.33 call these.
MEMLITH_INTERPOSE(int, __xstat, int, const char* path, struct stat* seen) { return our_stat(path, seen); }
MEMLITH_INTERPOSE_ALSO(__xstat64, __xstat);
MEMLITH_INTERPOSE(int, __lxstat, int, const char* path, struct stat* seen) { return our_lstat(path, seen); }
MEMLITH_INTERPOSE_ALSO(__lxstat64, __lxstat);
MEMLITH_INTERPOSE(int, __fxstat, int, int fd, struct stat* seen) { return our_fstat(fd, seen); }
MEMLITH_INTERPOSE_ALSO(__fxstat64, __fxstat);
MEMLITH_INTERPOSE(int, __fxstatat, int, int folder, const char* path, struct stat* seen, int flags) {
  return our_fstatat(folder, path, seen, flags);
}
MEMLITH_INTERPOSE_ALSO(__fxstatat64, __fxstatat);
MEMLITH_INTERPOSE(int, statx, int folder, const char* path, int flags, unsigned mask, struct statx* seen) {
  tidy_before(folder, path);
  const int result = real().statx(folder, path, flags, mask, seen);
  if (result != 0 || !images().any() || !S_ISREG(seen->stx_mode)) return result;
  struct stat plain{};
  const bool by_descriptor = (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || path[0] == '\0');
  const int found =
      by_descriptor ? stat_descriptor(folder, &plain) : our_fstatat(folder, path, &plain, flags & AT_SYMLINK_NOFOLLOW);
  if (found != 0) return result;
  if (const ImagePtr image = images().of_file(plain)) {
    if (by_descriptor) real().statx(image->home_fd, "", AT_EMPTY_PATH, mask, seen);
    seen->stx_size = static_cast<std::uint64_t>(plain.st_size);
    seen->stx_blocks = static_cast<std::uint64_t>(plain.st_blocks);
    seen->stx_mtime.tv_sec = plain.st_mtim.tv_sec;
    seen->stx_mtime.tv_nsec = static_cast<std::uint32_t>(plain.st_mtim.tv_nsec);
  }
  return result;
}

MEMLITH_INTERPOSE(int, rename, const char* from, const char* to) {
  return rename_file({AT_FDCWD, from, AT_FDCWD, to, 0});
}
MEMLITH_INTERPOSE(int, renameat, int from_folder, const char* from, int to_folder, const char* to) {
  return rename_file({from_folder, from, to_folder, to, 0});
}
MEMLITH_INTERPOSE(int, renameat2, int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return rename_file({from_folder, from, to_folder, to, flags});
}
MEMLITH_INTERPOSE(int, unlink, const char* path) { return unlink_file({AT_FDCWD, path, 0}); }
MEMLITH_INTERPOSE(int, unlinkat, int folder, const char* path, int flags) { return unlink_file({folder, path, flags}); }
MEMLITH_INTERPOSE(int, remove, const char* path) {
  struct stat seen{};
  const bool is_folder = real().lstat(path, &seen) == 0 && S_ISDIR(seen.st_mode);
  return is_folder ? real().remove(path) : unlink_file({AT_FDCWD, path, 0});
}
MEMLITH_INTERPOSE(int, link, const char* from, const char* to) { return link_file(AT_FDCWD, from, AT_FDCWD, to, 0); }
MEMLITH_INTERPOSE(int, linkat, int from_folder, const char* from, int to_folder, const char* to, int flags) {
  return link_file(from_folder, from, to_folder, to, flags);
}

MEMLITH_INTERPOSE(int, fchmod, int fd, mode_t mode) {
  const int result = on_home(fd, [=](const char* path) { return ::chmod(path, mode); });
  return result == 1 ? real().fchmod(fd, mode) : result;
}
// The times of an image that was never written to are the file's.
MEMLITH_INTERPOSE(int, futimens, int fd, const struct timespec* times) {
  const ImagePtr image = images().of_descriptor(fd);
  if (image == nullptr || !image->untouched) return real().futimens(fd, times);
  return on_home(fd, [=](const char* path) { return ::utimensat(AT_FDCWD, path, times, 0); });
}
MEMLITH_INTERPOSE(int, futimes, int fd, const struct timeval* times) {
  if (times == nullptr) return our_futimens(fd, nullptr);
  const std::array<timespec, 2> both{
      {{times[0].tv_sec, times[0].tv_usec * 1000}, {times[1].tv_sec, times[1].tv_usec * 1000}}};
  return our_futimens(fd, both.data());
}
MEMLITH_INTERPOSE(int, fchown, int fd, uid_t owner, gid_t group) {
  const int result = on_home(fd, [=](const char* path) { return ::chown(path, owner, group); });
  return result == 1 ? real().fchown(fd, owner, group) : result;
}

}  // namespace memlith::preload
