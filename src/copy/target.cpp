#include "copy/target.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/random.hpp"
#include "log/superblocks.hpp"
#include "store/blocks.hpp"
#include "store/folder_directory.hpp"
#include "store/store.hpp"

namespace memlith::core {

namespace {

StoreNames working_names(StoreKind kind, const std::string& file_name) {
  return {kind, kind == StoreKind::one_file ? file_name + ".memlith-copy" : file_name};
}

// A disk that is full while a file is written, and not while its space is reserved, is full all the same.
Status as_no_space(Status status) {
  if (status.os_errno == ENOSPC) status.category = Errc::no_space;
  return status;
}

}  // namespace

CopyTarget::CopyTarget(Volume& volume, StoreKind kind, std::string file_name)
    : volume_(volume), kind_(kind), names_(kind, file_name), working_(working_names(kind, file_name)) {}

CopyTarget::~CopyTarget() = default;

// ---- the place -------------------------------------------------------------------------------------------------

std::string CopyTarget::mark_name() const {
  return kind_ == StoreKind::folder ? working_.fresh_log() : working_.file + ".lock";
}

Status CopyTarget::prepare() {
  MEMLITH_ASSERT(lock_ == nullptr && homes_.empty());
  if (kind_ == StoreKind::folder) MEMLITH_TRY(volume_.make_folder(""));
  MEMLITH_TRY(check_free());
  const std::string mark = mark_name();
  MEMLITH_TRY_ASSIGN(const bool left_over, volume_.exists(mark));
  if (!left_over) {
    auto made = volume_.open(mark, OpenMode::create, Caching::buffered);
    if (!made.ok() && made.error().category != Errc::exists) return made.error();
  }
  // ORDER mark-before-objects: what is found beside the mark is a copy's, and may be removed.
  // [test Copy.APowerCutAtAnyOperationLeavesAWholeStoreOrNone]
  MEMLITH_TRY(volume_.sync_folder(""));
  MEMLITH_TRY_ASSIGN(const auto file, volume_.open_file(mark, true));
  auto lock = file->lock(true);
  if (!lock.ok() && lock.error().category == Errc::busy) {
    return fail(Errc::busy, Detail::lock, "{}: another process is making a store or a copy there; wait for its end",
                volume_.path_of(names_.file));
  }
  MEMLITH_TRY(lock.status());
  lock_ = std::move(*lock);
  MEMLITH_TRY(check_free());  // another process may have been faster
  return remove_left_over();
}

Status CopyTarget::check_free() {
  const auto taken = [this](const std::string& name, const char* advice) {
    return fail(Errc::exists, Detail::open, "{}: exists already; {}", volume_.path_of(name), advice);
  };
  MEMLITH_TRY_ASSIGN(const bool log_there, volume_.exists(names_.log));
  if (kind_ == StoreKind::folder) {
    if (log_there) return taken(names_.log, "a copy replaces no store: choose another place for it");
    MEMLITH_TRY_ASSIGN(const bool begun, volume_.exists(mark_name()));
    const auto objects = volume_.list("objects");
    const bool occupied = objects.ok() && !objects->empty();
    return occupied && !begun ? taken("objects", "it belongs to a store whose log is missing") : kOk;
  }
  MEMLITH_TRY_ASSIGN(const bool file_there, volume_.exists(names_.file));
  if (file_there) return taken(names_.file, "a copy replaces no file: choose another name for it");
  if (!log_there) return kOk;
  // A copy gives the log its name first, and a log that was closed cleanly has nothing that its file lacks.
  MEMLITH_TRY_ASSIGN(const auto log, volume_.open(names_.log, OpenMode::read_only, Caching::buffered));
  Superblocks superblocks(*log);
  if (const Status read = superblocks.read(); read.ok() && superblocks.found_end() == LogEnd::closed) return kOk;
  return taken(names_.log, "it holds commits of a file that is gone; put that file back, or remove the log");
}

Status CopyTarget::remove_left_over() {
  homes_.clear();
  if (kind_ == StoreKind::one_file) {
    MEMLITH_TRY(volume_.remove(working_.file));
    return volume_.remove(working_.log);
  }
  MEMLITH_TRY(volume_.make_folder("objects"));
  MEMLITH_TRY_ASSIGN(const std::vector<std::string> objects, volume_.list("objects"));
  for (const std::string& name : objects) MEMLITH_TRY(volume_.remove("objects/" + name));
  return kOk;
}

void CopyTarget::abandon() {
  const KeptSentence why;
  // The last flush of a finished store may have failed. Its files are durable, and whether its name is, is unknown.
  const auto finished = volume_.exists(kind_ == StoreKind::folder ? names_.log : names_.file);
  if (!finished.ok() || *finished) return;
  // ORDER objects-before-mark: the name of the unfinished log says that the other files are a copy's.
  // [test Copy.APowerCutAtAnyOperationLeavesAWholeStoreOrNone]
  if (remove_left_over().ok()) (void)volume_.remove(mark_name());
  lock_ = nullptr;
}

// ---- content ---------------------------------------------------------------------------------------------------

Status CopyTarget::begin(const CopiedState& start) {
  MEMLITH_ASSERT(lock_ != nullptr && start.kind == kind_);
  if (start.marked_by_caller) {
    return fail(Errc::unsupported, Detail::open,
                "{}: a SQLite database is copied by `memlith copy` or `memlith sqlite export`, or in a program by "
                "SQLite's own backup interface",
                volume_.path_of(names_.file));
  }
  return remove_left_over();
}

Result<CopyTarget::Home*> CopyTarget::home_of(ObjectId object) {
  MEMLITH_ASSERT(kind_ == StoreKind::folder ? object != kDirectory : object == kFile);
  Home& home = homes_[object];
  if (home.device == nullptr) {
    MEMLITH_TRY_ASSIGN(home.device, volume_.open(working_.home(object), OpenMode::create, Caching::buffered));
    home.sums = std::make_unique<NewSums>(object);
  }
  return &home;
}

Status CopyTarget::reserve(Home& home, std::uint64_t bytes) {
  if (bytes <= home.bytes) return kOk;
  MEMLITH_TRY(home.device->reserve(bytes));
  home.bytes = bytes;
  return kOk;
}

Result<bool> CopyTarget::take(ObjectId object, Device& source) {
  MEMLITH_TRY_ASSIGN(Home* const home, home_of(object));
  MEMLITH_ASSERT(home->bytes == 0);  // no home is taken twice, and nothing was put yet
  MEMLITH_TRY(home->device->match_permissions(source));
  const auto cloned = home->device->clone(source);
  MEMLITH_TRY(as_no_space(cloned.status()));
  if (*cloned) {
    MEMLITH_TRY_ASSIGN(home->bytes, home->device->size());
    home->sums->note_unknown(home->bytes);
    return true;
  }
  MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, source.size());
  MEMLITH_TRY(reserve(*home, bytes));
  return false;
}

Status CopyTarget::put(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes) {
  MEMLITH_TRY_ASSIGN(Home* const home, home_of(object));
  MEMLITH_TRY(reserve(*home, offset + bytes.size()));
  MEMLITH_ASSERT(!bytes.empty() && home->sums != nullptr);
  home->sums->note(offset, bytes);
  return as_no_space(home->device->write(offset, bytes));
}

// ---- the end ---------------------------------------------------------------------------------------------------

Status CopyTarget::finish(const CopiedState& state) {
  log_id_ = random_identity();
  MEMLITH_ASSERT(state.kind == kind_ && state.log_id != log_id_);
  MEMLITH_TRY(finish_homes(state));
  if (kind_ == StoreKind::folder) MEMLITH_TRY(make_directory(state));
  MEMLITH_TRY(make_log(state));
  homes_.clear();
  return give_names();
}

Status CopyTarget::finish_homes(const CopiedState& state) {
  MEMLITH_ASSERT(kind_ == StoreKind::folder || state.objects.size() == 1);
  for (const ObjectInfo& info : state.objects) {
    MEMLITH_TRY_ASSIGN(Home* const home, home_of(info.id));
    MEMLITH_TRY(reserve(*home, info.size_bytes));
    if (home->bytes != info.size_bytes) MEMLITH_TRY(home->device->truncate(info.size_bytes));
    home->bytes = info.size_bytes;
    if (kind_ == StoreKind::one_file) MEMLITH_TRY(finish_file(state, *home));
    MEMLITH_TRY(as_no_space(home->device->flush()));
    if (kind_ == StoreKind::one_file) continue;
    MEMLITH_TRY(as_no_space(home->sums->finish(volume_, working_.sums(info.id), log_id_, *home->device)));
  }
  for (const auto& [object, home] : homes_) {
    const bool lives = std::any_of(state.objects.begin(), state.objects.end(),
                                   [id = object](const ObjectInfo& info) { return info.id == id; });
    if (!lives) MEMLITH_TRY(volume_.remove(working_.home(object)));
  }
  return kOk;
}

// The file as a clean close leaves it: without the in-use header.
Status CopyTarget::finish_file(const CopiedState& state, Home& home) {
  const std::uint64_t bytes = std::min(kInUseHeaderBytes, home.bytes);
  if (state.file.own.marked == InUse::none) return kOk;
  MEMLITH_ASSERT(bytes <= sizeof state.file.own.bytes);
  return as_no_space(home.device->write(0, std::as_bytes(std::span(state.file.own.bytes)).first(bytes)));
}

Status CopyTarget::make_directory(const CopiedState& state) {
  const std::vector<std::byte> file = FolderDirectory::file_of(state.objects, state.next_id, log_id_);
  MEMLITH_ASSERT(file.size() % kDirectoryEntryBytes == 0 && file.size() / kDirectoryEntryBytes > state.objects.size());
  MEMLITH_TRY_ASSIGN(const auto device, volume_.open(working_.home(kDirectory), OpenMode::create, Caching::buffered));
  MEMLITH_TRY(device->reserve(file.size()));
  MEMLITH_TRY(as_no_space(device->write(0, file)));
  MEMLITH_TRY(as_no_space(device->flush()));
  return volume_.sync_folder("objects");
}

Status CopyTarget::make_log(const CopiedState& state) {
  MEMLITH_ASSERT(log_id_ != 0 && state.slot_count >= 2);
  const bool marked = kind_ == StoreKind::folder;  // the mark becomes the log
  MEMLITH_TRY_ASSIGN(const auto device,
                     volume_.open(marked ? working_.fresh_log() : working_.log,
                                  marked ? OpenMode::read_write : OpenMode::create, Caching::buffered));
  if (!homes_.empty()) MEMLITH_TRY(device->match_permissions(*homes_.begin()->second.device));
  LogFormat format;
  format.block_bytes = device->caps().log_block_bytes;
  if (state.physical_block_bytes != 0) format.block_bytes = static_cast<std::uint32_t>(KeptBlocks::kBlockBytes);
  format.slot_bytes = state.slot_bytes;
  format.slot_count = state.slot_count;
  StoreHeader header{};
  header.kind = static_cast<std::uint32_t>(kind_);
  header.physical_block_bytes = static_cast<std::uint16_t>(state.physical_block_bytes);
  header.file = state.file.object;
  header.origin = state.origin;
  ClientBytes client{};
  std::memcpy(client.data(), &header, sizeof header);
  return as_no_space(Log::format(*device, format, client, log_id_));
}

// Recovers the store once, which checks it, and marks it clean.
Status CopyTarget::close_cleanly() {
  StoreOptions options;
  options.kind = kind_;
  options.file_name = working_.file;
  options.manual_checkpoint = options.manual_flush = options.any_medium = true;
  MEMLITH_TRY_ASSIGN(const auto store, Store::open(volume_, options));
  return store->close();
}

Status CopyTarget::name_file() {
  if (give_name_) return give_name_(working_.file, names_.file);
  MEMLITH_TRY_ASSIGN(const bool taken, volume_.exists(names_.file));
  if (!taken) return volume_.rename(working_.file, names_.file);
  return fail(Errc::exists, Detail::open, "{}: was made by another program while the copy was; choose another name",
              volume_.path_of(names_.file));
}

Status CopyTarget::give_names() {
  MEMLITH_ASSERT(homes_.empty());  // the store that is opened below is the only one that has them open
  if (kind_ == StoreKind::folder) {
    // ORDER files-before-log: with its log the store exists. [mutant copy_named_unflushed]
    MEMLITH_TRY(volume_.rename(working_.fresh_log(), working_.log));
    MEMLITH_TRY(volume_.sync_folder(""));
    lock_ = nullptr;
    return close_cleanly();
  }
  MEMLITH_TRY(close_cleanly());
  // ORDER log-before-file: a file without its log lacks its address; a log that was closed cleanly, without a file, is
  // nothing, and the next copy replaces it. [test Copy.APowerCutAtAnyOperationLeavesAWholeStoreOrNone]
  MEMLITH_TRY(volume_.rename(working_.log, names_.log));
  MEMLITH_TRY(volume_.sync_folder(""));
  MEMLITH_TRY(name_file());
  MEMLITH_TRY(volume_.sync_folder(""));
  // The mark goes last, and nothing depends on it by now.
  (void)volume_.remove(mark_name());
  return kOk;
}

}  // namespace memlith::core
