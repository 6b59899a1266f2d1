// The names of the trackers on the command line and in output.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "memlith/memlith.h"
#include "private/inside.h"

namespace memlith::tool {

struct TrackerName {
  std::string_view name;
  std::uint32_t tracker;
};

inline constexpr TrackerName kTrackers[] = {
    {"auto", MEMLITH_TRACKER_AUTO},
    {"scan", MEMLITH_TRACKER_SCAN},
    {"explicit", MEMLITH_TRACKER_EXPLICIT},
    {"fault", MEMLITH_TRACKER_FAULT},
    {"instrumented", MEMLITH_TRACKER_INSTRUMENTED},
};

// Precondition: one of the names above; the command line lets no other through.
[[nodiscard]] inline std::uint32_t tracker_of(std::string_view name) {
  return std::find_if(std::begin(kTrackers), std::end(kTrackers),
                      [name](const TrackerName& t) { return t.name == name; })
      ->tracker;
}

// One line about how the tracker would work on this kernel.
[[nodiscard]] inline std::string describe_tracker(std::uint32_t tracker) {
  char text[512] = {};
  const std::int32_t code = memlith_tracker_describe(tracker, text, sizeof text);
  return code == MEMLITH_OK ? text : memlith_category_name(code);
}

}  // namespace memlith::tool
