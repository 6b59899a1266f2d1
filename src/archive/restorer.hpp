// Brings a replica to a moment of an archive. Floor: archive. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "archive/manifest.hpp"
#include "archive/pack.hpp"
#include "archive/replica.hpp"
#include "archive/target.hpp"

namespace memlith::core {

// Which state is wanted.
struct Moment {
  enum class Kind : std::uint8_t { latest, lsn, time } kind = Kind::latest;
  std::uint64_t value = 0;  // lsn: every commit whose frame begins before it; time: since 1970, in nanoseconds
  std::uint64_t run = 0;    // of the archive; 0: whichever has it
};

struct RestorePlan {
  FullCopy full;
  Lsn until;                     // of the frames that begin before it
  std::uint64_t segments = 0;    // from full.first_segment on
  bool clock_went_back = false;  // several states are of the wanted time, and this is the last of them
  std::uint64_t short_ns = 0;    // the archive ends so long before the wanted time
};

class Restorer {
 public:
  // The target outlives the restorer.
  explicit Restorer(ArchiveTarget& target) : target_(target) {}

  // Reads the manifest, and may be called again. Errors: not_found, corrupt, incompatible; those of the target.
  Status look();
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  // Errors: not_found (the archive does not reach that moment, or has a gap there; the message says what it has),
  // invalid (the LSN stands for states of several histories, and no run is named), corrupt.
  Result<RestorePlan> plan(const Moment& moment);
  // Makes the replica of the plan's full copy.
  Status begin(const RestorePlan& plan, Replica& replica, std::uint64_t log_bytes_min = 0);
  // Adds the frames that begin before `until`, as far as the archive has them. A segment that is missing or damaged is
  // an error that names it; the replica has everything before that.
  Status feed(Replica& replica, const FullCopy& full, Lsn until);

  // Reads everything that the plan needs, and makes nothing. `lsn` gets what would be restored.
  Status check(const RestorePlan& plan, std::uint64_t& lsn, std::uint64_t& segments);
  // The copy of the run that goes on from this place of a replica of that log. Error: not_found (a gap, or it was
  // forgotten).
  Result<FullCopy> full_for(std::uint64_t log_id, Lsn end) const;

  // Called with every segment that was read.
  std::function<void(const PackHeader& header)> progress;

 private:
  struct Segment {
    PackHeader header{};
    std::vector<std::byte> content;
  };
  Result<std::unique_ptr<PackReader>> open_segment(std::uint64_t number) const;
  Result<Segment> read_segment(std::uint64_t number) const;
  // Visits the frames of the segment, and checks them.
  Status visit(const Segment& segment, const LogGeometry& geometry,
               const std::function<Status(const Frame&)>& visit_frame) const;
  [[nodiscard]] const Run* run_of(const FullCopy& full) const { return manifest_.find_run(full.run); }
  // The newest copy of the run that `is_fit`; null if there is none.
  const FullCopy* newest_copy(const Run& run, const std::function<bool(const FullCopy&)>& is_fit) const;
  Result<bool> plan_in(const Run& run, const Moment& moment, RestorePlan& plan);
  Result<bool> find_time(const Run& run, std::uint64_t ns, RestorePlan& plan);
  [[nodiscard]] Status check_unambiguous(const Run& chosen, const Moment& moment) const;
  Status check_no_gap(const Run& chosen, std::uint64_t ns, RestorePlan& plan) const;
  [[nodiscard]] Status tell_reach(const Moment& moment) const;
  [[nodiscard]] Status does_not_follow(std::uint64_t number, Lsn end) const;

  ArchiveTarget& target_;
  Manifest manifest_;
  std::uint64_t next_segment_ = 0;  // that feed() reads
  std::uint64_t fed_full_ = 0;
};

}  // namespace memlith::core
