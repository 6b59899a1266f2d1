#include "archive/archiver.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/random.hpp"

namespace memlith::core {

namespace {

std::string this_process() {
  char host[65] = "?";
  (void)::gethostname(host, sizeof host - 1);
  return fmt::format("process {} on {}", ::getpid(), host);
}

// State of the newest run.
bool run_has_copy(const Manifest& manifest) {
  return !manifest.fulls.empty() && manifest.fulls.back().run == manifest.runs.back().number;
}

}  // namespace

Archiver::Archiver(ArchiveSource& source, ArchiveTarget& target, ArchiveOptions options)
    : source_(source), target_(target), options_(std::move(options)) {}

Archiver::~Archiver() = default;

std::uint64_t Archiver::now() const { return options_.now_ns ? options_.now_ns() : now_since_1970_ns(); }

ArchiveProgress Archiver::progress() const {
  ArchiveProgress progress;
  if (!manifest_.runs.empty()) progress.archived = archived().lsn;
  progress.durable = source_.durable();
  progress.gaps = gaps_;
  progress.segments = segments_;
  progress.fulls = fulls_;
  progress.refused = refused_;
  // A frame may need the rest of a slot and a new one.
  const std::uint64_t lacking = progress.durable.value - std::min(progress.archived, progress.durable).value;
  progress.log_is_full = options_.keep_log_bytes != 0 && lacking + 2 * source_.slot_bytes() >= options_.keep_log_bytes;
  return progress;
}

// ---- opening ---------------------------------------------------------------------------------------------------

Status Archiver::open() {
  MEMLITH_ASSERT(lock_ == nullptr && manifest_.runs.empty() && !written_);  // once
  MEMLITH_TRY_ASSIGN(const bool has_log, source_.look_for_log());
  MEMLITH_TRY_ASSIGN(lock_, target_.lock());
  MEMLITH_TRY(source_.leave_notice(options_.keep_log_bytes));
  auto found = Manifest::get(target_);
  const bool failed = !found.ok() && found.error().category == Errc::io && options_.takes_failure_for_new;
  const bool is_new = failed || (!found.ok() && found.error().category == Errc::not_found);
  if (!is_new) {
    MEMLITH_TRY_ASSIGN(manifest_, std::move(found));
    MEMLITH_TRY(check_same_store());
  }
  const bool same_log = has_log && manifest_.log_id == source_.log_id();
  manifest_.session = random_identity();
  manifest_.writer = this_process();
  manifest_.kind = source_.kind();
  manifest_.file_name = source_.file_name();
  if (source_.kind() == StoreKind::one_file) manifest_.place = options_.place;
  if (is_new) manifest_.archive_id = random_identity();
  MEMLITH_ASSERT(manifest_.archive_id != 0 && manifest_.session != 0);
  return same_log ? resume() : begin_run(is_new || manifest_.runs.empty() ? "first" : "log");
}

// A file gets a new log when it is opened after a close that removed the log. It is the same file if it has its place,
// or was restored from this archive.
Status Archiver::check_same_store() const {
  if (source_.has_log() && manifest_.log_id == source_.log_id()) return kOk;
  const bool are_files = source_.kind() == StoreKind::one_file && manifest_.kind == StoreKind::one_file;
  const bool restored = options_.restored_from == manifest_.archive_id;
  const bool same_place =
      manifest_.place.empty() ? manifest_.file_name == source_.file_name() : manifest_.place == options_.place;
  if (are_files && (restored || same_place)) return kOk;
  const std::string of = manifest_.place.empty() ? manifest_.file_name : manifest_.place;
  const std::string found = source_.has_log() ? fmt::format("log {:x}", source_.log_id()) : "no log";
  return fail(Errc::invalid, Detail::open,
              "{}: this is the archive of another store ({}{}log {:x}; {} has {}). Archive every store to a place of "
              "its own",
              target_.path_of(Manifest::kName), of, of.empty() ? "" : ", ", manifest_.log_id, source_.path(), found);
}

Status Archiver::resume() {
  MEMLITH_ASSERT(manifest_.log_id == source_.log_id() && waiting_.empty());
  if (manifest_.runs.empty()) return begin_run("first");
  // An archiver ended before the run had its full copy.
  if (!run_has_copy(manifest_)) return begin_run(manifest_.runs.back().why);
  removed_segment_ = manifest_.runs.front().first_segment;
  removed_full_ = manifest_.fulls.empty() ? 1 : manifest_.fulls.front().number;
  MEMLITH_ASSERT(removed_segment_ <= manifest_.next_segment && removed_full_ < manifest_.next_full);
  position_ = waiting_from_ = archived();
  source_.tell_archived(position_.lsn);
  MEMLITH_TRY_ASSIGN(const ArchiveSource::Reach reach, source_.find(position_));
  if (reach == ArchiveSource::Reach::gone) return begin_run("gap");
  if (reach == ArchiveSource::Reach::changed) return begin_run("changed");
  const bool other = reach == ArchiveSource::Reach::elsewhere;
  return other ? begin_run("history") : put_manifest(manifest_);
}

// ---- steps -----------------------------------------------------------------------------------------------------

Status Archiver::step() {
  const Status status = look_once();
  // A copy that a fast writer has overtaken is made anew by the next step.
  return status.category == Errc::busy && status.detail != Detail::lock ? kOk : status;
}

Status Archiver::look_once() {
  if (!broken_ && !source_.has_log()) return begin_run("log");  // looking for it has failed
  if (broken_) return begin_run(why_);
  MEMLITH_TRY(gather());
  if (broken_) return begin_run(why_);
  if (ended_) return go_on_with_new_log();
  const bool due = !waiting_.empty() && now() - waiting_since_ns_ >= options_.seal_ns;
  if (due || waiting_.size() >= options_.segment_bytes) MEMLITH_TRY(seal());
  if (!full_is_due()) return kOk;
  const Status copied = copy_now();
  if (copied.category != Errc::corrupt) return copied;
  // Rot in the store is no reason to archive no more: the older copies, and the frames, are sound.
  refused_ns_ = now();
  ++refused_;
  return kOk;
}

// As soon as a program has the file open again.
Status Archiver::go_on_with_new_log() {
  MEMLITH_TRY(seal());
  MEMLITH_TRY_ASSIGN(const bool found, source_.look_for_log());
  return found ? begin_run("log") : kOk;
}

Status Archiver::check_log() const {
  if (source_.has_log() && !manifest_.runs.empty()) return kOk;
  return fail(Errc::not_found, Detail::open,
              "{}: the file has no log, because no program has it open with memlith, and what is in it was not "
              "archived. Archive it while a program has it open",
              source_.path());
}

Status Archiver::flush(std::chrono::milliseconds patience) {
  if (!source_.has_log()) MEMLITH_TRY(look_once());  // a program may have opened it since
  MEMLITH_TRY(check_log());
  const Status caught_up = catch_up(patience);
  const Status sealed = seal();
  return sealed.ok() ? caught_up : sealed;
}

Status Archiver::catch_up(std::chrono::milliseconds patience) {
  const SteadyClock::time_point until = SteadyClock::now() + patience;
  MEMLITH_TRY_ASSIGN(Lsn wanted, source_.readable_end(position_));
  for (;;) {
    const std::uint64_t run = manifest_.runs.back().number;
    MEMLITH_TRY(step());
    if (ended_ || broken_) return kOk;
    if (manifest_.runs.back().number != run) {  // its full copy may lack what the writer has not shown yet
      MEMLITH_TRY_ASSIGN(wanted, source_.readable_end(position_));
    }
    if (position_.lsn >= wanted || SteadyClock::now() >= until) return kOk;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Status Archiver::copy_now() {
  MEMLITH_TRY(check_log());
  MEMLITH_TRY(seal());
  MEMLITH_TRY(copy_full(manifest_.runs.back().number));
  return forget_old();
}

bool Archiver::full_is_due() const {
  if (options_.full_every_ns == 0 || manifest_.fulls.empty() || source_.log_is_gone()) return false;
  const FullCopy& last = manifest_.fulls.back();
  const std::uint64_t time = now();
  const std::uint64_t tried_ns = std::max(last.made_ns, refused_ns_);
  // Also apart by a clock that was set back.
  const std::uint64_t apart_ns = time > tried_ns ? time - tried_ns : tried_ns - time;
  return apart_ns >= options_.full_every_ns && archived().lsn > last.complete_at;
}

// Reads what has become durable; seals whenever there is enough.
Status Archiver::gather() {
  if (waiting_.size() >= options_.waiting_bytes_max) return seal();
  LogPosition at = position_;
  const std::uint64_t began_ns = now();
  MEMLITH_TRY_ASSIGN(const ArchiveSource::Reach reach,
                     source_.read(at, [this](const Frame& frame) { return take(frame); }));
  MEMLITH_ASSERT(position_.lsn <= at.lsn);  // which a clean close may have moved on without a frame
  ended_ = reach == ArchiveSource::Reach::ended;
  if (reach == ArchiveSource::Reach::all || ended_) {
    MEMLITH_TRY_ASSIGN(const bool changed, source_.file_may_be_changed());
    if (!changed) all_read_ns_ = began_ns;
    return kOk;
  }
  broken_ = true;
  why_ = reach == ArchiveSource::Reach::gone ? "gap" : reach == ArchiveSource::Reach::changed ? "changed" : "history";
  return kOk;
}

Status Archiver::take(const Frame& frame) {
  MEMLITH_ASSERT(frame.lsn >= position_.lsn && frame.after.lsn > frame.lsn);
  // The log has moved on without a frame: a segment has none of such places inside.
  if (frame.lsn != position_.lsn && !waiting_.empty()) MEMLITH_TRY(seal());
  if (waiting_.empty()) {
    waiting_from_ = {frame.lsn, position_.previous};
    waiting_since_ns_ = now();
  }
  waiting_.insert(waiting_.end(), frame.bytes.begin(), frame.bytes.end());
  position_ = frame.after;
  TimeRecord time{};
  if (frame.kind == kFrameKindTime && frame.payload.size() == sizeof time) {
    std::memcpy(&time, frame.payload.data(), sizeof time);
    if (first_time_ns_ == 0 || time.ns < first_time_ns_) first_time_ns_ = time.ns;
  }
  return waiting_.size() >= options_.segment_bytes ? seal() : kOk;
}

// ---- segments --------------------------------------------------------------------------------------------------

Status Archiver::seal() {
  if (waiting_.empty()) return kOk;
  MEMLITH_ASSERT(!manifest_.runs.empty() && waiting_from_.lsn < position_.lsn);
  // A segment is the log's bytes from one place to another, without a hole.
  MEMLITH_ASSERT(position_.lsn.value - waiting_from_.lsn.value == waiting_.size());
  MEMLITH_ASSERT(manifest_.next_segment >= removed_segment_);  // no number is used twice
  MEMLITH_TRY(check_still_mine());
  PackHeader header{};
  header.kind = kPackSegment;
  header.archive_id = manifest_.archive_id;
  header.log_id = manifest_.log_id;
  header.number = manifest_.next_segment;
  header.run = manifest_.runs.back().number;
  header.begin_lsn = waiting_from_.lsn.value;
  header.begin_previous = waiting_from_.previous;
  header.end_lsn = position_.lsn.value;
  header.end_previous = position_.previous;
  header.made_ns = now();
  header.first_time_ns = first_time_ns_ != 0 ? first_time_ns_ : header.made_ns;
  Manifest next = manifest_;
  ++next.next_segment;
  Run& run = next.runs.back();
  run.end = position_;
  run.end_segment = next.next_segment;
  run.end_ns = header.made_ns;
  note_time(run, std::min(header.first_time_ns, header.made_ns));
  std::uint64_t stored_bytes = 0;
  // ORDER segment-before-manifest: what a manifest names is there, whole. [mutant archive_manifest_first]
  MEMLITH_TRY(put_segment(header, stored_bytes));
  run.bytes += stored_bytes;
  MEMLITH_TRY(put_manifest(std::move(next)));
  MEMLITH_ASSERT(archived() == position_);
  waiting_.clear();
  first_time_ns_ = 0;
  ++segments_;
  return kOk;
}

// For a run that an older memlith began, the earliest time stays unknown.
void Archiver::note_time(Run& run, std::uint64_t ns) {
  if (run.earliest_ns != 0) run.earliest_ns = std::min(run.earliest_ns, ns);
}

Status Archiver::put_segment(const PackHeader& header, std::uint64_t& stored_bytes) {
  MEMLITH_TRY_ASSIGN(const auto writer, PackWriter::begin(target_, header));
  MEMLITH_TRY(writer->write(waiting_));
  MEMLITH_TRY(writer->finish());
  stored_bytes = writer->stored_bytes();
  return kOk;
}

Status Archiver::put_manifest(Manifest next) {
  MEMLITH_ASSERT(!next.runs.empty() && next.archive_id == manifest_.archive_id);
  MEMLITH_ASSERT(next.next_segment >= manifest_.next_segment && next.next_full >= manifest_.next_full);
  MEMLITH_ASSERT(next.log_id == next.runs.back().log_id);
  MEMLITH_TRY(next.put(target_));
  manifest_ = std::move(next);
  written_ = true;
  // ORDER manifest-before-reuse: the writer may overwrite what the manifest counts as archived. [mutant
  // archive_tells_too_early]
  source_.tell_archived(archived().lsn);
  return kOk;
}

// Two archivers would each put segments of the same numbers. A target without locks has only its manifest to tell them
// apart.
Status Archiver::check_still_mine() {
  if (!written_) return kOk;
  MEMLITH_ASSERT(manifest_.session != 0);
  MEMLITH_TRY_ASSIGN(const Manifest found, Manifest::get(target_));
  if (found.session == manifest_.session) return kOk;
  return fail(Errc::busy, Detail::lock,
              "{}: another archiver ({}) has written to this archive since; stop one of the two. What it archived is "
              "kept; this one goes on from there when it is started again",
              target_.path_of(Manifest::kName), found.writer);
}

// ---- full copies -----------------------------------------------------------------------------------------------

Status Archiver::begin_run(std::string why) {
  broken_ = true;
  why_ = why;
  // Frames that were read before those that are missing, also while a full copy was made, belong to the run before. A
  // run without a full copy is replaced, with its frames.
  if (!manifest_.runs.empty() && run_has_copy(manifest_)) MEMLITH_TRY(seal());
  waiting_.clear();
  first_time_ns_ = 0;
  ended_ = false;
  if (!source_.has_log() || source_.log_is_gone()) {
    MEMLITH_TRY_ASSIGN(const bool found, source_.look_for_log());
    if (!found) return kOk;  // until a program has the file open
  }
  MEMLITH_TRY(check_still_mine());
  Manifest next = manifest_;
  Run run;
  run.number = next.runs.empty() ? 1 : next.runs.back().number + 1;
  run.why = why;
  run.first_segment = run.end_segment = next.next_segment;
  run.begin_ns = run.end_ns = run.earliest_ns = now();
  MEMLITH_TRY(source_.look());
  run.begin = run.end = source_.tail();
  run.log_id = next.log_id = source_.log_id();
  // The last run has everything up to when the store was looked at last.
  if (!next.runs.empty() && run_has_copy(next) && archived() == position_)
    next.runs.back().end_ns = std::max(next.runs.back().end_ns, all_read_ns_);
  // A run that was begun and has no full copy holds nothing yet: it is replaced.
  if (!next.runs.empty() && !run_has_copy(next)) {
    run.why = next.runs.back().why;
    next.runs.pop_back();
  }
  next.runs.push_back(run);
  position_ = waiting_from_ = run.begin;
  MEMLITH_TRY(put_manifest(std::move(next)));
  broken_ = false;
  const Status copied = copy_full(run.number);
  if (!copied.ok()) broken_ = true;  // the run begins anew
  MEMLITH_TRY(copied);
  MEMLITH_ASSERT(run_has_copy(manifest_) && !broken_);
  if (why == "gap" || why == "history") ++gaps_;
  return forget_old();
}

Status Archiver::copy_full(std::uint64_t run) {
  MEMLITH_ASSERT(waiting_.empty() && manifest_.runs.back().number == run);
  FullCopy full;
  full.number = manifest_.next_full;
  full.run = run;
  PackHeader header{};
  header.kind = kPackFull;
  header.archive_id = manifest_.archive_id;
  header.log_id = manifest_.log_id;
  header.number = full.number;
  header.run = run;
  header.made_ns = header.first_time_ns = now();
  std::unique_ptr<PackWriter> writer;
  ArchiveSource::CopyCalls calls;
  calls.start = [&]() -> Status {
    writer = nullptr;
    MEMLITH_TRY_ASSIGN(writer, PackWriter::begin(target_, header));
    return kOk;
  };
  calls.write = [&writer](const CopyRecord& record, std::span<const std::byte> bytes) -> Status {
    MEMLITH_TRY(writer->write(std::as_bytes(std::span(&record, 1))));
    return writer->write(bytes);
  };
  // The log is read along, so that the copying does not lose any of it.
  calls.between = [this]() -> Status {
    MEMLITH_TRY(gather());
    if (broken_) {
      return fail(Errc::busy, Detail::frame,
                  "{}: the log was reused before it was archived, while the store was copied; the copy begins anew. "
                  "Give the log more room (log_bytes), or archive to a faster target",
                  source_.path());
    }
    return kOk;
  };
  MEMLITH_TRY_ASSIGN(const CopiedState state, source_.copy(full, calls));
  MEMLITH_ASSERT(writer != nullptr && full.from == state.position && state.log_id == manifest_.log_id);
  if (!state.damaged.empty() && !options_.takes_damaged) return is_damaged(state);
  MEMLITH_TRY(writer->finish());
  MEMLITH_TRY(calls.between());
  MEMLITH_TRY(seal());
  // ORDER frames-before-copy: a copy counts when its run has come to where it begins. [test
  // Archive.EveryRestoreIsAStateOfTheStore]
  if (archived().lsn < full.from.lsn) {
    return fail(Errc::busy, Detail::frame, "{}: processes open and close this store faster than it can be read",
                source_.path());
  }
  MEMLITH_ASSERT(waiting_.empty() && manifest_.runs.back().number == run);
  full.complete_at = archived().lsn;
  full.made_ns = now();
  note_time(manifest_.runs.back(), full.made_ns);
  full.bytes = writer->stored_bytes();
  MEMLITH_TRY_ASSIGN(full.first_segment, segment_with(full.from));
  MEMLITH_ASSERT(full.from.lsn <= full.complete_at && full.first_segment <= manifest_.next_segment);
  Manifest next = manifest_;
  ++next.next_full;
  next.fulls.push_back(full);
  MEMLITH_TRY(put_manifest(std::move(next)));
  ++fulls_;
  return kOk;
}

Status Archiver::is_damaged(const CopiedState& state) const {
  return fail(Errc::corrupt, Detail::object,
              "{0}: no full copy was made, because {1} bytes from offset {2} of object {3} on, and {4} other places, "
              "are not what was written: the disk, or another program, has changed them. `memlith verify --data {0}` "
              "lists all",
              source_.path(), state.damaged.front().bytes, state.damaged.front().offset,
              state.damaged.front().object.value, state.damaged.size() - 1);
}

// The first segment of the last run that has frames from the position on.
Result<std::uint64_t> Archiver::segment_with(LogPosition position) const {
  const Run& run = manifest_.runs.back();
  std::uint64_t number = run.end_segment;
  while (number > run.first_segment) {
    MEMLITH_TRY_ASSIGN(const auto pack, PackReader::open(target_, kPackSegment, manifest_.archive_id, number - 1));
    if (pack->header().end_lsn <= position.lsn.value) break;
    --number;
  }
  MEMLITH_ASSERT(run.first_segment <= number && number <= run.end_segment);
  return number;
}

// ---- retention -------------------------------------------------------------------------------------------------

// Full copies are dropped from the oldest on, while the one after it is old enough to be the beginning.
Status Archiver::forget_old() {
  if (options_.keep_ns == 0) return kOk;
  const std::uint64_t time = now();
  Manifest next = manifest_;
  MEMLITH_ASSERT(!next.fulls.empty());
  while (next.fulls.size() > 1 && time > next.fulls[1].made_ns && time - next.fulls[1].made_ns > options_.keep_ns) {
    next.fulls.erase(next.fulls.begin());
  }
  const FullCopy& first = next.fulls.front();
  const std::uint64_t kept_full = first.number;
  const std::uint64_t kept_segment = first.first_segment;
  std::erase_if(next.runs, [&first](const Run& run) { return run.number < first.run; });
  MEMLITH_ASSERT(!next.runs.empty() && next.runs.front().number == first.run);  // a copy's run is never forgotten
  Run& run = next.runs.front();
  run.first_segment = std::max(run.first_segment, kept_segment);
  const bool changed = next.fulls.size() != manifest_.fulls.size() || next.runs.size() != manifest_.runs.size() ||
                       run.first_segment != manifest_.runs.front().first_segment;
  if (!changed && removed_full_ >= kept_full && removed_segment_ >= kept_segment) return kOk;
  if (changed) {
    if (run.number == first.run && run.begin.lsn < first.from.lsn) run.begin = first.from;
    // ORDER manifest-before-removal: no manifest names what is gone. [test ArchiveParts.OldCopiesAreForgotten]
    MEMLITH_TRY(put_manifest(std::move(next)));
  }
  for (; removed_segment_ < kept_segment; ++removed_segment_) {
    MEMLITH_TRY(target_.remove(segment_name(removed_segment_)));
  }
  for (; removed_full_ < kept_full; ++removed_full_) MEMLITH_TRY(target_.remove(full_name(removed_full_)));
  return kOk;
}

}  // namespace memlith::core
