// A persist that the log cannot take is lost only if the program drops it: the limit can be raised while the store is
// open.
#include <gtest/gtest.h>

#include <cstring>

#include "memlith/memlith.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::log_limit_test {
namespace {

constexpr std::uint64_t kSize = 4 << 20;

TEST(LogLimit, IsRaisedForAPersistThatWasFull) {
  TempFolder folder;
  const StoreOptions options{.create = true, .log_bytes = 1 << 20, .log_max_bytes = 1 << 20};
  auto store = Store::open(folder / "store", options);
  ASSERT_TRUE(store);
  auto region = store->region("a", {.create = true, .tracker = Tracker::touched, .size = kSize});
  ASSERT_TRUE(region);
  std::memset(region->address(), 1, kSize);
  ASSERT_TRUE(region->touch(region->address(), kSize));
  const auto refused = region->persist();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().category(), MEMLITH_FULL);
  EXPECT_NE(refused.error().message().find("memlith_store_set_log_max"), std::string::npos);

  const auto too_low = store->set_log_max(4096);
  ASSERT_FALSE(too_low);
  EXPECT_EQ(too_low.error().category(), MEMLITH_INVALID);
  ASSERT_TRUE(store->set_log_max(64 << 20));
  ASSERT_TRUE(region->persist());
  ASSERT_TRUE(region->close());
  ASSERT_TRUE(store->close());

  auto again = Store::open(folder / "store", options);
  ASSERT_TRUE(again);
  auto found = again->region("a");
  ASSERT_TRUE(found);
  const auto* const bytes = static_cast<const char*>(found->address());
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[kSize - 1], 1);
}

}  // namespace
}  // namespace memlith::test::log_limit_test
