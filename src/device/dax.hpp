// A file that is mapped to be written by lines: persistent memory, or a file in memory that stands for it. Floor:
// device.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/sync.hpp"

namespace memlith::core {

// True if the file system keeps its files in memory (tmpfs, ramfs).
bool is_in_memory(int fd);
// True if the processor reaches the file's bytes without a page cache: a file in memory, or one on fsdax.
bool is_byte_addressable(int fd);

// Threads: any, as long as no two write bytes of one line at the same time.
class DaxMapping {
 public:
  // The file stays open as `fd` for as long as the mapping lives. Errors: unsupported where the file system maps
  // neither persistent memory (MAP_SYNC) nor memory.
  static Result<std::unique_ptr<DaxMapping>> open(int fd, const std::string& path);
  ~DaxMapping();
  DaxMapping(const DaxMapping&) = delete;
  DaxMapping& operator=(const DaxMapping&) = delete;

  // Writes inside the file. On ok the bytes survive power loss. Errors: no_space and io, where the file system has no
  // memory for pages that were reserved; otherwise the kernel would raise SIGBUS.
  Status write(std::uint64_t offset, std::span<const iovec> pieces);
  // Pages from here on lost their place in the file: it was cut or discarded.
  void forget(std::uint64_t begin, std::uint64_t end);

 private:
  // Reaches beyond the end of the file, which may grow. A file that outgrows its window gets a larger one; the smaller
  // ones stay, for threads that are using them.
  struct Window {
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
    std::unique_ptr<std::atomic<bool>[]> present;  // by page: stores to it cause no fault that may fail
  };

  DaxMapping(int fd, std::string path, int flags) : fd_(fd), path_(std::move(path)), flags_(flags) {}
  Result<Window*> window_for(std::uint64_t end);
  Status make_present(Window& window, std::uint64_t begin, std::uint64_t end);

  const int fd_;
  const std::string path_;
  const int flags_;                       // of mmap(2)
  std::atomic<Window*> newest_{nullptr};  // release in window_for(), acquire before each use
  Mutex mutex_;
  std::vector<std::unique_ptr<Window>> windows_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core
