#include "region/tracking_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "region/mapped_array.hpp"

namespace memlith::core {

namespace {
constexpr int kLooks = 50;             // a millisecond apart, before a report: other threads record meanwhile
constexpr std::size_t kLinesMax = 20;  // of a report
}  // namespace

bool TrackingCheck::is_wanted() {
  const char* const value = std::getenv("MEMLITH_VERIFY_TRACKING");
  return value != nullptr && std::string_view(value) == "1";
}

Result<std::unique_ptr<TrackingCheck>> TrackingCheck::make(const TrackedMemory& memory) {
  const std::uint64_t capacity_bytes = std::max(memory.capacity_bytes, memory.bytes);
  auto check = std::unique_ptr<TrackingCheck>(new TrackingCheck(memory.base, capacity_bytes));
  MEMLITH_TRY(map_array(check->copy_, capacity_bytes));
  check->forgive({0, memory.bytes});
  return check;
}

TrackingCheck::~TrackingCheck() { unmap_array(copy_, capacity_bytes_); }

void TrackingCheck::forgive(Range range) {
  MEMLITH_ASSERT(range.offset + range.bytes <= capacity_bytes_);
  for (std::uint64_t at = range.offset; at < range.offset + range.bytes;) {
    const std::uint64_t bytes = std::min(kPageBytes, range.offset + range.bytes - at);
    // A page that was never used takes no memory in the copy either.
    if (std::memcmp(copy_ + at, base_ + at, bytes) != 0) std::memcpy(copy_ + at, base_ + at, bytes);
    at += bytes;
  }
}

// Changed bytes outside of the ranges, page by page.
std::vector<Range> TrackingCheck::unrecorded(std::uint64_t bytes, std::vector<Range> recorded) const {
  normalize(recorded);
  std::vector<Range> found;
  std::size_t next = 0;
  for (std::uint64_t page = 0; page < bytes; page += kPageBytes) {
    const std::uint64_t page_end = std::min(page + kPageBytes, bytes);
    if (std::memcmp(base_ + page, copy_ + page, page_end - page) == 0) continue;
    Range run;
    for (std::uint64_t at = page; at < page_end; ++at) {
      while (next < recorded.size() && recorded[next].offset + recorded[next].bytes <= at) ++next;
      const bool is_recorded = next < recorded.size() && recorded[next].offset <= at;
      if (is_recorded || base_[at] == copy_[at]) continue;
      if (run.bytes == 0) run.offset = at;
      run.bytes = at + 1 - run.offset;
    }
    if (run.bytes > 0) found.push_back(run);
  }
  return found;
}

void TrackingCheck::compare(std::uint64_t bytes, const std::function<std::vector<Range>()>& recorded) {
  std::vector<Range> found;
  for (int look = 0; look < kLooks; ++look) {
    found = unrecorded(bytes, recorded());
    if (found.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::size_t i = 0; i < std::min(found.size(), kLinesMax); ++i) {
    const Range& each = found[i];
    fmt::print(stderr,
               "memlith: not recorded: a change within {} bytes at {} (offset {}, page {} of the region); build the "
               "code that stores there with memlith-g++, or call memlith_touch() after it\n",
               each.bytes, static_cast<const void*>(base_ + each.offset), each.offset, each.offset / kPageBytes);
  }
  if (found.size() > kLinesMax) {
    fmt::print(stderr, "memlith: not recorded: changes in {} more pages\n", found.size() - kLinesMax);
  }
  forgive({0, bytes});
}

}  // namespace memlith::core
