// memlith: archives of a store, restoring from them, and warm standbys. The C++20 interface over memlith/archive.h,
// where the full contract stands. Guide: docs/backup.md.
//
//   const memlith::ArchiveTarget target{.folder = "shop-archive"};
//   auto archive = memlith::Archive::open("shop", target);
//   if (!archive) return;
//   while (running) {
//     if (auto done = archive->step(); !done) ...  // done.error().message() says why; the next step tries again
//     sleep_ms(200);
//   }
//   if (!archive->close()) return;                 // what was durable when the call began is in the archive
//   auto restored = memlith::restore(target, "shop-again");
//
// Nothing here throws.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "memlith/archive.h"
#include "memlith/memlith.hpp"

namespace memlith {

// Where an archive lies: a folder, or commands of the shell, in which %n stands for the name of an object. See
// memlith_archive_target.
struct ArchiveTarget {
  std::string folder{};
  std::string put_command{};
  std::string get_command{};
  std::string remove_command{};  // may be empty
};

// See memlith_archive_options.
struct ArchiveOptions {
  bool begin_new = false;            // MEMLITH_ARCHIVE_NEW: no archive is there yet, although no command says so
  bool damaged = false;              // MEMLITH_ARCHIVE_DAMAGED: full copies are made of damaged data, too
  std::uint64_t wait_ms = 0;         // how long frames wait to share a segment; 0: 500
  std::uint64_t full_every_s = 0;    // between full copies; 0: a day; MEMLITH_ARCHIVE_NEVER: where they are needed
  std::uint64_t keep_s = 0;          // how far back states stay restorable; 0: a week; MEMLITH_ARCHIVE_NEVER: all
  std::uint64_t keep_log_bytes = 0;  // up to here the store's log waits for the archive; 0: it does not
};

// One stretch of a store's history, without a gap. See memlith_archive_run.
struct ArchiveRun {
  std::uint64_t number = 0;
  std::string why{};            // "first", "gap", "history", "log" or "changed"
  std::uint64_t begin_lsn = 0;  // the earliest and the latest state that can be restored; both 0: none can
  std::uint64_t end_lsn = 0;
  std::uint64_t begin_ns = 0;  // since 1970
  std::uint64_t end_ns = 0;
  std::uint64_t segments = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t full_copies = 0;
  std::uint64_t full_bytes = 0;
};

enum class At : std::uint32_t { latest = MEMLITH_AT_LATEST, lsn = MEMLITH_AT_LSN, time = MEMLITH_AT_TIME };

// See memlith_restore_options.
struct RestoreOptions {
  At at = At::latest;
  std::uint64_t value = 0;     // an LSN or a ticket, or nanoseconds since 1970
  std::uint64_t run = 0;       // in which `value` is looked for; 0: in all
  bool dry = false;            // read and check everything that is needed, and make nothing
  bool as_far_as_can = false;  // where a segment is missing or damaged: the last complete state before it
};

namespace detail {
// The strings stay those of the target.
inline memlith_archive_target plain_target(const ArchiveTarget& target) {
  const auto given = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
  memlith_archive_target plain{};
  plain.struct_size = sizeof plain;
  plain.folder = given(target.folder);
  plain.put_command = given(target.put_command);
  plain.get_command = given(target.get_command);
  plain.remove_command = given(target.remove_command);
  return plain;
}
}  // namespace detail

// An archiver of a store, beside the process that writes to it. Move-only; the destructor closes it and drops errors.
// One thread at a time.
class Archive {
 public:
  Archive(Archive&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Archive& operator=(Archive&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Archive() { (void)close(); }

  // Goes on with the archive of the store at that path, or begins one with a full copy. See memlith_archive_open.
  static Result<Archive> open(const std::string& store, const ArchiveTarget& target,
                              const ArchiveOptions& options = {}) {
    const memlith_archive_target plain_target = detail::plain_target(target);
    memlith_archive_options plain{};
    plain.struct_size = sizeof plain;
    plain.flags = detail::flag_if(options.begin_new, MEMLITH_ARCHIVE_NEW) |
                  detail::flag_if(options.damaged, MEMLITH_ARCHIVE_DAMAGED);
    plain.wait_ms = options.wait_ms;
    plain.full_every_s = options.full_every_s;
    plain.keep_s = options.keep_s;
    plain.keep_log_bytes = options.keep_log_bytes;
    memlith_archive* handle = nullptr;
    const std::int32_t code = memlith_archive_open(store.c_str(), &plain_target, &plain, &handle);
    if (code != MEMLITH_OK) return Error(code);
    return Archive(handle);
  }
  // Looks at the store once, and archives what is due. To be called several times a second. After an error nothing is
  // lost, and the next call tries again. See memlith_archive_step.
  Result<memlith_archive_progress> step() const { return look(memlith_archive_step); }
  // Makes a full copy now.
  Result<void> copy() const { return detail::result_of(memlith_archive_copy(handle_)); }
  // Archives what was durable when the call began. See memlith_archive_flush.
  Result<memlith_archive_progress> flush() const { return look(memlith_archive_flush); }
  // As flush(), and closes, whatever the result.
  Result<void> close() { return detail::result_of(memlith_archive_close(std::exchange(handle_, nullptr))); }
  [[nodiscard]] memlith_archive* handle() const { return handle_; }

 private:
  explicit Archive(memlith_archive* handle) : handle_(handle) {}

  template <class Look>
  Result<memlith_archive_progress> look(Look call) const {
    memlith_archive_progress progress{};
    progress.struct_size = sizeof progress;
    if (const std::int32_t code = call(handle_, &progress); code != MEMLITH_OK) return Error(code);
    return progress;
  }

  memlith_archive* handle_;
};

// The runs of an archive, in order. See memlith_archive_list.
inline Result<std::vector<ArchiveRun>> archive_runs(const ArchiveTarget& target) {
  const memlith_archive_target plain = detail::plain_target(target);
  std::vector<ArchiveRun> runs;
  const auto note = [](void* all, const memlith_archive_run* run) {
    static_cast<std::vector<ArchiveRun>*>(all)->push_back({run->number, run->why, run->begin_lsn, run->end_lsn,
                                                           run->begin_ns, run->end_ns, run->segments,
                                                           run->segment_bytes, run->full_copies, run->full_bytes});
  };
  if (const std::int32_t code = memlith_archive_list(&plain, note, &runs); code != MEMLITH_OK) return Error(code);
  return runs;
}

// Restores a store to `dest`, which must not exist. It appears whole, as the last step, or not at all. See
// memlith_restore.
inline Result<memlith_restored> restore(const ArchiveTarget& target, const std::string& dest,
                                        const RestoreOptions& options = {}) {
  const memlith_archive_target plain_target = detail::plain_target(target);
  memlith_restore_options plain{};
  plain.struct_size = sizeof plain;
  plain.at = static_cast<std::uint32_t>(options.at);
  plain.flags = detail::flag_if(options.dry, MEMLITH_RESTORE_DRY) |
                detail::flag_if(options.as_far_as_can, MEMLITH_RESTORE_AS_FAR_AS_CAN);
  plain.value = options.value;
  plain.run = options.run;
  memlith_restored restored{};
  restored.struct_size = sizeof restored;
  const std::int32_t code = memlith_restore(&plain_target, dest.c_str(), &plain, &restored);
  if (code != MEMLITH_OK) return Error(code);
  return restored;
}

// A store that follows an archive until promote() makes it one that can be written. Move-only; the destructor leaves
// the standby as it is. One thread at a time.
class Standby {
 public:
  Standby(Standby&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Standby& operator=(Standby&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Standby() { (void)close(); }

  // Makes the standby in the folder `dest`, or goes on with it. See memlith_standby_open.
  static Result<Standby> open(const ArchiveTarget& target, const std::string& dest) {
    const memlith_archive_target plain = detail::plain_target(target);
    memlith_standby* handle = nullptr;
    if (const std::int32_t code = memlith_standby_open(&plain, dest.c_str(), &handle); code != MEMLITH_OK) {
      return Error(code);
    }
    return Standby(handle);
  }
  // Adds what the archive has by now, and returns the LSN up to which the standby has everything. To be called about
  // once a second. See memlith_standby_step.
  Result<std::uint64_t> step() const {
    std::uint64_t lsn = 0;
    if (const std::int32_t code = memlith_standby_step(handle_, &lsn); code != MEMLITH_OK) return Error(code);
    return lsn;
  }
  Result<void> close() { return detail::result_of(memlith_standby_close(std::exchange(handle_, nullptr))); }
  [[nodiscard]] memlith_standby* handle() const { return handle_; }

 private:
  explicit Standby(memlith_standby* handle) : handle_(handle) {}

  memlith_standby* handle_;
};

// Makes a standby that no Standby keeps up to date any more a store that can be written. `path` is the store's. See
// memlith_promote.
inline Result<void> promote(const std::string& path) { return detail::result_of(memlith_promote(path.c_str())); }

}  // namespace memlith
