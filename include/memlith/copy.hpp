// memlith: copies of stores in use, and checks of their data. The C++20 interface over memlith/copy.h, where the full
// contract stands. Guide: docs/backup.md.
//
//   auto copied = memlith::copy_store("shop", "/backup/shop-monday");
//   if (!copied) ...  // there is no copy
//
// Nothing here throws.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "memlith/copy.h"
#include "memlith/memlith.hpp"

namespace memlith {

struct CopyReport {
  Ticket ticket = 0;               // of the original: the copy has every commit before it and none behind it
  std::uint64_t bytes = 0;         // of the data in the copy
  std::uint64_t shared_bytes = 0;  // of them, in files that share their blocks with the original's
};

// Called with the bytes done and those in all, from the thread of the call; must neither throw nor call memlith.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

namespace detail {
inline void call_progress(void* function, std::uint64_t done, std::uint64_t total) {
  (*static_cast<const Progress*>(function))(done, total);
}
}  // namespace detail

// `flags`: MEMLITH_COPY_...
inline Result<CopyReport> copy_store(const std::string& path, const std::string& target, const Progress& progress = {},
                                     std::uint32_t flags = 0) {
  memlith_copy_options options{};
  options.struct_size = sizeof options;
  options.flags = flags;
  if (progress) {
    options.progress = detail::call_progress;
    options.progress_context = const_cast<Progress*>(&progress);
  }
  memlith_copy_report report{};
  report.struct_size = sizeof report;
  const std::int32_t code = memlith_store_copy(path.c_str(), target.c_str(), &options, &report);
  if (code != MEMLITH_OK) return Error(code);
  return CopyReport{report.ticket, report.bytes, report.shared_bytes};
}

struct DataReport {
  Ticket ticket = 0;  // 0 of a region
  std::uint64_t blocks = 0;
  std::uint64_t blocks_unknown = 0;
  std::uint64_t blocks_damaged = 0;
  std::vector<std::string> damaged;  // a sentence for each run of damaged blocks
};

namespace detail {
template <class Check>
Result<DataReport> data_report(const Check& check) {
  DataReport found;
  memlith_data_report report{};
  report.struct_size = sizeof report;
  if (const std::int32_t code = check(&found.damaged, &report); code != MEMLITH_OK) return Error(code);
  found.ticket = report.ticket;
  found.blocks = report.blocks;
  found.blocks_unknown = report.blocks_unknown;
  found.blocks_damaged = report.blocks_damaged;
  return found;
}
}  // namespace detail

// Compares the data of a folder store with its checksums, also while a process uses the store; memlith_check_data.
inline Result<DataReport> check_data(const std::string& path, const Progress& progress = {}) {
  return detail::data_report([&](void* damaged, memlith_data_report* report) {
    return memlith_check_data(path.c_str(), detail::note_sentence, damaged, progress ? detail::call_progress : nullptr,
                              const_cast<Progress*>(&progress), report);
  });
}

// The same of one region of a store that is open for writing, such as before it is opened; memlith_check_region.
inline Result<DataReport> check_region(const Store& store, const std::string& region) {
  return detail::data_report([&](void* damaged, memlith_data_report* report) {
    return memlith_check_region(store.handle(), region.c_str(), detail::note_sentence, damaged, report);
  });
}

// Keeps checksums from now on of those blocks of a folder store of which none are known, as they are now. Returns the
// number of these blocks. See memlith_complete_checksums.
inline Result<std::uint64_t> complete_checksums(const std::string& path) {
  std::uint64_t blocks = 0;
  if (const std::int32_t code = memlith_complete_checksums(path.c_str(), &blocks); code != MEMLITH_OK) {
    return Error(code);
  }
  return blocks;
}

}  // namespace memlith
