// The in-use header: while commits may be in the log only, the file of a one-file store begins with it, so that a copy
// that lacks them is never taken for a current one. docs/format.md, "The in-use header".
#include <algorithm>
#include <array>

#include "store/store.hpp"

namespace memlith::core {

// The store is recovered. A header that is not wanted is ended.
Status Store::take_over_in_use_header() {
  if (files_.in_use == InUse::caller) return kOk;
  const InUse left = directory_->record_at_home().own.marked;
  has_in_use_header_ = left != InUse::none;
  MEMLITH_TRY(set_in_use(left));
  const InUse wanted = files_.options.in_use == InUse::guard ? InUse::guard : InUse::structure;
  return left == wanted ? kOk : end_in_use_header();
}

Status Store::put_guard() {
  if (files_.options.in_use != InUse::guard || has_in_use_header_) return kOk;
  MEMLITH_TRY(check_process());
  OwnBytes own{InUse::guard, 0, {}};
  const std::uint64_t has_bytes = std::min(directory_->record_at_home().object.size_bytes, kInUseHeaderBytes);
  MEMLITH_TRY(read_home_into(kFile, 0, std::as_writable_bytes(std::span(own.bytes)).first(has_bytes)));
  MEMLITH_TRY(reserve_home(kFile, kInUseHeaderBytes));
  return begin_in_use_header(own);
}

Status Store::put_in_use_header(std::uint64_t magic, bool is_new) {
  const bool has_other = files_.in_use == InUse::caller || files_.options.in_use == InUse::guard;
  if (!one_file() || read_only() || has_other || files_.whole_blocks() || has_in_use_header_) return kOk;
  const std::optional<ObjectInfo> info = find("file");
  std::array<std::uint64_t, 3> first{};
  if (!info.has_value() || info->size_bytes < sizeof first) return kOk;
  MEMLITH_TRY(bring_home(Lsn{committed_lsn(kFile)->load()}));
  MEMLITH_TRY(read_home_into(kFile, 0, std::as_writable_bytes(std::span(first))));
  const bool ours = first[0] == 0 && first[1] == 0 && (first[2] == magic || (is_new && first[2] == 0));
  if (!ours && files_.in_use != InUse::structure) return kOk;  // something else
  return begin_in_use_header({InUse::structure, 0, {}});
}

// The in-use header and what the directory says of it are one commit: a file without the header, beside a log in which
// no commit has taken it away, is another file.
Status Store::begin_in_use_header(const OwnBytes& own) {
  MEMLITH_TRY(set_in_use(own.marked));
  const InUseHeader header{kind_of(own.marked), kNoMoment};
  const std::array<Extent, 2> extents{kOwnExtent, Extent{kFile, 0, sizeof header}};
  const std::array<const std::byte*, 2> sources{reinterpret_cast<const std::byte*>(&own),
                                                reinterpret_cast<const std::byte*>(&header)};
  MEMLITH_TRY(commit({extents, sources, {}}));
  // ORDER in-use-header-before-commits: the in-use header is in the file, durably, before the log has anything that the
  // file has not. [mutant in_use_header_not_home]
  MEMLITH_TRY(checkpoint());
  has_in_use_header_ = true;
  return kOk;
}

Status Store::end_in_use_header() {
  if (read_only() || files_.in_use == InUse::none || files_.in_use == InUse::caller) return kOk;
  // ORDER home-before-in-use-header-ends: the file is complete before it begins with its own bytes again. [mutant
  // in_use_header_ends_too_early]
  MEMLITH_TRY(sync(files_.log->head()));
  MEMLITH_TRY(checkpoint());
  MEMLITH_TRY(cut_home_to_size());
  const FileRecord file = directory_->record_at_home();
  if (file.own.marked != InUse::none) {
    const std::uint64_t has_bytes = std::min(file.object.size_bytes, kInUseHeaderBytes);
    const OwnBytes none{};
    const std::array<Extent, 2> extents{kOwnExtent, Extent{kFile, 0, has_bytes}};
    const std::array<const std::byte*, 2> sources{reinterpret_cast<const std::byte*>(&none),
                                                  reinterpret_cast<const std::byte*>(file.own.bytes)};
    const std::size_t count = has_bytes == 0 ? 1 : 2;
    MEMLITH_TRY(commit({std::span(extents).first(count), std::span(sources).first(count), {}}));
    MEMLITH_TRY(checkpoint());
  }
  has_in_use_header_ = false;
  MEMLITH_TRY(set_in_use(InUse::none));
  return cut_home_to_size();
}

Status Store::set_in_use(InUse in_use) {
  return checkpointer_.between_checkpoints([this, in_use]() -> Status {
    files_.in_use = in_use;
    return kOk;
  });
}

}  // namespace memlith::core
