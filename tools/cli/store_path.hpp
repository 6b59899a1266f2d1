// From what the user typed to an open store: which kind of store a path means, and a handle that closes itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "failure.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

enum class StoreKind : std::uint8_t { folder, one_file };
[[nodiscard]] std::string_view name_of(StoreKind kind);

struct StorePath {
  std::string path;
  StoreKind kind = StoreKind::folder;
  bool has_log = true;  // one_file: FILE.memlith is there
};

// A folder is a store of its own; a regular file, or a name whose NAME.memlith is there, is a one-file store.
Result<StorePath> resolve_store_path(const std::string& path);

struct StoreCloser {
  // For the ways out after a failure, which is what gets reported; success goes through close_store().
  void operator()(memlith_store* store) const { (void)memlith_store_close(store); }
};
using StoreHandle = std::unique_ptr<memlith_store, StoreCloser>;

Result<StoreHandle> open_store(const StorePath& path, const memlith_store_options& options);
// Changes nothing; shows a bar while a long log is read.
Result<StoreHandle> open_store_read_only(const StorePath& path);
// The same; a store that a process has open for writing is shown as its last durable commit.
Result<StoreHandle> open_store_to_look(const StorePath& path);

// Closes and reports how that went.
[[nodiscard]] MaybeFailure close_store(StoreHandle store);

Result<memlith_store_info> info_of(memlith_store* store);

}  // namespace memlith::tool
