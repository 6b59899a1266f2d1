// Workloads on a byte-addressable medium: writes are torn between words of 8 bytes and made durable by fences, and the
// frames of the log are padded to lines.
#include <algorithm>
#include <string_view>
#include <vector>

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

// The same as others of that name, on lines.
struct OnLines {
  std::string_view other;
  std::string_view name;
  SimImage (*start)();
  bool with_call_faults = false;
  bool dear = false;
};
constexpr OnLines kOnLines[] = {
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
};

}  // namespace

std::vector<Workload> line_workloads(std::span<const Workload> others) {
  std::vector<Workload> list{{.name = "lines-few",
                              .sentence = "commits of a word on a byte-addressable medium: every subset of words",
                              .options = small_store,
                              .steps = few_lines,
                              .with_call_faults = false,
                              .exhaustive_items = kSubsetItems,
                              .about = "device",
                              .start = empty_lines}};
  for (const OnLines& each : kOnLines) {
    const auto found =
        std::find_if(others.begin(), others.end(), [&](const Workload& other) { return other.name == each.other; });
    MEMLITH_ASSERT(found != others.end());
    Workload workload = *found;
    workload.name = each.name;
    workload.start = each.start;
    workload.with_call_faults = workload.with_call_faults && each.with_call_faults;
    workload.dear = workload.dear || each.dear;
    workload.about = "device";
    list.push_back(workload);
  }
  return list;
}

}  // namespace memlith::lab
