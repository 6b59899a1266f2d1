// The mark of use: from its opening to a clean close, the file of a heap, a kv store or an application log begins with
// a mark, so that a copy without its log is never taken for a current or an empty one. docs/format.md, "The mark of
// use".
#include <array>

#include "store/store.hpp"

namespace memlith::core {

namespace {
// The mark and what the directory says of it are one commit: a file without the mark, beside a log in which no commit
// has taken it away, is another file.
constexpr std::array<Extent, 2> kMarkExtents{kOwnExtent, Extent{kFile, 0, kFileMarkBytes}};
constexpr std::array<std::uint64_t, 2> kNoMark{};

std::array<const std::byte*, 2> sources_of(const OwnBytes& own, const std::array<std::uint64_t, 2>& mark) {
  return {reinterpret_cast<const std::byte*>(&own), reinterpret_cast<const std::byte*>(mark.data())};
}
}  // namespace

Status Store::mark_use(std::uint64_t magic, bool is_new) {
  if (!one_file() || read_only() || files_.guards || files_.keeps_mark || files_.whole_blocks()) return kOk;
  const std::optional<ObjectInfo> info = find("file");
  std::array<std::uint64_t, 3> first{};
  if (!info.has_value() || info->size_bytes < sizeof first) return kOk;
  MEMLITH_TRY(bring_home(Lsn{committed_lsn(kFile)->load()}));
  MEMLITH_TRY(read_home_into(kFile, 0, std::as_writable_bytes(std::span(first))));
  const bool ours = first[0] == 0 && first[1] == 0 && (first[2] == magic || (is_new && first[2] == 0));
  if (!ours) return kOk;  // marked already, or something else
  MEMLITH_TRY(checkpointer_.between_checkpoints([this]() -> Status {
    files_.marks_use = true;
    return kOk;
  }));
  const std::array<std::uint64_t, 2> mark{kUseMark, 0};
  const OwnBytes own{kOwnOfUsed, 0, {}};
  MEMLITH_TRY(commit({kMarkExtents, sources_of(own, mark), {}}));
  // ORDER use-mark-before-commits: the mark is in the file, durably, before the log has anything that the file has not.
  // [mutant use_mark_not_home]
  return checkpoint();
}

Status Store::end_use_mark() {
  if (!files_.marks_use || read_only()) return kOk;
  // ORDER home-before-mark-ends: the file is complete before it lacks the mark. [mutant use_mark_ends_too_early]
  MEMLITH_TRY(sync(files_.log->head()));
  MEMLITH_TRY(checkpoint());
  MEMLITH_TRY(cut_home_to_size());
  MEMLITH_TRY(commit({kMarkExtents, sources_of(OwnBytes{}, kNoMark), {}}));
  return checkpoint();
}

}  // namespace memlith::core
