// How far an archiver beside the writer has come. Floor: store.
//
// The archiver shows a notice beside the log: "archived" in a folder store, FILE.memlith-archived beside a one-file
// store's file. While the archiver lives, closing the store leaves the log, and what the archive lacks in it. If the
// archiver asks for it, a checkpoint that makes room for commits (Checkpointer) leaves frames that are not archived yet
// in the log, too, and the log grows instead, up to a size. The notice is advice. Nothing is recovered from it, and an
// archiver notices by itself what it has missed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/units.hpp"
#include "device/volume.hpp"

namespace memlith::core {

struct ArchivedPage {
  static constexpr std::uint64_t kMagic = 0x0a4843524148544d;  // "MTHARCH\n"
  std::uint64_t magic;
  std::uint64_t log_id;
  std::uint64_t archived_lsn;  // everything before it is in the archive
  std::uint64_t keep_bytes;    // the log may have this size before it is reused nevertheless; 0: it is reused
  std::uint64_t checksum;      // of everything before it: the page may be read while it is written
};

// The archiver's side. One thread at a time.
class ArchivedNotice {
 public:
  static std::string name_beside(const std::string& log_name);
  // `file` of a one-file store: the notice gets its permissions. Null if the notice cannot be made: no right to write
  // there, or a device that holds a store by itself. The volume outlives the notice.
  static std::unique_ptr<ArchivedNotice> make(Volume& volume, const std::string& name, Device* file,
                                              std::uint64_t log_id, std::uint64_t keep_bytes);
  ~ArchivedNotice() {
    if (notice_ != nullptr) notice_->remove();
  }
  ArchivedNotice(const ArchivedNotice&) = delete;
  ArchivedNotice& operator=(const ArchivedNotice&) = delete;
  void show(Lsn archived);

 private:
  explicit ArchivedNotice(const ArchivedPage& page) : page_(page) {}
  ArchivedPage page_;
  std::unique_ptr<Notice> notice_;
};

// The writer's side.
struct ArchiveWait {
  Lsn archived;
  std::uint64_t keep_bytes = 0;
};
// Empty: no living archiver has a notice of this log.
std::optional<ArchiveWait> look_for_archiver(Volume& volume, const std::string& name, std::uint64_t log_id);
// True if an archiver lives that will want this log, or that one of the file before it was archived by.
bool has_archiver(Volume& volume, const std::string& name);

}  // namespace memlith::core
