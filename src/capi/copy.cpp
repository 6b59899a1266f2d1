// Copying a store; include/memlith/copy.h. Floor: capi.
#include "copy/copy.hpp"

#include <fmt/format.h>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "memlith/copy.h"

using namespace memlith::core;

extern "C" {

int32_t memlith_store_copy(const char* path, const char* target, const memlith_copy_options* given,
                           memlith_copy_report* report) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    MEMLITH_TRY(need(target, "target"));
    memlith_copy_options options;
    MEMLITH_TRY(read_options(given, options));
    if ((options.flags & ~MEMLITH_COPY_DAMAGED) != 0) {
      return fail(Errc::invalid, Detail::argument, "unknown flags {:#x}", options.flags & ~MEMLITH_COPY_DAMAGED);
    }
    memlith_copy_report full{};
    if (report != nullptr) MEMLITH_TRY(write_info(report, full));  // a struct of a wrong size is told before the work
    CopyRequest request{path, target, {}, (options.flags & MEMLITH_COPY_DAMAGED) != 0};
    if (options.progress != nullptr) {
      request.progress = [&options](std::uint64_t done, std::uint64_t total) {
        options.progress(options.progress_context, done, total);
      };
    }
    MEMLITH_TRY_ASSIGN(const CopyReport copied, copy_store(request));
    if (report == nullptr) return kOk;
    full.ticket = copied.lsn.value;
    full.bytes = copied.bytes;
    full.shared_bytes = copied.shared;
    return write_info(report, full);
  });
}

int32_t memlith_check_data(const char* path, void (*found)(void* context, const char* sentence), void* found_context,
                           void (*progress)(void* context, uint64_t done, uint64_t total), void* progress_context,
                           memlith_data_report* report) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    memlith_data_report full{};
    if (report != nullptr) MEMLITH_TRY(write_info(report, full));  // a struct of a wrong size is told before the work
    CopyProgress tell;
    if (progress != nullptr) {
      tell = [=](std::uint64_t done, std::uint64_t total) { progress(progress_context, done, total); };
    }
    MEMLITH_TRY_ASSIGN(const DataReport seen, check_data(path, tell, [&](const std::string& sentence) {
                         if (found != nullptr) found(found_context, sentence.c_str());
                       }));
    if (report == nullptr) return kOk;
    full.ticket = seen.lsn.value;
    full.blocks = seen.blocks;
    full.blocks_unknown = seen.unknown;
    full.blocks_damaged = seen.damaged;
    return write_info(report, full);
  });
}

int32_t memlith_check_region(memlith_store* store, const char* region,
                             void (*found)(void* context, const char* sentence), void* found_context,
                             memlith_data_report* report) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(region, "region"));
    Store& inner = session_of(store).store();
    memlith_data_report full{};
    if (report != nullptr) MEMLITH_TRY(write_info(report, full));  // a struct of a wrong size is told before the work
    const auto info = inner.find(region);
    if (!info.has_value()) {
      return fail(Errc::not_found, Detail::object, "{}: there is no region \"{}\"", inner.path(), region);
    }
    if (inner.read_only()) {
      return fail(Errc::read_only, Detail::open, "{}: the store was opened read-only; memlith_check_data compares it",
                  inner.path());
    }
    MEMLITH_TRY_ASSIGN(full.blocks_unknown, inner.check_sums(info->id, [&](std::uint64_t offset) {
      ++full.blocks_damaged;
      if (found == nullptr) return;
      found(found_context,
            fmt::format("region \"{}\": {} bytes from offset {} on", region, kSummedBytes, offset).c_str());
    }));
    full.blocks = (info->size_bytes + kSummedBytes - 1) / kSummedBytes;
    return report == nullptr ? kOk : write_info(report, full);
  });
}

int32_t memlith_complete_checksums(const char* path, uint64_t* blocks) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need(path, "path"));
    StoreOptions options;
    options.kind = kind_at(path);
    options.makes_sums = true;
    if (options.kind == StoreKind::one_file) {
      return fail(Errc::unsupported, Detail::open, "{}: of the file of a one-file store no checksums are kept", path);
    }
    MEMLITH_TRY_ASSIGN(Place place, place_of_store(path, options.kind));
    MEMLITH_TRY_ASSIGN(std::unique_ptr<Session> session, Session::open(std::move(place), options));
    const auto completed = session->store().complete_sums();
    const Status closed = Session::close(std::move(session));
    MEMLITH_TRY(completed.status());
    MEMLITH_TRY(closed);
    if (blocks != nullptr) *blocks = *completed;
    return kOk;
  });
}

}  // extern "C"
