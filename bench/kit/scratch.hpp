// The temporary folder of a benchmark, and what a benchmark needs to know of the file system it is on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/failure.hpp"

namespace memlith::tool {

// A folder `memlith-bench-<pid>` inside another, removed with all that is in it when this object goes.
class ScratchFolder {
 public:
  static Result<ScratchFolder> make(const std::string& parent);
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string path_of(std::string_view name) const;
  // Removes a file or folder inside; a failure shows when the name is used again.
  void remove(std::string_view name) const;

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty once moved from
};

// Space for a benchmark's store beyond its regions and its log: the log may grow, and there are small files.
inline constexpr std::uint64_t kStoreSlackBytes = 256ull << 20;

// NO_SPACE with the numbers in it unless the file system of `folder` has `bytes` free for this user.
[[nodiscard]] MaybeFailure require_space(const std::string& folder, std::uint64_t bytes);

// Flushes every file in `folder` and drops it from the page cache, so that what follows reads the disk, as after a
// restart of the machine. Without this a benchmark of opening would read memory.
[[nodiscard]] MaybeFailure drop_page_cache(const std::string& folder);

}  // namespace memlith::tool
