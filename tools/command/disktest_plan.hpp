// The content of a disk test's file: a function of a few numbers, so that the check needs nothing from the disk under
// test.
//
// The file has blocks of 4 KiB. Round 0 writes every block; each later round writes a few, waits until the disk says
// that they are durable, and is told to the witness. Each sector of 512 bytes names its round and its place and has a
// checksum, so that a torn block is told from a lost one.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

namespace memlith::tool::disktest {

inline constexpr std::uint64_t kSectorBytes = 512;
inline constexpr std::uint64_t kBlockBytes = 4096;
inline constexpr std::uint64_t kSectors = kBlockBytes / kSectorBytes;  // of a block
inline constexpr std::uint64_t kRoundBlocksMax = 32;
inline constexpr std::uint64_t kBlocksMin = 2 * kRoundBlocksMax;

// How a round asks the disk to keep what it wrote.
enum class Way : std::uint8_t { flush, direct_flush, forced };
inline constexpr std::array kWays{Way::flush, Way::direct_flush, Way::forced};
constexpr const char* name_of(Way way) {
  constexpr std::array names{"write and fdatasync", "direct write and fdatasync", "direct write, durable by itself"};
  return names[static_cast<std::size_t>(way)];
}
constexpr const char* field_of(Way way) {
  constexpr std::array names{"flush", "direct_flush", "forced"};
  return names[static_cast<std::size_t>(way)];
}
constexpr Way way_of(std::uint64_t round) { return kWays[round % kWays.size()]; }

struct Plan {
  std::uint64_t run = 0;  // tells this run's sectors from those of an earlier one
  std::uint64_t blocks = 0;
};

inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  const std::array words{a, b, c};
  return XXH3_64bits(words.data(), sizeof words);
}

// The blocks of a round from 1 on, each once: half of the rounds in one piece, half of them scattered.
inline std::vector<std::uint64_t> blocks_of(const Plan& plan, std::uint64_t round) {
  const std::uint64_t chance = mixed(plan.run, round, 0);
  const std::uint64_t count = 1 + chance % kRoundBlocksMax;
  const bool scattered = (chance >> 32) % 2 == 1;
  std::vector<std::uint64_t> blocks;
  for (std::uint64_t i = 0; blocks.size() < count; ++i) {
    const std::uint64_t at = scattered ? mixed(plan.run, round, 1 + i) : (chance >> 8) + i;
    const std::uint64_t block = at % plan.blocks;
    if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
  }
  return blocks;
}

struct SectorHead {
  std::array<char, 8> magic{'d', 'i', 's', 'k', 't', 'e', 's', 't'};
  std::uint64_t run = 0;
  std::uint64_t round = 0;
  std::uint64_t place = 0;     // number of the sector in the file
  std::uint64_t checksum = 0;  // of the sector with 0 here
};
static_assert(sizeof(SectorHead) == 40);

inline std::uint64_t checksum_of(const std::byte* sector) {
  std::array<std::byte, kSectorBytes> copy;
  std::memcpy(copy.data(), sector, copy.size());
  std::memset(copy.data() + offsetof(SectorHead, checksum), 0, sizeof SectorHead::checksum);
  return XXH3_64bits(copy.data(), copy.size());
}

inline void fill_block(const Plan& plan, std::uint64_t round, std::uint64_t block, std::byte* to) {
  for (std::uint64_t sector = 0; sector < kSectors; ++sector, to += kSectorBytes) {
    SectorHead head;
    head.run = plan.run;
    head.round = round;
    head.place = block * kSectors + sector;
    for (std::uint64_t at = sizeof head; at < kSectorBytes; at += sizeof(std::uint64_t)) {
      const std::uint64_t word = mixed(plan.run ^ round, head.place, at);  // a disk that compresses gains nothing
      std::memcpy(to + at, &word, sizeof word);
    }
    std::memcpy(to, &head, sizeof head);
    head.checksum = checksum_of(to);
    std::memcpy(to, &head, sizeof head);
  }
}

enum class Found : std::uint8_t {
  whole,    // of this run, at its place
  foreign,  // never written by this run: zeros, or an earlier run's
  damaged,  // the checksum is wrong
  misplaced,
};

struct Sector {
  Found found = Found::foreign;
  std::uint64_t round = 0;  // of a whole sector
};

inline Sector look_at(const Plan& plan, std::uint64_t place, const std::byte* from) {
  SectorHead head;
  std::memcpy(&head, from, sizeof head);
  const bool zeros = std::all_of(from, from + kSectorBytes, [](std::byte each) { return each == std::byte{0}; });
  if (zeros || (head.magic == SectorHead().magic && head.run != plan.run && head.checksum == checksum_of(from))) {
    return {Found::foreign};
  }
  if (head.magic != SectorHead().magic || head.run != plan.run || head.checksum != checksum_of(from)) {
    return {Found::damaged};
  }
  return {head.place == place ? Found::whole : Found::misplaced, head.round};
}

}  // namespace memlith::tool::disktest
