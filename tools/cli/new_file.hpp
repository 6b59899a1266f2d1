// A file that appears under its name as a whole, on the medium, or not at all.
//
// It is written under another name in the same folder and renamed when it is complete; on every way out before that,
// the other name is removed. One thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "descriptor.hpp"
#include "failure.hpp"

namespace memlith::tool {

enum class Replace : std::uint8_t { no, yes };

class NewFile {
 public:
  // Reserves `bytes` where the file system can. Errors: folder missing, NO_SPACE, PERMISSION.
  static Result<NewFile> create(const std::string& target, std::uint64_t bytes, mode_t mode);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  // Past the page cache as long as address, length and offset are multiples of 4096 and the file system takes it. Not
  // durable.
  [[nodiscard]] MaybeFailure write(std::uint64_t offset, std::span<const std::byte> source);
  // On success the target has the content, and both survive power loss. EXISTS: there is one, and Replace::no.
  [[nodiscard]] MaybeFailure publish(Replace replace);

 private:
  NewFile(std::string target, std::string temporary, Descriptor descriptor, bool direct);
  [[nodiscard]] MaybeFailure leave_direct_io();
  [[nodiscard]] int rename(Replace replace) const;  // errno, or 0

  std::string target_;
  std::string temporary_;  // empty: it has its name
  Descriptor descriptor_;
  bool direct_;
};

}  // namespace memlith::tool
