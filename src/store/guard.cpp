// The guard of a file: from its first commit to a clean close the file begins with an in-use header, so that a copy
// that lacks commits of the log is never taken for a current one. docs/format.md, "The guard".
#include <algorithm>
#include <array>

#include "store/store.hpp"

namespace memlith::core {

Status Store::put_guard() {
  if (!files_.options.guards_file || is_guarded_) return kOk;
  MEMLITH_TRY(check_process());
  OwnBytes own{kOwnOfGuarded, 0, {}};
  const std::uint64_t has_bytes = std::min(directory_->record_at_home().object.size_bytes, kInUseHeaderBytes);
  MEMLITH_TRY(read_home_into(kFile, 0, std::as_writable_bytes(std::span(own.bytes)).first(has_bytes)));
  MEMLITH_TRY(reserve_home(kFile, kInUseHeaderBytes));
  const std::array<std::uint64_t, 2> header{kGuardInUseMagic, 0};
  const std::array<Extent, 2> extents{kOwnExtent, Extent{kFile, 0, kInUseHeaderBytes}};
  const std::array<const std::byte*, 2> sources{reinterpret_cast<const std::byte*>(&own),
                                                reinterpret_cast<const std::byte*>(header.data())};
  MEMLITH_TRY(commit({extents, sources, {}}));
  // ORDER guard-before-commits: the in-use header is in the file, durably, before the log has anything that the file
  // has not. [mutant guard_not_home]
  MEMLITH_TRY(checkpoint());
  is_guarded_ = true;
  return kOk;
}

Status Store::end_guard() {
  if (!is_guarded_) return kOk;
  // ORDER home-before-own-bytes: the file is complete before it begins with its own bytes again.
  // [mutant guard_ends_too_early]
  MEMLITH_TRY(sync(files_.log->head()));
  MEMLITH_TRY(checkpoint());
  MEMLITH_TRY(cut_home_to_size());
  const FileRecord file = directory_->record_at_home();
  const std::uint64_t has_bytes = std::min(file.object.size_bytes, kInUseHeaderBytes);
  const OwnBytes none{};
  const std::array<Extent, 2> extents{kOwnExtent, Extent{kFile, 0, has_bytes}};
  const std::array<const std::byte*, 2> sources{reinterpret_cast<const std::byte*>(&none),
                                                reinterpret_cast<const std::byte*>(file.own.bytes)};
  const std::size_t count = has_bytes == 0 ? 1 : 2;
  MEMLITH_TRY(commit({std::span(extents).first(count), std::span(sources).first(count), {}}));
  MEMLITH_TRY(checkpoint());
  is_guarded_ = false;
  return cut_home_to_size();
}

}  // namespace memlith::core
