// memlith: copies of stores in use. The C++20 interface over memlith/copy.h, where the full contract stands. Guide:
// docs/backup.md.
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

// `flags`: MEMLITH_COPY_...
// `progress` is called with the bytes read and those to read; it must neither throw nor call memlith.
inline Result<CopyReport> copy_store(const std::string& path, const std::string& target,
                                     const std::function<void(std::uint64_t, std::uint64_t)>& progress = {},
                                     std::uint32_t flags = 0) {
  memlith_copy_options options{};
  options.struct_size = sizeof options;
  options.flags = flags;
  auto context = progress;
  if (context) {
    options.progress = [](void* function, std::uint64_t done, std::uint64_t total) {
      (*static_cast<std::function<void(std::uint64_t, std::uint64_t)>*>(function))(done, total);
    };
    options.progress_context = &context;
  }
  memlith_copy_report report{};
  report.struct_size = sizeof report;
  const std::int32_t code = memlith_store_copy(path.c_str(), target.c_str(), &options, &report);
  if (code != MEMLITH_OK) return Error(code);
  return CopyReport{report.ticket, report.bytes, report.shared_bytes};
}

struct DataReport {
  Ticket ticket = 0;
  std::uint64_t blocks = 0;
  std::uint64_t blocks_unknown = 0;
  std::uint64_t blocks_damaged = 0;
  std::vector<std::string> damaged;  // a sentence for each run of damaged blocks
};

// Compares the data of a folder store with its checksums; memlith_check_data.
inline Result<DataReport> check_data(const std::string& path) {
  DataReport found;
  memlith_data_report report{};
  report.struct_size = sizeof report;
  const auto note = [](void* sentences, const char* sentence) {
    static_cast<std::vector<std::string>*>(sentences)->emplace_back(sentence);
  };
  const std::int32_t code = memlith_check_data(path.c_str(), note, &found.damaged, nullptr, nullptr, &report);
  if (code != MEMLITH_OK) return Error(code);
  found.ticket = report.ticket;
  found.blocks = report.blocks;
  found.blocks_unknown = report.blocks_unknown;
  found.blocks_damaged = report.blocks_damaged;
  return found;
}

}  // namespace memlith
