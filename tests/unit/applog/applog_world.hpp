// A small vocabulary over applog::AppLog in a region of a real folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "applog/applog.hpp"
#include "applog/part.hpp"
#include "region/transaction.hpp"
#include "support/region_words.hpp"

namespace memlith::test {

inline core::applog::AppLog::Content content_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline core::Result<std::uint64_t> append(core::applog::AppLog& log, const std::string& text) {
  const auto content = content_of(text);
  return log.append({&content, 1});
}

// Entry `number` of a test whose entries are told by their numbers; of many sizes.
inline std::string entry_text(std::uint64_t number) {
  return std::to_string(number) + ":" + std::string(number * 37 % 301, static_cast<char>('a' + number % 26));
}

class AppLogWorld {
 public:
  explicit AppLogWorld(std::uint64_t ring_bytes, core::applog::WhenFull when_full = core::applog::WhenFull::fail,
                       std::uint64_t most_bytes = 0, core::StoreOptions store = {})
      : when_full_(when_full), regions_(core::TrackerKind::touched, std::move(store)) {
    region_ = &regions_.open("log", core::kPageBytes + ring_bytes, core::kPageBytes + std::max(most_bytes, ring_bytes));
    open();
  }
  ~AppLogWorld() { log_ = nullptr; }

  core::applog::AppLog& log() { return *log_; }
  core::Region& region() { return *region_; }
  RegionWorld& regions() { return regions_; }
  core::Result<std::unique_ptr<core::applog::AppLog>> try_open() {
    return core::applog::AppLog::open(*region_, {true, when_full_, true});
  }
  // As after a kill: what was not written is gone.
  void crash() {
    log_ = nullptr;
    regions_.crash();
    region_ = &regions_.open("log");
    open();
  }
  void open() { log_ = must(try_open()); }
  void close() { log_ = nullptr; }
  // All that can be read from where the reader is.
  std::vector<std::string> read_all() {
    std::vector<std::string> all;
    core::applog::AppLog::Entry entry;
    while (must(log_->read(0, entry))) {
      all.emplace_back(reinterpret_cast<const char*>(entry.content.data()), entry.content.size());
    }
    return all;
  }

 private:
  core::applog::WhenFull when_full_;
  RegionWorld regions_;
  core::Region* region_ = nullptr;
  std::unique_ptr<core::applog::AppLog> log_;
};

}  // namespace memlith::test
