#include "store/opening.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/random.hpp"
#include "device/medium.hpp"
#include "store/blocks.hpp"
#include "store/moment.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kLogMaxBytesDefault = 1 * kGiB;
constexpr std::uint64_t kSlotBytesDefault = 8 * kMiB;
constexpr std::uint64_t kGatheredWithBlocksMax = 4 * kMiB;
constexpr std::uint64_t kPackedCommitBytesMax = 4 * kKiB;  // a larger commit loses little to its own frame
constexpr int kOpenTries = 100;

const char* kind_in_words(std::uint32_t kind) {
  if (kind == static_cast<std::uint32_t>(StoreKind::folder)) return "a folder store";
  if (kind == static_cast<std::uint32_t>(StoreKind::one_file)) return "a one-file store";
  if (kind == kCommonLogKind) return "several files that were committed together";
  return "something else";
}

bool is_known(std::uint32_t kind) {
  return kind == static_cast<std::uint32_t>(StoreKind::folder) ||
         kind == static_cast<std::uint32_t>(StoreKind::one_file) || kind == kCommonLogKind;
}

std::string host_name() {
  char host[65] = "?";
  (void)::gethostname(host, sizeof host - 1);
  return host;
}

// The process that a holder's note names was on this host, and is not seen here.
bool has_ended(const std::string& note) {
  int process = 0;
  const bool has_number = std::sscanf(note.c_str(), "process %d ", &process) == 1 && process > 0;
  return has_number && note.ends_with(" on " + host_name()) && ::kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace

Status Opening::run() {
  MEMLITH_TRY(find_or_make_log());
  MEMLITH_TRY_ASSIGN(files_.log_device, files_.log_file->device(files_.names.log, files_.log_caching()));
  return open_log();
}

Status Opening::look() {
  if (files_.log_device == nullptr) {
    auto file = files_.volume.open_file(files_.names.log, false);
    if (!file.ok() && file.error().category == Errc::not_found) return directory_.tell_log_is_missing();
    MEMLITH_TRY(file.status());
    files_.log_file = std::move(*file);
    MEMLITH_TRY_ASSIGN(files_.log_device, files_.log_file->device(files_.names.log, files_.log_caching()));
  }
  return open_log();
}

Status Opening::open_log() {
  LogOptions log_options = files_.options.log;
  log_options.bytes_max = files_.options.log_max_bytes != 0 ? files_.options.log_max_bytes
                                                            : std::max(kLogMaxBytesDefault, files_.options.log_bytes);
  log_options.packed_kind = kFrameKindCommit;
  log_options.packed_bytes_max = kPackedCommitBytesMax;
  auto opened = Log::open(*files_.log_device, log_options);
  const bool small_blocks = !opened.ok() && opened.error().category == Errc::unsupported;
  if (small_blocks && files_.read_only() && files_.log_device->direct()) {
    // Its blocks are smaller than the disk's. The page cache reads them nevertheless.
    files_.log_device = nullptr;
    MEMLITH_TRY_ASSIGN(files_.log_device, files_.log_file->device(files_.names.log, Caching::buffered));
    MEMLITH_TRY_ASSIGN(files_.log, Log::open(*files_.log_device, log_options));
  } else {
    MEMLITH_TRY_ASSIGN(files_.log, std::move(opened));
  }
  files_.was_clean = files_.log->closed_cleanly();
  MEMLITH_TRY(check_not_copied());
  MEMLITH_TRY(check_held());
  MEMLITH_TRY(check_lines());
  MEMLITH_TRY(check_medium(files_.log_device->caps().file_system));
  return read_header();
}

// The files of a store in use, copied one by one, are of different moments, and nothing in them says so.
Status Opening::check_not_copied() const {
  if (files_.one_file() || files_.was_clean || files_.options.accept_copy || !files_.log->is_copy()) return kOk;
  return fail(Errc::corrupt, Detail::superblock,
              "{0}: these files are copies of a store that was not closed, so they may be of different moments. Make "
              "copies with `memlith copy`, also while programs write, or close the store first. If no program had the "
              "store open while it was copied (after a crash, or from a snapshot), `memlith recover --accept-copy {0}` "
              "takes the files as they are. Nothing was changed",
              files_.path());
}

// Only the archive writes to a copy that it keeps up to date: other commits would not be those of the archive.
Status Opening::check_held() const {
  if (files_.read_only() || files_.log->held() == files_.options.held) return kOk;
  if (files_.options.held) {
    return fail(Errc::invalid, Detail::open,
                "{}: this store is not a standby: it was promoted, or never was one. It is a store of its own, which "
                "an archive does not change",
                files_.path());
  }
  return fail(Errc::read_only, Detail::open,
              "{}: this store is a standby, which only its archive changes. Open it read-only and followed, or make it "
              "a store of its own with `memlith promote`",
              files_.path());
}

Status Opening::check_medium(const FileSystem& found) const {
  if (files_.options.any_medium) return kOk;
  const char* const allowed = std::getenv("MEMLITH_ALLOW_NETWORK");
  if (found.medium != Medium::network || (allowed != nullptr && std::string_view(allowed) == "1")) return kOk;
  return fail(Errc::unsupported, Detail::open,
              "{}: lies on a network file system ({}), where a lock may not keep another machine out, and a flush may "
              "promise nothing: two writers destroy a store. Put it on a disk of this machine. If you know that this "
              "file system locks and flushes, set MEMLITH_ALLOW_NETWORK=1 in the program's environment",
              files_.path(), found.name);
}

// A frame that shares a sector with the frame before it must not be written where a power cut can tear sectors.
Status Opening::check_lines() const {
  const std::uint32_t least = files_.log_device->caps().log_block_bytes;
  const std::uint32_t found = files_.log->superblock().block_bytes;
  if (files_.read_only() || found >= least) return kOk;
  return fail(Errc::unsupported, Detail::superblock,
              "{}: its frames are padded to lines of {} bytes, and a power cut could tear sectors of {} here. Open the "
              "store with the option io = DAX, on fsdax or tmpfs; `memlith copy` makes a store for a disk of it",
              files_.log_device->path(), found, least);
}

Status Opening::find_or_make_log() {
  // Between looking and locking, another process may have created the store, or abandoned its creation: then look
  // again.
  for (int attempt = 0; files_.lock == nullptr; ++attempt) {
    MEMLITH_TRY_ASSIGN(const bool there, files_.volume.exists(files_.names.log));
    if (there && files_.options.exclusive && files_.options.create) {
      return fail(Errc::exists, Detail::open, "{}: a store exists already", files_.path());
    }
    if (!there && !files_.options.create) return directory_.tell_log_is_missing();
    const Status status = there ? lock_log(files_.names.log) : make_log_if_nobody_does();
    if (!status.ok() && (status.category != Errc::not_found || attempt == kOpenTries)) return status;
  }
  return kOk;
}

Status Opening::read_header() {
  StoreHeader header;
  std::memcpy(&header, files_.log->superblock().client, sizeof header);
  const auto wanted = static_cast<std::uint32_t>(files_.options.kind);
  if (header.kind != wanted) {
    return fail(is_known(header.kind) ? Errc::invalid : Errc::incompatible, Detail::superblock,
                "{}: this log belongs to {} (kind {}), not to {} (kind {})", files_.log_device->path(),
                kind_in_words(header.kind), header.kind, kind_in_words(wanted), wanted);
  }
  directory_.read_record({header.file, header.own, header.common, header.recoveries});
  files_.closed_stamp = header.closed_stamp;
  MEMLITH_TRY(check_blocks(header));
  files_.physical_block_bytes = header.physical_block_bytes;
  files_.origin = header.origin;
  MEMLITH_ASSERT(files_.whole_blocks() == (files_.physical_block_bytes == KeptBlocks::kBlockBytes));
  // Each gathered byte may need a whole block.
  if (files_.whole_blocks()) {
    files_.options.replay_bytes_max = std::min(files_.options.replay_bytes_max, kGatheredWithBlocksMax);
  }
  const bool by_caller = header.by_caller == 1 || files_.options.in_use == InUse::caller;
  files_.in_use = by_caller ? InUse::caller : InUse::none;
  return check_guard();
}

Status Opening::check_guard() const {
  if (files_.options.in_use != InUse::guard) return kOk;
  if (files_.in_use == InUse::caller) return tell_two_in_use_headers(files_);
  if (files_.whole_blocks()) {
    return fail(Errc::invalid, Detail::open,
                "{}: a store for physical blocks of {} bytes cannot guard its file; open it without a guard",
                files_.path(), files_.physical_block_bytes);
  }
  return kOk;
}

Status Opening::check_blocks(const StoreHeader& header) {
  if (files_.options.physical_block_bytes > 512 && header.physical_block_bytes != files_.options.physical_block_bytes) {
    return fail(Errc::invalid, Detail::superblock,
                "{}: this store was created without physical_block_bytes; for physical blocks of {} bytes, create a "
                "new store with that option and copy the data",
                files_.path(), files_.options.physical_block_bytes);
  }
  if (header.physical_block_bytes != 0 && header.physical_block_bytes != KeptBlocks::kBlockBytes) {
    return fail(Errc::corrupt, Detail::superblock, "{}: its physical_block_bytes is {}; expected 0 or {}",
                files_.log_device->path(), header.physical_block_bytes, KeptBlocks::kBlockBytes);
  }
  return kOk;
}

// ---- who has it open -------------------------------------------------------------------------------------------

Status Opening::lock_log(const std::string& name) {
  MEMLITH_TRY_ASSIGN(files_.log_file, files_.volume.open_file(name, !files_.read_only()));
  auto lock = files_.log_file->lock(!files_.read_only());
  if (!lock.ok()) return lock.error().category == Errc::busy ? tell_who_holds(lock.error()) : lock.error();
  files_.lock = std::move(*lock);
  return kOk;
}

// "process 7 (python3) on the host".
std::string Opening::own_note() {
  return fmt::format("process {} ({}) on {}", ::getpid(), program_invocation_short_name, host_name());
}

Status Opening::leave_holder_note() {
  MEMLITH_ASSERT(files_.lock != nullptr && !files_.read_only());
  MEMLITH_TRY_ASSIGN(const AlignedBuffer block, AlignedBuffer::allocate(kPageBytes));
  std::memset(block.data(), 0, block.size());
  fmt::format_to_n(reinterpret_cast<char*>(block.data()), 500, "{}", own_note());
  return files_.log_device->write(kHolderOffset,
                                  block.span().first(std::max<std::uint64_t>(files_.log->superblock().block_bytes,
                                                                             512)));
}

Status Opening::tell_who_holds(Status busy) {
  std::string holder = "another process";
  auto device = files_.volume.open(files_.names.log, OpenMode::read_only, Caching::buffered);
  char note[512] = "";
  if (device.ok() && (*device)->read(kHolderOffset, std::as_writable_bytes(std::span(note))).ok()) {
    note[sizeof note - 1] = 0;
    const std::string_view text = note;
    const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!text.empty() && printable) holder = text;
  }
  const char* const advice = files_.read_only() ? ", or follow the writer (MEMLITH_OPEN_FOLLOW)" : "";
  if (holder == own_note()) {
    return fail(busy.category, Detail::lock,
                "{}: the store is in use, and this very process, {}, was the last to open it for writing. If the store "
                "is still open here (in a notebook: by an earlier run of the cell), use that one, or close it first{}",
                files_.path(), holder, files_.read_only() ? advice : "; if it is not, readers have it open");
  }
  return fail(busy.category, Detail::lock,
              "{}: the store is in use by {}; close it there, or wait{}. Last opened for writing by: {}{}",
              files_.path(), files_.read_only() ? "a writer" : "a writer or readers", advice, holder,
              has_ended(holder)
                  ? ", of which nothing is seen here: it has ended, and a process that was cloned from it "
                    "or a reader has the store, or it is in another container. `fuser -v` on the log "
                    "names the processes that have it open"
                  : "");
}

// ---- creating --------------------------------------------------------------------------------------------------

// A new store appears with the rename of its finished log, so that a crash leaves no half store. Returns ok without the
// lock if another process was faster.
Status Opening::make_log_if_nobody_does() {
  MEMLITH_TRY(directory_.check_before_create());
  MEMLITH_TRY(check_medium(file_system_at(files_.volume.path_of(""))));
  const std::string fresh_name = files_.names.fresh_log();
  MEMLITH_TRY_ASSIGN(const bool left_over, files_.volume.exists(fresh_name));
  bool made = false;
  if (!left_over) {
    const auto opened = files_.volume.open(fresh_name, OpenMode::create, Caching::buffered);
    made = opened.ok();
    if (!made && opened.error().category != Errc::exists) return opened.error();
  }
  if (const Status locked = lock_log(fresh_name); !locked.ok()) {
    if (made && is_lack(locked)) made_log_ = fresh_name;
    return locked;
  }
  MEMLITH_ASSERT(files_.lock != nullptr);
  MEMLITH_TRY_ASSIGN(const bool there, files_.volume.exists(files_.names.log));
  if (there) {
    const Status removed = files_.volume.remove(fresh_name);
    files_.lock = nullptr;
    return removed;
  }
  made_log_ = fresh_name;
  return make_log();
}

Status Opening::make_log() {
  MEMLITH_ASSERT(files_.lock != nullptr && files_.options.create && !files_.read_only());
  const std::string fresh_name = files_.names.fresh_log();
  files_.physical_block_bytes = files_.options.physical_block_bytes > 512 ? files_.options.physical_block_bytes : 0;
  {
    MEMLITH_TRY_ASSIGN(const auto left_over, files_.volume.open(fresh_name, OpenMode::read_write, Caching::buffered));
    MEMLITH_TRY(left_over->truncate(0));
  }
  MEMLITH_TRY_ASSIGN(auto device, files_.volume.open(fresh_name, OpenMode::read_write, files_.log_caching()));
  MEMLITH_TRY(directory_.match_permissions(*device));
  const std::uint64_t log_id = random_identity();
  files_.origin = log_id;
  MEMLITH_TRY(directory_.make_first(log_id));
  const LogFormat format = log_format(device->caps().log_block_bytes);
  MEMLITH_TRY(Log::format(*device, format, directory_.client_bytes(), log_id));
  MEMLITH_TRY(files_.volume.rename(fresh_name, files_.names.log));
  made_log_ = files_.names.log;
  files_.made_log = true;
  return files_.volume.sync_folder("");
}

LogFormat Opening::log_format(std::uint32_t block_bytes) const {
  const StoreOptions& options = files_.options;
  LogFormat format;
  const bool as_told = !files_.whole_blocks();
  format.block_bytes = as_told ? block_bytes : static_cast<std::uint32_t>(KeptBlocks::kBlockBytes);
  std::uint64_t log_bytes = options.log_bytes;
  if (log_bytes == 0) log_bytes = directory_.log_bytes_first();
  if (options.log_max_bytes != 0) log_bytes = std::min(log_bytes, options.log_max_bytes);
  // At least four slots, so that a checkpoint of the older ones makes room while the newer ones fill up.
  format.slot_bytes = options.slot_bytes != 0
                          ? options.slot_bytes
                          : std::clamp(round_down(log_bytes / 4, kPageBytes), 64 * kKiB, kSlotBytesDefault);
  format.slot_count = std::max<std::uint64_t>(2, (log_bytes + format.slot_bytes - 1) / format.slot_bytes);
  MEMLITH_ASSERT(std::has_single_bit(format.block_bytes) && format.slot_count * format.slot_bytes >= log_bytes);
  return format;
}

void Opening::undo() {
  Status status = kOk;
  const bool made_log = !made_log_.empty();
  if (made_log) {
    // ORDER log-before-file: a log without its file or directory is a damaged store; a file or directory without a log
    // is no store. [test CreateStoreInFolder.AFailureAndAPowerCutLeaveNoHalfStore]
    status = files_.volume.remove(made_log_);
    if (status.ok()) status = files_.volume.sync_folder("");
  }
  if (status.ok()) directory_.undo_creation(made_log);
  made_log_.clear();
}

}  // namespace memlith::core
