// The page that PostgreSQL's write-ahead log ends in, as it was written last. Floor: postgres.
//
// PostgreSQL writes that page of 8 KiB whole with each commit, and the kernel writes whole pages of its cache. The half
// in which nothing has changed is left out. That is sound, because the file has it by a write of this server that
// succeeded, and the flush that follows makes it durable unless an earlier one has. It is only so as long as no write
// and no flush of the log has failed: the kernel may have dropped then what it says that it has. Nothing is left out
// from there on, until the server is started anew.
//
// One process at a time writes the log, with PostgreSQL's WALWriteLock. It may die anywhere. Other processes insert
// records into the last page meanwhile, behind the end of what is to be flushed.
#pragma once

#include <sys/types.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "names.hpp"
#include "shm/words.hpp"

namespace memlith_postgres {

struct WalPlace {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;
  bool operator==(const WalPlace&) const = default;
};

// In shared memory.
class WalTail {
 public:
  // As pwrite(2), which write(source, bytes, offset) is.
  template <class Write>
  ssize_t write(const WalPlace& place, const std::byte* source, std::size_t bytes, const Write& write) {
    const bool is_page = bytes == kPageBytes && place.offset % kPageBytes == 0;
    const bool is_pages = bytes > 0 && bytes % kPageBytes == 0 && place.offset % kPageBytes == 0;
    // ORDER copied-before-write: what is inserted meanwhile may be in PostgreSQL's page and not in the file, so neither
    // the comparison nor what counts as known looks at that page again. [test
    // WalTailTest.WhatIsInsertedBesideAWriteIsWrittenByTheNext]
    std::array<std::byte, kPageBytes> page;
    if (is_page) {
      std::memcpy(page.data(), source, kPageBytes);
      source = page.data();
    }
    const Part part = is_pages ? changed(place, source, bytes) : Part{0, bytes};
    // ORDER unknown-before-write: a process that dies in between has written any part of it. [test
    // WalTailTest.APageIsWrittenWholeBehindAWriterThatDied]
    known_.store(0);
    const ssize_t written = write(source + part.begin, part.end - part.begin, place.offset + part.begin);
    if (written < 0) {
      if (errno != EINTR) fail();
      return written;
    }
    if (static_cast<std::size_t>(written) < part.end - part.begin) return static_cast<ssize_t>(part.begin) + written;
    if (is_page && failed_.load() == 0) keep(place, page);
    return static_cast<ssize_t>(bytes);
  }
  // A write or a flush of the log has failed.
  void fail() {
    failed_.store(1);
    known_.store(0);
  }

 private:
  static constexpr std::size_t kHalfBytes = kPageBytes / 2;
  struct Part {
    std::size_t begin;
    std::size_t end;
  };

  // At least a half.
  [[nodiscard]] Part changed(const WalPlace& place, const std::byte* source, std::size_t bytes) const {
    if (known_.load() == 0 || place != place_) return {0, bytes};
    const auto is_same = [&](std::size_t at) { return std::memcmp(source + at, &page_[at], kHalfBytes) == 0; };
    if (is_same(0)) return {kHalfBytes, bytes};
    return {0, bytes == kPageBytes && is_same(kHalfBytes) ? kHalfBytes : bytes};
  }
  void keep(const WalPlace& place, const std::array<std::byte, kPageBytes>& page) {
    place_ = place;
    page_ = page;
    known_.store(1);
  }

  memlith::core::shm::Word known_{0};
  memlith::core::shm::Word failed_{0};
  WalPlace place_;
  std::array<std::byte, kPageBytes> page_{};
};

}  // namespace memlith_postgres
