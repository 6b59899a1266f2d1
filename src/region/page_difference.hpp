// Finds the bytes in which a page differs from its older copy. Floor: region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "region/tracker.hpp"

namespace memlith::core {

// Adds to `ranges` the bytes in which `page`, at `offset` of the region, differs from `before`, or the whole page if
// that is cheaper to log. Both are aligned to words.
void add_difference(const std::byte* page, const std::byte* before, std::uint64_t offset, std::vector<Range>& ranges);

// Other threads may be storing to the page: which of their stores count is the caller's business. (ThreadSanitizer's
// suppressions name these.)
bool equals_twin(const std::byte* page, const std::byte* twin);
void copy_twin(std::byte* target, const std::byte* page);

}  // namespace memlith::core
