// Stores: opening, closing, flush windows, checkpoints, information; include/memlith/memlith.h. Floor: capi.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "capi/image.hpp"
#include "device/raw_hosts.hpp"
#include "memlith/files.h"
#include "private/options.h"

using namespace memlith::core;

namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(50);
constexpr std::uint64_t kDayMs = 24ull * 60 * 60 * 1000;

Result<FlushWindow> flush_window(std::uint64_t interval_ms, std::uint64_t bytes) {
  if (interval_ms > kDayMs) {
    return fail(Errc::invalid, Detail::argument, "window_ms is {}; it can be at most a day (86400000)", interval_ms);
  }
  FlushWindow window;
  window.interval_ms = interval_ms;
  if (bytes != 0) window.bytes = bytes;
  return window;
}

StoreOptions store_options(const memlith_store_options& given, StoreKind kind, FlushWindow window) {
  StoreOptions options;
  options.kind = kind;
  options.flush_window = window;
  options.create = (given.flags & MEMLITH_OPEN_CREATE) != 0;
  options.exclusive = (given.flags & MEMLITH_OPEN_EXCLUSIVE) != 0;
  if ((given.flags & MEMLITH_IMAGE_GUARD) != 0) options.in_use = InUse::guard;
  options.follow = (given.flags & MEMLITH_OPEN_FOLLOW) != 0;
  options.accept_copy = (given.flags & MEMLITH_OPEN_ACCEPT_COPY) != 0;
  options.read_only = options.follow || (given.flags & MEMLITH_OPEN_READ_ONLY) != 0;
  options.open_wait = std::chrono::milliseconds(given.open_wait_ms);
  options.direct_io = (given.flags & MEMLITH_OPEN_BUFFERED) == 0;
  options.manual_checkpoint = given.manual_checkpoint != 0;
  options.makes_sums = kind == StoreKind::folder;
  options.log_bytes = given.log_bytes;
  options.log_max_bytes = given.log_max_bytes;
  options.physical_block_bytes = given.physical_block_bytes;
  if (given.progress != nullptr) {
    options.progress = [progress = given.progress, context = given.progress_context,
                        last = std::chrono::steady_clock::time_point{}](std::uint64_t done,
                                                                        std::uint64_t total) mutable {
      const auto now = std::chrono::steady_clock::now();
      if (now - last < kProgressInterval) return;
      last = now;
      progress(context, done, total);
    };
  }
  return options;
}

Status check_store_options(const memlith_store_options& given, StoreKind kind) {
  constexpr std::uint32_t kKnown = MEMLITH_OPEN_CREATE | MEMLITH_OPEN_READ_ONLY | MEMLITH_OPEN_EXCLUSIVE |
                                   MEMLITH_OPEN_BUFFERED | MEMLITH_OPEN_FOLLOW | MEMLITH_OPEN_ACCEPT_COPY |
                                   MEMLITH_OPEN_TELL_DROPPED;
  const std::uint32_t known = kKnown | (kind == StoreKind::one_file ? MEMLITH_IMAGE_GUARD : 0);
  if ((given.flags & ~known) != 0)
    return fail(Errc::invalid, Detail::argument, "unknown flags {:#x}", given.flags & ~known);
  if (given.io > MEMLITH_IO_DAX)
    return fail(Errc::invalid, Detail::argument, "io is {}; see MEMLITH_IO_AUTO", given.io);
  if (given.open_wait_ms > kDayMs) {
    return fail(Errc::invalid, Detail::argument, "open_wait_ms is {}; it can be at most a day (86400000)",
                given.open_wait_ms);
  }
  constexpr std::uint64_t kLogBytesLeast = 128 * kKiB;
  constexpr std::uint64_t kLogBytesMost = 1ull << 40;
  for (const std::uint64_t bytes : {given.log_bytes, given.log_max_bytes}) {
    if (bytes != 0 && (bytes < kLogBytesLeast || bytes > kLogBytesMost)) {
      return fail(Errc::invalid, Detail::argument, "log_bytes is {}; it can be {} to {}, or 0 for the default", bytes,
                  kLogBytesLeast, kLogBytesMost);
    }
  }
  if (given.log_max_bytes != 0 && given.log_max_bytes < given.log_bytes) {
    return fail(Errc::invalid, Detail::argument, "log_max_bytes {} is below log_bytes {}", given.log_max_bytes,
                given.log_bytes);
  }
  return kOk;
}

// Without a function for notices, on standard error.
void tell_weakness(const Session& session, const memlith_store_options& given) {
  const Store& store = session.store();
  const std::string sentence = store.weakness();
  if (sentence.empty()) return;
  if (given.notice != nullptr) {
    given.notice(given.notice_context, sentence.c_str());
  } else if (store.log().device().caps().file_system.medium != Medium::memory) {
    (void)std::fputs(("memlith: " + sentence + "\n").c_str(), stderr);
  }
}

Result<memlith_store*> open_any(const char* path, StoreKind kind, const memlith_store_options* options,
                                std::shared_ptr<OpenFile> file, bool keeps_holes) {
  memlith_store_options given;
  MEMLITH_TRY(read_options(options, given));
  MEMLITH_TRY(check_store_options(given, kind));
  MEMLITH_TRY_ASSIGN(const FlushWindow window, flush_window(given.window_ms, given.window_bytes));
  MEMLITH_TRY(need(path, "path"));
  MEMLITH_TRY_ASSIGN(Place place, place_of_store(path, kind, static_cast<IoBackend>(given.io)));
  StoreOptions wanted = store_options(given, kind, window);
  wanted.file = std::move(file);
  wanted.keeps_holes = keeps_holes;
  MEMLITH_TRY_ASSIGN(std::unique_ptr<Session> session,
                     Session::open(std::move(place), std::move(wanted), given.memory_max_bytes));
  session->tell_dropped_changes((given.flags & MEMLITH_OPEN_TELL_DROPPED) != 0);
  tell_weakness(*session, given);
  return handle_of(session.release());
}

std::int32_t open_entry(const char* path, StoreKind kind, const memlith_store_options* options,
                        memlith_store** result) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(result, "store"));
    MEMLITH_TRY_ASSIGN(*result, open_any(path, kind, options, nullptr, false));
    return kOk;
  });
}

void tell_disk(const std::optional<DiskFacts>& disk, memlith_store_info& info) {
  if (!disk.has_value()) return;
  info.disk = MEMLITH_DISK_KNOWN | (disk->passthrough ? MEMLITH_DISK_PASSTHROUGH : 0) |
              (disk->volatile_cache ? MEMLITH_DISK_VOLATILE_CACHE : 0) |
              (disk->forced_unit_access ? MEMLITH_DISK_FORCED_UNIT_ACCESS : 0);
  info.disk_sector_bytes = disk->logical_sector_bytes;
  info.disk_physical_sector_bytes = disk->physical_sector_bytes;
  info.disk_atomic_write_bytes = disk->atomic_write_bytes;
  disk->name.copy(info.disk_name, sizeof info.disk_name - 1);
}

}  // namespace

Result<memlith_store*> memlith::core::open_file_store(const char* path, const memlith_store_options* options,
                                                      std::shared_ptr<OpenFile> file) {
  return open_any(path, StoreKind::one_file, options, std::move(file), true);
}

extern "C" {

int32_t memlith_store_open(const char* path, const memlith_store_options* options, memlith_store** store) {
  return open_entry(path, StoreKind::folder, options, store);
}

int32_t memlith_device_format(const char* path, std::uint32_t flags) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    if ((flags & ~static_cast<std::uint32_t>(MEMLITH_FORMAT_FORCE)) != 0) {
      return fail(Errc::invalid, Detail::argument, "unknown flags {:#x}", flags);
    }
    return format_raw_device(path, (flags & MEMLITH_FORMAT_FORCE) != 0);
  });
}

int32_t memlith_file_open(const char* path, const memlith_store_options* options, memlith_store** store) {
  return open_entry(path, StoreKind::one_file, options, store);
}

int32_t memlith_store_close(memlith_store* store) {
  if (store == nullptr) return 0;
  return guarded([&] { return Session::close(std::unique_ptr<Session>(&session_of(store))); });
}

int32_t memlith_store_set_log_max(memlith_store* store, uint64_t bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    return session_of(store).store().set_log_bytes_max(bytes);
  });
}

int32_t memlith_store_set_window(memlith_store* store, uint64_t window_ms, uint64_t window_bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY_ASSIGN(const FlushWindow window, flush_window(window_ms, window_bytes));
    session_of(store).store().set_flush_window(window);
    return kOk;
  });
}

uint64_t memlith_store_newest(const memlith_store* store) {
  return need_ours(store).ok() ? session_of(store).store().newest_ticket().value : 0;
}

uint64_t memlith_store_durable(const memlith_store* store) {
  return need_ours(store).ok() ? session_of(store).store().durable_ticket().value : 0;
}

int32_t memlith_store_refresh(memlith_store* store, uint64_t* lsn) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY_ASSIGN(const Lsn now, session_of(store).refresh());
    if (lsn != nullptr) *lsn = now.value;
    return kOk;
  });
}

int32_t memlith_store_set_eventfd(memlith_store* store, int fd) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    session_of(store).store().set_durable_eventfd(fd);
    return kOk;
  });
}

int32_t memlith_store_checkpoint(memlith_store* store) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    return session_of(store).store().checkpoint();
  });
}

int32_t memlith_store_get_info(memlith_store* store, memlith_store_info* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    const Session& session = session_of(store);
    Store& inner = session.store();
    const Log& log = inner.log();
    memlith_store_info info{};
    info.region_count = inner.objects().size();
    info.log_bytes = log.capacity_bytes();
    info.log_used_bytes = log.used_bytes();
    info.durable_lsn = inner.durable_lsn().value;
    info.frames = log.counters().frames.load(std::memory_order_relaxed);
    info.batches = log.counters().batches.load(std::memory_order_relaxed);
    info.logged_bytes = log.counters().bytes.load(std::memory_order_relaxed);
    info.captured_bytes = inner.counters().captured_bytes.load(std::memory_order_relaxed);
    info.checkpoints = inner.counters().checkpoints.load(std::memory_order_relaxed);
    info.home_bytes = inner.counters().home_bytes.load(std::memory_order_relaxed);
    info.replayed_frames = inner.counters().replayed_commits;
    info.replayed_bytes = inner.counters().replayed_bytes;
    info.read_only = inner.read_only() ? 1 : 0;
    info.poisoned = log.poisoned() ? 1 : 0;
    info.one_file = inner.one_file() ? 1 : 0;
    info.direct_io = log.device().direct() ? 1 : 0;
    info.was_clean = inner.was_clean() ? 1 : 0;
    info.marks_sqlite = inner.marked_by_caller() ? 1 : 0;
    info.memory_error = code_of(session.memory_status());
    info.incarnation = session.incarnation();
    info.log_id = log.log_id();
    const FileSystem& file_system = log.device().caps().file_system;
    info.medium = static_cast<std::uint32_t>(file_system.medium);
    file_system.name.copy(info.file_system, sizeof info.file_system - 1);
    info.io = static_cast<std::uint32_t>(log.device().caps().io);
    info.log_block_bytes = log.superblock().block_bytes;
    tell_disk(log.device().disk(), info);
    if (const View* const view = inner.view(); view != nullptr) {
      info.follows = 1;
      info.log_used_bytes = bytes_between(std::min(log.tail().lsn, view->lsn()), view->lsn());
      info.writer = view->writer();
      info.view_bytes = view->bytes_shown();
    }
    MEMLITH_TRY_ASSIGN(const std::optional<DeviceUse> use, inner.device_use());
    info.device_bytes = use.has_value() ? use->device_bytes : 0;
    info.device_used_bytes = use.has_value() ? use->used_bytes : 0;
    return write_info(target, info);
  });
}

}  // extern "C"
