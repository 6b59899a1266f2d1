// A small vocabulary over core::Region on a real folder: open, put a value, persist, leave as a crash would, open
// again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "region/region.hpp"
#include "support/store_words.hpp"

namespace memlith::test {

// Also `scan`, where the kernel or a sandbox lacks what it needs.
inline bool works_by_faults(core::TrackerKind kind) {
  return kind == core::TrackerKind::fault || (kind == core::TrackerKind::scan && !core::probe_scan().ok());
}

// A store of real files with its regions. Leaving it without close() is what a kill -9 does to it.
class RegionWorld {
 public:
  explicit RegionWorld(core::TrackerKind tracker, core::StoreOptions options = {})
      : tracker_(tracker), options_(std::move(options)) {
    options_.create = true;
    if (options_.kind == core::StoreKind::folder) {
      volume_ = core::make_posix_volume(folder_ / "store");
    } else {
      volume_ = core::make_posix_volume(folder_.path());
    }
    open_store();
  }

  void open_store() { store_ = must(core::Store::open(*volume_, options_)); }
  void close_store() {
    regions_.clear();
    EXPECT_OK(store_->close());
    store_ = nullptr;
  }
  void leave() {  // as a kill would
    regions_.clear();
    store_ = nullptr;
  }
  void crash() {
    leave();
    open_store();
  }
  core::Result<std::unique_ptr<core::Region>> try_open(const std::string& name, std::uint64_t size = 0,
                                                       std::uint64_t reserve = 0, std::uint64_t address = 0) {
    core::RegionOptions options;
    options.create = size != 0;
    options.tracker = tracker_;
    options.size_bytes = size;
    options.reserve_bytes = reserve;
    options.address = address;
    options.process_scope = process_scope;
    return core::Region::open(*store_, name, options);
  }
  core::Region& open(const std::string& name, std::uint64_t size = 0, std::uint64_t reserve = 0) {
    regions_[name] = must(try_open(name, size, reserve));
    return *regions_[name];
  }
  void close(const std::string& name) { regions_.erase(name); }
  core::Region& operator[](const std::string& name) { return *regions_.at(name); }
  core::Store& store() { return *store_; }
  core::Volume& volume() { return *volume_; }
  const TempFolder& folder() const { return folder_; }
  bool process_scope = false;  // of regions that are opened from now on

  [[nodiscard]] std::uint64_t frames() const { return store_->log().counters().frames.load(); }
  [[nodiscard]] std::uint64_t captured() const { return store_->counters().captured_bytes.load(); }

 private:
  core::TrackerKind tracker_;
  core::StoreOptions options_;
  TempFolder folder_;
  std::unique_ptr<core::Volume> volume_;
  std::unique_ptr<core::Store> store_;
  std::map<std::string, std::unique_ptr<core::Region>> regions_;
};

// A plain store, and the word about it that only explicit regions need.
inline void put(core::Region& region, std::uint64_t offset, std::uint64_t value) {
  std::memcpy(region.address() + offset, &value, sizeof value);
  EXPECT_OK(region.touch(region.address() + offset, sizeof value));
}
inline std::uint64_t get(const core::Region& region, std::uint64_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, region.address() + offset, sizeof value);
  return value;
}
inline core::Status persist(core::Region& region, core::Scope scope = core::Scope::process) {
  core::Region* const one = &region;
  return core::Region::persist({&one, 1}, scope);
}
inline core::Status persist(core::Region& a, core::Region& b) {
  core::Region* const both[] = {&a, &b};
  return core::Region::persist(both);
}

inline std::string name_of_tracker(core::TrackerKind kind) {
  switch (kind) {
    case core::TrackerKind::automatic: return "Auto";
    case core::TrackerKind::scan: return "Scan";
    case core::TrackerKind::touched: return "Explicit";
    case core::TrackerKind::fault: return "Fault";
    case core::TrackerKind::instrumented: return "Instrumented";
  }
  return "?";
}

}  // namespace memlith::test
