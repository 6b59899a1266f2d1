// Memory in small pages, and the kernel's marks of the pages that were stored to (userfaultfd's write protection), for
// sides of benchmarks that are not memlith's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cli/failure.hpp"

namespace memlith::tool {

// Anonymous memory in pages of the kernel's size, all of them in use.
class SmallPages {
 public:
  static Result<SmallPages> make(std::uint64_t bytes);
  SmallPages(SmallPages&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  SmallPages& operator=(SmallPages&&) = delete;
  ~SmallPages();

  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] std::span<std::byte> span() const { return memory_; }

 private:
  explicit SmallPages(std::span<std::byte> memory) : memory_(memory) {}
  std::span<std::byte> memory_;
};

[[nodiscard]] std::uint64_t kernel_page_bytes();

// The side that makes a protected page writable at a store: the kernel by itself (Linux 6.7), or a handler of SIGBUS.
enum class MarkedBy : std::uint8_t { kernel, handler };

class PageMarks {
 public:
  struct Range {
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  // The memory is anonymous and outlives the marks. No page is protected yet. UNSUPPORTED if the kernel refuses.
  static Result<PageMarks> over(std::span<std::byte> memory, MarkedBy by);
  PageMarks(PageMarks&& other) noexcept
      : memory_(other.memory_), marks_(std::exchange(other.marks_, -1)), scans_(std::exchange(other.scans_, -1)) {}
  PageMarks& operator=(PageMarks&&) = delete;
  ~PageMarks();  // makes all pages writable

  // Protects whole pages, or makes them writable. A signal handler may call it. False: errno says why.
  [[nodiscard]] bool protect(const std::byte* begin, std::uint64_t bytes, bool protect) const;
  // Protects all pages that were stored to since they were protected, and appends them to `written`, neighbours as one
  // range. Precondition: MarkedBy::kernel.
  [[nodiscard]] MaybeFailure take_written(std::vector<Range>& written) const;

 private:
  PageMarks(std::span<std::byte> memory, int marks, int scans) : memory_(memory), marks_(marks), scans_(scans) {}

  std::span<std::byte> memory_;
  int marks_;  // userfaultfd
  int scans_;  // /proc/self/pagemap
};

}  // namespace memlith::tool
