// The classes of checkpoints that the MemSnap paper compares with, as the least that each can be: the threads of the
// program are stopped while the dirty pages of a region are found and copied; or while they are found and the whole
// process is forked, whose child then writes. The threads go on before the write.
//
// A checkpoint is one write of the pages, with a table of their places, and one flush. No checksum, no recovery.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "cli/failure.hpp"
#include "kit/raw_device.hpp"
#include "memlith/memlith.h"
#include "page_marks.hpp"

namespace memlith::tool {

// Threads that store over and over, each to a page of its own, and tell how long none of them could. Where there are
// more processors than threads, each stores every half microsecond; else they sleep between stores.
class Storers {
 public:
  // The pages of the threads, one behind the other. With `touched`, a store is followed by memlith_touch().
  struct Memory {
    std::byte* pages;
    memlith_region* touched;
  };

  explicit Storers(std::size_t threads);  // stopped
  ~Storers();
  Storers(const Storers&) = delete;
  Storers& operator=(const Storers&) = delete;

  // From now on the threads store to this memory. Returns after the first store. Precondition: stopped.
  void begin(const Memory& memory);
  // Returns when no thread is in a store; none begins one until go_on().
  void stop();
  void go_on();
  // The longest time since begin() in which no thread ended a store. Waits for a store, whose time counts.
  // Precondition: not stopped.
  [[nodiscard]] std::uint64_t longest_pause_ns();
  // A touch that failed.
  [[nodiscard]] MaybeFailure failure() const;

 private:
  struct alignas(64) Thread {
    std::atomic<bool> storing{false};  // seq_cst, with stopped_: a thread that stores has not seen the stop
    std::jthread thread;
  };
  void work(std::size_t number);
  void rest();
  void wait_for_a_store();

  Memory memory_{};                        // written while stopped
  std::atomic<bool> stopped_{true};        // pairs with Thread::storing
  std::atomic<bool> ended_{false};         // before stopped_ becomes false
  bool sleep_;                             // between stores, and while stopped
  std::atomic<std::uint64_t> last_ns_{0};  // the end of the last store
  std::atomic<std::uint64_t> longest_ns_{0};
  std::atomic<std::int32_t> code_{MEMLITH_OK};
  std::vector<Thread> threads_;
};

// Memory, and checkpoints of it in a file.
class Checkpoints {
 public:
  enum class Of : std::uint8_t { region, process };

  // `path` must not exist. A checkpoint has at most `bytes_max`. UNSUPPORTED if the kernel does not mark pages.
  static Result<Checkpoints> create(const std::string& path, std::uint64_t memory_bytes, std::uint64_t bytes_max, Of of,
                                    Storers& storers);
  Checkpoints(Checkpoints&& other) noexcept;
  Checkpoints& operator=(Checkpoints&&) = delete;
  ~Checkpoints();

  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  // On success all stores before the call are durable. The storers go on; precondition: they are not stopped.
  [[nodiscard]] MaybeFailure take();
  // The size of the pages that the last checkpoint wrote.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  Checkpoints(SmallPages memory, PageMarks marks, RawFile file, int descriptor, HugeBuffer copy,
              std::uint64_t bytes_max, Of of, Storers& storers);
  [[nodiscard]] std::uint64_t table_bytes() const;
  [[nodiscard]] MaybeFailure find_dirty_pages();
  void copy_pages();
  // Writes in a forked child, and returns once that has told that it is durable; its end is not waited for.
  [[nodiscard]] MaybeFailure fork_writer();
  [[nodiscard]] MaybeFailure wait_for_child();
  void reap_child();
  // 0 or an errno. Allocates nothing: it runs in a forked child, too.
  [[nodiscard]] int write();

  SmallPages memory_;
  PageMarks marks_;
  RawFile file_;
  int descriptor_;   // of the file, for writes of scattered pages
  HugeBuffer copy_;  // `bytes_max_` for pages, then the table
  std::uint64_t bytes_max_;
  Of of_;
  Storers* storers_;
  std::vector<PageMarks::Range> written_;
  std::uint64_t bytes_ = 0;   // of the dirty pages
  std::uint64_t offset_ = 0;  // of this checkpoint in the file
  std::vector<iovec> pieces_;
  pid_t child_ = -1;
  int told_ = -1;  // the child's pipe
};

}  // namespace memlith::tool
