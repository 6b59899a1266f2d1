// Workloads of stores on a raw device, whose map of files has crash states of its own.
#include "steps.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

// Little but changes of the map: regions are made, filled and removed, and programs are killed in between.
std::vector<Step> raw_files(Random& random) {
  std::vector<Step> steps{open()};
  for (int round = 0; round < 12; ++round) {
    const std::string name(1, static_cast<char>('a' + random.below(3)));
    if (random.one_in(3)) {
      steps.push_back(remove(name));
    } else {
      steps.push_back(create(name, 4096 * (1 + random.below(6))));
      steps.push_back(commit({{name, random.below(4000), 1 + random.below(90)}}));
    }
    if (random.one_in(4)) steps.push_back(checkpoint());
    if (random.one_in(3)) steps.push_back(abandon()), steps.push_back(open());
    if (random.one_in(8)) steps.push_back(close()), steps.push_back(open());
  }
  return steps;
}

const Workload kRawWorkloads[] = {
    {"raw-files",
     "regions come and go on a raw device, and programs are killed",
     small_store,
     raw_files,
     {.lives_often = true, .dear = true, .about = "device", .start = stores::raw_device}},
    {"raw-random",
     "histories on a raw device drawn by seed",
     small_store,
     random_history,
     {.dear = true, .about = "device", .start = stores::raw_device}},
    {"raw-regions",
     "histories of mapped regions on a raw device",
     stores::wide_slots,
     random_region_history,
     {.dear = true, .about = "device", .start = stores::raw_device}},
};

}  // namespace

std::span<const Workload> raw_workloads() { return kRawWorkloads; }

}  // namespace memlith::lab
