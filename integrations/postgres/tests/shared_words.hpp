// A small vocabulary: shared memory as the processes of a server have it, pages, and their content.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "postgres/src/keeper.hpp"
#include "postgres/src/pages.hpp"

namespace memlith_postgres::test {

using PageBytes = std::vector<std::byte>;

inline PageBytes page_of(int value) { return PageBytes(kPageBytes, static_cast<std::byte>(value)); }

// Memory that forked children have, too.
class SharedWorld {
 public:
  SharedWorld() : pages_(make()) {}
  SharedWorld(const SharedWorld&) = delete;
  SharedWorld& operator=(const SharedWorld&) = delete;

  Pages& pages() { return pages_; }
  SharedMemory& memory() { return pages_.memory(); }
  FileRef add(std::uint64_t inode, const std::string& path, std::uint32_t blocks = 0) {
    const Pages::Lock lock(pages_);
    return pages_.add_file(1, inode, path, blocks);
  }
  void put(FileRef file, std::uint32_t block, int value) {
    const Pages::Lock lock(pages_);
    pages_.put_page(file, block, page_of(value).data(), pages_.find_page(file, block), true);
  }
  // The value that fills the page; -1: it is not on its way; -2: it is not filled with one value.
  int value(FileRef file, std::uint32_t block) {
    const Pages::Lock lock(pages_);
    const std::byte* const page = pages_.find_page(file, block);
    if (page == nullptr) return -1;
    return PageBytes(page, page + kPageBytes) == page_of(static_cast<int>(page[0])) ? static_cast<int>(page[0]) : -2;
  }

 private:
  static Pages::Segment make() {
    auto made = Pages::make("", "");
    EXPECT_TRUE(made.ok()) << memlith::core::last_error_text();
    return std::move(*made);
  }

  Pages pages_;
};

}  // namespace memlith_postgres::test
