// The files that this process uses through working images, and what has to happen to them at each call.
//
// A program's descriptor of a matching file is a descriptor of its working image, a file in memory. The kernel does all
// reading, writing, seeking, duplicating and mapping with it; so nothing of that is imitated here, and descriptors and
// mappings are coherent. An image is found by what fstat says of a descriptor, so no table of descriptors can be wrong.
//
// Locks, in this order: the list of images; `life` of an image, held exclusively where it is attached and detached;
// `order` of an image, while something is written at a place that only the kernel knows; EngineThreads'; the heap's
// (engine_heap.hpp). All signals are blocked while one is held, so that a handler may use the files as well.
#pragma once

#include <private/images.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "late_commits.hpp"
#include "settings.hpp"
#include "witness.hpp"

namespace memlith::preload {

const Settings& settings();

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};

inline FileId id_of(const struct stat& seen) { return {seen.st_dev, seen.st_ino}; }

// The time of the last change of a working image that was not written to since the file was read.
inline constexpr timespec kUnwritten{1, 1};
inline bool is_unwritten(const struct stat& memory) {
  return memory.st_mtim.tv_sec == kUnwritten.tv_sec && memory.st_mtim.tv_nsec == kUnwritten.tv_nsec;
}

struct Image {
  Image() { make_locks(); }
  // Also in a forked child: a thread that the child does not have may have held them.
  void make_locks();

  FileId home;    // the file
  FileId memory;  // its working image
  pid_t owner = 0;
  int home_fd = -1;  // O_PATH

  std::shared_mutex life;
  memlith_image* handle = nullptr;
  bool attached = false;  // else the file has no name any more, or was replaced, and nothing keeps it; or:
  std::atomic<bool> untouched = false;  // nothing was changed since it was opened, and there is no log yet
  bool broken = false;                  // nothing keeps it, and something should
  bool paused = false;                  // detached by detach_all()

  std::mutex order;
  std::atomic<bool> was_fsynced = false;
  std::atomic<int> msyncs_left_out = 0;  // since the last fsync
  Witness witness;
  std::atomic<bool> told_of_another = false;
  std::atomic<bool> has_unseen = false;  // something writes to it that these functions do not see: commits compare

  std::atomic<bool> is_unwatched = false;  // of these, stores to a mapping: nothing marks the pages
  std::atomic<std::uint64_t> commits = 0;
  std::atomic<std::uint64_t> written_bytes = 0;  // by descriptors, since the last commit
  std::atomic<bool> told_late = false;
  struct Look {  // of LateCommits
    using Time = std::chrono::steady_clock::time_point;
    std::uint64_t commits = 0;
    std::uint64_t count = 0;
    Time changed_since;  // not committed since then; zero: nothing is changed
    timespec written{};  // when the image was written last
  };
  Look last_look;  // of the thread of LateCommits

  [[nodiscard]] std::string path() const;  // where the file is now
};
using ImagePtr = std::shared_ptr<Image>;

// Blocks all signals of the thread. What libraries call meanwhile, on behalf of this one, goes to the C library.
class NoSignals {
 public:
  static bool held() { return depth_ != 0; }
  // For a thread of memlith's: it is as if it held one for ever, with the signals that are blocked already.
  static void hold_for_ever() { ++depth_; }
  NoSignals();
  ~NoSignals();
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  // Runs `body` with the signals that were blocked before.
  template <class Body>
  auto without(Body body) const {
    sigset_t none;
    ::pthread_sigmask(SIG_SETMASK, &before_, &none);
    const int depth = std::exchange(depth_, 0);
    const auto result = body();
    const int error = errno;
    depth_ = depth;
    ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
    errno = error;
    return result;
  }

 private:
  inline static thread_local int depth_ = 0;
  sigset_t before_;
};

// Prints "memlith: ..." on standard error.
void say(const std::string& sentence);

class Images {
 public:
  // Takes over the descriptor `fd` of the matching file, just opened with `flags`: returns a descriptor of its image
  // with the same number, or -1 with errno, and closes `fd`.
  int take_over(int fd, int flags, const struct stat& seen);

  // Null if the descriptor is of no image.
  ImagePtr of_descriptor(int fd) { return any() ? find_descriptor(fd) : nullptr; }
  ImagePtr of_file(const struct stat& seen);
  [[nodiscard]] bool any() const { return count_.load(std::memory_order_acquire) != 0 && !NoSignals::held(); }

  // Makes all changes durable; 0, or -1 with errno.
  int commit(const ImagePtr& image, bool wait);
  int commit_all();
  // Notes the number of bytes that were written by a descriptor.
  static void note_written(Image& image, std::uint64_t bytes) {
    if ((image.written_bytes += bytes) < kLateBytes || image.told_late || settings().commit_every_ms > 0) return;
    tell_late(image, std::to_string(image.written_bytes >> 20) + " MiB were written");
  }
  // See LateCommits.
  void look_for_late_commits();
  int resize(const ImagePtr& image, off_t bytes);

  // The image is about to be changed by the program: from now on there is a log. 0, or -1 with errno.
  int touch(const ImagePtr& image) { return image->untouched ? begin_log(image) : 0; }

  // The C library will write to the image by calls of its own, if anything: each commit compares the whole file, from
  // the first that finds a log, or finds the image written.
  static void expect_unseen(const ImagePtr& image) { image->has_unseen = true; }

  // A descriptor of the image was closed: closes the image if there is no other, and no mapping. 0, or -1 with errno.
  int closed_one(const ImagePtr& image);

  void* map(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset);
  int unmap(void* address, std::size_t bytes);
  void* remap(void* address, std::size_t old_bytes, std::size_t bytes, int flags, void* wanted);
  int sync(void* address, std::size_t bytes, int flags);
  // madvise(MADV_REMOVE): the pages, and what the file has of them, are zeros.
  int punch(void* address, std::size_t bytes);

  // The files at two names, if the process has them open, are detached from them; afterwards they get the names that
  // are theirs then.
  int rename(const std::string& from, const std::string& to, unsigned flags, int (*call)(void*), void* context);
  int unlink(const std::string& path, int (*call)(void*), void* context);
  // The descriptor is one of a matching file that was opened by an unseen call: it becomes one of an image.
  void adopt_unseen(int fd);
  // A file that a crashed program has left is made whole, and its log removed. 0, or -1 with errno.
  int tidy(const std::string& path);

  // The process is about to end or to become another program: what it has written is committed.
  void keep_unseen_writes();  // of images without a log; all under the lock
  void detach_all();
  void attach_all();
  void finish();
  void in_child();
  std::shared_mutex& lock() { return lock_; }
  // The descriptors of images that another program would inherit; empty if there is none.
  std::string inherited();

 private:
  struct Mapping {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::uint64_t offset = 0;
    bool writable = false;
    ImagePtr image;
  };
  ImagePtr find_descriptor(int fd);
  ImagePtr find_name(const std::string& path);
  ImagePtr open(int fd, const struct stat& seen, bool may_write);
  // A descriptor of the image, as open(2) gives one.
  static int open_like(const Image& image, int flags);
  // Takes over the matching file at the path, if the process has it open, and says so if that is impossible.
  void adopt(const std::string& path);
  static int replace_descriptors(const Image& image);
  int truncate_opened(const ImagePtr& image);
  int replace_mappings(const ImagePtr& image, const std::string& path);
  bool is_used(const Image& image);
  int close(const ImagePtr& image);
  // With `life` held, of an image that has a log. The result is a code, as memlith_image_commit gives it.
  static std::int32_t commit_held(Image& image, bool async);
  // The same for all images that have a log, in one commit. With the list's lock, by which no other thread has an image
  // alone and waits for another one.
  std::int32_t commit_all_held();
  void commit_all_before_detaching() {
    if (settings().one_commit) (void)commit_all_held();  // or detach() says why not
  }
  void commit_between_calls(const ImagePtr& committed);
  static void look_if_late(Image& image);
  static void tell_late(Image& image, const std::string& what);
  int begin_log(const ImagePtr& image);
  int begin_log_locked(const ImagePtr& image);
  // True if an image without a log was written by an unseen call.
  static bool was_written_unseen(const Image& image);
  static int flush_home(const Image& image);
  void keep_unseen_writes(const ImagePtr& image);
  static void commit_unseen(Image& image);
  int detach(Image& image);
  int attach(const ImagePtr& image, const std::string& path);
  void report(Image& image);
  // Another process writes to the file: says so, once.
  static void tell_of_another(Image& image);
  // Takes the range out of all mappings, and adds to `touched` the images that they were of.
  void leave(std::byte* begin, std::byte* end, std::vector<ImagePtr>& touched);
  int watch(const Mapping& mapping);
  void watch_again(const std::vector<ImagePtr>& touched);

  std::shared_mutex lock_;
  std::vector<ImagePtr> images_;
  std::vector<Mapping> mappings_;
  std::atomic<std::size_t> count_ = 0;
};

// Never destroyed: threads may use files while the program ends.
Images& images();

}  // namespace memlith::preload
