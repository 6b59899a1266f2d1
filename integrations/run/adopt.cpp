// Files that the process has open before they are images: taken over where they are, with their descriptors and
// mappings. A file gets its matching name while it is open (a rename), or was opened by an unseen call.
#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine_files.hpp"
#include "helpers.hpp"
#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

namespace {

struct OpenDescriptor {
  int fd;
  int flags;
};

// The program's descriptors of the file, without those that only name it.
std::vector<OpenDescriptor> descriptors_of(const FileId& file) {
  std::vector<OpenDescriptor> found;
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    struct stat seen{};
    if (entry->d_name[0] == '.' || is_engine_descriptor(fd) || real().fstat(fd, &seen) != 0) continue;
    if (id_of(seen) != file) continue;
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_PATH) == 0) found.push_back({fd, flags});
  }
  ::closedir(folder);
  return found;
}

// A file of the kernel's, which has no length before it is read.
std::string read_text(const char* path) {
  std::string text;
  const int fd = engine_descriptor(real().open(path, O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> part{};
  for (ssize_t got = 0; fd >= 0 && (got = ::read(fd, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  close_engine_descriptor(fd);
  return text;
}

struct MappedRange {
  std::byte* begin;
  std::size_t bytes;
  int protection;
  off_t offset;
};

// The shared mappings of the file. Private ones change no file, and go on showing it.
std::vector<MappedRange> mappings_of(const std::string& path, const FileId& file) {
  std::vector<MappedRange> found;
  std::string maps = read_text("/proc/self/maps");
  char* end_of_line = nullptr;
  for (char* line = maps.data(); (end_of_line = std::strchr(line, '\n')) != nullptr; line = end_of_line + 1) {
    *end_of_line = '\0';
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char allowed[5] = "";
    std::uint64_t offset = 0;
    std::uint64_t inode = 0;
    int name_at = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %*s %" SCNu64 " %n", &begin, &end, allowed,
                    &offset, &inode, &name_at) != 5) {
      continue;
    }
    // By the name as well: the device that is shown here is another one than stat's on some file systems.
    if (inode != file.inode || allowed[3] != 's' || path != line + name_at) continue;
    const int protection = (allowed[0] == 'r' ? PROT_READ : 0) | (allowed[1] == 'w' ? PROT_WRITE : 0) |
                           (allowed[2] == 'x' ? PROT_EXEC : 0);
    found.push_back({reinterpret_cast<std::byte*>(begin), end - begin, protection, static_cast<off_t>(offset)});
  }
  return found;
}

// True if two descriptors share an offset. Where the kernel does not say, they are taken not to.
bool share_offset(int one, int other) {
  return real().syscall(SYS_kcmp, ::getpid(), ::getpid(), KCMP_FILE, one, other) == 0;
}

}  // namespace

// Descriptors of the image with the numbers, modes and offsets of those of the file.
int Images::replace_descriptors(const Image& image) {
  const std::vector<OpenDescriptor> all = descriptors_of(image.home);
  std::vector<int> made;  // for each of `all`, a number of its own until all of them are there
  int result = 0;
  for (std::size_t i = 0; i < all.size() && result == 0; ++i) {
    std::size_t like = 0;
    while (like < i && !share_offset(all[like].fd, all[i].fd)) ++like;
    const int fd = like < i ? real().fcntl(made[like], F_DUPFD_CLOEXEC, 0) : open_like(image, all[i].flags);
    if (fd < 0) result = -1;
    made.push_back(fd);
    if (result == 0 && like == i) ::lseek(fd, ::lseek(all[i].fd, 0, SEEK_CUR), SEEK_SET);
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (result == 0) real().dup3(made[i], all[i].fd, O_CLOEXEC);
    if (made[i] >= 0) real().close(made[i]);
  }
  return result;
}

int Images::replace_mappings(const ImagePtr& image, const std::string& path) {
  for (const MappedRange& each : mappings_of(path, image->home)) {
    if (begin_log_locked(image) != 0) return -1;
    const int fd = memlith_image_descriptor(image->handle);
    if (real().mmap(each.begin, each.bytes, each.protection, MAP_SHARED | MAP_FIXED, fd, each.offset) == MAP_FAILED) {
      return -1;
    }
    mappings_.push_back({each.begin, each.bytes, static_cast<std::uint64_t>(each.offset), true, image});
    if (watch(mappings_.back()) != 0) return -1;
  }
  return 0;
}

void Images::adopt(const std::string& path) {
  struct stat seen{};
  if (!settings().matches(path) || real().lstat(path.c_str(), &seen) != 0 || !S_ISREG(seen.st_mode)) return;
  const FileId file = id_of(seen);
  if (find_name(path) != nullptr) return;
  if (descriptors_of(file).empty() && mappings_of(path, file).empty()) return;
  late_commits().begin();
  const int fd = real().open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ImagePtr image = fd < 0 ? nullptr : open(fd, seen, true);
  if (fd >= 0) real().close(fd);
  const bool done = image != nullptr && replace_descriptors(*image) == 0 && replace_mappings(image, path) == 0;
  if (done) return;
  say(path +
      ": memlith cannot take over this file, which the program has open already. Until the program closes it and " +
      "opens it again, what is written to it is not failure-atomic");
  if (image != nullptr && !is_used(*image)) close(image);
}

}  // namespace memlith::preload
