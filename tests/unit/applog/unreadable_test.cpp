// docs/guarantees.md, "Sectors that cannot be read": the call of an application log that uses a page first which the
// disk does not give back returns IO, whatever page it is.
#include <gtest/gtest.h>

#include "applog_world.hpp"
#include "support/unreadable.hpp"

namespace memlith::test::unreadable_test {
namespace {

using namespace core;
using applog::AppLog;
using applog::AppLogOptions;
using applog::WhenFull;

constexpr std::uint64_t kRing = 48 * kKiB;

class AppLogUnreadable : public ::testing::Test {
 protected:
  // Entries, of which the first were consumed, in the second half of the ring and in the beginning of the next lap.
  AppLogUnreadable() {
    for (std::uint64_t i = 1; i <= 300; ++i) {
      must(append(world_.log(), entry_text(i)));
      if (i % 10 != 0) continue;
      EXPECT_OK(world_.log().write());
      (void)world_.read_all();
      if (i <= 220) {
        EXPECT_OK(world_.log().consume(i));
      }
    }
    EXPECT_OK(world_.log().write());
    world_.close();
  }
  Result<std::unique_ptr<AppLog>> open(std::uint64_t page) {
    world_.regions().crash();
    Region& region = world_.regions().open("log");
    make_unreadable(region, page * kPageBytes);
    page_ = page;
    told_ = 0;
    return AppLog::open(region, AppLogOptions{true, WhenFull::fail, true});
  }
  bool answered(const Status& status) {
    if (status.ok()) return true;
    EXPECT_EQ(status.category, Errc::io) << told(status);
    EXPECT_EQ(status.detail, Detail::read);
    const std::string place = "objects/1 at offset " + std::to_string(page_ * kPageBytes) + ":";
    EXPECT_NE(std::string(last_error_text()).find(place), std::string::npos) << last_error_text();
    ++told_;
    return false;
  }
  // Two laps, or up to the page.
  void use(AppLog& log) {
    AppLog::Entry entry;
    for (std::uint64_t bytes = 0; bytes < 2 * kRing; bytes += 200) {
      if (!answered(append(log, std::string(200, 'n')).status())) return;
      EXPECT_OK(log.write());
      while (must(log.read(0, entry))) {
      }
      if (bytes > kRing / 4) {
        EXPECT_OK(log.consume(entry.number));
      }
    }
  }

  AppLogWorld world_{kRing};
  std::uint64_t page_ = 0;
  std::uint64_t told_ = 0;
};

TEST_F(AppLogUnreadable, EachPageIsToldByTheCallThatUsesItFirst) {
  if (!unreadable_pages_are_told()) GTEST_SKIP() << "the kernel is older than Linux 5.14";
  if (host_page_bytes() != kPageBytes) GTEST_SKIP() << "one page of the kernel's has several of the log's";
  std::uint64_t opened = 0;
  for (std::uint64_t page = 0; page < (kPageBytes + kRing) / kPageBytes; ++page) {
    auto log = open(page);
    if (answered(log.status())) {
      ++opened;
      use(**log);
    }
    EXPECT_EQ(told_, 1u) << "page " << page;
  }
  EXPECT_GT(opened, 2u);
}

}  // namespace
}  // namespace memlith::test::unreadable_test
