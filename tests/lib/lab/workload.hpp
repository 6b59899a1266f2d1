// The workloads. To add one: write a row of the table in workloads.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "run.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

// How the threads of a workload take turns. A line replays it byte for byte in each.
enum class Turns : std::uint8_t {
  none,   // one thread; or others that run to their end while it waits for them
  fixed,  // with the scheduler: a thread continues until it has to wait
  drawn,  // with the scheduler: at every step of the engine one of them continues, chosen by the seed
};

struct Workload {
  std::string_view name;
  std::string_view sentence;
  core::StoreOptions (*options)();
  // The workload's steps, by seed; the same seed gives the same steps.
  std::vector<Step> (*steps)(core::Random& random);
  struct How {
    Turns turns = Turns::none;
    bool every_seed_differs = true;    // else one seed is enough
    bool with_call_faults = true;      // also run with calls that fail
    bool lives_often = false;          // what it is about shows in second lives
    bool structure_in_use = false;     // its file may begin with the in-use header
    bool starts_unproven = false;      // nothing vouches for the newest commits of its start: a lie may take them away
    bool dear = false;                 // each state costs much: fewer subsets, crashes of recoveries, and further lives
    std::size_t exhaustive_items = 0;  // every subset of so many unflushed items, if that is more than usual
    std::string_view about = {};       // a floor whose states are counted apart, and whose mutants look here first
    // The disk's content before, and the part that a user sees.
    core::SimImage (*start)() = nullptr;
    Content (*before)() = nullptr;
  };
  How how = {};
};

// An ordinary file that was there before.
inline constexpr Workload::How kOrdinaryFile{.start = stores::file_image, .before = stores::file_content};

// A store small enough that its crash states can be enumerated.
core::StoreOptions small_store();

std::span<const Workload> workloads();
std::span<const Workload> region_workloads();  // some of them
std::span<const Workload> heap_workloads();
std::span<const Workload> thread_heap_workloads();
std::span<const Workload> applog_workloads();
std::span<const Workload> page_workloads();
std::span<const Workload> image_workloads();
std::span<const Workload> common_workloads();
// Some of `others` on a byte-addressable medium and on a disk with forced unit access, and small ones of which every
// subset of words is tried.
std::vector<Workload> disk_workloads(std::span<const Workload> others);
std::span<const Workload> raw_workloads();
const Workload* find_workload(std::string_view name);

}  // namespace memlith::lab
