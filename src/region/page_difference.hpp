// Finds the bytes in which a page differs from its older copy. Floor: region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "region/tracker.hpp"

namespace memlith::core {

// Where differences begin and end. What is logged from a copy of the page needs the bytes only. From the page itself
// whole words of 8 bytes are logged: of a counter that another thread counts on meanwhile, the low byte alone would
// make a value that the counter never had.
enum class Exactness : std::uint8_t { bytes, words };

// Adds to `ranges` where `page`, at `offset` of the region, differs from `before`, or the whole page if that is
// cheaper to log. Both are aligned to 16 bytes, here and below.
void add_difference(const std::byte* page, const std::byte* before, std::uint64_t offset, Exactness exactness,
                    std::vector<Range>& ranges);

// For assertions: `before` with the bytes of the differences of `page` is `page`. Neither changes meanwhile.
bool differ_only_there(const std::byte* page, const std::byte* before, std::uint64_t offset,
                       std::span<const Range> differences);

// Other threads may be storing to the page: which of their stores count is the caller's business. Stores that came
// before the call count always. (ThreadSanitizer's suppressions name these.)
bool equals_twin(const std::byte* page, const std::byte* twin);
void copy_twin(std::byte* target, const std::byte* page);

}  // namespace memlith::core
