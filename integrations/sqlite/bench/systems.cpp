#include "systems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "memlith/memlith.h"

namespace memlith::sqlite_bench {

namespace {

constexpr std::array<std::string_view, 6> kJournalModes{"delete", "truncate", "persist", "memory", "off", "wal"};

const System kPlain[] = {
    {"wal-full", false, false, "wal", "full", true, "each commit when it returns"},
    {"wal-normal", false, false, "wal", "normal", false, "at checkpoints; a power cut loses the commits since"},
    {"wal-off", false, false, "wal", "off", false, "when the kernel writes them; a power cut can corrupt the database"},
    // Only with EXTRA does SQLite flush the folder behind the removal of the journal, which is the commit.
    {"delete-full", false, false, "delete", "full", false,
     "soon after they return, with the removal of the journal; a power cut before that undoes the commit"},
};

Failure unknown(const std::string& name) {
  return tool::
      tool_failure(MEMLITH_INVALID,
                   fmt::format("there is no system \"{}\"; the systems are memlith and memlith-weak, optionally with a "
                               "journal mode (memlith/wal), memlith-shared, memlith-latest, wal-full, wal-normal, "
                               "wal-off and delete-full",
                               name));
}

}  // namespace

Result<std::vector<System>> systems_of(const Settings& settings) {
  std::vector<System> systems;
  for (const std::string& name : settings.systems) {
    const std::string head = name.substr(0, name.find('/'));
    if (name == "memlith-shared" || name == "memlith-latest") {
      systems.push_back({name, true, false, "wal", "full", true, "each commit when it returns", true});
      systems.back().reads_latest = name == "memlith-latest";
      continue;
    }
    if (head == "memlith" || head == "memlith-weak") {
      const std::string mode = name.size() > head.size() ? name.substr(head.size() + 1) : settings.memlith_journal;
      if (std::find(kJournalModes.begin(), kJournalModes.end(), mode) == kJournalModes.end()) return unknown(name);
      const bool weak = head != "memlith";
      // memlith ignores `synchronous`; SQLite's own choice is full.
      systems.push_back({name, true, weak, mode, "full", !weak,
                         weak ? fmt::format("within {} ms, in order", settings.window_ms)
                              : "each commit when it returns"});
      continue;
    }
    const auto* const found = std::find_if(std::begin(kPlain), std::end(kPlain),
                                           [&name](const System& system) { return system.name == name; });
    if (found == std::end(kPlain)) return unknown(name);
    systems.push_back(*found);
  }
  for (std::size_t i = 0; i < systems.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (systems[i].name == systems[j].name) {
        return tool::tool_failure(MEMLITH_INVALID, fmt::format("the system \"{}\" is named twice", systems[i].name));
      }
    }
  }
  return systems;
}

}  // namespace memlith::sqlite_bench
