// Archives, restoring, and standbys; include/memlith/archive.h. Floor: capi.
#include "memlith/archive.h"

#include <sys/xattr.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "archive/archiver.hpp"
#include "archive/replica.hpp"
#include "archive/restorer.hpp"
#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "device/posix.hpp"
#include "memlith/sqlite_file.h"
#include "store/store.hpp"

using namespace memlith::core;

namespace memlith::core {
// The place of an archive, and the volume under a target that is a folder.
struct OpenTarget {
  std::unique_ptr<Volume> volume;
  std::unique_ptr<ArchiveTarget> target;
};
}  // namespace memlith::core

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr const char* kUnfinished = ".restoring";
constexpr std::uint64_t kStandbyLogBytes = 16 * kMiB;  // frames that a standby keeps before it writes home

Result<OpenTarget> open_target(const memlith_archive_target* given, bool to_write) {
  MEMLITH_TRY(need(given, "target"));
  memlith_archive_target options{};
  MEMLITH_TRY(read_options(given, options));
  const bool has_commands = options.put_command != nullptr || options.get_command != nullptr;
  if ((options.folder != nullptr) == has_commands) {
    return fail(Errc::invalid, Detail::argument, "an archive needs either a folder or commands");
  }
  if (options.folder != nullptr) {
    OpenTarget result;
    result.volume = make_posix_volume(options.folder);
    result.target = make_folder_target(*result.volume);
    return result;
  }
  if (options.get_command == nullptr || (to_write && options.put_command == nullptr)) {
    return fail(Errc::invalid, Detail::argument, "{}",
                to_write ? "archiving needs a command that puts objects and one that gets them"
                         : "reading an archive needs a command that gets its objects");
  }
  const auto text = [](const char* command) { return command == nullptr ? std::string() : std::string(command); };
  OpenTarget result;
  result.target =
      make_command_target({text(options.put_command), text(options.get_command), text(options.remove_command)});
  return result;
}

std::uint64_t nanoseconds(std::uint64_t seconds, std::uint64_t default_seconds) {
  if (seconds == MEMLITH_ARCHIVE_NEVER) return 0;
  if (seconds == 0) seconds = default_seconds;
  return std::min(seconds, MEMLITH_ARCHIVE_NEVER / kSecond) * kSecond;
}

Status check_not_there(const std::string& dest) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(dest, error))) return kOk;
  return fail(Errc::exists, Detail::open, "{}: there is something already; restore to another place, or move it away",
              dest);
}

// A file that was restored has no log, by which its archive would know it again. This attribute says from which archive
// it comes; where the file system has no attributes, the archive knows the file by its path only.
constexpr const char* kArchiveAttribute = "user.memlith.archive";

void note_archive(const std::string& file, std::uint64_t archive_id) {
  (void)::setxattr(file.c_str(), kArchiveAttribute, &archive_id, sizeof archive_id, 0);
}

std::uint64_t noted_archive(const std::string& file) {
  std::uint64_t archive_id = 0;
  const ssize_t got = ::getxattr(file.c_str(), kArchiveAttribute, &archive_id, sizeof archive_id);
  return got == sizeof archive_id ? archive_id : 0;
}

// A database that processes have open in the plugin's mode shared has no log of memlith's: its commits are in SQLite's
// own WAL.
Status check_not_shared(const std::string& file) {
  std::error_code error;
  const bool shared =
      std::filesystem::exists(file + "-memlith", error) && !std::filesystem::exists(file + ".memlith", error);
  if (!shared) return kOk;
  return fail(Errc::unsupported, Detail::open,
              "{0}: this SQLite database is in mode shared, so its commits are in SQLite's own {0}-wal, which memlith "
              "does not archive. Archive it with a tool for plain SQLite in WAL mode (Litestream; `sqlite3 {0} "
              "\".backup COPY\"` for one copy), or close it and open it with share=0 (MEMLITH_SQLITE_SHARE=0), in one "
              "process. If no process has it open, remove {0}-memlith, which one that was killed has left",
              file);
}

// The files that an interrupted restore left.
Status remove_unfinished(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? fail_errno(error.value(), Detail::open, "{}: removing what an interrupted restore left", path) : kOk;
}

// A store recovers, and is closed; a file is complete by itself then, without a log.
Status finish_store(Volume& volume, StoreKind kind, const std::string& file_name) {
  StoreOptions options;
  options.kind = kind;
  options.file_name = file_name;
  options.manual_checkpoint = options.manual_flush = options.any_medium = true;
  MEMLITH_TRY_ASSIGN(std::unique_ptr<Store> store, Store::open(volume, options));
  if (kind == StoreKind::folder) return store->close();
  std::array<std::byte, MEMLITH_SQLITE_CHANGED_BYTES> first{};
  const std::uint64_t size = store->objects().front().size_bytes;
  const std::uint64_t changed = size > MEMLITH_SQLITE_MARK_BYTES ? std::min<std::uint64_t>(size, first.size()) : 0;
  if (store->marked_by_caller() && changed > 0) {
    // SQLite's own bytes in the place of the mark, as the last commit.
    MEMLITH_TRY(store->bring_all_home());
    MEMLITH_TRY(store->read_home_into(kFile, 0, std::span(first).first(changed)));
    memlith_sqlite_unmark(first.data(), changed);
    const Extent extent{kFile, 0, changed};
    const std::byte* const source = first.data();
    MEMLITH_TRY(store->commit({{&extent, 1}, {&source, 1}, {}}));
  }
  return store->close_and_remove_log();
}

// The folder in which a restore works, beside its destination.
struct Workshop {
  std::unique_ptr<Volume> parent;
  std::string name;  // of the destination, in the parent
  std::string path;
  std::unique_ptr<Volume> volume;

  static Result<Workshop> make(const std::string& dest) {
    MEMLITH_TRY(check_not_there(dest));
    MEMLITH_TRY_ASSIGN(Place place, place_of_name(dest));
    Workshop shop;
    shop.parent = std::move(place.volume);
    shop.name = place.file_name;
    shop.path = dest + kUnfinished;
    MEMLITH_TRY(remove_unfinished(shop.path));
    shop.volume = make_posix_volume(shop.path);
    return shop;
  }
  // `inner`: a file in it that is the destination; empty: the folder itself is.
  Status deliver(const std::string& dest, const std::string& inner) {
    MEMLITH_TRY(check_not_there(dest));
    const std::string unfinished = name + kUnfinished;
    MEMLITH_TRY(parent->rename(inner.empty() ? unfinished : unfinished + "/" + inner, name));
    MEMLITH_TRY(parent->sync_folder(""));
    return inner.empty() ? kOk : remove_unfinished(path);
  }
  void abandon() const {
    const KeptSentence why;
    (void)remove_unfinished(path);
  }
};

Result<Moment> moment_of(const memlith_restore_options& options) {
  switch (options.at) {
    case MEMLITH_AT_LATEST: return Moment{};
    case MEMLITH_AT_LSN: return Moment{Moment::Kind::lsn, options.value, options.run};
    case MEMLITH_AT_TIME: return Moment{Moment::Kind::time, options.value, options.run};
    default: return fail(Errc::invalid, Detail::argument, "at is {}, which is none of MEMLITH_AT_*", options.at);
  }
}

// Brings a replica to the plan's end, or as far as it goes if that is enough.
Status feed_all(Restorer& restorer, const RestorePlan& plan, Replica& replica, std::uint32_t flags,
                memlith_restored& restored) {
  restorer.progress = [&restored](const PackHeader&) { ++restored.segments; };
  const Status fed = restorer.feed(replica, plan.full, plan.until);
  restored.lsn = replica.end().lsn.value;
  restored.clock_went_back = plan.clock_went_back ? 1 : 0;
  if (fed.ok()) return kOk;
  const bool enough = (flags & MEMLITH_RESTORE_AS_FAR_AS_CAN) != 0 && replica.end().lsn >= plan.full.complete_at;
  restored.cut_short = enough ? 1 : 0;
  return enough ? kOk : fed;
}

Status restore(Restorer& restorer, const std::string& dest, const memlith_restore_options& options,
               memlith_restored& restored) {
  MEMLITH_TRY(restorer.look());
  MEMLITH_TRY_ASSIGN(const Moment moment, moment_of(options));
  MEMLITH_TRY_ASSIGN(const RestorePlan plan, restorer.plan(moment));
  restored.short_ns = plan.short_ns;
  if ((options.flags & MEMLITH_RESTORE_DRY) != 0) {
    restored.clock_went_back = plan.clock_went_back ? 1 : 0;
    return restorer.check(plan, restored.lsn, restored.segments);
  }
  MEMLITH_TRY_ASSIGN(Workshop shop, Workshop::make(dest));
  const Manifest& manifest = restorer.manifest();
  const Status made = [&]() -> Status {
    Replica replica(*shop.volume, manifest.kind, manifest.file_name);
    MEMLITH_TRY(restorer.begin(plan, replica, kStandbyLogBytes));
    MEMLITH_TRY(feed_all(restorer, plan, replica, options.flags, restored));
    KeptFailure cut;
    cut.keep(kOk);  // with the sentence that says what cut it short
    MEMLITH_TRY(replica.promote());
    MEMLITH_TRY(finish_store(*shop.volume, manifest.kind, manifest.file_name));
    if (manifest.kind == StoreKind::one_file) note_archive(shop.path + "/" + manifest.file_name, manifest.archive_id);
    MEMLITH_TRY(shop.deliver(dest, manifest.file_name));
    return cut.tell();
  }();
  if (!made.ok()) shop.abandon();
  return made;
}

}  // namespace

struct memlith_archive {
  std::unique_ptr<Volume> volume;
  OpenTarget target;
  std::unique_ptr<ArchiveSource> source;
  std::unique_ptr<Archiver> archiver;
};

namespace memlith::core {
namespace {

constexpr std::chrono::milliseconds kPatience{1000};

Status tell(const Archiver& archiver, memlith_archive_progress* progress) {
  if (progress == nullptr) return kOk;
  const ArchiveProgress found = archiver.progress();
  memlith_archive_progress told{};
  told.archived_lsn = found.archived.value;
  told.durable_lsn = found.durable.value;
  told.segments = found.segments;
  told.full_copies = found.fulls;
  told.gaps = found.gaps;
  told.refused_copies = found.refused;
  told.log_is_full = found.log_is_full ? 1 : 0;
  return write_info(progress, told);
}

}  // namespace
}  // namespace memlith::core

struct memlith_standby {
  OpenTarget target;
  std::unique_ptr<Restorer> restorer;
  std::unique_ptr<Volume> volume;
  std::unique_ptr<Replica> replica;
  FullCopy full;
};

extern "C" {

int32_t memlith_archive_open(const char* store, const memlith_archive_target* target,
                             const memlith_archive_options* options, memlith_archive** archive) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(store, "store"));
    MEMLITH_TRY(need(archive, "archive"));
    memlith_archive_options given{};
    MEMLITH_TRY(read_options(options, given));
    auto made = std::make_unique<memlith_archive>();
    MEMLITH_TRY_ASSIGN(made->target, open_target(target, true));
    const StoreKind kind = kind_at(store);
    MEMLITH_TRY_ASSIGN(Place place, place_of_store(store, kind));
    made->volume = std::move(place.volume);
    made->source = std::make_unique<ArchiveSource>(*made->volume, kind, place.file_name);
    ArchiveOptions inner;
    if (kind == StoreKind::one_file) {
      MEMLITH_TRY(check_not_shared(store));
      std::error_code error;
      inner.place = std::filesystem::weakly_canonical(store, error).string();
      inner.restored_from = noted_archive(store);
    }
    if (given.wait_ms != 0) inner.seal_ns = std::min<std::uint64_t>(given.wait_ms, 86'400'000) * 1'000'000;
    inner.full_every_ns = nanoseconds(given.full_every_s, 86'400);
    inner.keep_ns = nanoseconds(given.keep_s, 7 * 86'400);
    inner.keep_log_bytes = given.keep_log_bytes;
    inner.takes_damaged = (given.flags & MEMLITH_ARCHIVE_DAMAGED) != 0;
    inner.takes_failure_for_new = (given.flags & MEMLITH_ARCHIVE_NEW) != 0;
    made->archiver = std::make_unique<Archiver>(*made->source, *made->target.target, inner);
    MEMLITH_TRY(made->archiver->open());
    *archive = made.release();
    return kOk;
  });
}

int32_t memlith_archive_step(memlith_archive* archive, memlith_archive_progress* progress) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(archive, "archive"));
    const Status status = archive->archiver->step();
    MEMLITH_TRY(tell(*archive->archiver, progress));
    return status;
  });
}

int32_t memlith_archive_flush(memlith_archive* archive, memlith_archive_progress* progress) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(archive, "archive"));
    const Status status = archive->archiver->flush(kPatience);
    MEMLITH_TRY(tell(*archive->archiver, progress));
    return status;
  });
}

int32_t memlith_archive_copy(memlith_archive* archive) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(archive, "archive"));
    return archive->archiver->copy_now();
  });
}

int32_t memlith_archive_close(memlith_archive* archive) {
  return guarded([&]() -> Status {
    const std::unique_ptr<memlith_archive> owned(archive);
    return owned == nullptr ? kOk : owned->archiver->flush(kPatience);
  });
}

int32_t memlith_archive_list(const memlith_archive_target* target,
                             void (*found)(void* context, const memlith_archive_run* run), void* context) {
  return guarded([&]() -> Status {
    MEMLITH_TRY_ASSIGN(const OpenTarget opened, open_target(target, false));
    MEMLITH_TRY_ASSIGN(const Manifest manifest, Manifest::get(*opened.target));
    for (const Run& run : manifest.runs) {
      memlith_archive_run told{};
      told.number = run.number;
      told.why = run.why.c_str();
      told.end_ns = run.end_ns;
      told.segments = run.end_segment - run.first_segment;
      told.segment_bytes = run.bytes;
      for (const FullCopy& full : manifest.fulls) {
        if (full.run != run.number) continue;
        if (told.full_copies++ == 0) {
          told.begin_lsn = full.complete_at.value;
          told.begin_ns = full.made_ns;
          told.end_lsn = run.end.lsn.value;
        }
        told.full_bytes += full.bytes;
      }
      if (found != nullptr) found(context, &told);
    }
    return kOk;
  });
}

int32_t memlith_restore(const memlith_archive_target* target, const char* dest, const memlith_restore_options* options,
                        memlith_restored* restored) {
  return guarded([&]() -> Status {
    memlith_restore_options given{};
    MEMLITH_TRY(read_options(options, given));
    if ((given.flags & MEMLITH_RESTORE_DRY) == 0) MEMLITH_TRY(need(dest, "dest"));
    MEMLITH_TRY_ASSIGN(const OpenTarget opened, open_target(target, false));
    Restorer restorer(*opened.target);
    memlith_restored told{};
    MEMLITH_TRY(restore(restorer, dest == nullptr ? "" : dest, given, told));
    return restored == nullptr ? kOk : write_info(restored, told);
  });
}

int32_t memlith_standby_open(const memlith_archive_target* target, const char* dest, memlith_standby** standby) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(dest, "dest"));
    MEMLITH_TRY(need(standby, "standby"));
    auto made = std::make_unique<memlith_standby>();
    MEMLITH_TRY_ASSIGN(made->target, open_target(target, false));
    made->restorer = std::make_unique<Restorer>(*made->target.target);
    Restorer& restorer = *made->restorer;
    MEMLITH_TRY(restorer.look());
    const Manifest& manifest = restorer.manifest();
    std::error_code error;
    if (!std::filesystem::exists(dest, error)) {
      MEMLITH_TRY_ASSIGN(const RestorePlan plan, restorer.plan({}));
      MEMLITH_TRY_ASSIGN(Workshop shop, Workshop::make(dest));
      Replica replica(*shop.volume, manifest.kind, manifest.file_name);
      Status status = restorer.begin(plan, replica, kStandbyLogBytes);
      if (status.ok()) status = restorer.feed(replica, plan.full, plan.until);
      if (status.ok()) status = replica.checkpoint();
      if (status.ok()) status = shop.deliver(dest, "");
      if (!status.ok()) shop.abandon();
      MEMLITH_TRY(status);
    }
    made->volume = make_posix_volume(dest);
    made->replica = std::make_unique<Replica>(*made->volume, manifest.kind, manifest.file_name);
    MEMLITH_TRY(made->replica->open());
    const std::uint64_t log_id = made->replica->log_id();
    const bool known = std::any_of(manifest.runs.begin(), manifest.runs.end(),
                                   [log_id](const Run& run) { return run.log_id == log_id; });
    if (!known) {
      return fail(Errc::invalid, Detail::open,
                  "{}: this is a standby of another store (log {:x}; the archive has {:x})", dest, log_id,
                  manifest.log_id);
    }
    MEMLITH_TRY_ASSIGN(made->full, restorer.full_for(log_id, made->replica->end().lsn));
    *standby = made.release();
    return kOk;
  });
}

int32_t memlith_standby_step(memlith_standby* standby, uint64_t* lsn) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(standby, "standby"));
    Restorer& restorer = *standby->restorer;
    MEMLITH_TRY(restorer.look());
    MEMLITH_TRY_ASSIGN(standby->full, restorer.full_for(standby->replica->log_id(), standby->replica->end().lsn));
    const Status fed = restorer.feed(*standby->replica, standby->full, Lsn{~std::uint64_t{0}});
    if (lsn != nullptr) *lsn = standby->replica->end().lsn.value;
    return fed;
  });
}

int32_t memlith_standby_close(memlith_standby* standby) {
  return guarded([&]() -> Status {
    const std::unique_ptr<memlith_standby> owned(standby);
    return kOk;
  });
}

int32_t memlith_promote(const char* path) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    const StoreKind kind = kind_at(path);
    MEMLITH_TRY_ASSIGN(const Place place, place_of_store(path, kind));
    Replica replica(*place.volume, kind, place.file_name);
    MEMLITH_TRY(replica.open());
    MEMLITH_TRY(replica.promote());
    return finish_store(*place.volume, kind, place.file_name);
  });
}

}  // extern "C"
