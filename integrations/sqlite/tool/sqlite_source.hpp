// A SQLite database to copy from: an ordinary file, or one whose newest commits are in memlith's log, locked so that it
// does not change meanwhile; or, beside a process that has the database open with memlith, a copy in memory of its last
// durable state, which needs no lock. No byte of the database is changed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/descriptor.hpp"
#include "cli/failure.hpp"
#include "cli/store_path.hpp"
#include "kit/raw_device.hpp"
#include "sqlite_head.hpp"

namespace memlith::tool {

class SqliteSource {
 public:
  enum class Kinds : std::uint8_t { any, ordinary };

  // Held until the object goes. Errors: BUSY, naming the holder, if that is plain SQLite; no database; journals beside
  // it that SQLite or memlith has to look at first; CORRUPT: log missing or another's; whatever opening a store finds.
  static Result<SqliteSource> open(const std::string& path, Kinds kinds);

  [[nodiscard]] const std::string& path() const { return path_; }  // without symbolic links
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }     // of the committed database; 0: it is empty
  [[nodiscard]] mode_t mode() const { return mode_; }
  [[nodiscard]] bool is_file(dev_t device, ino_t number) const { return device_ == device && number_ == number; }

  // Reads `count` bytes, at most kStepBytes, within bytes(); valid until the next call. The memory is aligned to 4096
  // if `offset` is. The bytes that memlith's mark changes may be those of the mark.
  static constexpr std::uint64_t kStepBytes = kMiB;
  Result<std::span<const std::byte>> read(std::uint64_t offset, std::uint64_t count);
  // The first `count` bytes, within bytes(), as they are without the mark.
  Result<std::vector<std::byte>> beginning(std::uint64_t count);

  // True if the first page's header fits the length.
  [[nodiscard]] MaybeFailure check_header();

 private:
  SqliteSource() = default;
  // Empty: the database has changed since its header was read.
  static Result<std::optional<SqliteSource>> open_as_it_is(const std::string& path, const SqliteLook& look,
                                                           Kinds kinds);
  static Result<std::optional<SqliteSource>> open_ordinary(const std::string& path, const SqliteLook& seen);
  static Result<std::optional<SqliteSource>> open_marked(const std::string& path);
  static Result<std::optional<SqliteSource>> open_with_log(const std::string& path, bool may_be_ordinary);
  [[nodiscard]] MaybeFailure remember_file();
  [[nodiscard]] MaybeFailure map_region();

  std::string path_;
  std::uint64_t bytes_ = 0;
  mode_t mode_ = 0;
  dev_t device_ = 0;
  ino_t number_ = 0;
  Descriptor file_;
  std::optional<HugeBuffer> buffer_;  // ordinary
  StoreHandle store_;                 // marked
  const std::byte* memory_ = nullptr;
};

// Fails where plain SQLite left changes beside `path` that it would bring into whatever database has that name.
[[nodiscard]] MaybeFailure check_sqlite_left_over(const std::string& path);

}  // namespace memlith::tool
