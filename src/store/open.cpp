// Opening, creating and recovering a store.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <unordered_set>

#include "base/mutant.hpp"
#include "base/process.hpp"
#include "base/random.hpp"
#include "store/store.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kLogBytesDefault = 1 * kMiB;
constexpr std::uint64_t kLogGivenBytes = 128 * kMiB;
constexpr std::uint64_t kFileLogBytesLeast = 16 * kMiB;
constexpr std::uint64_t kFileLogBytesMost = 64 * kMiB;
constexpr std::uint64_t kLogMaxBytesDefault = 1 * kGiB;
constexpr std::uint64_t kLogBusyBytesDefault = 1 * kGiB;
constexpr std::uint64_t kSlotBytesDefault = 8 * kMiB;
constexpr std::uint64_t kDirectoryBytesFirst = 16 * kKiB;  // 63 objects
constexpr std::uint64_t kDirectoryBytesMax = 256 * kMiB;   // a million objects; more is damage
constexpr std::uint64_t kGatheredWithBlocksMax = 4 * kMiB;
constexpr int kOpenTries = 100;

bool is_all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

// ---- names -----------------------------------------------------------------------------------------------------

std::string file_log_name(const std::string& file_name) { return file_name + ".memlith"; }

std::string Store::log_name() const { return one_file() ? file_log_name(options_.file_name) : "log"; }

std::string Store::home_name(ObjectId id) const {
  return one_file() ? options_.file_name : fmt::format("objects/{}", id.value);
}

ClientBytes Store::client_bytes() const {
  StoreHeader header{};
  header.kind = static_cast<std::uint32_t>(options_.kind);
  header.physical_block_bytes = static_cast<std::uint16_t>(physical_block_bytes_);
  header.marked = keeps_mark_ ? 1 : 0;
  header.file = home_file_record_;
  ClientBytes client{};
  std::memcpy(client.data(), &header, sizeof header);
  return client;
}

std::uint64_t Store::log_bytes_given() const {
  if (options_.log_busy_bytes != 0) return 0;
  if (!one_file()) return kLogGivenBytes;
  return std::clamp(round_up(home_file_record_.size_bytes / 2, kFileLogBytesLeast), kFileLogBytesLeast,
                    kFileLogBytesMost);
}

LogFormat Store::log_format(std::uint32_t block_bytes) const {
  LogFormat format;
  format.block_bytes = block_bytes <= 512 && (!whole_blocks() || MEMLITH_MUTANT(blocks_taken_for_sectors))
                           ? 512
                           : 4096;  // some disks have sectors of 1024 or 2048 bytes
  std::uint64_t log_bytes = options_.log_bytes;
  if (log_bytes == 0) log_bytes = kLogBytesDefault;
  if (options_.log_max_bytes != 0) log_bytes = std::min(log_bytes, options_.log_max_bytes);
  // At least four slots, so that a checkpoint of the older ones makes room while the newer ones fill up.
  format.slot_bytes = options_.slot_bytes != 0
                          ? options_.slot_bytes
                          : std::clamp(round_down(log_bytes / 4, kPageBytes), 64 * kKiB, kSlotBytesDefault);
  format.slot_count = std::max<std::uint64_t>(2, (log_bytes + format.slot_bytes - 1) / format.slot_bytes);
  return format;
}

// ---- open ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Store>> Store::open(Volume& volume, StoreOptions options) {
  if (options.create && options.read_only) {
    return fail(Errc::invalid, Detail::argument, "a store cannot be created read-only");
  }
  if (options.physical_block_bytes != 0 && options.physical_block_bytes != 512 &&
      options.physical_block_bytes != 4096) {
    return fail(Errc::invalid, Detail::argument,
                "physical_block_bytes is {}; it can be 512, 4096, or 0 for the default", options.physical_block_bytes);
  }
  auto store = std::unique_ptr<Store>(new Store(volume, std::move(options)));
  Status status = kOk;
  try {
    status = store->open_it();
  } catch (const std::bad_alloc&) {
    store->undo_creation();
    throw;
  }
  if (status.ok()) return store;
  // After an I/O error nobody knows what is on the medium: what stays there is told apart by the next opening.
  if (status.category != Errc::io && status.category != Errc::poisoned) store->undo_creation();
  return status;
}

Status Store::open_it() {
  MEMLITH_TRY(open_or_create());
  MEMLITH_TRY(recover());
  if (read_only()) return kOk;
  MEMLITH_TRY(leave_holder_note());
  process_mark_ = process_mark();
  process_ = ::getpid();
  Device* file = nullptr;
  if (one_file()) {
    MEMLITH_TRY_ASSIGN(file, home(kFile));
  }
  MEMLITH_TRY_ASSIGN(stats_, LiveStats::make(volume_, stats_name(options_.kind, options_.file_name), file));
  background_ = Background::of_process();
  publish_stats();
  log_->set_on_durable([this] { tell_durable(); });
  if (options_.manual_checkpoint) {
    log_->set_relieve([this] { return checkpoint(); });
    return kOk;
  }
  log_->set_relieve([this] { return make_room(); });
  trigger_lsn_.store(log_->tail().lsn.value + log_->capacity_bytes() / 2, std::memory_order_relaxed);
  woken_ = {log_->head(), SteadyClock::now()};
  return kOk;
}

void Store::undo_creation() {
  stop_jobs();
  KeptFailure told;
  told.keep(kOk);  // the sentence of the failure
  drop_stats();
  if (!made_log_.empty() || !blocks_in_place_) (void)drop_blocks();
  Status status = kOk;
  if (!made_log_.empty()) {
    // ORDER log-before-file: a log without its file or directory is a damaged store; these without the log are none.
    status = volume_.remove(made_log_);
    if (status.ok()) status = volume_.sync_folder("");
    if (status.ok() && !one_file()) (void)volume_.remove("objects/0");
  }
  if (status.ok() && made_file_) {
    // Whoever found it meanwhile may have put something in it, or a log beside it.
    const auto size = home(kFile).ok() ? (*home(kFile))->size() : Result<std::uint64_t>(std::uint64_t{0});
    const auto log_there = volume_.exists(log_name());
    const auto log_comes = volume_.exists(log_name() + ".new");
    const bool nobody = log_there.ok() && !*log_there && log_comes.ok() && !*log_comes;
    if (nobody && size.ok() && *size == 0) (void)volume_.remove(options_.file_name);
  }
  made_log_.clear();
  made_file_ = false;
  (void)told.tell();
}

Status Store::open_or_create() {
  // Between looking and locking, somebody else may have created the store, or given up creating it: then look again.
  for (int attempt = 0; lock_ == nullptr; ++attempt) {
    MEMLITH_TRY_ASSIGN(const bool there, volume_.exists(log_name()));
    if (there && options_.exclusive && options_.create) {
      return fail(Errc::exists, Detail::open, "{}: there is a store already", path());
    }
    if (!there && !options_.create) {
      MEMLITH_TRY(check_log_not_removed());
      MEMLITH_TRY_ASSIGN(const bool file_there, one_file() ? volume_.exists(options_.file_name) : Result<bool>(false));
      if (file_there) {
        return fail(Errc::not_found, Detail::open,
                    "{}: its log {} is missing. If the file was closed cleanly, or never opened by memlith, it is "
                    "complete, and opening it with `create` makes a log. After a crash its newest commits are in that "
                    "log alone, and `create` gives them up: put the log back",
                    path(), volume_.path_of(log_name()));
      }
      return fail(Errc::not_found, Detail::open,
                  "{}: there is no memlith store ({} is missing); create one, or check the path", path(),
                  volume_.path_of(log_name()));
    }
    const Status status = there ? lock_log(log_name()) : create_files();
    if (!status.ok() && (status.category != Errc::not_found || attempt == kOpenTries)) return status;
  }
  const OpenMode mode = read_only() ? OpenMode::read_only : OpenMode::read_write;
  MEMLITH_TRY_ASSIGN(log_device_, volume_.open(log_name(), mode, log_caching()));

  LogOptions log_options = options_.log;
  log_options.bytes_max =
      options_.log_max_bytes != 0 ? options_.log_max_bytes : std::max(kLogMaxBytesDefault, options_.log_bytes);
  MEMLITH_TRY_ASSIGN(log_, Log::open(*log_device_, log_options));
  const std::uint64_t busy_bytes = options_.log_busy_bytes != 0 ? options_.log_busy_bytes
                                   : options_.log_bytes != 0    ? 0
                                                                : kLogBusyBytesDefault;
  busy_slots_max_ = std::min(log_->slot_count_max(), busy_bytes / log_->superblock().slot_bytes);
  return read_store_header();
}

Status Store::read_store_header() {
  StoreHeader header;
  std::memcpy(&header, log_->superblock().client, sizeof header);
  const auto wanted = static_cast<std::uint32_t>(options_.kind);
  if (header.kind != wanted) {
    const bool known = header.kind == static_cast<std::uint32_t>(StoreKind::folder) ||
                       header.kind == static_cast<std::uint32_t>(StoreKind::one_file);
    return fail(known ? Errc::invalid : Errc::incompatible, Detail::superblock,
                "{}: this log belongs to {} (kind {}), not to {} (kind {})", log_device_->path(),
                known ? (one_file() ? "a folder store" : "a one-file store") : "something else", header.kind,
                one_file() ? "a one-file store" : "a folder store", wanted);
  }
  home_file_record_ = header.file;
  if (options_.physical_block_bytes > 512 && header.physical_block_bytes != options_.physical_block_bytes) {
    return fail(Errc::invalid, Detail::superblock,
                "{}: this store was created for disks that spoil nothing beside what they write; to have it hold for "
                "physical blocks of {} bytes, create it anew with that option",
                path(), options_.physical_block_bytes);
  }
  if (header.physical_block_bytes != 0 && header.physical_block_bytes != kBlockBytes) {
    return fail(Errc::corrupt, Detail::superblock, "{}: physical blocks of {} bytes make no sense; they have 0 or {}",
                log_device_->path(), header.physical_block_bytes, kBlockBytes);
  }
  physical_block_bytes_ = header.physical_block_bytes;
  // What is gathered may need a whole block for each byte.
  if (whole_blocks()) options_.replay_bytes_max = std::min(options_.replay_bytes_max, kGatheredWithBlocksMax);
  keeps_mark_ = keeps_mark_ || header.marked == 1;
  return kOk;
}

Status Store::lock_log(const std::string& name) {
  auto lock = volume_.lock(name, !read_only());
  if (!lock.ok()) return lock.error().category == Errc::busy ? who_holds_it(lock.error()) : lock.error();
  lock_ = std::move(*lock);
  return kOk;
}

// A file with two names (hard links) has two logs, each with a lock of its own.
Status Store::lock_file() {
  auto lock = volume_.lock(options_.file_name, !read_only());
  if (!lock.ok() && lock.error().category == Errc::busy) {
    return fail(Errc::busy, Detail::lock, "{}: the file is in use under another of its names; close it there, or wait",
                path());
  }
  MEMLITH_TRY(lock.status());
  file_lock_ = std::move(*lock);
  return kOk;
}

// ---- who has it open -------------------------------------------------------------------------------------------

// Advisory: it tells a person whom to ask. The lock itself is the kernel's.
Status Store::leave_holder_note() {
  MEMLITH_TRY_ASSIGN(const AlignedBuffer block, AlignedBuffer::allocate(kPageBytes));
  std::memset(block.data(), 0, block.size());
  char host[65] = "?";
  (void)::gethostname(host, sizeof host - 1);
  fmt::format_to_n(reinterpret_cast<char*>(block.data()), 500, "process {} ({}) on {}", ::getpid(),
                   program_invocation_short_name, host);
  return log_device_->write(kHolderOffset, block.span().first(log_->superblock().block_bytes));
}

Status Store::who_holds_it(Status status) {
  std::string holder = "another process";
  auto device = volume_.open(log_name(), OpenMode::read_only, Caching::buffered);
  char note[512] = "";
  if (device.ok() && (*device)->read(kHolderOffset, std::as_writable_bytes(std::span(note))).ok()) {
    note[sizeof note - 1] = 0;
    const std::string_view text = note;
    const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!text.empty() && printable) holder = text;
  }
  return fail(status.category, Detail::lock,
              "{}: the store is in use by {}; close it there, or wait. Last opened for writing by: {}", path(),
              read_only() ? "a writer" : "a writer or readers", holder);
}

// ---- create ----------------------------------------------------------------------------------------------------

// A new store appears with the rename of its finished log, so that a crash in the middle leaves no half store. Returns ok
// without the lock when somebody else was faster.
Status Store::create_files() {
  MEMLITH_TRY(check_before_create());
  const std::string fresh_name = log_name() + ".new";
  MEMLITH_TRY_ASSIGN(const bool left_over, volume_.exists(fresh_name));
  bool made = false;
  if (!left_over) {
    const auto opened = volume_.open(fresh_name, OpenMode::create, Caching::buffered);
    made = opened.ok();
    if (!made && opened.error().category != Errc::exists) return opened.error();
  }
  if (const Status locked = lock_log(fresh_name); !locked.ok()) {
    if (made && is_lack(locked)) made_log_ = fresh_name;
    return locked;
  }
  MEMLITH_TRY_ASSIGN(const bool there, volume_.exists(log_name()));
  if (there) {
    const Status removed = volume_.remove(fresh_name);
    lock_ = nullptr;
    return removed;
  }
  made_log_ = fresh_name;
  return make_log(fresh_name);
}

Status Store::make_log(const std::string& fresh_name) {
  physical_block_bytes_ = options_.physical_block_bytes > 512 ? options_.physical_block_bytes : 0;
  {
    MEMLITH_TRY_ASSIGN(const auto left_over, volume_.open(fresh_name, OpenMode::read_write, Caching::buffered));
    MEMLITH_TRY(left_over->truncate(0));
  }
  MEMLITH_TRY_ASSIGN(auto device, volume_.open(fresh_name, OpenMode::read_write, log_caching()));
  if (one_file()) MEMLITH_TRY(match_permissions(*device));
  const std::uint64_t log_id = random_identity();
  if (one_file()) {
    MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
    // ORDER length-before-log: a file that was just copied here may not be on the medium yet. [crash/killed]
    MEMLITH_TRY(file->flush());
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
    home_file_record_ = {kFile.value, 1, size, 0, 0};
  } else {
    MEMLITH_TRY(volume_.make_folder("objects"));
    DirectoryHeader header{};
    header.magic = kDirectoryMagic;
    header.version = kFormatVersion;
    header.next_id = 1;
    header.checksum = header_checksum(header, log_id);
    MEMLITH_TRY(volume_.remove("objects/0"));
    MEMLITH_TRY_ASSIGN(auto directory, volume_.open("objects/0", OpenMode::create, Caching::buffered));
    MEMLITH_TRY(directory->reserve(kDirectoryBytesFirst));
    MEMLITH_TRY(directory->write(0, std::as_bytes(std::span(&header, 1))));
    MEMLITH_TRY(directory->flush());
    MEMLITH_TRY(volume_.sync_folder("objects"));
  }
#ifdef MEMLITH_MUTANTS
  if (MEMLITH_MUTANT(log_formatted_late)) {
    MEMLITH_TRY(volume_.rename(fresh_name, log_name()));
    MEMLITH_TRY(volume_.sync_folder(""));
    return Log::format(*device, log_format(device->caps().block_bytes), client_bytes(), log_id);
  }
#endif
  MEMLITH_TRY(Log::format(*device, log_format(device->caps().block_bytes), client_bytes(), log_id));
  MEMLITH_TRY(volume_.rename(fresh_name, log_name()));
  made_log_ = log_name();
  if (MEMLITH_MUTANT(store_renamed_unsynced)) return kOk;
  return volume_.sync_folder("");
}

Status Store::check_before_create() {
  if (one_file()) {
    MEMLITH_TRY_ASSIGN(const bool there, volume_.exists(options_.file_name));
    if (there && options_.exclusive) return fail(Errc::exists, Detail::open, "{}: this file exists already", path());
    MEMLITH_TRY(check_log_not_removed());
    // ORDER file-before-log: whoever made the file may have been killed before its name was durable. [crash/killed]
    if (there) return volume_.sync_folder("");
    auto made = volume_.open(options_.file_name, OpenMode::create, Caching::buffered);
    if (!made.ok() && (made.error().category != Errc::exists || options_.exclusive)) return made.error();
    made_file_ = made.ok();
    return volume_.sync_folder("");
  }
  MEMLITH_TRY(volume_.make_folder(""));
  MEMLITH_TRY_ASSIGN(const auto names, volume_.list(""));
  for (const std::string& name : names) {
    if (name == "log" || name == "log.new" || name == "objects" || name == "lost+found" || name == "stats") continue;
    if (name == "blocks" || name == "blocks.new") continue;
    return fail(Errc::invalid, Detail::open,
                "{}: this folder is neither empty nor a memlith store (it holds \"{}\"); choose another for the new "
                "store",
                path(), name);
  }
  if (std::find(names.begin(), names.end(), "log") != names.end()) return kOk;  // somebody was faster
  return check_log_not_removed();
}

// What its last opening left when it crashed says that there was a log, and nothing takes its place.
Status Store::check_log_not_removed() {
  if (one_file()) return check_no_mark();
  auto objects = volume_.list("objects");
  for (const std::string& name : objects.ok() ? *objects : std::vector<std::string>{}) {
    if (name == "0") continue;  // left by a creation that was interrupted
    // Somebody may have made the store, and an object in it, since the folder was listed. [schedule/two-opens]
    MEMLITH_TRY_ASSIGN(const bool made_meanwhile, volume_.exists(log_name()));
    if (made_meanwhile) return kOk;
    return fail(Errc::corrupt, Detail::open,
                "{0}: there are regions (\"objects/{1}\") but no log; {2} was removed, and with it the newest commits "
                "and "
                "what tells whether the regions are whole. Put it back. To give the store up, remove the folder; what "
                "checkpoints wrote of the regions is in {0}/objects. Nothing was changed",
                path(), name, volume_.path_of(log_name()));
  }
  return kOk;
}

// ---- recovery --------------------------------------------------------------------------------------------------

Status Store::recover() {
  was_clean_ = log_->closed_cleanly();
  if (one_file()) {
    MEMLITH_TRY_ASSIGN(const bool there, volume_.exists(options_.file_name));
    if (!there && !was_clean_) {
      return fail(Errc::corrupt, Detail::object,
                  "{}: the file is gone, but its log {} still holds commits for it; put the file back, or remove the "
                  "log too. "
                  "Nothing was changed",
                  path(), log_device_->path());
    }
    if (!there) {
      if (!options_.create) return fail(Errc::not_found, Detail::open, "{}: there is no such file", path());
      MEMLITH_TRY(check_before_create());
      home_file_record_ = {kFile.value, 1, 0, 0, 0};
    }
  }
  if (one_file()) MEMLITH_TRY(lock_file());
  if (!was_clean_) {
    // ORDER log-before-home: after a kill the log may hold frames that can be read but were never flushed. Replayed first,
    // a power cut could keep part of them at home and lose them from the log. Nor may a reader see what a power cut still
    // takes. [crash/killed]
    const Status flushed = log_device_->flush();
    const bool no_flush_here =
        flushed.os_errno == EINVAL || flushed.os_errno == EROFS;  // a file system that is only read
    if (!read_only() || !no_flush_here) MEMLITH_TRY(flushed);
  }
  if (!read_only() && !was_clean_) {
    // Nor may what creation did last be lost once the store is in use: incarnation 0 was never opened before.
    const bool never_opened = log_->superblock().incarnation == 0 && !MEMLITH_MUTANT(store_renamed_unsynced);
    if (never_opened) MEMLITH_TRY(volume_.sync_folder(""));
  }
  MEMLITH_TRY(gather_blocks());
  MEMLITH_TRY(read_moment());
  MEMLITH_TRY(gather_log());
  MEMLITH_TRY(check_moment());
  // All that can be told without writing is told before anything is written: what is CORRUPT is left as it was found.
  MEMLITH_TRY(check_overlay());
  MEMLITH_TRY(load_directory());
  MEMLITH_TRY(check_homes());
  if (read_only()) return kOk;
  MEMLITH_TRY(fill_holes());
  // ORDER proof-before-home: the newest frames may have been read from a page cache whose flush had failed. Home goes only what is
  // in the log on the medium, or a power cut between two homes would keep a half of a commit. [lab/reopened]
  MEMLITH_TRY(log_->secure());
  if (!overlay_.objects().empty()) MEMLITH_TRY(note_moment(log_->tail(), log_->recovered()));
  MEMLITH_TRY(write_home());
  unreachable_.clear();  // as check_homes() found it
  MEMLITH_TRY(settle_lengths());
  if (!MEMLITH_MUTANT(home_not_flushed_by_recovery)) MEMLITH_TRY(flush_homes());
  MEMLITH_TRY(settle_blocks());
  // ORDER home-before-moment: as in checkpoint_locked().
  MEMLITH_TRY(note_moment(log_->recovered(), log_->recovered()));
  // ORDER home-before-tail: the frames are given up only when what they say is durable at home. [crash/recovery]
  MEMLITH_TRY(log_->start(log_->recovered(), client_bytes()));
  return remove_orphans();
}

// Lays what the log has over each other, and writes it home in pieces where that is too much for memory.
Status Store::gather_log() {
  struct Waiting {
    Frame frame;
    std::vector<std::byte> payload;
  };
  // Frames behind a full overlay, which wait until a later one proves that what is in it is durable.
  std::vector<Waiting> waiting;
  LogPosition gathered = log_->tail();
  const std::uint64_t total = log_->mapped_bytes();
  std::uint64_t frames_bytes = 0;
  const auto gather_now = [&](const Frame& frame) -> Status {
    const bool misses =
        MEMLITH_MUTANT(recovery_misses_first_frame) || (MEMLITH_MUTANT(view_misses_first_frame) && read_only());
    if (!misses || counters_.replayed_frames > 0) MEMLITH_TRY(gather(frame));
    ++counters_.replayed_frames;
    gathered = frame.after;
    return kOk;
  };
  const auto gather_waiting = [&]() -> Status {
    for (Waiting& each : waiting) {
      each.frame.payload = each.payload;
      MEMLITH_TRY(gather_now(each.frame));
    }
    waiting.clear();
    return kOk;
  };
  const LogPosition tail = log_->tail();
  look_for_moment(tail, tail);
  MEMLITH_TRY(log_->recover([&](const Frame& frame) -> Status {
    look_for_moment(tail, frame.after);
    frames_bytes += bytes_between(frame.lsn, frame.after.lsn);
    if (options_.progress) options_.progress(frames_bytes, total);
    if (read_only() || overlay_.bytes_held() <= options_.replay_bytes_max) return gather_now(frame);
    const bool proven = frame.durable >= gathered.lsn || MEMLITH_MUTANT(unproven_pieces_written_home);
    if (!proven) {
      waiting.push_back({frame, {frame.payload.begin(), frame.payload.end()}});
      return kOk;
    }
    MEMLITH_TRY_ASSIGN(const bool as_said, homes_are_as_said());
    const bool of_the_moment = !moment_.has_value() || moment_found_;
    if (as_said && of_the_moment) {
      MEMLITH_TRY(note_moment(tail, gathered));
      MEMLITH_TRY(write_home());
    }
    MEMLITH_TRY(gather_waiting());
    return gather_now(frame);
  }));
  MEMLITH_TRY(gather_waiting());
  counters_.replayed_bytes = frames_bytes;
  return kOk;
}

// Whether to write home while frames are still to come. A user's file that is shorter than they have said so far was either cut by
// an earlier recovery, as a later frame will say, or is not the file that the log belongs to.
Result<bool> Store::homes_are_as_said() {
  if (!one_file()) return true;
  MEMLITH_TRY(write_object_home(kDirectory));  // into memory
  MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  return size >= home_file_record_.size_bytes;
}

// What write_home() would find out while writing.
Status Store::check_overlay() {
  for (const ObjectId object : overlay_.objects()) {
    if (one_file() && object == kDirectory) {
      MEMLITH_TRY(write_object_home(object));  // into memory
      continue;
    }
    MEMLITH_TRY_ASSIGN(Device* const device, home_if_there(object));
    std::uint64_t size = 0;
    if (device != nullptr) {
      MEMLITH_TRY_ASSIGN(size, device->size());
    }
    MEMLITH_TRY(overlay_.for_each(object, [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Status {
      if (offset + bytes.size() > size) unreachable_[object] = offset + bytes.size();
      return kOk;
    }));
  }
  return kOk;
}

Status Store::load_directory() { return one_file() ? load_file_directory() : load_folder_directory(); }

Status Store::load_file_directory() {
  ObjectRecord& record = home_file_record_;
  MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (record.id != kFile.value || record.live != 1 || record.address % kPageBytes != 0) {
    return fail(Errc::corrupt, Detail::directory,
                "{}: the record of the file makes no sense (id {}, live {}, address {:#x})", log_device_->path(),
                record.id, record.live, record.address);
  }
  if (was_clean_) {
    record.size_bytes = size;  // between two uses the file is the user's own, and so is its length
  } else if (size < record.size_bytes) {
    return fail(Errc::corrupt, Detail::object,
                "{}: expected {} bytes, found {}; the file was cut short by another program", path(), record.size_bytes,
                size);
  }
  if (record.reserve_bytes < record.size_bytes)
    record.address = record.reserve_bytes = 0;  // grown by others: to be placed anew
  file_record_ = record;
  entries_ = {{{kFile, "file", record.size_bytes, record.address, record.reserve_bytes}, 0}};
  return kOk;
}

// A length that no commit names may be in the page cache only, if the flush that was to make it durable failed. Such a growth is
// undone; who needs it grows the file anew.
Status Store::settle_lengths() {
  if (one_file()) return settle_file_length();
  if (was_clean_ || MEMLITH_MUTANT(cached_length_believed)) return kOk;
  const auto cut = [this](ObjectId id, std::uint64_t bytes) -> Status {
    MEMLITH_TRY_ASSIGN(Device* const device, home(id));
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
    return size > bytes ? device->truncate(bytes) : kOk;
  };
  std::uint64_t directory_bytes = kDirectoryBytesFirst;
  for (const Entry& entry : entries_) {
    MEMLITH_TRY(cut(entry.info.id, entry.info.size_bytes));
    while (directory_bytes < (entry.slot + 1) * kDirectoryEntryBytes) directory_bytes *= 2;
  }
  MEMLITH_TRY(cut(kDirectory, directory_bytes));
  directory_size_bytes_ = std::min(directory_size_bytes_, directory_bytes);
  return kOk;
}

Status Store::settle_file_length() {
  MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  // A growth that no persist made part of the file's state. And a length that is right may be the page cache's only.
  const bool settle = !was_clean_ && !MEMLITH_MUTANT(cached_length_believed);
  if (size > home_file_record_.size_bytes || settle) {
    if (!was_clean_) MEMLITH_TRY(file->truncate(home_file_record_.size_bytes));
  }
  // Where the length is right already, whoever made it so may have been killed before the flush; and between two uses the file
  // is the user's own, who need not have flushed what he did to it, nor its name. [crash/killed]
  if (!MEMLITH_MUTANT(truncate_not_flushed_by_open)) MEMLITH_TRY(file->flush());
  const Status named = volume_.sync_folder("");
  return named.category == Errc::permission ? kOk : named;  // a folder that one may enter and not read
}

Status Store::load_folder_directory() {
  auto opened = home(kDirectory);
  if (!opened.ok() && opened.error().category == Errc::not_found) {
    return fail(Errc::corrupt, Detail::directory,
                "{}: the directory of regions is missing, but there is a log; restore the file",
                volume_.path_of(home_name(kDirectory)));
  }
  MEMLITH_TRY(opened.status());
  Device* const device = *opened;
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, device->size());
  if (size < kDirectoryBytesFirst || size > kDirectoryBytesMax) {
    return fail(Errc::corrupt, Detail::directory, "{}: a directory of {} bytes; expected {} to {}", device->path(),
                size, kDirectoryBytesFirst, kDirectoryBytesMax);
  }
  // It may have been made longer by somebody who was killed before the flush; entries there must not outlive it.
  if (!read_only() && !was_clean_) MEMLITH_TRY(device->flush());
  directory_size_bytes_ = round_down(size, kDirectoryEntryBytes);
  std::vector<std::byte> bytes(directory_size_bytes_);
  MEMLITH_TRY(device->read(0, bytes));
  MEMLITH_TRY(overlay_.for_each(kDirectory, [&](std::uint64_t offset, std::span<const std::byte> piece) -> Status {
    if (offset + piece.size() <= bytes.size()) std::memcpy(bytes.data() + offset, piece.data(), piece.size());
    return kOk;
  }));

  const std::uint64_t log_id = log_->superblock().log_id;
  DirectoryHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kDirectoryMagic || header.checksum != header_checksum(header, log_id)) {
    return fail(Errc::corrupt, Detail::directory,
                "{}: the directory's header is damaged or belongs to another store (offset 0, expected magic {:#018x}, "
                "found "
                "{:#018x})",
                device->path(), kDirectoryMagic, header.magic);
  }
  if (header.version != kFormatVersion) {
    return fail(Errc::incompatible, Detail::version,
                "{}: the directory is of version {}; this memlith reads version {}", device->path(), header.version,
                kFormatVersion);
  }
  next_id_ = header.next_id;
  std::unordered_set<std::uint32_t> ids;
  for (std::uint64_t slot = 1; slot * kDirectoryEntryBytes < bytes.size(); ++slot) {
    const std::span<const std::byte> raw(bytes.data() + slot * kDirectoryEntryBytes, kDirectoryEntryBytes);
    if (is_all_zero(raw)) continue;
    DirectoryEntry entry;
    std::memcpy(&entry, raw.data(), sizeof entry);
    const ObjectRecord& object = entry.object;
    const bool sane = entry.checksum == header_checksum(entry, log_id) && object.live == 1 && object.id != 0 &&
                      object.id < next_id_ && object.address % kPageBytes == 0 && object.size_bytes % kPageBytes == 0 &&
                      object.size_bytes <= object.reserve_bytes &&
                      std::memchr(entry.name, 0, sizeof entry.name) != nullptr;
    if (!sane) {
      return fail(Errc::corrupt, Detail::directory,
                  "{}: the entry at offset {} is damaged (id {}, size {}, address {:#x})", device->path(),
                  slot * kDirectoryEntryBytes, object.id, object.size_bytes, object.address);
    }
    // A sector written to the wrong place brings whole entries, and their checksums, with it.
    if (!ids.insert(object.id).second) {
      return fail(Errc::corrupt, Detail::directory, "{}: the entry at offset {} is there twice (id {})", device->path(),
                  slot * kDirectoryEntryBytes, object.id);
    }
    entries_.push_back({{ObjectId{object.id}, entry.name, object.size_bytes, object.address, object.reserve_bytes},
                        slot});
  }
  if (entries_.size() != header.live_count) {
    return fail(Errc::corrupt, Detail::directory,
                "{}: expected {} regions, found the entries of {}; the file was damaged or cut short", device->path(),
                header.live_count, entries_.size());
  }
  return kOk;
}

// Every object in the directory must have its home, and every frame's home must exist unless its object was removed.
Status Store::check_homes() {
  for (const Entry& entry : entries_) {
    if (one_file()) break;
    const std::string name = home_name(entry.info.id);
    auto device = home(entry.info.id);
    if (!device.ok() && device.error().category == Errc::not_found) {
      return fail(Errc::corrupt, Detail::object, "{}: the home of region \"{}\" is missing", volume_.path_of(name),
                  entry.info.name);
    }
    MEMLITH_TRY(device.status());
    MEMLITH_TRY_ASSIGN(const std::uint64_t size, (*device)->size());
    if (size < entry.info.size_bytes) {
      return fail(Errc::corrupt, Detail::object,
                  "{}: the home of region \"{}\" was cut short: expected {} bytes, found {}", volume_.path_of(name),
                  entry.info.name, entry.info.size_bytes, size);
    }
  }
  for (const auto& [object, end] : unreachable_) {
    // A user's file is as long as its record says, or load_file_directory() would have failed; bytes that the log has beyond
    // that are of a time when it was longer.
    if (one_file() && object == kFile) continue;
    const bool live = object == kDirectory || find_entry(object) != nullptr;
    if (live) {
      return fail(Errc::corrupt, Detail::object,
                  "{}: the log has bytes up to offset {} for it, but the file is shorter or missing",
                  volume_.path_of(home_name(object)), end);
    }
  }
  unreachable_.clear();
  return kOk;
}

// A user's file, or a copy of a home, may be sparse. A checkpoint that found no space for a hole would poison the store.
// ORDER space-before-commits: every page of a home has its space before a commit may change it. [fault/environment]
Status Store::fill_holes() {
  for (const Entry& entry : entries_) {
    MEMLITH_TRY_ASSIGN(Device* const device, home(entry.info.id));
    MEMLITH_TRY(device->fill_holes());
  }
  if (one_file()) return kOk;
  MEMLITH_TRY_ASSIGN(Device* const directory, home(kDirectory));
  return directory->fill_holes();
}

// Homes that no entry names: of a creation that was interrupted, or a removal that was.
Status Store::remove_orphans() {
  if (one_file()) return kOk;
  MEMLITH_TRY_ASSIGN(const auto names, volume_.list("objects"));
  for (const std::string& name : names) {
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc{} || end != name.data() + name.size()) continue;  // not ours
    if (id == 0 || find_entry(ObjectId{id}) != nullptr) continue;
    {
      const std::lock_guard lock(homes_mutex_);
      homes_.erase(ObjectId{id});
    }
    MEMLITH_TRY(volume_.remove("objects/" + name));
  }
  return kOk;
}

}  // namespace memlith::core
