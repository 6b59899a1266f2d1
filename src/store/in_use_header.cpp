// The in-use header: from its opening to a clean close, the file of a heap, a kv store or an application log begins
// with an in-use header, so that a copy without its log is never taken for a current or an empty one. docs/format.md,
// "The in-use header".
#include <array>

#include "store/store.hpp"

namespace memlith::core {

namespace {
// The in-use header and what the directory says of it are one commit: a file without the header, beside a log in which
// no commit has taken it away, is another file.
constexpr std::array<Extent, 2> kHeaderExtents{kOwnExtent, Extent{kFile, 0, kInUseHeaderBytes}};
constexpr std::array<std::uint64_t, 2> kNoHeader{};

std::array<const std::byte*, 2> sources_of(const OwnBytes& own, const std::array<std::uint64_t, 2>& header) {
  return {reinterpret_cast<const std::byte*>(&own), reinterpret_cast<const std::byte*>(header.data())};
}
}  // namespace

Status Store::put_in_use_header(std::uint64_t magic, bool is_new) {
  if (!one_file() || read_only() || files_.guards || files_.keeps_in_use_header || files_.whole_blocks()) return kOk;
  const std::optional<ObjectInfo> info = find("file");
  std::array<std::uint64_t, 3> first{};
  if (!info.has_value() || info->size_bytes < sizeof first) return kOk;
  MEMLITH_TRY(bring_home(Lsn{committed_lsn(kFile)->load()}));
  MEMLITH_TRY(read_home_into(kFile, 0, std::as_writable_bytes(std::span(first))));
  const bool ours = first[0] == 0 && first[1] == 0 && (first[2] == magic || (is_new && first[2] == 0));
  if (!ours) return kOk;  // marked already, or something else
  MEMLITH_TRY(checkpointer_.between_checkpoints([this]() -> Status {
    files_.structure_in_use = true;
    return kOk;
  }));
  const std::array<std::uint64_t, 2> header{kInUseMagic, 0};
  const OwnBytes own{kOwnOfUsed, 0, {}};
  MEMLITH_TRY(commit({kHeaderExtents, sources_of(own, header), {}}));
  // ORDER in-use-header-before-commits: the in-use header is in the file, durably, before the log has anything that the
  // file has not. [mutant in_use_header_not_home]
  return checkpoint();
}

Status Store::end_in_use_header() {
  if (!files_.structure_in_use || read_only()) return kOk;
  // ORDER home-before-in-use-header-ends: the file is complete before it lacks the in-use header. [mutant
  // in_use_header_ends_too_early]
  MEMLITH_TRY(sync(files_.log->head()));
  MEMLITH_TRY(checkpoint());
  MEMLITH_TRY(cut_home_to_size());
  MEMLITH_TRY(commit({kHeaderExtents, sources_of(OwnBytes{}, kNoHeader), {}}));
  return checkpoint();
}

}  // namespace memlith::core
