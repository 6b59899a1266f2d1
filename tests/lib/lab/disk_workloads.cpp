// Workloads on other disks. On a byte-addressable medium writes are torn between words of 8 bytes and made durable by
// fences, and the frames of the log are padded to lines. On a disk with forced unit access the write of a batch is
// durable by itself, and makes nothing else durable. So are commands to an NVMe namespace, of whole blocks.
#include <algorithm>
#include <string_view>
#include <vector>

#include "sim/nvme_host.hpp"
#include "steps.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

// A commit of one word is a frame of two lines, of which about a dozen words differ from what was there.
std::vector<Step> few_lines(Random& random) {
  const std::uint64_t word = random.below(8);
  return {open(),
          create("a", 4096),
          commit({{"a", 8 * word, 8}}),
          commit({{"a", 8 * word + 4, 8}}),  // within a line at home, and over a border of words
          checkpoint(),
          commit({{"a", 60, 8}}),
          checkpoint(),
          abandon(),
          open(),
          commit({{"a", 0, 8}}),
          close()};
}

SimImage on_lines(SimImage image) {
  image.lines = true;
  return image;
}
SimImage empty_lines() { return on_lines({}); }
SimImage file_lines() { return on_lines(stores::file_image()); }
SimImage marked_lines() { return on_lines(stores::marked_image()); }

constexpr std::size_t kSubsetItems = 13;

SimImage with_access(SimImage image) {
  image.forced_unit_access = true;
  return image;
}
SimImage empty_access() { return with_access({}); }
SimImage file_access() { return with_access(stores::file_image()); }
SimImage raw_access() { return with_access(stores::raw_device()); }
SimImage nvme() { return as_sim_namespace(stores::raw_device()); }

// The same as others of that name, on another disk.
struct OnDisk {
  std::string_view other;
  std::string_view name;
  SimImage (*start)();
  bool with_call_faults = false;
  bool dear = false;
};
constexpr OnDisk kOnDisks[] = {
    {"commits", "commits-lines", empty_lines},
    {"checkpoints", "checkpoints-lines", empty_lines, true},
    {"reopened", "reopened-lines", empty_lines},
    {"streams", "streams-lines", empty_lines, false, true},
    {"growing-log", "growing-log-lines", empty_lines, false, true},
    {"packed", "packed-lines", empty_lines},
    {"regions", "regions-lines", empty_lines},
    {"discards", "discards-lines", empty_lines},
    {"one-file", "one-file-lines", file_lines},
    {"moments", "moments-lines", marked_lines},
    {"random", "random-lines", empty_lines, false, true},
    {"random-file", "random-file-lines", file_lines},
    {"commits", "commits-fua", empty_access, true},
    {"checkpoints", "checkpoints-fua", empty_access, true},
    {"reopened", "reopened-fua", empty_access},
    {"streams", "streams-fua", empty_access, false, true},
    {"growing-log", "growing-log-fua", empty_access, false, true},
    {"packed", "packed-fua", empty_access},
    {"one-file", "one-file-fua", file_access},
    {"random", "random-fua", empty_access, false, true},
    {"raw-files", "raw-files-fua", raw_access, false, true},
    {"raw-random", "raw-random-fua", raw_access, false, true},
    {"raw-files", "nvme-files", nvme, false, true},
    {"raw-random", "nvme-random", nvme, false, true},
    {"raw-regions", "nvme-regions", nvme, false, true},
    {"raw-applog-kv", "nvme-applog-kv", nvme, false, true},
};

}  // namespace

std::vector<Workload> disk_workloads(std::span<const Workload> others) {
  std::vector<Workload> list{
      {"lines-few",
       "commits of a word on a byte-addressable medium: every subset of words",
       small_store,
       few_lines,
       {.with_call_faults = false, .exhaustive_items = kSubsetItems, .about = "device", .start = empty_lines}}};
  for (const OnDisk& each : kOnDisks) {
    const auto found =
        std::find_if(others.begin(), others.end(), [&](const Workload& other) { return other.name == each.other; });
    MEMLITH_ASSERT(found != others.end());
    Workload workload = *found;
    workload.name = each.name;
    workload.how.start = each.start;
    workload.how.with_call_faults = workload.how.with_call_faults && each.with_call_faults;
    workload.how.dear = workload.how.dear || each.dear;
    workload.how.about = "device";
    list.push_back(workload);
  }
  return list;
}

}  // namespace memlith::lab
