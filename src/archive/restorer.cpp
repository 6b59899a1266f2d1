#include "archive/restorer.hpp"

#include <algorithm>
#include <cstring>

namespace memlith::core {

Status Restorer::look() {
  MEMLITH_TRY_ASSIGN(manifest_, Manifest::get(target_));
  return kOk;
}

const Run* Restorer::run_of(const FullCopy& full) const {
  const auto found = std::find_if(manifest_.runs.begin(), manifest_.runs.end(),
                                  [&full](const Run& run) { return run.number == full.run; });
  return found == manifest_.runs.end() ? nullptr : &*found;
}

// ---- segments --------------------------------------------------------------------------------------------------

Result<std::unique_ptr<PackReader>> Restorer::open_segment(std::uint64_t number) const {
  auto pack = PackReader::open(target_, kPackSegment, manifest_.archive_id, number);
  if (pack.ok() || pack.error().category != Errc::not_found) return pack;
  return fail(Errc::corrupt, Detail::read, "{}: this segment of the archive is missing",
              target_.path_of(segment_name(number)));
}

Result<Restorer::Segment> Restorer::read_segment(std::uint64_t number) const {
  MEMLITH_TRY_ASSIGN(const auto pack, open_segment(number));
  Segment segment;
  segment.header = pack->header();
  for (;;) {
    MEMLITH_TRY_ASSIGN(const std::span<const std::byte> content, pack->next());
    if (content.empty()) return segment;
    segment.content.insert(segment.content.end(), content.begin(), content.end());
  }
}

Status Restorer::visit(const Segment& segment, const LogGeometry& geometry,
                       const std::function<Status(const Frame&)>& visit_frame) const {
  const PackHeader& header = segment.header;
  LogPosition at{Lsn{header.begin_lsn}, header.begin_previous};
  std::span<const std::byte> rest = segment.content;
  const char* why = "it ends early";
  while (!rest.empty()) {
    const std::optional<Frame> frame = read_frame(rest, at, geometry, manifest_.log_id, why);
    if (!frame.has_value()) break;
    MEMLITH_TRY(visit_frame(*frame));
    rest = rest.subspan(frame->bytes.size());
    at = frame->after;
  }
  if (rest.empty() && at == LogPosition{Lsn{header.end_lsn}, header.end_previous}) return kOk;
  return fail(Errc::corrupt, Detail::frame,
              "{}: this segment of the archive is damaged at LSN {}, although its checksums are right: {}",
              target_.path_of(segment_name(header.number)), at.lsn.value, why);
}

// ---- the plan --------------------------------------------------------------------------------------------------

Result<RestorePlan> Restorer::plan(const Moment& moment) {
  RestorePlan plan;
  bool found = false;
  // The newest full copy before the moment, in the newest history that contains the moment.
  for (auto full = manifest_.fulls.rbegin(); full != manifest_.fulls.rend() && !found; ++full) {
    const Run* const run = run_of(*full);
    if (run == nullptr) continue;
    if (moment.kind == Moment::Kind::lsn) {
      found = full->complete_at.value <= moment.value && moment.value <= run->end.lsn.value;
    } else {
      found = moment.kind == Moment::Kind::latest || full->made_ns <= moment.value;
    }
    if (!found) continue;
    plan.full = *full;
    plan.until = moment.kind == Moment::Kind::lsn ? Lsn{moment.value} : run->end.lsn;
  }
  if (!found) return tell_reach(moment);
  if (moment.kind == Moment::Kind::time) MEMLITH_TRY(find_time(moment.value, plan));
  const Run& run = *run_of(plan.full);
  plan.segments = run.end_segment - plan.full.first_segment;
  return plan;
}

// The last place of the run for which a record says that it was reached by then: one of the writer in the log, or the
// archiver's in the header of a segment.
Status Restorer::find_time(std::uint64_t ns, RestorePlan& plan) {
  const Run& run = *run_of(plan.full);
  const LogGeometry geometry{plan.full.block_bytes, plan.full.slot_bytes};
  plan.until = plan.full.complete_at;
  bool later = false;  // a later time was seen
  const auto note = [&](std::uint64_t record_ns, Lsn place) {
    if (record_ns > ns) {
      later = true;
    } else if (place > plan.until) {
      plan.clock_went_back = later;
      plan.until = place;
    }
  };
  for (std::uint64_t number = plan.full.first_segment; number < run.end_segment; ++number) {
    MEMLITH_TRY_ASSIGN(const auto pack, open_segment(number));
    const PackHeader header = pack->header();
    if (header.first_time_ns <= ns && header.made_ns > ns) {
      MEMLITH_TRY_ASSIGN(const Segment segment, read_segment(number));
      MEMLITH_TRY(visit(segment, geometry, [&note](const Frame& frame) -> Status {
        TimeRecord record{};
        if (frame.kind != kFrameKindTime || frame.payload.size() != sizeof record) return kOk;
        std::memcpy(&record, frame.payload.data(), sizeof record);
        note(record.ns, frame.after.lsn);
        return kOk;
      }));
    }
    note(header.made_ns, Lsn{header.end_lsn});
  }
  return kOk;
}

Status Restorer::tell_reach(const Moment& moment) const {
  if (manifest_.fulls.empty()) {
    return fail(Errc::not_found, Detail::read,
                "{}: the archive has no full copy yet, and nothing can be restored without one",
                target_.path_of(Manifest::kName));
  }
  const FullCopy& first = manifest_.fulls.front();
  if (moment.kind == Moment::Kind::time) {
    return fail(Errc::not_found, Detail::read,
                "{}: the archive begins {} s after that time; the earliest state that it has is of LSN {}",
                target_.path_of(Manifest::kName), (first.made_ns - moment.value) / 1'000'000'000 + 1,
                first.complete_at.value);
  }
  return fail(Errc::not_found, Detail::read,
              "{}: the archive has no state of LSN {}; it has the LSNs from {} to {}, except in gaps, which `memlith "
              "archive list` shows",
              target_.path_of(Manifest::kName), moment.value, first.complete_at.value,
              manifest_.runs.back().end.lsn.value);
}

// ---- restoring -------------------------------------------------------------------------------------------------

Status Restorer::begin(const RestorePlan& plan, Replica& replica, std::uint64_t log_bytes_min) {
  auto pack = PackReader::open(target_, kPackFull, manifest_.archive_id, plan.full.number);
  if (!pack.ok() && pack.error().category == Errc::not_found) {
    return fail(Errc::corrupt, Detail::read, "{}: this full copy of the archive is missing",
                target_.path_of(full_name(plan.full.number)));
  }
  MEMLITH_TRY(pack.status());
  return replica.create(plan.full, manifest_.log_id, **pack, log_bytes_min);
}

Status Restorer::does_not_follow(std::uint64_t number, Lsn end) const {
  return fail(Errc::corrupt, Detail::frame,
              "{}: this segment of the archive does not follow what is before it, which ends at LSN {}",
              target_.path_of(segment_name(number)), end.value);
}

Status Restorer::feed(Replica& replica, const FullCopy& full, Lsn until) {
  const Run* const run = run_of(full);
  if (run == nullptr) {
    return fail(Errc::not_found, Detail::read, "{}: the archive does not have run {} any more",
                target_.path_of(Manifest::kName), full.run);
  }
  if (fed_full_ != full.number) next_segment_ = full.first_segment;
  fed_full_ = full.number;
  for (; next_segment_ < run->end_segment; ++next_segment_) {
    MEMLITH_TRY_ASSIGN(const Segment segment, read_segment(next_segment_));
    const PackHeader& header = segment.header;
    if (header.begin_lsn >= until.value) return kOk;
    if (progress) progress(header);
    // The frames from the replica's end on, as one piece.
    LogPosition from = replica.end();
    LogPosition to = from;
    const std::byte* first = nullptr;
    std::size_t bytes = 0;
    std::uint64_t incarnation = 0;
    LogPosition at{Lsn{header.begin_lsn}, header.begin_previous};
    bool fits = header.end_lsn <= from.lsn.value;
    MEMLITH_TRY(visit(segment, replica.geometry(), [&](const Frame& frame) -> Status {
      const bool wanted = frame.lsn >= replica.end().lsn && frame.after.lsn <= until;
      if (wanted && first == nullptr) {
        fits = at.previous == replica.end().previous;
        first = frame.bytes.data();
        from = {frame.lsn, at.previous};
      }
      if (wanted) {
        bytes += frame.bytes.size();
        to = frame.after;
        incarnation = std::max(incarnation, frame.incarnation);
      }
      at = frame.after;
      return kOk;
    }));
    if (first != nullptr && !fits) {
      return does_not_follow(next_segment_, replica.end().lsn);
    }
    if (first != nullptr) MEMLITH_TRY(replica.append({first, bytes}, from, to, incarnation));
    if (header.end_lsn > until.value) return kOk;
  }
  return kOk;
}

Status Restorer::check(const RestorePlan& plan, std::uint64_t& lsn, std::uint64_t& segments) {
  MEMLITH_TRY_ASSIGN(const auto copy, PackReader::open(target_, kPackFull, manifest_.archive_id, plan.full.number));
  for (;;) {
    MEMLITH_TRY_ASSIGN(const std::span<const std::byte> content, copy->next());
    if (content.empty()) break;
  }
  const Run& run = *run_of(plan.full);
  const LogGeometry geometry{plan.full.block_bytes, plan.full.slot_bytes};
  lsn = plan.full.from.lsn.value;
  std::uint64_t previous = plan.full.from.previous;
  for (std::uint64_t number = plan.full.first_segment; number < run.end_segment && lsn < plan.until.value; ++number) {
    MEMLITH_TRY_ASSIGN(const Segment segment, read_segment(number));
    std::uint64_t before = segment.header.begin_previous;
    MEMLITH_TRY(visit(segment, geometry, [&](const Frame& frame) -> Status {
      if (frame.lsn.value >= lsn && frame.after.lsn <= plan.until) {
        if (before != previous) return does_not_follow(number, Lsn{lsn});
        lsn = frame.after.lsn.value;
        previous = frame.after.previous;
      }
      before = frame.after.previous;
      return kOk;
    }));
    ++segments;
  }
  return kOk;
}

Result<FullCopy> Restorer::full_for(Lsn end) const {
  for (auto full = manifest_.fulls.rbegin(); full != manifest_.fulls.rend(); ++full) {
    const Run* const run = run_of(*full);
    if (run != nullptr && full->from.lsn <= end && end <= run->end.lsn) return *full;
  }
  return fail(Errc::not_found, Detail::read,
              "{}: the archive does not go on from LSN {}, where the standby is: there is a gap, the store went back, "
              "or what the standby needs was forgotten. Make a new standby",
              target_.path_of(Manifest::kName), end.value);
}

}  // namespace memlith::core
