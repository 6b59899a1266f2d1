// Hot pages: pages that nearly every capture finds stored to. They stay writable, and each capture compares them with
// their twins (copies of them as they were last captured), which takes 0.1 to 0.2 us. A fault and a protection, which
// the tracker pays for each other page, take 1.5 to 8 us. Floor: region.
//
// A page becomes hot when it was stored to in 6 of the last 8 captures, and cools when 16 captures found it unchanged.
// A region has at most 64 hot pages. Only captures of the whole region count.
//
// The tracker does not look at hot pages, so nothing tells which thread stored to them: a region with hot pages has
// process scope only. Whatever needs the tracker to know all stores (a rollback, a release of memory, a discard) cools
// the pages first.
//
// The logged bytes of a hot page come from a copy, which becomes its twin. So the twin always equals the result of
// replaying the log, whatever other threads store meanwhile. All calls under the region's capture lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "region/tracker.hpp"
#include "region/twins.hpp"

namespace memlith::core {

class HotPages {
 public:
  static constexpr std::uint64_t kPagesMax = 64;
  static constexpr std::uint32_t kCaptures = 8;  // that are remembered of a page
  static constexpr int kStored = 6;              // of these; from then on the page is hot
  static constexpr std::uint32_t kUnchanged = 16;

  // For the region at `base`. Memory is allocated with the copies.
  static Result<std::unique_ptr<HotPages>> make(Tracker& tracker, std::byte* base, std::uint64_t capacity_bytes);
  ~HotPages();
  HotPages(const HotPages&) = delete;
  HotPages& operator=(const HotPages&) = delete;

  // Adds to `pieces` the bytes in which the hot pages of `part` differ from their twins; of a page without a twin, all.
  // The sources stay valid until accept() or give_back(), one of which follows.
  void add_pieces(Range part, std::vector<SourceExtent>& pieces);
  // The pieces are in a frame.
  void accept();
  // The capture failed: the twins before it count again.
  void give_back();

  // A capture of the whole region was accepted, in which the tracker found `stored`, sorted: pages become hot or cool.
  // `twins`: those of other pages, null if the region has none.
  void note_capture(std::span<const Range> stored, std::uint64_t size_bytes, Twins* twins);
  // From now on the tracker finds what is stored to the pages of the range; what was stored to them before and not
  // captured counts as stored to. On failure some pages are hot still.
  Status cool(Range range);

  [[nodiscard]] std::size_t count() const { return pages_.size(); }

 private:
  // Which captures found a page stored to.
  struct Trace {
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};
    std::uint64_t page = kNone;
    std::uint32_t newest = 0;    // the newest of them
    std::uint32_t captures = 0;  // a bit for each of the last captures up to there; bit 0 is the newest
  };
  enum class Found : std::uint8_t { not_compared, unchanged, changed };
  struct HotPage {
    std::uint64_t page = 0;
    std::uint32_t copies = 0;     // the index of its pair of copies
    std::uint32_t unchanged = 0;  // so many captures in a row
    bool second_is_twin = false;  // of the pair
    bool has_twin = false;
    Found found = Found::not_compared;  // by the capture that runs
  };

  HotPages(Tracker& tracker, std::byte* base, std::uint64_t traces) : tracker_(tracker), base_(base), traces_(traces) {}

  void add_pieces(HotPage& hot, std::vector<SourceExtent>& pieces);
  void note_stored(std::uint64_t page, std::uint64_t size_bytes, Twins* twins);
  void heat(std::uint64_t page, Twins* twins);
  Status cool(const HotPage& hot);
  [[nodiscard]] bool is_hot(std::uint64_t page) const;
  [[nodiscard]] std::byte* copy(const HotPage& hot, bool second) const {
    return copies_ + (2 * std::uint64_t{hot.copies} + (second ? 1 : 0)) * kPageBytes;
  }

  Tracker& tracker_;
  std::byte* const base_;
  std::byte* copies_ = nullptr;      // two for each hot page
  std::vector<std::uint32_t> free_;  // pairs that no page has
  std::vector<HotPage> pages_;
  std::vector<Trace> traces_;  // a power of two of them
  std::uint32_t captures_ = 0;
  std::vector<Range> differences_;  // of one page
};

}  // namespace memlith::core
