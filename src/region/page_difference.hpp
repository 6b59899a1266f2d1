// In which bytes a page differs from its copy of before. Floor: region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "region/tracker.hpp"

namespace memlith::core {

// Adds to `ranges` the bytes in which `page`, at `offset` of the region, differs from `before`; the whole page where that is
// cheaper to log. Both aligned to words.
void add_difference(const std::byte* page, const std::byte* before, std::uint64_t offset, std::vector<Range>& ranges);

}  // namespace memlith::core
