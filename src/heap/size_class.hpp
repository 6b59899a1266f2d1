// The sizes of small blocks, and the slabs that blocks of one size share. Floor: heap.
//
// Sizes are multiples of 16 up to 128, and from there eight a doubling up to 32 KiB, so that a block is at most 12.5 %
// larger than what was asked for. A slab is a run of pages with blocks of one size, back to back from its first byte.
// The number of pages is the smallest that wastes at most 1/32 of the slab.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/units.hpp"

namespace memlith::core {

inline constexpr std::uint64_t kGrainBytes = 16;  // sizes and addresses of blocks are multiples of it
inline constexpr std::uint64_t kSmallBytesMax = 32 * kKiB;
inline constexpr std::uint32_t kSlabPagesMax = 32;

inline constexpr std::uint32_t kLinearClasses = 8;  // 16, 32, ... 128
inline constexpr std::uint32_t kLinearLog2 = 7;
inline constexpr std::uint32_t kClasses = kLinearClasses + 8 * 8;  // eight doublings: 128 to 32 KiB

// The smallest class whose blocks hold so many bytes; 1 to kSmallBytesMax.
constexpr std::uint32_t class_of(std::uint64_t bytes) {
  const std::uint64_t last = bytes - 1;
  if (last < kLinearClasses * kGrainBytes) return static_cast<std::uint32_t>(last / kGrainBytes);
  const auto doubling = static_cast<std::uint32_t>(std::bit_width(last) - 1);
  const auto eighth = static_cast<std::uint32_t>(last >> (doubling - 3) & 7);
  return kLinearClasses + 8 * (doubling - kLinearLog2) + eighth;
}

struct SizeClass {
  std::uint32_t bytes = 0;   // of a block
  std::uint32_t pages = 0;   // of a slab
  std::uint32_t blocks = 0;  // in a slab
};

constexpr SizeClass make_class(std::uint32_t index) {
  SizeClass made;
  if (index < kLinearClasses) {
    made.bytes = static_cast<std::uint32_t>((index + 1) * kGrainBytes);
  } else {
    const std::uint32_t doubling = (index - kLinearClasses) / 8 + kLinearLog2;
    const std::uint32_t eighth = (index - kLinearClasses) % 8;
    made.bytes = (1u << doubling) + ((eighth + 1) << (doubling - 3));
  }
  std::uint64_t best_waste = ~0ull;  // in bytes, scaled to the largest slab
  for (std::uint32_t pages = 1; pages <= kSlabPagesMax; ++pages) {
    const std::uint64_t slab = pages * kPageBytes;
    const std::uint64_t blocks = slab / made.bytes;
    if (blocks == 0 || (blocks < 8 && pages * 8 < kSlabPagesMax && made.bytes > 512)) continue;
    const std::uint64_t waste = (slab - blocks * made.bytes) * kSlabPagesMax / pages;
    if (waste >= best_waste) continue;
    best_waste = waste;
    made.pages = pages;
    made.blocks = static_cast<std::uint32_t>(blocks);
    if (waste <= kPageBytes) break;  // 1/32 of kSlabPagesMax pages
  }
  return made;
}

inline constexpr std::array<SizeClass, kClasses> kSizeClasses = [] {
  std::array<SizeClass, kClasses> classes{};
  for (std::uint32_t index = 0; index < kClasses; ++index) classes[index] = make_class(index);
  return classes;
}();

// Each size goes to the smallest class that holds it, at most 12.5 % larger beyond 128 bytes; slabs waste at most 1/16.
constexpr bool classes_fit() {
  for (std::uint64_t bytes = 1; bytes <= kSmallBytesMax; ++bytes) {
    const std::uint32_t index = class_of(bytes);
    if (index >= kClasses || kSizeClasses[index].bytes < bytes) return false;
    if (index > 0 && kSizeClasses[index - 1].bytes >= bytes) return false;
    if (bytes > 128 && kSizeClasses[index].bytes * 8 > bytes * 9 + 8 * kGrainBytes) return false;
    bytes += bytes / 64;  // some of them
  }
  for (const SizeClass& each : kSizeClasses) {
    const std::uint64_t slab = each.pages * kPageBytes;
    if (each.bytes % kGrainBytes != 0 || each.blocks == 0 || (slab - each.blocks * each.bytes) * 16 > slab)
      return false;
    if (each.blocks > each.pages * (kPageBytes / kGrainBytes)) return false;
  }
  return kSizeClasses[kClasses - 1].bytes == kSmallBytesMax;
}
static_assert(classes_fit());

// The class for a size and an alignment of at most a page: blocks lie at multiples of their size from the beginning of
// a page, so the alignment has to divide the size. kClasses: no class does, the block needs pages of its own.
constexpr std::uint32_t class_of(std::uint64_t bytes, std::uint64_t alignment) {
  if (bytes > kSmallBytesMax) return kClasses;
  std::uint32_t index = class_of(bytes == 0 ? 1 : bytes);
  if (alignment <= kGrainBytes) return index;
  while (index < kClasses && kSizeClasses[index].bytes % alignment != 0) ++index;
  return index;
}

}  // namespace memlith::core
