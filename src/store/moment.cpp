#include "store/moment.hpp"

#include <algorithm>
#include <array>
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

// The chain value of a position depends on everything in the log before it, so no two histories share one.
std::uint64_t moment_of(LogPosition whole, LogPosition reach, std::uint64_t log_id) {
  const std::uint64_t both[2] = {whole.previous, reach.previous};
  const std::uint64_t chain = low_bits(checksum(std::as_bytes(std::span(both)), log_id), kChainBits);
  const std::uint64_t place = low_bits(reach.lsn.value / kLsnUnit, kPlaceBits);
  return with_checksum(chain << kPlaceBits | place);
}

bool same_chain(std::uint64_t a, std::uint64_t b) {
  return low_bits(a >> kPlaceBits, kChainBits) == low_bits(b >> kPlaceBits, kChainBits);
}

Status guarded_without_log(StoreFiles& files) {
  return fail(Errc::corrupt, Detail::open,
              "{}: this guarded file is a copy that was taken while it was in use, or after a crash: its newest "
              "commits and its own first bytes are in the log that was {} then. Copy the file again when no program "
              "has it open and `memlith recover` has run, or copy the log with it. Nothing was changed",
              files.path(), files.volume.path_of(files.names.log));
}

Status used_without_log(StoreFiles& files) {
  return fail(Errc::corrupt, Detail::open,
              "{}: this is a copy of a heap, a kv store or an application log that was taken while the file was in "
              "use, or after a crash, and its log is not beside it ({} is the place): the newest commits are only in "
              "that log. Copy the file again when no program has it open and `memlith recover` has run, or copy the "
              "log with it. Nothing was changed",
              files.path(), files.volume.path_of(files.names.log));
}

Status database_without_log(StoreFiles& files) {
  return fail(Errc::corrupt, Detail::open,
              "{}: this SQLite database was in use during a crash; its newest commits are in the log {}, which is "
              "missing. Without the log the file may be incomplete. Put the log back, or restore both from a backup. "
              "Nothing was changed",
              files.path(), files.volume.path_of(files.names.log));
}

}  // namespace

bool is_whole_moment(std::uint64_t moment) { return moment == with_checksum(low_bits(moment, kSaidBits)); }

Status FileMoment::read(bool must_be_in_use) {
  MEMLITH_ASSERT(step_ == Step::begun || step_ == Step::decided);
  step_ = Step::frames_are_read;
  moment_ = {};
  found_ = lacks_in_use_header_ = false;
  if (!files_.one_file()) return kOk;
  lacks_in_use_header_ = must_be_in_use;
  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size < kInUseHeaderBytes) return kOk;
  std::array<std::uint64_t, 2> header;
  MEMLITH_TRY(file->read(0, std::as_writable_bytes(std::span(header))));
  if (header[0] == kGuardInUseMagic && !files_.guards) return guarded_without_log(files_);
  if (header[0] == kInUseMagic) {
    // A file that was closed cleanly with this log has no in-use header.
    if (files_.was_clean || files_.guards || files_.keeps_in_use_header) return used_without_log(files_);
    files_.structure_in_use = true;
  }
  if (!files_.may_have_in_use_header() || header[0] != files_.in_use_magic()) return kOk;
  lacks_in_use_header_ = false;
  // Otherwise a crash tore the in-use header or its moment, and the log is the one that they were being written for.
  if (is_whole_moment(header[1])) moment_ = header[1];
  return kOk;
}

void FileMoment::look_for(LogPosition tail, LogPosition at) {
  MEMLITH_ASSERT(step_ == Step::frames_are_read);
  MEMLITH_ASSERT(at.lsn >= tail.lsn);
  if (!moment_.has_value() || found_) return;
  const std::uint64_t id = files_.log->log_id();
  if (at == tail) {
    found_ =
        same_chain(*moment_, moment_of(tail, tail, id));  // a clean close may have moved the tail to the next segment
    return;
  }
  found_ = *moment_ == moment_of(at, at, id) || *moment_ == moment_of(tail, at, id);
}

Status FileMoment::check() {
  take_step(Step::frames_are_read, Step::compared);
  if (!moment_.has_value() || found_) return kOk;
  return fail(Errc::corrupt, Detail::open,
              "{}: is not of the same moment as its log {}: nowhere from LSN {} to {} did this log hold what the file "
              "holds. One of the two is a copy of another time, or belongs to another file; put back the two as they "
              "were together. Nothing was changed",
              files_.path(), files_.log_device->path(), files_.log->tail().lsn.value,
              files_.log->recovered().lsn.value);
}

Status FileMoment::check_in_use_header(bool stays_in_use) {
  take_step(Step::compared, Step::decided);
  if (!lacks_in_use_header_ || !stays_in_use) return kOk;
  return fail(Errc::corrupt, Detail::open,
              "{}: is not of the same moment as its log {}: the log belongs to a file that was in use, and this one "
              "has no in-use header, with which such a file begins. One of the two is a copy of another time; put back "
              "the two as they were together. To take the file as it is, remove the log. Nothing was changed",
              files_.path(), files_.log_device->path());
}

Status FileMoment::note(LogPosition whole, LogPosition reach, Overlay& overlay) {
  MEMLITH_ASSERT(step_ == Step::frames_are_read || step_ == Step::decided);
  MEMLITH_ASSERT(whole.lsn <= reach.lsn);
  if (!files_.may_have_in_use_header()) return kOk;
  const std::uint64_t moment = moment_of(whole, reach, files_.log->log_id());
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
  if (coming_bytes == sizeof coming && coming == files_.in_use_magic())
    MEMLITH_TRY(overlay.apply(kFile, sizeof coming, bytes));

  MEMLITH_TRY_ASSIGN(Device* const file, files_.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size < kInUseHeaderBytes) return kOk;
  std::array<std::uint64_t, 2> header;
  MEMLITH_TRY(file->read(0, std::as_writable_bytes(std::span(header))));
  if (header[0] != files_.in_use_magic() || header[1] == moment) return kOk;
  MEMLITH_TRY(file->write(sizeof(std::uint64_t), bytes));
  return file->flush();
}

Status check_not_in_use(StoreFiles& files) {
  MEMLITH_TRY_ASSIGN(const bool there, files.volume.exists(files.names.file));
  if (!there) return kOk;
  MEMLITH_TRY_ASSIGN(Device* const file, files.homes.get(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size < kInUseHeaderBytes) return kOk;
  std::uint64_t header = 0;
  MEMLITH_TRY(file->read(0, std::as_writable_bytes(std::span(&header, 1))));
  if (header == kGuardInUseMagic) return guarded_without_log(files);
  if (header == kInUseMagic) return used_without_log(files);
  return header == kSqliteInUseMagic ? database_without_log(files) : kOk;
}

}  // namespace memlith::core
