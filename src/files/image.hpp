// The working image of an ordinary file: memory that a program uses in place of the file, and whose state a commit
// makes durable in the file, all or nothing. Floor: files.
//
// A program that also reads and writes by descriptors gets a file in memory (MemfdMemory); one that only maps the file
// gets private pages over it (PrivateMemory). The user's file itself is never mapped for writing and is written by
// replay alone (invariant 1).
//
// Changes since the last commit are known from four sources: the stores that the memory finds; note(), for writes
// through descriptors; cut(), for a file that was shorter in between; and the data that lies beyond every length that
// the file had in a commit. If any of them may have missed something, suspect() lets the next commit compare the whole
// image with the file.
//
// Threads: any. A commit copies under the lock; its I/O runs without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/memory_budget.hpp"
#include "base/sync.hpp"
#include "files/memfd_memory.hpp"
#include "files/private_memory.hpp"
#include "region/twins.hpp"
#include "store/store.hpp"

namespace memlith::core {

class CommonLog;

inline constexpr std::uint64_t kWholeFile = ~std::uint64_t{0};

class FileImage {
 public:
  // Reads the file of a one-file store into memory. The file grows in steps of at least `ahead_bytes_min`, because each
  // growth costs a flush; a clean close cuts it to its length.
  // `memory`, if given, is the image that another FileImage has left behind (take_memory), or read_file() has made: the
  // first commit compares it with the file, unless it `is_equal`.
  static Result<std::unique_ptr<FileImage>> open(Store& store, std::uint64_t ahead_bytes_min = 1 * kMiB,
                                                 Descriptor memory = Descriptor(), bool is_equal = false);
  // A working image of a file without a store.
  static Result<Descriptor> read_file(Device& file);
  // An image in private pages over the file, from `room` on, which this process has taken, and of which the image
  // disposes, also after a failure. It has no descriptor.
  static Result<std::unique_ptr<FileImage>> open_private(Store& store, const Room& room,
                                                         std::uint64_t ahead_bytes_min = 1 * kMiB);
  ~FileImage() = default;
  FileImage(const FileImage&) = delete;
  FileImage& operator=(const FileImage&) = delete;

  // ---- of an image that was opened by open()
  // Readable and writable; stays open as long as this object.
  [[nodiscard]] int descriptor() const { return memfd_->descriptor(); }
  // The image outlives this object, which is good for nothing else any more.
  Descriptor take_memory() { return memfd_->take(); }
  // See Watches.
  Status watch(std::byte* address, std::uint64_t bytes, std::uint64_t offset) MEMLITH_EXCLUDES(mutex_);
  Status unwatch(const std::byte* address, std::uint64_t bytes) MEMLITH_EXCLUDES(mutex_);
  // The bytes were written through a descriptor, or are being written: a commit that begins later captures them.
  Status note(std::uint64_t offset, std::uint64_t bytes) MEMLITH_EXCLUDES(mutex_);
  // Anything may have changed.
  void suspect() MEMLITH_EXCLUDES(mutex_);
  // For a caller that closes the file next, and has committed: brings all commits home, and compares. False: the image
  // was changed by calls that were not reported; the next commit has these changes.
  Result<bool> is_as_told() MEMLITH_EXCLUDES(mutex_);

  // ---- of an image that was opened by open_private()
  [[nodiscard]] std::byte* address() const { return private_->address(); }
  [[nodiscard]] std::uint64_t reserve() const { return private_->reachable(); }
  // Gives the memory of committed pages back to the system: brings the commits home. Stores of other threads wait
  // meanwhile; a system call of theirs that stores to the image may fail with EFAULT.
  Status release() MEMLITH_EXCLUDES(mutex_);
  // The same if they take much of what the process may have. After a commit.
  void keep_to_memory() MEMLITH_EXCLUDES(mutex_);

  // ---- of both
  // Sets the length of the image. A program that cuts it otherwise races with commits, which read it.
  Status cut(std::uint64_t bytes) MEMLITH_EXCLUDES(mutex_);

  // How much may have changed since the last commit, in whole pages; at least 1 if anything has.
  Result<std::uint64_t> changed_bytes() MEMLITH_EXCLUDES(mutex_);

  // Captures all changes within `range`, and the length, into one commit. What a change of the length made zeros is
  // zeros in the commit wherever it lies. Store::sync() of the result makes it durable.
  // On an error nothing was captured, and the next commit covers everything. `is_last`: the file is closed next, so it
  // does not grow ahead.
  Result<Lsn> capture(Range range, bool will_sync, bool is_last = false) MEMLITH_EXCLUDES(mutex_);
  // True if the commit that ends there is durable although Store::sync() may have to flush for it: the newest one, of
  // several files, in their common log.
  [[nodiscard]] bool is_decided(Lsn end) const MEMLITH_EXCLUDES(mutex_);

  // ---- several files
  struct Wanted {
    FileImage* image = nullptr;
    Range range;
    bool is_last = false;
  };
  // Makes the changes of all of them durable, all or none: in one frame of the log that `common` gives, which is asked
  // if more than one file has changed. Each image is there once. On an error nothing was captured, unless the stores
  // are poisoned.
  static Status commit_together(std::span<const Wanted> wanted, const std::function<Result<CommonLog*>()>& common);
  [[nodiscard]] CommonLog* common_log() const MEMLITH_EXCLUDES(mutex_);  // of which the file is; null: of none
  // Puts the image back to the last commit; its length, too, if the range is the whole file.
  Status rollback(Range range) MEMLITH_EXCLUDES(mutex_);

  [[nodiscard]] std::uint64_t committed_bytes() const MEMLITH_EXCLUDES(mutex_);

 private:
  FileImage(Store& store, std::uint64_t ahead_bytes_min) : store_(store), ahead_bytes_min_(ahead_bytes_min) {}
  Result<ObjectInfo> begin() MEMLITH_REQUIRES(mutex_);
  Status load(Descriptor memory, bool is_equal) MEMLITH_EXCLUDES(mutex_);
  Status load_private(const Room& room) MEMLITH_EXCLUDES(mutex_);
  Status find_changes(std::uint64_t size_bytes) MEMLITH_REQUIRES(mutex_);
  Status compare_with_file(std::uint64_t size_bytes) MEMLITH_REQUIRES(mutex_);
  [[nodiscard]] Range cut_off_by_length(std::uint64_t size_bytes) const MEMLITH_REQUIRES(mutex_);
  void add_zeros(Range gone) MEMLITH_REQUIRES(mutex_);
  Status find_differences(std::uint64_t end, std::vector<Range>& found) MEMLITH_REQUIRES(mutex_);
  Range choose(Range range, std::uint64_t size_bytes) MEMLITH_REQUIRES(mutex_);
  Status reserve(std::uint64_t size_bytes, bool is_last) MEMLITH_REQUIRES(mutex_);
  class Captured;
  // The captured changes, without bytes and a length if there are none.
  Status find(Range range, bool is_last, Captured& captured) MEMLITH_REQUIRES(mutex_);
  void gather(Captured& captured) MEMLITH_REQUIRES(mutex_);
  void note_committed(Lsn end, Captured& captured) MEMLITH_REQUIRES(mutex_);
  Status sync() MEMLITH_REQUIRES(mutex_) { return last_lsn_ == decided_lsn_ ? kOk : store_.sync(last_lsn_); }
  static Status decide(std::deque<Captured>& all, CommonLog& common);
  Status restore_chosen() MEMLITH_REQUIRES(mutex_);

  Store& store_;
  const std::uint64_t ahead_bytes_min_;
  std::shared_ptr<Atomic<std::uint64_t>> committed_lsn_;

  mutable Mutex mutex_;
  std::unique_ptr<ImageMemory> memory_ MEMLITH_PT_GUARDED_BY(mutex_);
  // One of them is memory_, constant once the image is open. Their descriptor and address are constant, too.
  MemfdMemory* memfd_ = nullptr;
  PrivateMemory* private_ = nullptr;
  std::optional<MemoryBudget> budget_;  // of a private memory
  std::unique_ptr<Twins> twins_ MEMLITH_GUARDED_BY(mutex_);
  std::vector<Range> changed_ MEMLITH_GUARDED_BY(mutex_);  // since the last commit, whole pages, as known so far
  std::vector<Range> chosen_ MEMLITH_GUARDED_BY(mutex_);   // what the running commit takes of them
  std::vector<Range> left_ MEMLITH_GUARDED_BY(mutex_);     // and what it leaves
  std::vector<SourceExtent> pieces_ MEMLITH_GUARDED_BY(mutex_);
  std::vector<Extent> extents_ MEMLITH_GUARDED_BY(mutex_);
  std::vector<const std::byte*> sources_ MEMLITH_GUARDED_BY(mutex_);
  std::uint64_t committed_bytes_ MEMLITH_GUARDED_BY(mutex_) = 0;  // the length as of the last commit
  std::uint64_t longest_bytes_ MEMLITH_GUARDED_BY(mutex_) = 0;    // of all commits since opening: zeros lie beyond
  std::uint64_t shortest_bytes_ MEMLITH_GUARDED_BY(mutex_) = kWholeFile;  // since the last commit
  std::uint64_t reserved_bytes_ MEMLITH_GUARDED_BY(mutex_) = 0;
  bool suspect_ MEMLITH_GUARDED_BY(mutex_) = false;
  Lsn last_lsn_ MEMLITH_GUARDED_BY(mutex_);
  Lsn decided_lsn_ MEMLITH_GUARDED_BY(mutex_);  // end of the newest commit that common_ has decided
  CommonLog* common_ MEMLITH_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace memlith::core
