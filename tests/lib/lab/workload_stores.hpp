// The stores that workloads run on: small enough that their crash states can be enumerated.
#pragma once

#include <string>
#include <vector>

#include "sim/history.hpp"
#include "sim/sim.hpp"
#include "store/store.hpp"

namespace memlith::lab::stores {

core::StoreOptions full_log();
core::StoreOptions background();
core::StoreOptions busy();
core::StoreOptions two_slots();
core::StoreOptions wide_slots();
core::StoreOptions roomy();
core::StoreOptions in_pieces();
core::StoreOptions file_in_pieces();
core::StoreOptions file();
core::StoreOptions torn_blocks();
core::StoreOptions torn_blocks_in_pieces();
core::StoreOptions file_torn_blocks();
core::StoreOptions file_wide_slots();
core::StoreOptions in_use_file();
core::StoreOptions file_with_holes();  // that it keeps
core::StoreOptions guarded_file();

// A file of a structure that leaves its first bytes to the in-use header, and has this behind them.
inline constexpr std::uint64_t kStructureMagic = 0x6275727473626c75;
inline constexpr std::uint64_t kCallerInUse = 0x0a42414c4d454d89;  // "\x89MEMLAB\n"
core::SimImage structure_image();
Content structure_content();

// An ordinary file that was there before, and what a user sees of it.
core::SimImage file_image();
Content file_content();
// With two others beside it, each of which is a store of its own.
core::SimImage three_files();
Content three_contents();
// The names of those that the volume has.
std::vector<std::string> files_beside(core::SimVolume& volume);
// The same with an in-use header.
core::SimImage marked_image();
Content marked_content();

// A raw device, formatted, without a store.
core::SimImage raw_device();

}  // namespace memlith::lab::stores
