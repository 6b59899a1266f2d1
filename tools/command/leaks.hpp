// Blocks of heaps that nothing leads to, as `verify --leaks` and `recover --collect` show them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/output.hpp"

namespace memlith::tool {

struct Leaks {
  struct OfHeap {
    std::uint64_t blocks = 0;
    std::uint64_t bytes = 0;
    std::vector<std::string> first;  // some of them
  };
  std::map<std::string, OfHeap> heaps;

  // For memlith_verify_leaks and memlith_collect_leaks.
  static void note(void* leaks, const char* heap, std::uint64_t offset, std::uint64_t bytes) {
    constexpr std::size_t kFirst = 5;
    OfHeap& of = static_cast<Leaks*>(leaks)->heaps[heap];
    ++of.blocks;
    of.bytes += bytes;
    if (of.first.size() < kFirst) of.first.push_back(fmt::format("{} bytes at {:#x}", bytes, offset));
  }
  [[nodiscard]] std::uint64_t blocks() const {
    std::uint64_t count = 0;
    for (const auto& [name, each] : heaps) count += each.blocks;
    return count;
  }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t count = 0;
    for (const auto& [name, each] : heaps) count += each.bytes;
    return count;
  }
  [[nodiscard]] Json json() const { return {{"blocks", blocks()}, {"bytes", bytes()}}; }
};

// "  heap "people": 2 blocks, 96 bytes, WHAT: 48 bytes at 0x..., ..."
inline void print_leaks(const Leaks& leaks, const std::string& what) {
  for (const auto& [name, each] : leaks.heaps) {
    std::string places;
    for (const std::string& place : each.first) places += (places.empty() ? "" : ", ") + place;
    write_line(fmt::format("  heap \"{}\": {} block{}, {}, {}: {}{}", printable(name), each.blocks,
                           each.blocks == 1 ? "" : "s", human_bytes(each.bytes), what, places,
                           each.blocks > each.first.size() ? ", ..." : ""));
  }
}

}  // namespace memlith::tool
