// sqlite3_file for main databases, their write-ahead logs and journals. Part of the SQLite plugin.
#pragma once

#include "vfs.hpp"

namespace memlith::sqlite {

extern const int kFileBytes;  // of the largest sqlite3_file

// As xOpen. Any exception is the caller's to catch.
int open_main(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags);
int open_wal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags);
int open_journal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags);

}  // namespace memlith::sqlite
