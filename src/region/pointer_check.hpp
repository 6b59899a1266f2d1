// Finds addresses that lead out of the regions: the mistake of a program that stores a pointer to its stack, to memory
// of malloc, or to code, into memory that outlives the process. For debugging: MEMLITH_CHECK_POINTERS=1 in the
// environment. Floor: region.
//
// Every persist looks through the words that it captures. A word is reported if its value is an address of this process
// that lies in no open region. That may be a number by chance; a program of mostly small numbers sees none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace memlith::core {

class Region;

// A word of a region whose value may be an address.
struct AddressWord {
  const Region* region = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t value = 0;
};

// True if MEMLITH_CHECK_POINTERS asks for the check; as it was when this was first asked.
bool pointers_are_checked();

// The words at least partly within the range that may be addresses, and not of the region itself.
void find_addresses(const Region& region, std::uint64_t offset, std::uint64_t bytes, std::vector<AddressWord>& words);

// Says on standard error which of the words are addresses of this process and in no open region, each once. Without the
// locks of the regions.
void report_addresses(std::span<const AddressWord> words);

// For a store that no process has open: the words of the region that look like addresses of some process, in sentences.
std::vector<std::string> addresses_of_processes(const Region& region);

// The ranges of the regions that are open.
void note_region_range(std::uint64_t begin, std::uint64_t bytes);
void forget_region_range(std::uint64_t begin);

}  // namespace memlith::core
