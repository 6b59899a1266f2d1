// Status to SQLite's codes. Part of the SQLite plugin.
//
// The message of a Status goes to sqlite3_log(), in several lines if it is long, and is kept per thread for
// xGetLastError and PRAGMA memlith_error, because a VFS cannot set sqlite3_errmsg().
#pragma once

#include <string>
#include <string_view>

#include "api.hpp"
#include "base/status.hpp"

namespace memlith::sqlite {

// The code alone. `opening`: of a failure to open, where SQLite knows fewer codes.
int code_of(core::Status status, bool opening = false);

// Returns the code, and logs and keeps the message of the status. SQLITE_OK for ok.
int report(const Api& api, core::Status status, bool opening = false);

// The last sentence reported by this thread, and the errno that went with it.
std::string_view last_report();
int last_report_errno();
// The last sentence of this thread, or of the process if this thread has reported none: it may be another one that asks
// than the one that failed.
std::string newest_report();

}  // namespace memlith::sqlite
