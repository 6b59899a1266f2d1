// Names of addresses in code and data, for reports. Floor: region.
#pragma once

#include <cstdint>
#include <string>

namespace memlith::core {

// "function() + 12", of an exported symbol; empty if there is none.
std::string symbol_at(std::uint64_t address);

// "in FILE, function() + 12", or "in FILE + 4660", for addr2line; of code that was not loaded from a file, "in code of
// no file".
std::string code_place(std::uint64_t address);

}  // namespace memlith::core
