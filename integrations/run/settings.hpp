// The request to `memlith run`, as the environment hands it to this library and to the programs that are started.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlith::preload {

inline constexpr char kSettingsVariable[] = "MEMLITH_RUN";

enum class CommitAt : char { automatic = 'a', msync = 'm', fsync = 'f' };

struct Settings {
  // Absolute patterns are matched with the whole path, others with the last component of it.
  std::vector<std::string> patterns;
  CommitAt commit = CommitAt::automatic;
  std::uint64_t weak_ms = 0;          // 0: a commit is durable when it returns
  std::uint64_t commit_every_ms = 0;  // 0: only the program commits
  bool report = false;
  bool guard = false;       // files in use begin with a mark (MEMLITH_IMAGE_GUARD)
  bool one_commit = false;  // a commit of one file is one of all

  [[nodiscard]] bool matches(std::string_view path) const;
};

// "COMMIT,WEAK,EVERY,REPORT,GUARD,ONE" and the patterns, a line each.
std::string encode(const Settings& settings);
bool decode(const char* text, Settings& settings);

}  // namespace memlith::preload
