// Copying a store; include/memlith/copy.h. Floor: capi.
#include "copy/copy.hpp"

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
    if (options.reserved != 0) return fail(Errc::invalid, Detail::argument, "reserved must be 0");
    memlith_copy_report full{};
    if (report != nullptr) MEMLITH_TRY(write_info(report, full));  // a struct of a wrong size is told before the work
    CopyRequest request{path, target, {}};
    if (options.progress != nullptr) {
      request.progress = [&options](std::uint64_t done, std::uint64_t total) {
        options.progress(options.progress_context, done, total);
      };
    }
    MEMLITH_TRY_ASSIGN(const CopyReport copied, copy_store(request));
    if (report == nullptr) return kOk;
    full.lsn = copied.lsn.value;
    full.bytes = copied.bytes;
    full.shared_bytes = copied.shared;
    return write_info(report, full);
  });
}

}  // extern "C"
