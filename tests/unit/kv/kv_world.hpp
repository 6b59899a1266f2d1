// A small vocabulary over kv::Kv in a region of a real folder, with a model of what it holds.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "kv/kv.hpp"
#include "support/region_words.hpp"

namespace memlith::test {

using Records = std::map<std::string, std::string>;

class KvWorld {
 public:
  explicit KvWorld(core::kv::KvOptions options = {true, {}, true}) : options_(options) {
    region_ = &regions_.open("kv", 64 * core::kKiB, 256 * core::kMiB);
    open();
  }
  ~KvWorld() { kv_ = nullptr; }

  core::kv::Kv& kv() { return *kv_; }
  core::kv::PageNumber map(const std::string& name = "map") { return must(kv_->open_map(name, true, false)); }
  // As after a kill: what was not made durable is gone.
  void crash() {
    kv_ = nullptr;
    regions_.crash();
    region_ = &regions_.open("kv");
    open();
  }
  core::Region& open_region(const std::string& name, std::uint64_t size = 0) { return regions_.open(name, size); }
  void close_region(const std::string& name) { regions_.close(name); }
  // All records, read forwards and backwards.
  Records content(core::kv::Transaction& transaction, core::kv::PageNumber map) {
    core::kv::Cursor cursor(transaction, map);
    Records forwards;
    for (bool more = must(cursor.first()); more; more = must(cursor.next())) {
      const auto record = must(cursor.current());
      EXPECT_TRUE(record.has_value());
      EXPECT_TRUE(forwards.emplace(record->key, record->value).second) << "seen twice: " << record->key;
    }
    Records backwards;
    for (bool more = must(cursor.last()); more; more = must(cursor.prev())) {
      const auto record = must(cursor.current());
      EXPECT_TRUE(record.has_value());
      EXPECT_TRUE(backwards.emplace(record->key, record->value).second) << "seen twice: " << record->key;
    }
    EXPECT_TRUE(forwards == backwards);
    return forwards;
  }
  Records content(core::kv::PageNumber map) {
    core::kv::Transaction transaction(*kv_, true);
    EXPECT_OK(transaction.begin());
    return content(transaction, map);
  }

 private:
  void open() { kv_ = must(core::kv::Kv::open(*region_, options_)); }
  core::kv::KvOptions options_;
  RegionWorld regions_{core::TrackerKind::touched};
  core::Region* region_ = nullptr;
  std::unique_ptr<core::kv::Kv> kv_;
};

}  // namespace memlith::test
