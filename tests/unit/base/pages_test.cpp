// Pages of a private mapping that are given back, one by one or many at a time.
#include "base/pages.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/descriptor.hpp"

namespace memlith::test {
namespace {

using namespace core;

class Pages : public ::testing::Test {
 protected:
  static constexpr std::size_t kPages = 64;

  Pages() {
    file_ = Descriptor(::memfd_create("pages", MFD_CLOEXEC));
    const std::vector<char> content(kPages * page_, 'f');
    EXPECT_EQ(::pwrite(file_.get(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
    void* const at = ::mmap(nullptr, content.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, file_.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    base_ = static_cast<std::byte*>(at);
    std::memset(base_, 'm', content.size());
  }
  ~Pages() override { ::munmap(base_, kPages * page_); }
  [[nodiscard]] char at(std::size_t page) const { return static_cast<char>(base_[page * page_]); }
  [[nodiscard]] iovec pages(std::size_t first, std::size_t count) const {
    return {base_ + first * page_, count * page_};
  }

  const std::size_t page_ = host_page_bytes();
  Descriptor file_;
  std::byte* base_ = nullptr;
};

TEST_F(Pages, ThoseOfManyRangesAreReadFromTheFileAgain) {
  std::vector<iovec> ranges;
  for (std::size_t page = 1; page + 1 < kPages; page += 3) ranges.push_back(pages(page, page % 2 + 1));
  ASSERT_TRUE(drop_pages(ranges));
  for (std::size_t page = 0; page < kPages; ++page) {
    const bool dropped = page % 3 == 1 ? page + 1 < kPages : page % 3 == 2 && (page - 1) % 2 == 1;
    EXPECT_EQ(at(page), dropped ? 'f' : 'm') << page;
  }
  EXPECT_TRUE(drop_pages(std::span<const iovec>()));
}

// The kernel does not take them together with others.
TEST_F(Pages, LockedOnesAreDroppedToo) {
  ASSERT_EQ(::mlock(base_ + 4 * page_, page_), 0);
  const iovec ranges[] = {pages(2, 1), pages(4, 1), pages(8, 2)};
  ASSERT_TRUE(drop_pages(ranges));
  for (const std::size_t page : {2, 4, 8, 9}) EXPECT_EQ(at(page), 'f') << page;
  for (const std::size_t page : {1, 3, 5, 7, 10}) EXPECT_EQ(at(page), 'm') << page;
}

TEST_F(Pages, PartsOfOneAreRefused) {
  const iovec ranges[] = {pages(2, 1), {base_ + 4 * page_ + 1, page_}};
  EXPECT_FALSE(drop_pages(ranges));
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(at(4), 'm');
}

}  // namespace
}  // namespace memlith::test
