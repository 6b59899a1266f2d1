// Frames of a write-ahead log that are written a second time, because the kernel may have given up writing them. Part
// of the SQLite plugin.
//
// After a failed flush the kernel counts the pages as clean, and later flushes succeed without them. It tells of the
// failure once to each descriptor that was open then; a descriptor that is opened after a killed process was told hears
// nothing. Writing the same bytes again makes the pages dirty, so that the next flush says something about them.
#pragma once

#include <sqlite3.h>

#include "control_block.hpp"

namespace memlith::sqlite::shared {

// The frames behind `durable` up to `newest`, and where the caller has the write lock also the `rest`: what a killed
// process has written behind them, as far as SQLite would believe it. The caller keeps SQLite from restarting the log
// meanwhile. SQLITE_CORRUPT if frames up to `newest` are not what SQLite wrote: the kernel read them again from the
// medium. SQLITE_NOMEM.
int write_again(sqlite3_file* log, Position durable, Position newest, bool rest);

}  // namespace memlith::sqlite::shared
