// The rollback journal of a database on the disk, while a transaction over several databases is being committed. Part
// of the SQLite plugin.
//
// Other journals live in memory, because a commit of one database is one frame and needs no journal. A COMMIT over
// attached databases is one frame in each of their logs, and SQLite's protocol joins them: a super-journal names all
// databases, each database's journal names the super-journal, and removing the super-journal is the commit
// (https://sqlite.org/atomiccommit.html, section 5). Therefore the database's journal is written to
// FILE.memlith-journal before its frame is logged. After a crash, the opening of the database passes that journal to
// SQLite, which restores the old pages if the super-journal still exists.
//
// INVARIANT: a journal on the disk belongs to the frame that follows `lsn` in the log `log_id`; it is there, durably,
//            before that frame is begun, and gone, durably, before the one after it that is not its undoing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "device/volume.hpp"
#include "memory_file.hpp"

namespace memlith::sqlite {

// The log, and the end of it before the transaction's frame.
struct JournalOrigin {
  std::uint64_t log_id = 0;
  std::uint64_t lsn = 0;
};

// At the begin of the file; docs/format.md, "disk journal". Little endian, like the log.
struct DiskJournalHeader {
  char magic[8];
  std::uint64_t log_id;
  std::uint64_t lsn;
  std::uint64_t content_bytes;
  std::uint64_t content_checksum;
  std::uint64_t header_checksum;  // of what is before it
};
static_assert(sizeof(DiskJournalHeader) == 48);

struct LeftJournal {
  JournalOrigin origin;
  std::shared_ptr<MemoryFile> content;  // null: it was never completed, and so its frame was not begun
};

// `database` is the name of the database file in the volume.
std::string disk_journal_name(const std::string& database);
// Creates an empty journal, replacing an existing one.
core::Result<std::unique_ptr<core::Device>> make_disk_journal(core::Volume& volume, const std::string& database);
// Content and name are durable on ok.
core::Status write_disk_journal(core::Volume& volume, core::Device& device, JournalOrigin origin,
                                const MemoryFile& content);
// Empty if there is none. corrupt: the journal is damaged.
core::Result<std::optional<LeftJournal>> read_disk_journal(core::Volume& volume, const std::string& database);
// Durable on ok; ok if there is none. With `own`, the open journal of the database, no other file of that name is
// removed.
core::Status remove_disk_journal(core::Volume& volume, const std::string& database, core::Device* own = nullptr);

// True if a rollback journal ends with the name of a super-journal, as SQLite writes it there.
bool names_super_journal(const MemoryFile& journal);
// True if SQLite made this name for a super-journal.
bool is_super_journal(std::string_view path);

}  // namespace memlith::sqlite
