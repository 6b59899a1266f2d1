#include "archive/restorer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace memlith::core {

Status Restorer::look() {
  MEMLITH_TRY_ASSIGN(manifest_, Manifest::get(target_));
  return kOk;
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
    const std::optional<Frame> frame = read_frame(rest, at, geometry, header.log_id, why);
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
  for (auto run = manifest_.runs.rbegin(); run != manifest_.runs.rend(); ++run) {
    if (moment.run != 0 && moment.run != run->number) continue;
    MEMLITH_TRY_ASSIGN(const bool found, plan_in(*run, moment, plan));
    if (!found) continue;
    if (moment.kind == Moment::Kind::lsn) MEMLITH_TRY(check_unambiguous(*run, moment));
    if (moment.kind == Moment::Kind::time) MEMLITH_TRY(check_no_gap(*run, moment.value, plan));
    MEMLITH_ASSERT(plan.full.run == run->number && plan.full.first_segment <= run->end_segment);
    plan.segments = run->end_segment - plan.full.first_segment;
    return plan;
  }
  return tell_reach(moment);
}

const FullCopy* Restorer::newest_copy(const Run& run, const std::function<bool(const FullCopy&)>& is_fit) const {
  for (auto full = manifest_.fulls.rbegin(); full != manifest_.fulls.rend(); ++full) {
    if (full->run == run.number && is_fit(*full)) return &*full;
  }
  return nullptr;
}

// True if the run has the moment.
Result<bool> Restorer::plan_in(const Run& run, const Moment& moment, RestorePlan& plan) {
  if (moment.kind == Moment::Kind::time) return find_time(run, moment.value, plan);
  const bool latest = moment.kind == Moment::Kind::latest;
  const Lsn until = latest ? run.end.lsn : Lsn{moment.value};
  const FullCopy* const full = newest_copy(run, [&](const FullCopy& each) {
    return latest || (each.complete_at <= until && until <= run.end.lsn);
  });
  if (full == nullptr) return false;
  MEMLITH_ASSERT(full->complete_at <= until && until <= run.end.lsn);
  plan.full = *full;
  plan.until = until;
  return true;
}

// The last place of the run for which a record says that it was reached by then: one of the writer in the log, or the
// archiver's in the header of a segment. A copy may have been made at a later time and hold an earlier one, if a clock
// was set back behind the copy.
Result<bool> Restorer::find_time(const Run& run, std::uint64_t ns, RestorePlan& plan) {
  if (run.earliest_ns > ns) return false;
  const FullCopy* full = newest_copy(run, [ns](const FullCopy& each) { return each.made_ns <= ns; });
  bool found = full != nullptr;
  for (const FullCopy& each : manifest_.fulls) {
    if (full == nullptr && each.run == run.number) full = &each;
  }
  if (full == nullptr) return false;
  plan.full = *full;
  const LogGeometry geometry{plan.full.block_bytes, plan.full.slot_bytes};
  plan.until = plan.full.complete_at;
  bool later = !found;  // a later time was seen
  const auto note = [&](std::uint64_t record_ns, Lsn place) {
    if (record_ns > ns) {
      later = true;
    } else if (place > plan.until) {
      plan.clock_went_back = later;
      plan.until = place;
      found = true;
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
  return found;
}

// ---- what cannot be told ---------------------------------------------------------------------------------------

namespace {

std::string utc(std::uint64_t ns) {
  const auto seconds = static_cast<std::time_t>(ns / 1'000'000'000);
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "?";
  char text[32] = "";
  (void)std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", &parts);
  return text;
}

}  // namespace

// A store that went back, or a file with a new log, counts LSNs anew: the same LSN may stand for other commits.
Status Restorer::check_unambiguous(const Run& chosen, const Moment& moment) const {
  if (moment.run != 0) return kOk;
  std::size_t life = 0;  // runs that count LSNs without beginning anew
  std::size_t chosen_life = 0;
  for (std::size_t i = 0; i < manifest_.runs.size(); ++i) {
    if (manifest_.counts_anew(i)) ++life;
    if (manifest_.runs[i].number == chosen.number) chosen_life = life;
  }
  MEMLITH_ASSERT(chosen_life > 0);
  life = 0;
  for (std::size_t i = 0; i < manifest_.runs.size(); ++i) {
    const Run& run = manifest_.runs[i];
    if (manifest_.counts_anew(i)) ++life;
    if (life == chosen_life || run.end.lsn.value < moment.value) continue;
    return fail(Errc::invalid, Detail::read,
                "{0}: LSN {1} stands for two states, because the store went back, or its file got a new log: one is in "
                "run {2} (from {3} to {4}), the other in run {5} (from {6} to {7}), as far as the archive has it. Name "
                "the run: --at {2}:{1}; or restore to a time",
                target_.path_of(Manifest::kName), moment.value, chosen.number, utc(chosen.begin_ns), utc(chosen.end_ns),
                run.number, utc(run.begin_ns), utc(run.end_ns));
  }
  return kOk;
}

// Behind the end of a run it is not known what the store had, unless the archive goes on there.
Status Restorer::check_no_gap(const Run& chosen, std::uint64_t ns, RestorePlan& plan) const {
  std::uint64_t known_ns = chosen.end_ns;
  for (const FullCopy& full : manifest_.fulls) {
    if (full.run == chosen.number) known_ns = std::max(known_ns, full.made_ns);
  }
  if (plan.until != chosen.end.lsn || ns <= known_ns) return kOk;
  const Run& last = manifest_.runs.back();
  if (chosen.number == last.number) {
    plan.short_ns = ns - known_ns;
    return kOk;
  }
  MEMLITH_ASSERT(chosen.number < last.number);  // runs are in order
  const Run& next = *std::find_if(manifest_.runs.begin(), manifest_.runs.end(),
                                  [&chosen](const Run& run) { return run.number > chosen.number; });
  const FullCopy* first = nullptr;
  for (const FullCopy& full : manifest_.fulls) {
    if (first == nullptr && full.run == next.number) first = &full;
  }
  const std::string after = first == nullptr ? "nothing yet"
                                             : fmt::format("LSN {} of run {}, at {}", first->complete_at.value,
                                                           next.number, utc(first->made_ns));
  return fail(Errc::not_found, Detail::read,
              "{0}: that time lies in a gap of the archive. The last state before the gap is LSN {1} of run {2}, "
              "archived up to {3} (--at {2}:{1}); the first one behind it is {4}. `memlith archive list` shows the "
              "gaps",
              target_.path_of(Manifest::kName), chosen.end.lsn.value, chosen.number, utc(known_ns), after);
}

Status Restorer::tell_reach(const Moment& moment) const {
  const std::string path = target_.path_of(Manifest::kName);
  if (manifest_.fulls.empty()) {
    return fail(Errc::not_found, Detail::read,
                "{}: the archive has no full copy yet, and nothing can be restored without one", path);
  }
  if (moment.run != 0 && manifest_.find_run(moment.run) == nullptr) {
    return fail(Errc::not_found, Detail::read,
                "{}: the archive has no run {}; `memlith archive list` shows the runs that it has", path, moment.run);
  }
  if (moment.kind == Moment::Kind::time) {
    const auto first = std::min_element(manifest_.fulls.begin(), manifest_.fulls.end(),
                                        [](const auto& a, const auto& b) { return a.made_ns < b.made_ns; });
    return fail(Errc::not_found, Detail::read,
                "{}: the archive has nothing of that time; its earliest full copy is of {} and has LSN {}", path,
                utc(first->made_ns), first->complete_at.value);
  }
  return fail(Errc::not_found, Detail::read,
              "{}: the archive has no state of LSN {}; it has the LSNs from {} to {}, except in gaps, which `memlith "
              "archive list` shows",
              path, moment.value, manifest_.fulls.front().complete_at.value, manifest_.runs.back().end.lsn.value);
}

// ---- restoring -------------------------------------------------------------------------------------------------

Status Restorer::begin(const RestorePlan& plan, Replica& replica, std::uint64_t log_bytes_min) {
  auto pack = PackReader::open(target_, kPackFull, manifest_.archive_id, plan.full.number);
  if (!pack.ok() && pack.error().category == Errc::not_found) {
    return fail(Errc::corrupt, Detail::read, "{}: this full copy of the archive is missing",
                target_.path_of(full_name(plan.full.number)));
  }
  MEMLITH_TRY(pack.status());
  return replica.create(plan.full, (*pack)->header().log_id, **pack, log_bytes_min);
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
      const bool wanted = frame.lsn >= replica.end().lsn && frame.lsn < until;
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
    MEMLITH_ASSERT(first == nullptr || to.lsn.value - from.lsn.value == bytes);
    if (first != nullptr) MEMLITH_TRY(replica.append({first, bytes}, from, to, incarnation));
    MEMLITH_ASSERT(replica.end() == to);
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
  MEMLITH_ASSERT(run_of(plan.full) != nullptr);
  const Run& run = *run_of(plan.full);
  const LogGeometry geometry{plan.full.block_bytes, plan.full.slot_bytes};
  lsn = plan.full.from.lsn.value;
  std::uint64_t previous = plan.full.from.previous;
  for (std::uint64_t number = plan.full.first_segment; number < run.end_segment && lsn < plan.until.value; ++number) {
    MEMLITH_TRY_ASSIGN(const Segment segment, read_segment(number));
    std::uint64_t before = segment.header.begin_previous;
    MEMLITH_TRY(visit(segment, geometry, [&](const Frame& frame) -> Status {
      if (frame.lsn.value >= lsn && frame.lsn < plan.until) {
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

Result<FullCopy> Restorer::full_for(std::uint64_t log_id, Lsn end) const {
  for (auto full = manifest_.fulls.rbegin(); full != manifest_.fulls.rend(); ++full) {
    const Run* const run = run_of(*full);
    if (run != nullptr && run->log_id == log_id && full->from.lsn <= end && end <= run->end.lsn) return *full;
  }
  return fail(Errc::not_found, Detail::read,
              "{}: the archive does not go on from LSN {}, where the standby is: there is a gap, the store went back, "
              "or what the standby needs was forgotten. Make a new standby",
              target_.path_of(Manifest::kName), end.value);
}

}  // namespace memlith::core
