// memlith recover STORE: opens it for writing, which replays its log, and closes it, which marks it clean.
//
// Every program that opens a store does this by itself; the command is for doing it beforehand, and for seeing it. A
// SQLite database is an ordinary one afterwards, unless a transaction over several databases is undecided.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "cli/clock.hpp"
#include "cli/progress.hpp"
#include "cli/store_path.hpp"
#include "commands.hpp"
#include "leaks.hpp"
#include "memlith/heap.h"
#include "postgres/tool/commands.hpp"
#include "sqlite/tool/sqlite_head.hpp"

namespace memlith::tool {

namespace {

struct Recovery {
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
  std::uint64_t open_ns = 0;
  std::uint64_t close_ns = 0;
  bool is_marked = false;     // a SQLite database that plain SQLite still does not open
  bool is_undecided = false;  // and it was in a transaction over several databases
};

Result<Recovery> recover(const StorePath& path, bool accept_copy) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  if (accept_copy) options.flags = MEMLITH_OPEN_ACCEPT_COPY;
  options.manual_checkpoint = 1;  // nothing will be persisted, so no thread is needed for it
  Recovery recovery;
  const std::uint64_t open_start = now_ns();
  Result<StoreHandle> store = [&path, &options] {
    ProgressBar bar("replaying");
    options.progress = &ProgressBar::update;
    options.progress_context = &bar;
    return open_store(path, options);
  }();
  recovery.open_ns = now_ns() - open_start;
  if (!store.ok()) return std::move(store.failure());

  Result<memlith_store_info> info = info_of(store->get());
  if (!info.ok()) return std::move(info.failure());
  recovery.frames = info->replayed_frames;
  recovery.bytes = info->replayed_bytes;
  const std::uint64_t close_start = now_ns();
  if (MaybeFailure failure = close_store(std::move(*store))) return *failure;
  recovery.close_ns = now_ns() - close_start;
  return recovery;
}

MaybeFailure put_magic(memlith_store* store) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.tracker = MEMLITH_TRACKER_EXPLICIT;
  memlith_region* region = nullptr;
  if (const std::int32_t code = memlith_region_open(store, "file", &options, &region); code != MEMLITH_OK) {
    return library_failure(code, "mapping the database");
  }
  // An empty database under the mark has no other bytes, and no length of its own in the C interface.
  const std::uint64_t bytes = memlith_region_size(region);
  if (bytes <= MEMLITH_SQLITE_MARK_BYTES) return {};
  auto* const first = static_cast<std::byte*>(memlith_region_address(region));  // closed with the store
  const std::uint64_t changed = std::min<std::uint64_t>(bytes, MEMLITH_SQLITE_CHANGED_BYTES);
  memlith_sqlite_unmark(first, changed);
  if (const std::int32_t code = memlith_touch(region, first, changed); code != MEMLITH_OK) {
    return library_failure(code, "restoring SQLite's first bytes");
  }
  if (const std::int32_t code = memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS); code != MEMLITH_OK) {
    return library_failure(code, "restoring SQLite's first bytes");
  }
  return {};
}

// SQLite's own bytes replace the mark as the last commit. The database was recovered and closed before, so that
// everything else is home, and the file has its length, when the file says that it is complete.
MaybeFailure make_ordinary(const StorePath& path) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.manual_checkpoint = 1;
  Result<StoreHandle> store = open_store(path, options);
  if (!store.ok()) return std::move(store.failure());
  if (MaybeFailure failure = put_magic(store->get())) return failure;
  return close_store(std::move(*store));
}

// Afterwards: the log may have held SQLite's own first bytes, the last commit of a close that a crash cut short.
MaybeFailure look_again(const StorePath& path, Recovery& recovery) {
  if (path.kind != StoreKind::one_file) return {};
  Result<SqliteLook> look = look_at_sqlite(path.path);
  if (!look.ok()) return std::move(look.failure());
  recovery.is_marked = look->is(MEMLITH_SQLITE_MARKED);
  if (!recovery.is_marked) return {};
  Result<bool> undecided = file_is_there(undecided_journal_of(path.path));
  if (!undecided.ok()) return std::move(undecided.failure());
  recovery.is_undecided = *undecided;
  if (recovery.is_undecided) return {};
  if (MaybeFailure failure = make_ordinary(path)) return failure;
  look = look_at_sqlite(path.path);
  if (!look.ok()) return std::move(look.failure());
  recovery.is_marked = look->is(MEMLITH_SQLITE_MARKED);
  return {};
}

void print_mark(const StorePath& path, const Recovery& recovery) {
  if (!recovery.is_marked) return;
  write_line(
      "  a SQLite database; it still has memlith's mark, and plain SQLite does not open it. To make it an ordinary "
      "file, open and close it once with memlith's VFS. Keep the log until then");
  if (recovery.is_undecided) {
    write_line(fmt::
                   format("  {}: a transaction over several databases is undecided; open it with memlith's VFS while "
                          "the other databases are in their places",
                          printable(undecided_journal_of(path.path))));
  }
}

void print_text(const StorePath& path, const Recovery& recovery) {
  if (recovery.frames == 0) {
    write_line(fmt::format("{}: nothing to replay; opened and closed cleanly in {:.3f} s", printable(path.path),
                           seconds_of(recovery.open_ns + recovery.close_ns)));
    return;
  }
  write_line(fmt::format("{}: recovered; {} frames, {} replayed in {:.3f} s; closed cleanly", printable(path.path),
                         recovery.frames, human_bytes(recovery.bytes), seconds_of(recovery.open_ns)));
}

}  // namespace

MaybeFailure run_recover(const RecoverArguments& arguments) {
  const std::uint32_t promise = arguments.collect == "plain-pointers" ? MEMLITH_PLAIN_POINTERS : 0;
  if (!arguments.collect.empty() && promise == 0) {  // it says why
    return library_failure(memlith_collect_leaks(arguments.path.c_str(), promise, nullptr, nullptr), {});
  }
  if (is_postgres_to_recover(arguments.path)) return recover_postgres(arguments.path, arguments.format);
  Result<StorePath> path = resolve_store_path(arguments.path);
  if (!path.ok()) return std::move(path.failure());
  if (!path->has_log) {
    if (MaybeFailure failure = check_log_not_missed(*path)) return failure;
    // Opening it for writing would make a log beside what may be any file at all.
    return tool_failure(MEMLITH_NOT_FOUND, fmt::format("{0} has no log {0}.memlith beside it", path->path),
                        "There is nothing to recover. Check the path; without a log the file is complete by itself.");
  }
  if (MaybeFailure failure = check_sqlite_before_replay(*path)) return failure;
  Result<Recovery> recovery = recover(*path, arguments.accept_copy);
  if (!recovery.ok()) return std::move(recovery.failure());
  if (MaybeFailure failure = look_again(*path, *recovery)) return failure;
  Leaks freed;
  if (!arguments.collect.empty()) {
    const std::int32_t code = memlith_collect_leaks(arguments.path.c_str(), promise, Leaks::note, &freed);
    if (code != MEMLITH_OK) return library_failure(code, {});
  }
  if (arguments.format == Format::json) {
    Json result{{"path", path->path},
                {"kind", name_of(path->kind)},
                {"replayed_frames", recovery->frames},
                {"replayed_bytes", recovery->bytes},
                {"open_s", seconds_of(recovery->open_ns)},
                {"close_s", seconds_of(recovery->close_ns)},
                {"clean", true}};
    if (!arguments.collect.empty()) result["freed"] = freed.json();
    if (recovery->is_marked) result["sqlite"] = {{"marked", true}, {"undecided", recovery->is_undecided}};
    write_json(result);
  } else {
    print_text(*path, *recovery);
    print_mark(*path, *recovery);
    print_leaks(freed, "freed");
    if (!arguments.collect.empty() && freed.heaps.empty()) write_line("  something leads to every block of its heaps");
  }
  return {};
}

}  // namespace memlith::tool
