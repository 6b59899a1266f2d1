// The manifest of an archive: what it holds. Floor: archive. docs/format.md, "The manifest".
//
// It is a text, replaced as a whole. A pack counts once a manifest names it. Packs of one *run* belong to one history
// of the store, without a gap: a full copy, then segments. A new run begins where frames are missing (gap), where the
// store went back to an earlier state and went on from there (history), where the file of a one-file store has a new
// log (log), and where that file was changed while the store was closed (changed).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "archive/target.hpp"
#include "base/status.hpp"
#include "log/reader.hpp"
#include "log/superblocks.hpp"
#include "store/format.hpp"

namespace memlith::core {

struct FullCopy {
  std::uint64_t number = 0;
  std::uint64_t run = 0;
  LogPosition from;                 // replay begins here
  Lsn complete_at;                  // and gives a state of the store from here on
  std::uint64_t first_segment = 0;  // that has the frame at `from`; the run's next one if none has
  std::uint64_t made_ns = 0;        // when it was complete
  std::uint64_t bytes = 0;          // stored
  // The log's.
  std::uint32_t block_bytes = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slot_count = 0;
  std::array<std::uint8_t, kClientBytes> client{};  // as of `from`
};

struct Run {
  std::uint64_t number = 0;
  std::string why;  // first, gap, history, log, changed
  LogPosition begin;
  LogPosition end;                  // everything before it is archived
  std::uint64_t first_segment = 0;  // that is kept; segments [first_segment, end_segment)
  std::uint64_t end_segment = 0;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t bytes = 0;  // stored, of the segments that are kept
  std::uint64_t log_id = 0;
  std::uint64_t earliest_ns = 0;  // no copy, segment or mark of time in it is older; 0: not known
};

struct Manifest {
  static constexpr const char* kName = "manifest";
  static constexpr std::uint64_t kBytesMax = 64 * kMiB;

  std::uint64_t archive_id = 0;
  std::uint64_t log_id = 0;  // of the newest run
  StoreKind kind = StoreKind::folder;
  std::string file_name;      // of a one-file store
  std::string place;          // its path; empty: not known
  std::uint64_t session = 0;  // of the archiver that wrote it
  std::string writer;         // the same, for people
  std::uint64_t next_segment = 1;
  std::uint64_t next_full = 1;
  std::vector<Run> runs;        // in order
  std::vector<FullCopy> fulls;  // in order

  [[nodiscard]] const Run* find_run(std::uint64_t number) const;
  // True if LSNs of the run may stand for other states than the same LSNs of the run before it.
  [[nodiscard]] bool counts_anew(std::size_t index) const;

  [[nodiscard]] std::string text() const;
  // `path` is for messages.
  static Result<Manifest> parse(const std::string& text, const std::string& path);
  // Error: not_found, also if the target returns an empty object.
  static Result<Manifest> get(ArchiveTarget& target);
  Status put(ArchiveTarget& target) const;
};

}  // namespace memlith::core
