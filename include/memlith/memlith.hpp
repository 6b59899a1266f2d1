// memlith: memory that survives crashes. The C++20 interface, a thin layer over memlith.h, which states the full
// contract of each call. Handles close themselves; errors are values; nothing throws.
//
//   auto store = memlith::Store::open("notes", {.create = true});
//   auto region = store->region("main", {.create = true, .size = 1 << 20});
//   auto notes = region->root<Notes>();        // constructed once, then found again; an error if Notes has changed
//   if (!notes) ...                            // each call can fail; notes.error().message() says why
//   (*notes)->count++;                         // plain memory
//   if (!region->persist()) ...                // durable, all or nothing
//
// This header includes status.hpp, store.hpp, region.hpp and transaction.hpp. Beside it: heap.hpp (containers in
// regions: allocator.hpp), kv.hpp, applog.hpp, files.hpp, shared.hpp, copy.hpp, archive.hpp, steps.hpp, rocksdb.hpp.
#pragma once

#include "memlith/memlith.h"
#include "memlith/region.hpp"
#include "memlith/status.hpp"
#include "memlith/store.hpp"
#include "memlith/transaction.hpp"
