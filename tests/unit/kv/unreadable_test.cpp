// docs/guarantees.md, "Sectors that cannot be read": the call of a kv store that uses a page first which the disk does
// not give back returns IO, and names the file and the place; a commit that needs the page is undone, and the store
// goes on. Whatever page it is.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "kv/kv.hpp"
#include "support/region_words.hpp"
#include "support/unreadable.hpp"

namespace memlith::test::unreadable_test {
namespace {

using namespace core;
using kv::Kv;
using kv::Transaction;

using Records = std::map<std::string, std::string>;

std::string key_of(std::uint64_t i) { return "key" + std::to_string(i * 7919 % 1000); }

class KvUnreadable : public ::testing::Test {
 protected:
  KvUnreadable() {
    kv_ = open(&regions_.open("kv", 256 * kKiB, 4 * kMiB));
    const auto map = must(kv_->open_map("map", true, false));
    Transaction transaction(*kv_, false);
    EXPECT_OK(transaction.begin());
    for (std::uint64_t i = 0; i < 300; ++i) {
      records_[key_of(i)] = std::string(i % 40 == 0 ? 9000 : i % 400, static_cast<char>('a' + i % 26));
      EXPECT_OK(transaction.put(map, key_of(i), records_[key_of(i)]));
    }
    EXPECT_OK(transaction.commit(kv::Durability::sync, nullptr).status());
    remove_some(map);
    pages_ = kv_->header().pages;
    kv_ = nullptr;
  }
  ~KvUnreadable() override { kv_ = nullptr; }

  static std::unique_ptr<Kv> open(Region* region) {
    return must(Kv::open(*region, {.create = true, .window = {}, .manual = true}));
  }
  void remove_some(kv::MapNumber map) {
    Transaction transaction(*kv_, false);
    EXPECT_OK(transaction.begin());
    for (std::uint64_t i = 35; i < 150; ++i) {
      EXPECT_TRUE(must(transaction.remove(map, key_of(i))));
      records_.erase(key_of(i));
    }
    EXPECT_OK(transaction.commit(kv::Durability::sync, nullptr).status());
  }
  // The store as it is on the disk, with that page unreadable; 0: with none.
  void begin(kv::PageNumber page) {
    kv_ = nullptr;
    regions_.crash();
    Region& region = regions_.open("kv");
    if (page != 0) make_unreadable(region, page * kPageBytes);
    kv_ = open(&region);
    page_ = page;
    told_ = 0;
  }
  // True if there is an answer; else it is that the page cannot be read.
  bool answered(const Status& status) {
    if (status.ok()) return true;
    EXPECT_EQ(status.category, Errc::io) << told(status);
    EXPECT_EQ(status.detail, Detail::read);
    const std::string place = "objects/1 at offset " + std::to_string(page_ * kPageBytes) + ":";
    EXPECT_NE(std::string(last_error_text()).find(place), std::string::npos) << last_error_text();
    ++told_;
    return false;
  }
  void read(kv::MapNumber map, bool read_only) {
    Transaction transaction(*kv_, read_only);
    EXPECT_OK(transaction.begin());
    for (const auto& [key, value] : records_) {
      const auto found = transaction.get(map, key);
      if (answered(found.status())) {
        EXPECT_EQ(found->value_or(""), value);
      }
    }
    for (const bool forward : {true, false}) {
      kv::Cursor cursor(transaction, map);
      for (;;) {
        const auto more = forward ? cursor.next() : cursor.prev();
        if (!answered(more.status()) || !*more) break;
        (void)answered(cursor.current().status());
      }
    }
    if (!read_only) return;
    (void)answered(transaction.for_each(map, "", std::nullopt, [](auto, auto) { return true; }));
  }
  // Commits that need pages: new ones, and those of what was removed.
  void change(kv::MapNumber map) {
    for (std::uint64_t i = 0; i < 160; ++i) {
      Transaction transaction(*kv_, false);
      EXPECT_OK(transaction.begin());
      const std::string value(i % 4 == 0 ? 15'000 : 900, 'n');
      if (!answered(transaction.put(map, "new" + std::to_string(i), value))) continue;
      (void)answered(transaction.put(map, key_of(i % 30), value));
      (void)answered(transaction.commit(kv::Durability::weak, nullptr).status());
    }
    (void)answered(kv_->verify().status());
  }
  // Each record was read, or lies between keys that were told of.
  void salvage(kv::MapNumber map) {
    Transaction transaction(*kv_, true);
    EXPECT_OK(transaction.begin());
    Records left = records_;
    const auto visit = [&](std::string_view key, std::string_view value) {
      const auto found = left.find(std::string(key));
      EXPECT_TRUE(found != left.end() && found->second == value) << key;
      if (found != left.end()) left.erase(found);
      return true;
    };
    std::uint64_t lost = 0;
    std::string behind;
    const auto skip = [&](std::string_view from, std::optional<std::string_view> to, const Status& why) {
      EXPECT_FALSE(answered(why));
      EXPECT_LE(behind, from);
      EXPECT_TRUE(!to.has_value() || from < *to);
      behind = to.value_or("\xff");
      const auto end = to.has_value() ? left.lower_bound(std::string(*to)) : left.end();
      for (auto each = left.lower_bound(std::string(from)); each != end; each = left.erase(each)) ++lost;
    };
    EXPECT_OK(transaction.for_each(map, "", std::nullopt, visit, skip));
    EXPECT_TRUE(left.empty()) << left.begin()->first;
    if (page_ != map) {
      EXPECT_LT(lost, records_.size() / 2);
    }
    saved_ += records_.size() - lost;
  }

  RegionWorld regions_{TrackerKind::touched};
  Records records_;
  kv::PageNumber pages_ = 0;
  kv::PageNumber page_ = 0;
  std::unique_ptr<Kv> kv_;
  std::uint64_t told_ = 0;
  std::uint64_t saved_ = 0;
};

TEST_F(KvUnreadable, EachPageIsToldByTheCallThatUsesItFirst) {
  if (!unreadable_pages_are_told()) GTEST_SKIP() << "the kernel is older than Linux 5.14";
  if (host_page_bytes() != kPageBytes) GTEST_SKIP() << "one page of the kernel's has several of the store's";
  for (kv::PageNumber page = 1; page < pages_; ++page) {
    for (const bool read_first : {true, false}) {
      begin(page);
      const auto map = kv_->open_map("map", false, false);
      if (answered(map.status())) {
        if (read_first) read(*map, true);
        if (read_first) read(*map, false);
        change(*map);
      }
      EXPECT_GT(told_, 0u) << "page " << page << " was not used";
    }
  }
  begin(0);
  read(must(kv_->open_map("map", false, false)), true);
  EXPECT_EQ(told_, 0u);
}

TEST_F(KvUnreadable, WhatIsLeftCanBeRead) {
  if (!unreadable_pages_are_told()) GTEST_SKIP() << "the kernel is older than Linux 5.14";
  if (host_page_bytes() != kPageBytes) GTEST_SKIP() << "one page of the kernel's has several of the store's";
  std::uint64_t maps = 0;
  for (kv::PageNumber page = 0; page < pages_; ++page) {
    begin(page);
    const auto map = kv_->open_map("map", false, false);
    if (!answered(map.status())) continue;
    ++maps;
    salvage(*map);
  }
  EXPECT_GE(maps, pages_ - 2u);  // but of the catalogue and of the map's root
  EXPECT_GT(saved_, maps * records_.size() * 9 / 10);
}

}  // namespace
}  // namespace memlith::test::unreadable_test
