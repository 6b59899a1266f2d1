// Pages of a namespace in memory, for mappings. Floor: device.
//
// A namespace that is used by commands has no page cache that could be mapped. This takes its place: a file in memory
// that has, at the same offsets, the content of what was mapped once. Every write to the namespace goes there, too, so
// that a page without a private copy shows it, as with files. Pages of zeros take no memory until they are written.
//
// Any thread. Between the end of a command and wrote() or zeroed(), a mapping shows what was there before.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "base/descriptor.hpp"
#include "base/sync.hpp"
#include "device/device.hpp"

namespace memlith::core {

class NvmePages {
 public:
  // Reads the namespace.
  using Read = std::function<Status(std::uint64_t offset, std::span<std::byte> target)>;

  explicit NvmePages(std::string path) : path_(std::move(path)) {}

  // Reads what is not there yet of [offset, offset + bytes), whole pages. Allocates nothing, and does not wait for the
  // device, if all of it is there. Errors: no_memory, those of reads.
  Result<Mappable> map(std::uint64_t offset, std::uint64_t bytes, const Read& read);

  // To be called when the command is done. An error means that mappings are out of date.
  Status wrote(std::uint64_t offset, std::span<const iovec> pieces);
  Status zeroed(std::uint64_t offset, std::uint64_t bytes);

  // True if the bytes were taken from here; if not, the namespace has to be read.
  bool take(std::uint64_t offset, std::span<std::byte> target);

 private:
  Status open() MEMLITH_REQUIRES(mutex_);
  Status fill(std::uint64_t offset, std::span<std::byte> piece, const Read& read) MEMLITH_REQUIRES(mutex_);
  void note(std::uint64_t begin, std::uint64_t end) MEMLITH_REQUIRES(mutex_);
  // Calls `act(begin, end)` for each part of the range that is there.
  template <class Act>
  Status each_part(std::uint64_t begin, std::uint64_t end, const Act& act) MEMLITH_REQUIRES(mutex_);

  const std::string path_;
  Mutex mutex_;
  Descriptor file_ MEMLITH_GUARDED_BY(mutex_);
  // Ends by beginnings of what is there; whole pages, which neither touch nor overlap.
  std::map<std::uint64_t, std::uint64_t> there_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core
