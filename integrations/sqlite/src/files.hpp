// sqlite3_file for main databases, their write-ahead logs and journals. Part of the SQLite plugin.
#pragma once

#include "vfs.hpp"

namespace memlith::sqlite {

extern const int kFileBytes;  // of the largest sqlite3_file

// Instead of a code of SQLite: the database is for mode shared (Database::open).
inline constexpr int kNotForTheEngine = -1;

// As xOpen. The caller catches exceptions.
int open_main(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags);
// The same in mode shared, whatever the parameters say (vfs.cpp).
int open_to_share(Vfs& vfs, const char* name, sqlite3_file* file, int flags);
int open_wal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags);
int open_journal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags);
int open_super_journal(Vfs& vfs, const char* name, sqlite3_file* file, int flags, int* out_flags);

// As xDelete and xAccess, for super-journals, which are on the disk.
int delete_super_journal(Vfs& vfs, const char* name, bool sync_folder);
int find_super_journal(Vfs& vfs, const char* name, int* result);
// The rollback journal of a database that is not open here, as a transaction over several databases left it; null if
// there is none.
core::Result<std::shared_ptr<MemoryFile>> find_journal_on_disk(Vfs& vfs, const std::string& name);

}  // namespace memlith::sqlite
