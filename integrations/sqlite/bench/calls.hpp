// SQLite's calls of its VFS: how many, and how long they take. A VFS that counts stands before the real one, the same
// for all systems; it adds two looks at the clock to a call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "systems.hpp"

namespace memlith::sqlite_bench {

enum class Call : std::uint8_t {
  read,
  write,    // and truncate
  durable,  // xSync, with what SQLite tells the VFS before it (SQLITE_FCNTL_SYNC), which is where memlith persists
  name,     // files opened, looked for, removed
  lock,     // and what a WAL shares
};
inline constexpr std::size_t kCalls = 5;
[[nodiscard]] std::string_view name_of(Call call);

struct CallCount {
  std::uint64_t calls = 0;
  std::uint64_t ns = 0;
};
using CallCounts = std::array<CallCount, kCalls>;

// Registers the VFS that counts before `vfs`, once, and gives its name.
[[nodiscard]] Result<const char*> counted_vfs(const char* vfs);
// The counts of all files opened through such a VFS, since the process began.
[[nodiscard]] const CallCounts& calls_so_far();

}  // namespace memlith::sqlite_bench
