// Files and folders by system calls, with errors as values. Floor: postgres.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "memlith/memlith.hpp"

namespace memlith_postgres {

using memlith::Error;
using memlith::Result;

// The error of the last system call: NOT_FOUND, NO_SPACE, PERMISSION or IO; `what` names the call and the file.
Error errno_error(const std::string& what);

// The error of a call of the floors below, with its message.
Error error_of(memlith::core::Status status);
// Writes "memlith: ..." to standard error, which is the server's log.
void say(const std::string& sentence);

using memlith::core::Descriptor;
Result<Descriptor> open_file(const std::string& path, int flags);
Result<void> flush_file(const Descriptor& file, const std::string& path);
Result<void> flush_folder(const std::string& path);
// Makes durable whatever the kernel's cache has of the file systems of these folders. Returns their devices, without
// those of other file systems than ext4, XFS, Btrfs, F2FS and tmpfs, and those whose flush has failed.
std::vector<std::uint64_t> settle(const std::vector<std::string>& folders);
// The folder's entries, with their paths; none if there is no such folder.
std::vector<std::string> entries_of(const std::string& folder);
// The whole content of a small file. Nothing if there is none.
Result<std::optional<std::string>> read_file(const std::string& path);
// Replaces the file, all or nothing, with the permissions of the one that is there; durable on return.
Result<void> replace_file(const std::string& path, std::string_view content);
std::string folder_of(const std::string& path);
// Without links; empty if there is no such file.
std::string real_path(const std::string& path);

}  // namespace memlith_postgres
