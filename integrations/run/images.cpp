#include "images.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "engine_files.hpp"
#include "engine_threads.hpp"
#include "helpers.hpp"
#include "late_commits.hpp"
#include "real.hpp"

namespace memlith::preload {

NoSignals::NoSignals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  ++depth_;
}

NoSignals::~NoSignals() {
  const int error = errno;
  --depth_;
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

void say(const std::string& sentence) {
  const int error = errno;
  const std::string line = "memlith: " + sentence + "\n";
  if (real().write(STDERR_FILENO, line.data(), line.size()) < 0) {
  }  // there is nowhere else to say it
  errno = error;
}

Images& images() {
  static Images& all = *new Images;
  return all;
}

// A thread that waits for `life` alone is not overtaken for ever by threads that share it.
void Image::make_locks() {
  std::construct_at(&life);
  std::construct_at(&order);
  pthread_rwlockattr_t fair;
  ::pthread_rwlockattr_init(&fair);
  ::pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  ::pthread_rwlock_init(static_cast<pthread_rwlock_t*>(life.native_handle()), &fair);
  ::pthread_rwlockattr_destroy(&fair);
}

std::string Image::path() const { return target_of(home_fd); }

// ---- finding ---------------------------------------------------------------------------------------------------

ImagePtr Images::find_descriptor(int fd) {
  const int error = errno;
  struct stat seen{};
  ImagePtr found;
  if (real().fstat(fd, &seen) == 0 && S_ISREG(seen.st_mode)) {
    const NoSignals no_signals;
    const std::shared_lock lock(lock_);
    for (const ImagePtr& image : images_) {
      if (image->memory == id_of(seen)) found = image;
    }
  }
  errno = error;
  return found;
}

ImagePtr Images::of_file(const struct stat& seen) {
  if (!any() || !S_ISREG(seen.st_mode)) return nullptr;
  const NoSignals no_signals;
  const std::shared_lock lock(lock_);
  for (const ImagePtr& image : images_) {
    if (image->home == id_of(seen)) return image;
  }
  return nullptr;
}

ImagePtr Images::find_name(const std::string& path) {
  struct stat seen{};
  if (real().lstat(path.c_str(), &seen) != 0) return nullptr;
  for (const ImagePtr& image : images_) {
    if (image->home == id_of(seen) && image->owner == ::getpid()) return image;
  }
  return nullptr;
}

// ---- opening ---------------------------------------------------------------------------------------------------

bool may_make_log(const std::string& path) { return ::access(path.substr(0, path.rfind('/') + 1).c_str(), W_OK) == 0; }

// Null with errno; or null with errno 0 if the file is to be used as it is.
ImagePtr Images::open(int fd, const struct stat& seen, bool may_write) {
  const std::string path = target_of(fd);
  if (seen.st_nlink > 1) {
    say(path + " was not opened: it has several names (hard links), and its log can lie beside only one of them");
    errno = EMLINK;
    return nullptr;
  }
  const memlith_store_options options = options_of_run();
  auto image = std::make_shared<Image>();
  // Without a log, until the program changes something. Where no log can be made, the program hears of it now.
  const bool late = !has_log(path) && (!may_write || may_make_log(path));
  std::int32_t code = late ? memlith_image_look(path.c_str(), &image->handle) : 0;
  image->untouched = late && code == 0;
  if (!late || memlith_category(code) == MEMLITH_EXISTS) {
    code = memlith_image_open(path.c_str(), &options, &image->handle);
  }
  const std::int32_t category = memlith_category(code);
  if ((category == MEMLITH_PERMISSION || category == MEMLITH_READ_ONLY) && !may_write && !has_log(path)) {
    errno = 0;
    return nullptr;
  }
  if (code != 0) {
    fail_with(code, path + " cannot be opened");
    return nullptr;
  }
  image->home = id_of(seen);
  struct stat memory{};
  real().fstat(memlith_image_descriptor(image->handle), &memory);
  image->memory = id_of(memory);
  image->owner = ::getpid();
  image->home_fd = engine_descriptor(real().open(link_of(fd).c_str(), O_PATH | O_CLOEXEC));
  image->witness.watch(image->home_fd);
  image->attached = !image->untouched;
  if (image->untouched) {
    const std::array<timespec, 2> never{{{0, UTIME_OMIT}, kUnwritten}};
    ::futimens(memlith_image_descriptor(image->handle), never.data());
  }
  images_.push_back(image);
  count_.store(images_.size(), std::memory_order_release);
  return image;
}

int Images::open_like(const Image& image, int flags) {
  constexpr int kKept = O_ACCMODE | O_APPEND | O_NONBLOCK | O_DSYNC | O_SYNC | O_NOATIME;
  return real().open(link_of(memlith_image_descriptor(image.handle)).c_str(), (flags & kKept) | O_CLOEXEC);
}

int Images::truncate_opened(const ImagePtr& image) {
  struct stat seen{};
  if (image->untouched && real().fstat(memlith_image_descriptor(image->handle), &seen) == 0 && seen.st_size == 0) {
    return 0;
  }
  if (begin_log_locked(image) != 0) return -1;
  const std::shared_lock alive(image->life);
  if (!image->attached) return real().ftruncate(memlith_image_descriptor(image->handle), 0);
  const std::int32_t code = memlith_image_cut(image->handle, 0);
  return code == 0 ? 0 : fail_with(code, image->path() + " cannot be truncated");
}

int Images::take_over(int fd, int flags, const struct stat& seen) {
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  ImagePtr image;
  for (const ImagePtr& each : images_) {
    if (each->home == id_of(seen) && each->owner == ::getpid()) image = each;
  }
  const bool may_write = (flags & O_ACCMODE) != O_RDONLY;
  if (may_write) {
    engine_threads().prepare();
    late_commits().begin();
  }
  if (image == nullptr) image = open(fd, seen, may_write);
  if (image == nullptr && errno == 0) return fd;
  int mine = -1;
  if (image != nullptr) mine = open_like(*image, flags);
  if (mine >= 0 && (flags & O_TRUNC) != 0 && truncate_opened(image) != 0) {
    const int error = errno;
    real().close(std::exchange(mine, -1));
    errno = error;
  }
  const int error = errno;
  if (mine >= 0) {
    // The lowest number is that of the file. A descriptor of an image is for this program only (see inherited()).
    real().dup3(mine, fd, O_CLOEXEC);
    real().close(mine);
    return fd;
  }
  if (image != nullptr && !is_used(*image)) close(image);
  real().close(fd);
  errno = error;
  return -1;
}

// ---- committing ------------------------------------------------------------------------------------------------

// Writes of other programs, or of this one before memlith kept the file, may not be on the medium yet.
int Images::flush_home(const Image& image) {
  const int fd = real().open(link_of(image.home_fd).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const int result = real().fsync(fd);
  const int error = errno;
  real().close(fd);
  errno = error;
  return result;
}

int Images::commit(const ImagePtr& committed, bool wait) {
  Image& image = *committed;
  if (image.owner != ::getpid()) {
    say(image.path() + ": a forked child cannot commit the file that its parent has open");
    errno = EIO;
    return -1;
  }
  const NoSignals no_signals;
  if (image.untouched && was_written_unseen(image)) {
    const std::unique_lock lock(lock_);
    keep_unseen_writes(committed);
  }
  if (settings().one_commit) {
    const std::shared_lock lock(lock_);
    if (const std::int32_t code = commit_all_held(); code != 0) {
      return fail_with(code, image.path() + " was not committed, nor the files beside it");
    }
  }
  const std::shared_lock alive(image.life);
  if (image.broken) {
    errno = EIO;
    return -1;
  }
  if (image.untouched) return flush_home(image);
  if (!image.attached) return 0;  // the file has no name, and ends with its descriptors
  const std::int32_t code = commit_held(image, !wait || settings().weak_ms > 0);
  return code == 0 ? 0 : fail_with(code, image.path() + " was not committed");
}

std::int32_t Images::commit_held(Image& image, bool async) {
  tell_of_another(image);
  if (image.has_unseen) memlith_image_suspect(image.handle);
  const std::uint64_t written_bytes = image.written_bytes.exchange(0);
  const std::int32_t code = memlith_image_commit(image.handle, async ? MEMLITH_IMAGE_ASYNC : 0);
  if (code == 0) {
    ++image.commits;
  } else {
    image.written_bytes += written_bytes;
  }
  return code;
}

std::int32_t Images::commit_all_held() {
  std::vector<std::pair<Image*, std::uint64_t>> all;  // with the bytes that were written
  std::vector<std::shared_lock<std::shared_mutex>> alive;
  std::vector<memlith_image*> handles;
  for (const ImagePtr& each : images_) {
    Image& image = *each;
    if (image.owner != ::getpid()) continue;
    alive.emplace_back(image.life);
    if (!image.attached || image.broken) continue;
    tell_of_another(image);
    if (image.has_unseen) memlith_image_suspect(image.handle);
    all.emplace_back(&image, image.written_bytes.exchange(0));
    handles.push_back(image.handle);
  }
  const std::int32_t code = memlith_images_commit(handles.data(), handles.size());
  for (const auto& [image, written_bytes] : all) {
    if (code == 0) {
      ++image->commits;
    } else {
      image->written_bytes += written_bytes;
    }
  }
  return code;
}

int Images::commit_all() {
  std::vector<ImagePtr> all;
  {
    const NoSignals no_signals;
    const std::shared_lock lock(lock_);
    all = images_;
  }
  int result = 0;
  for (const ImagePtr& image : all) {
    if (image->owner == ::getpid() && commit(image, true) != 0) result = -1;
  }
  return result;
}

int Images::resize(const ImagePtr& resized, off_t bytes) {
  if (touch(resized) != 0) return -1;
  Image& image = *resized;
  const NoSignals no_signals;
  const std::shared_lock alive(image.life);
  const std::lock_guard order(image.order);
  if (!image.attached) return real().ftruncate(memlith_image_descriptor(image.handle), bytes);
  const std::int32_t code = memlith_image_cut(image.handle, static_cast<std::uint64_t>(bytes));
  if (code == 0) return 0;
  errno = memlith_errno(code);
  return -1;
}

int Images::begin_log(const ImagePtr& image) {
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  return begin_log_locked(image);
}

int Images::begin_log_locked(const ImagePtr& image) {
  if (!image->untouched) return 0;
  if (image->owner != ::getpid()) {
    say(image->path() + ": a forked child cannot write the file that its parent has open");
    errno = EIO;
    return -1;
  }
  const std::unique_lock dead(image->life);
  const memlith_store_options options = options_of_run();
  const std::string path = image->path();
  const std::int32_t code = memlith_image_attach(image->handle, path.c_str(), &options);
  if (code != 0) return fail_with(code, path + " cannot be changed");
  image->attached = true;
  image->untouched = false;
  if (was_written_unseen(*image)) image->has_unseen = true;
  return 0;
}

bool Images::was_written_unseen(const Image& image) {
  struct stat seen{};
  return real().fstat(memlith_image_descriptor(image.handle), &seen) == 0 && !is_unwritten(seen);
}

// ---- closing ---------------------------------------------------------------------------------------------------

bool Images::is_used(const Image& image) {
  for (const Mapping& mapping : mappings_) {
    if (mapping.image.get() == &image) return true;
  }
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return true;
  const int own = memlith_image_descriptor(image.handle);
  bool used = false;
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    struct stat seen{};
    if (entry->d_name[0] == '.' || fd == own || fd == ::dirfd(folder)) continue;
    used = used || (real().fstat(fd, &seen) == 0 && id_of(seen) == image.memory);
  }
  ::closedir(folder);
  return used;
}

// Commits what was written, and brings it into the file. The log is no longer needed then.
int Images::detach(Image& image) {
  int result = 0;
  const std::string path = image.path();
  if (image.has_unseen) memlith_image_suspect(image.handle);
  if (const std::int32_t code = memlith_image_commit(image.handle, MEMLITH_IMAGE_LAST); code != 0) {
    result = fail_with(code, path + " was not committed when it was closed");
  }
  ++image.commits;
  image.written_bytes = 0;
  report(image);
  tell_of_another(image);
  const int error = errno;
  if (const std::int32_t code = memlith_image_detach(image.handle); code != 0) {
    result = fail_with(code, path + " was not closed cleanly, and its log was left beside it");
  } else {
    // `memlith archive`, which leaves this file beside a log, has yet to read the log.
    if (::access((path + ".memlith-archived").c_str(), F_OK) != 0) ::unlink((path + ".memlith").c_str());
    errno = error;
  }
  image.attached = false;
  return result;
}

int Images::attach(const ImagePtr& image, const std::string& path) {
  const memlith_store_options options = options_of_run();
  const std::int32_t code = memlith_image_attach(image->handle, path.c_str(), &options);
  image->broken = code != 0;
  if (code != 0) return fail_with(code, path + " cannot be opened again under its new name");
  image->attached = true;
  for (const Mapping& mapping : mappings_) {
    if (mapping.image == image && watch(mapping) != 0) return -1;
  }
  return 0;
}

// Commits the writes of unseen calls. The comparison takes some milliseconds for the largest of these files, as do the
// flushes that a close needs.
void Images::commit_unseen(Image& image) {
  constexpr off_t kComparedBytesMax = 64 << 20;
  struct stat memory{};
  if (image.has_unseen || real().fstat(memlith_image_descriptor(image.handle), &memory) != 0) return;
  if (memory.st_size > kComparedBytesMax) return;
  std::uint32_t as_told = 1;
  const bool committed = memlith_image_commit(image.handle, MEMLITH_IMAGE_LAST) == 0;  // or detach() says why not
  if (!committed || memlith_image_check(image.handle, &as_told) != 0 || as_told != 0) return;
  say(image.path() +
      ": it was written by a system call that memlith does not see. These writes are committed now, when the file is " +
      "closed; before that, a crash would have lost some or all of them");
}

int Images::close(const ImagePtr& image) {
  if (image->untouched && image->owner == ::getpid() && was_written_unseen(*image)) keep_unseen_writes(image);
  if (image->attached) commit_all_before_detaching();
  const std::unique_lock dead(image->life);
  if (image->attached) commit_unseen(*image);
  const int result = image->attached ? detach(*image) : 0;
  const int error = errno;
  std::erase(images_, image);
  count_.store(images_.size(), std::memory_order_release);
  memlith_image_close(image->handle);
  image->handle = nullptr;
  image->witness.stop();
  close_engine_descriptor(image->home_fd);
  errno = error;
  return result;
}

int Images::closed_one(const ImagePtr& image) {
  if (image->owner != ::getpid()) return 0;
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  if (image->handle == nullptr || is_used(*image)) return 0;
  return close(image);
}

void Images::detach_all() {
  commit_all_before_detaching();
  for (const ImagePtr& image : images_) {
    const std::unique_lock dead(image->life);
    image->paused = image->owner == ::getpid() && image->attached;
    if (image->paused) detach(*image);
  }
}

void Images::attach_all() {
  for (const ImagePtr& image : images_) {
    const std::unique_lock dead(image->life);
    if (std::exchange(image->paused, false)) attach(image, image->path());
  }
}

void Images::finish() {
  const NoSignals no_signals;
  const std::unique_lock lock(lock_);
  keep_unseen_writes();
  commit_all_before_detaching();
  for (const ImagePtr& image : images_) {
    const std::unique_lock dead(image->life);
    if (image->owner == ::getpid() && image->attached) commit_unseen(*image);
  }
  detach_all();
}

void Images::keep_unseen_writes() {
  for (const ImagePtr& image : images_) {
    if (image->untouched && image->owner == ::getpid() && was_written_unseen(*image)) keep_unseen_writes(image);
  }
}

void Images::keep_unseen_writes(const ImagePtr& image) {
  const bool is_expected = image->has_unseen;
  if (begin_log_locked(image) != 0 || is_expected) return;
  say(image->path() +
      ": it was written by a system call that memlith does not see; from now on each commit compares the whole file");
}

void Images::tell_of_another(Image& image) {
  if (!image.witness.another_wrote() || image.told_of_another.exchange(true)) return;
  say(image.path() + ": another process wrote to this file without memlith, or had it open for writing. What that " +
      "process wrote may be lost, and the file may be damaged");
}

void Images::report(Image& image) {
  if (!settings().report) return;
  memlith_stats stats{};
  stats.struct_size = sizeof stats;
  if (memlith_store_get_stats(memlith_image_store(image.handle), &stats) != 0) return;
  const bool weak = settings().weak_ms > 0;
  const double p50_us = static_cast<double>(weak ? stats.capture_p50_ns : stats.persist_p50_ns) / 1000;
  const double p99_us = static_cast<double>(weak ? stats.capture_p99_ns : stats.persist_p99_ns) / 1000;
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(),
                ": %llu commits, %llu bytes changed, %llu bytes logged, p50 %.1f us, p99 %.1f us",
                static_cast<unsigned long long>(stats.frames), static_cast<unsigned long long>(stats.captured_bytes),
                static_cast<unsigned long long>(stats.logged_bytes), p50_us, p99_us);
  std::string line = image.path() + text.data();
  // The first commit is the one that closes the file.
  if (image.commits == 1 && stats.captured_bytes > 0) {
    line += "; the program committed nothing: had it been killed, everything since it opened the file would be lost";
  }
  say(line);
}

}  // namespace memlith::preload
