// A store on a simulated disk, which does nothing in the background, with a region that has a limit of memory: for
// tests of what a structure gives back for that.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/host.hpp"
#include "sim/sim.hpp"
#include "support/region_words.hpp"

namespace memlith::test {

class LimitedRegion {
 public:
  LimitedRegion(const std::string& name, std::uint64_t size_bytes, std::uint64_t reserve_bytes) {
    core::StoreOptions options;
    options.create = true;
    options.manual_checkpoint = true;
    options.manual_flush = true;
    store_ = must(core::Store::open(volume_, options));
    core::RegionOptions limited;
    limited.create = true;
    limited.tracker = core::TrackerKind::touched;
    limited.size_bytes = size_bytes;
    limited.reserve_bytes = reserve_bytes;
    limited.limited = core::Limited::always;
    region_ = must(core::Region::open(*store_, name, limited));
  }
  LimitedRegion(const LimitedRegion&) = delete;
  LimitedRegion& operator=(const LimitedRegion&) = delete;

  [[nodiscard]] core::Region& region() { return *region_; }
  [[nodiscard]] std::uint64_t copied_pages() { return region_->copied_pages(); }
  // From now on a flush fails.
  void fail_flushes() { volume_.faults().plan(core::SimFaults::Kind::fail_flush, 0, true); }
  // In one page of the kernel's.
  static std::uint64_t copied_at_once() { return core::host_page_bytes() / core::kPageBytes; }
  // Called before each write and flush, until the next call; null for no longer.
  void set_before_transfer(std::function<void()> act) { volume_.before_transfer = std::move(act); }

 private:
  core::SimVolume volume_;
  std::unique_ptr<core::Store> store_;
  std::unique_ptr<core::Region> region_;
};

}  // namespace memlith::test
