// Failures from the library, from system calls and from the tool, brought into one form.
#include "failure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

struct Advice {
  std::int32_t category;
  std::string_view text;
};

constexpr Advice kAdvice[] = {
    {MEMLITH_NOT_FOUND,
     "Check the path: a store is a folder that memlith created, or a file with its log FILE.memlith beside it."},
    {MEMLITH_BUSY, "Close the program that has it open, then try again."},
    {MEMLITH_IO,
     "Check the kernel's messages about the disk (dmesg). After a failed write or flush, the next opening recovers "
     "what was acknowledged. What cannot be read, no opening gives back: restore it from a copy or an archive."},
    {MEMLITH_CORRUPT, "Keep a copy of the store as it is, check the disk, and restore the store from a backup."},
    {MEMLITH_INCOMPATIBLE,
     "Either this is not a memlith store: check the path; or a later version of memlith wrote it: use that version."},
    {MEMLITH_NO_SPACE, "Free space on that file system, or choose a folder on another file system."},
    {MEMLITH_POISONED, "Check the kernel's messages about the disk (dmesg), then open the store again."},
    {MEMLITH_PERMISSION, "Run as the user who owns it, or change its permissions."},
    {MEMLITH_READ_ONLY, "Mount the file system for writing, or change the permissions."},
    {MEMLITH_ADDRESS_TAKEN,
     "A copy of a store has its original's addresses: close the original first, or open the copy in another process. "
     "Otherwise run the program again without the library that took the addresses, such as a preloaded one."},
    {MEMLITH_UNSUPPORTED, "Choose another tracker, another file system, or another kernel."},
};

std::int32_t category_of_errno(int os_errno) {
  switch (os_errno) {
    case ENOENT:
    case ENOTDIR: return MEMLITH_NOT_FOUND;
    case EEXIST: return MEMLITH_EXISTS;
    case EACCES:
    case EPERM: return MEMLITH_PERMISSION;
    case EROFS: return MEMLITH_READ_ONLY;
    case ENOSPC:
    case EDQUOT: return MEMLITH_NO_SPACE;
    case ENOMEM: return MEMLITH_NO_MEMORY;
    case EMFILE:
    case ENFILE: return MEMLITH_TOO_MANY_FILES;
    default: return MEMLITH_IO;
  }
}

std::string last_sentence() {
  char buffer[1024] = {};
  const std::size_t length = memlith_last_error(buffer, sizeof buffer);
  if (length < sizeof buffer) return buffer;
  std::string whole(length + 1, '\0');
  memlith_last_error(whole.data(), whole.size());
  whole.resize(std::strlen(whole.c_str()));
  return whole;
}

}  // namespace

bool is_other_version(std::int32_t code) {
  return memlith_category(code) == MEMLITH_INCOMPATIBLE && memlith_detail(code) == MEMLITH_DETAIL_VERSION;
}

std::string_view advice_for(std::int32_t code) {
  if (is_other_version(code)) return {};  // the sentence says which memlith to use
  const auto* const found = std::find_if(std::begin(kAdvice), std::end(kAdvice), [code](const Advice& advice) {
    return advice.category == memlith_category(code);
  });
  return found == std::end(kAdvice) ? std::string_view{} : found->text;
}

Failure library_failure(std::int32_t code, std::string_view doing) {
  std::string sentence = last_sentence();
  if (sentence.empty()) sentence = memlith_category_name(code);
  if (!doing.empty()) sentence = fmt::format("{}: {}", doing, sentence);
  return {memlith_category_name(code), code, std::move(sentence), std::string(advice_for(code))};
}

Failure tool_failure(std::int32_t category, std::string message, std::string advice) {
  return {memlith_category_name(category), category, std::move(message), std::move(advice)};
}

Failure errno_failure(int os_errno, std::string_view doing) {
  const std::int32_t category = category_of_errno(os_errno);
  return tool_failure(category, fmt::format("{}: {}", doing, std::strerror(os_errno)),
                      std::string(advice_for(category)));
}

Failure interrupted_failure() {
  return {"interrupted", 0, "stopped by a signal; the temporary files were removed", {}, kExitInterrupted};
}

}  // namespace memlith::tool
