// Watches find the pages of a file's working image that a program stored to through its mappings. Floor: files.
//
// Each watch is one shared mapping of the image, at an address that the program or the kernel chose. The kernel marks
// the pages that are written through the mapping (userfaultfd WP_ASYNC), also by system calls, and PAGEMAP_SCAN reads
// and resets the marks. A page that is mapped twice is marked in the mapping through which it was written.
//
// All calls under one lock of the owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "region/tracker.hpp"
#include "region/trackers/userfaultfd.hpp"

namespace memlith::core {

class Watches {
 public:
  // UNSUPPORTED if the kernel cannot mark pages (before Linux 6.7, or in a sandbox). The Watches of a process share the
  // descriptors that they need.
  static Result<std::unique_ptr<Watches>> make();

  // Watches [address, address + bytes), which maps the image from `offset` on and was not stored to yet. The image has
  // `size_bytes` now.
  Status add(std::byte* address, std::uint64_t bytes, std::uint64_t offset, std::uint64_t size_bytes);
  // Ends the watch of all pages in [address, address + bytes), and adds to `written` the ranges of the image that were
  // stored to through them. Parts that are not watched are ignored.
  Status remove(const std::byte* address, std::uint64_t bytes, std::uint64_t size_bytes, std::vector<Range>& written);
  // Adds to `written` what was stored to since the last call, and resets the marks. False if a mapping was replaced
  // without remove(): what was stored to through it is unknown, and it is watched no more.
  Result<bool> collect(std::uint64_t size_bytes, std::vector<Range>& written);

 private:
  struct Watch {
    std::uintptr_t begin = 0;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;
  };
  // The descriptor by which the kernel marks the pages of the process.
  struct Marks {
    FileDescriptor uffd;
    Descriptor pagemap;
  };
  struct Registry;
  static Registry& registry();
  static Result<std::shared_ptr<Marks>> marks_of_process();

  explicit Watches(std::shared_ptr<Marks> marks) : marks_(std::move(marks)) {}
  Result<bool> scan(const Watch& watch, std::uint64_t size_bytes, std::vector<Range>& written);

  const std::shared_ptr<Marks> marks_;
  std::vector<Watch> watches_;
};

}  // namespace memlith::core
