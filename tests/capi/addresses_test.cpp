// docs/guarantees.md, "Addresses": kv stores and application logs lie wherever there is room, and a process whose
// addresses are limited is told so.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <filesystem>

#include "memlith/applog.hpp"
#include "memlith/kv.hpp"
#include "support/child.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::addresses_test {
namespace {

constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

// A store with a kv store and a log, open.
struct Opened {
  explicit Opened(const std::string& path) { wrong = open(path); }
  std::string open(const std::string& path) {
    auto made = Store::open(path, {.create = true});
    if (!made) return made.error().message();
    store.emplace(std::move(*made));
    auto opened = Kv::open(*store, "kv", {.create = true});
    if (!opened) return opened.error().message();
    kv.emplace(std::move(*opened));
    auto found = AppLog::open(*store, "log", {.create = true, .when_full = WhenFull::grow});
    if (!found) return found.error().message();
    log.emplace(std::move(*found));
    auto map = kv->map("map", {.create = true});
    if (!map) return map.error().message();
    auto done = kv->transact([&](KvTransaction& txn) { return txn.put(*map, "key", path); }, Durability::sync);
    if (!done) return done.error().message();
    auto number = log->append("entry");
    if (!number) return number.error().message();
    auto written = log->write();
    return written ? "" : written.error().message();
  }
  std::string wrong;
  std::optional<Store> store;
  std::optional<Kv> kv;
  std::optional<AppLog> log;
};

TEST(Addresses, TwoCopiesOfAStoreAreOpenAtOnce) {
  const TempFolder folder;
  {
    const Opened first(folder / "a");
    ASSERT_EQ(first.wrong, "");
  }
  std::filesystem::copy(folder / "a", folder / "b", std::filesystem::copy_options::recursive);
  const Opened a(folder / "a");
  EXPECT_EQ(a.wrong, "");
  const Opened b(folder / "b");
  EXPECT_EQ(b.wrong, "");
}

TEST(Addresses, NoAddressIsKept) {
  const TempFolder folder;
  {
    const Opened first(folder / "store");
    ASSERT_EQ(first.wrong, "");
  }
  auto store = Store::open(folder / "store");
  ASSERT_TRUE(store);
  for (std::uint64_t i = 0; i < 2; ++i) {
    memlith_region_info info{};
    info.struct_size = sizeof info;
    ASSERT_EQ(memlith_store_region_at(store->handle(), i, &info), MEMLITH_OK);
    EXPECT_EQ(info.address, 0u) << info.name;
    EXPECT_EQ(info.max_size, 1024ull << 30) << info.name;
    // It cannot be opened as what has pointers in it.
    const auto plain = store->region(info.name);
    ASSERT_FALSE(plain);
    EXPECT_EQ(plain.error().category(), MEMLITH_INCOMPATIBLE) << plain.error().message();
  }
}

// Below 64 TiB V8 places the pages of its heap at random; from 0x555555554000 on there are programs and libraries.
TEST(Addresses, RegionsLieWhereNoOtherRuntimeLooks) {
  const TempFolder folder;
  auto store = Store::open(folder / "store", {.create = true});
  ASSERT_TRUE(store);
  for (int i = 0; i < 20; ++i) {
    auto region = store->region("region" + std::to_string(i), {.create = true, .size = 4096});
    ASSERT_TRUE(region) << region.error().message();
    const auto begin = reinterpret_cast<std::uintptr_t>(region->address());
    EXPECT_GE(begin, 0x400000000000u);
    EXPECT_LE(begin + region->info().max_size, 0x555000000000u);
  }
}

TEST(Addresses, LimitedByTheSystem) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has more addresses than the limit";
  const TempFolder folder;
  EXPECT_IN_CHILD([&]() -> std::string {
    rlimit limit;
    limit.rlim_cur = limit.rlim_max = std::uint64_t{2} << 30;
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return "skip: no limit can be set";
    Opened opened(folder / "store");
    if (!opened.wrong.empty()) return opened.wrong;
    const auto region = opened.store->region("large", {.create = true, .size = 4096, .max_size = 8ull << 30});
    if (region) return "addresses beyond the limit were reserved";
    const std::string said = region.error().message();
    return said.find("RLIMIT_AS") != std::string::npos && region.error().category() == MEMLITH_NO_MEMORY ? "" : said;
  });
}

}  // namespace
}  // namespace memlith::test::addresses_test
