// Where records come in the order of their keys. Floor: kv.
//
// A page that is split in the middle stays half empty if all that follows has higher keys. The last insert into a page
// is therefore remembered: cells that came one behind the other make a run, which fills its page before the page is
// split (TreeWriter::split_at()). This is memory of the process, and a hint: a run that is forgotten costs room in
// pages, nothing else.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kv/page.hpp"

namespace memlith::core::kv {

// Used by the writer.
class AscendingRuns {
 public:
  // A split takes notice of a run of this length, that of the split included. Random keys make one in few pages.
  static constexpr std::uint16_t kShortest = 3;

  // A cell was put at `index` of the page.
  void note(PageNumber page, std::uint32_t index) { last_of(page) = {page, at(index), length(page, index)}; }
  // The same behind a split: the cell would have been at `before`, and is in a page of its own run.
  void note_moved(PageNumber before, std::uint32_t index_before, PageNumber page, std::uint32_t index) {
    const std::uint16_t run = length(before, index_before);
    last_of(page) = {page, at(index), run};
  }
  [[nodiscard]] bool continues(PageNumber page, std::uint32_t index) const { return length(page, index) >= kShortest; }

 private:
  static constexpr std::size_t kPages = 1024;  // that are remembered
  struct Last {
    PageNumber page = 0;
    std::uint16_t index = 0;
    std::uint16_t run = 0;  // cells
  };
  static std::uint16_t at(std::uint32_t index) { return static_cast<std::uint16_t>(index); }
  // Cells of the run that a cell at `index` continues, or begins.
  [[nodiscard]] std::uint16_t length(PageNumber page, std::uint32_t index) const {
    const Last& last = last_[page % kPages];
    if (last.page != page || last.index + 1u != index) return 1;
    return std::min<std::uint16_t>(last.run + 1, kShortest);
  }
  Last& last_of(PageNumber page) { return last_[page % kPages]; }
  std::array<Last, kPages> last_{};
};

}  // namespace memlith::core::kv
