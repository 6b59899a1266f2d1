#include "store/moment.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/checksum.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kLsnUnit = 512;

// From the low end: where `reach` stands in the log, in units of 512 bytes; what stands for the history up to there;
// and a checksum of these two, because 8 bytes that were in flight when the power failed may be neither the old ones
// nor the new ones.
constexpr unsigned kPlaceBits = 22;
constexpr unsigned kChainBits = 22;
constexpr unsigned kSaidBits = kPlaceBits + kChainBits;
constexpr std::uint64_t kMomentSeed = kSuperblockMagic;

constexpr std::uint64_t low_bits(std::uint64_t value, unsigned bits) {
  return value & ((std::uint64_t{1} << bits) - 1);
}

// Whatever log it belongs to: a whole moment of another log is refused, a torn one is not.
std::uint64_t with_checksum(std::uint64_t said) {
  return said | checksum(std::as_bytes(std::span(&said, 1)), kMomentSeed) << kSaidBits;
}

// The chain value of a position depends on everything in the log before it, so no two histories share one. A recovery
// changes the file, too, and leaves the position as it is.
std::uint64_t moment_of(LogPosition whole, LogPosition reach, std::uint64_t log_id, std::uint64_t recoveries) {
  const std::uint64_t both[2] = {whole.previous, reach.previous};
  const std::uint64_t chain = low_bits(checksum(std::as_bytes(std::span(both)), log_id + recoveries), kChainBits);
  const std::uint64_t place = low_bits(reach.lsn.value / kLsnUnit, kPlaceBits);
  return with_checksum(chain << kPlaceBits | place);
}

bool same_chain(std::uint64_t a, std::uint64_t b) {
  return low_bits(a >> kPlaceBits, kChainBits) == low_bits(b >> kPlaceBits, kChainBits);
}

Status without_its_log(StoreFiles& files) {
  return fail(Errc::corrupt, Detail::open,
              "{}: this is a copy that was taken while the file was in use, or after a crash, and the log that it had "
              "is not beside it ({} is the place): the newest commits, and possibly the file's own first bytes, are "
              "only in that log. Put the log back, or copy the file again when no program has it open and `memlith "
              "recover` has run. Nothing was changed",
              files.path(), files.volume.path_of(files.names.log));
}

Result<InUseHeader> first_bytes(StoreFiles& files) {
  InUseHeader header{};
  MEMLITH_TRY_ASSIGN(Device* const file, files.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size >= sizeof header) MEMLITH_TRY(file->read(0, std::as_writable_bytes(std::span(&header, 1))));
  return header;
}

}  // namespace

bool is_whole_moment(std::uint64_t moment) { return moment == with_checksum(low_bits(moment, kSaidBits)); }

// A file that its user may have filled does not begin with a caller's in-use header.
Status FileMoment::read() {
  MEMLITH_ASSERT(step_ == Step::begun || step_ == Step::decided);
  step_ = Step::frames_are_read;
  moment_ = {};
  found_ = false;
  in_file_ = InUse::none;
  said_first_ = said();
  if (!files_.one_file()) return kOk;
  MEMLITH_TRY_ASSIGN(const InUseHeader header, first_bytes(files_));
  const InUse has = in_use_of(header.kind);
  if (has == InUse::none || (has == InUse::caller && files_.in_use != InUse::caller)) return kOk;
  in_file_ = has;
  if (files_.in_use != InUse::caller) files_.in_use = has;
  // Otherwise a crash tore the in-use header or its moment, and the log is the one that they were being written for.
  if (is_whole_moment(header.moment)) moment_ = header.moment;
  return kOk;
}

// The store puts an in-use header, or ends it, by one commit that is home before the next one.
bool FileMoment::is_as_said() const {
  const InUse own = in_file_ == InUse::caller ? InUse::none : in_file_;
  return own == said_first_ || own == said();
}

void FileMoment::look_for(LogPosition tail, LogPosition at) {
  MEMLITH_ASSERT(step_ == Step::frames_are_read);
  MEMLITH_ASSERT(at.lsn >= tail.lsn);
  if (!moment_.has_value() || found_) return;
  const std::uint64_t id = files_.log->log_id();
  const std::uint64_t recoveries = directory_.record_at_home().recoveries;
  // The last recovery may have ended between the moment and the superblock.
  for (const std::uint64_t after : {recoveries, recoveries + 1}) {
    if (at == tail) {
      // A clean close may have moved the tail to the next segment.
      found_ = found_ || same_chain(*moment_, moment_of(tail, tail, id, after));
    } else {
      found_ = found_ || *moment_ == moment_of(at, at, id, after) || *moment_ == moment_of(tail, at, id, after);
    }
  }
}

Status FileMoment::check(Overlay& overlay) {
  MEMLITH_ASSERT(step_ == Step::frames_are_read);
  step_ = Step::decided;
  if (!is_as_said() && in_file_ != InUse::none) return without_its_log(files_);
  if (!is_as_said()) {
    return fail(Errc::corrupt, Detail::open,
                "{}: is not of the same moment as its log {}: the log belongs to a file that was in use, and this one "
                "has no in-use header, with which such a file begins. One of the two is a copy of another time; put "
                "back the two as they were together. To take the file as it is, remove the log. Nothing was changed",
                files_.path(), files_.log_device->path());
  }
  if (moment_.has_value() && !found_) {
    return fail(Errc::corrupt, Detail::open,
                "{}: is not of the same moment as its log {}: nowhere from LSN {} to {} did this log hold what the "
                "file holds. One of the two is a copy of another time, or belongs to another file; put back the two as "
                "they were together. Nothing was changed",
                files_.path(), files_.log_device->path(), files_.log->tail().lsn.value,
                files_.log->recovered().lsn.value);
  }
  const FileRecord file = directory_.record_at_home();
  if (file.own.marked == InUse::none) return kOk;
  if (files_.in_use == InUse::caller) return tell_two_in_use_headers(files_);
  files_.in_use = file.own.marked;
  if (!files_.read_only()) return kOk;
  const auto own = std::as_bytes(std::span(file.own.bytes));
  return overlay.apply(kFile, 0, own.first(std::min<std::uint64_t>(own.size(), file.object.size_bytes)));
}

Status FileMoment::note(LogPosition whole, LogPosition reach, Overlay& overlay) {
  MEMLITH_ASSERT(step_ == Step::frames_are_read || step_ == Step::decided);
  MEMLITH_ASSERT(whole.lsn <= reach.lsn);
  if (files_.in_use == InUse::none) return kOk;
  const std::uint64_t recoveries = directory_.record_at_home().recoveries;
  const std::uint64_t moment = moment_of(whole, reach, files_.log->log_id(), recoveries);
  const auto bytes = std::as_bytes(std::span(&moment, 1));
  std::uint64_t coming = 0;
  std::uint64_t coming_bytes = 0;
  MEMLITH_TRY(overlay.for_each(kFile, [&](std::uint64_t offset, std::span<const std::byte> piece) -> Status {
    if (offset != coming_bytes || offset >= sizeof coming) return kOk;
    const std::uint64_t count = std::min<std::uint64_t>(piece.size(), sizeof coming - offset);
    std::memcpy(reinterpret_cast<std::byte*>(&coming) + offset, piece.data(), count);
    coming_bytes += count;
    return kOk;
  }));
  const bool is_coming = coming_bytes == sizeof coming && in_use_of(coming) == files_.in_use;
  MEMLITH_TRY_ASSIGN(const InUseHeader header, first_bytes(files_));
  const bool has_it = header.moment == moment && flushed_ == moment;
  const bool is_there = in_use_of(header.kind) == files_.in_use && !has_it;
  if (!is_coming && !is_there) return kOk;
  // ORDER superblock-before-moment: a moment is of a tail and a count of recoveries. A power cut that brings an older
  // superblock back must not find it in the file. [test
  // AfterAKillOfACaller.ARecoveryDoesNotCountOnWhatAFailedFlushLeft]
  if (!files_.made_log) MEMLITH_TRY(files_.log->secure_superblock());
  if (is_coming) MEMLITH_TRY(overlay.apply(kFile, offsetof(InUseHeader, moment), bytes));
  if (!is_there) return kOk;
  // A moment that was found may be in the page cache only, and no flush brings it to the medium once one has failed: it
  // is written again. [test AfterAKillOfACaller.ARecoveryDoesNotCountOnWhatAFailedFlushLeft]
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  MEMLITH_TRY(file->write(offsetof(InUseHeader, moment), bytes));
  MEMLITH_TRY(file->flush());
  flushed_ = moment;
  return kOk;
}

Status check_not_in_use(StoreFiles& files) {
  MEMLITH_TRY_ASSIGN(const bool there, files.volume.exists(files.names.file));
  if (!there) return kOk;
  MEMLITH_TRY_ASSIGN(const InUseHeader header, first_bytes(files));
  return is_in_use_kind(header.kind) ? without_its_log(files) : kOk;
}

Status tell_two_in_use_headers(const StoreFiles& files) {
  return fail(Errc::invalid, Detail::open,
              "{}: the file has an in-use header already, of another kind than the one that is wanted; run `memlith "
              "recover` on it, or close the program that has it",
              files.path());
}

}  // namespace memlith::core
