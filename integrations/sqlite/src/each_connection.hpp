// Things that each connection of a SQLite gets, on whatever VFS: SELECT memlith_error(), because a database that could
// not be opened has none to ask; and with MEMLITH_SQLITE_BUSY_MS a busy timeout, for programs that set none. Part of
// the SQLite plugin (entry.cpp).
#pragma once

#include "api.hpp"

namespace memlith::sqlite {

// Connections that are opened from now on have them. Without the memory for it they do without.
void prepare_each_connection(const Api& api);

}  // namespace memlith::sqlite
