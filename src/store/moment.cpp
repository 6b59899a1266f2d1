// Which commits a marked file holds. docs/format.md, "The mark".
//
// A file and a log that are both sound need not belong together: one of the two may be a copy of another time. So a file with a mark
// says what it holds: every commit before `whole`, none from `reach` on. The log says which commits it still has. The pair is
// sound where the file lacks nothing that the log gave up, and has nothing that the log does not have.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/mutant.hpp"
#include "store/store.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kLsnUnit = 512;  // the smallest block of a log

// The chain value of a position stands for all that the log held before it, so no two histories share one.
std::uint64_t moment_of(LogPosition whole, LogPosition reach, std::uint64_t log_id) {
  const std::uint64_t both[2] = {whole.previous, reach.previous};
  const std::uint64_t sum = checksum(std::as_bytes(std::span(both)), log_id);
  return (sum & ~0xffffffffull) | (reach.lsn.value / kLsnUnit & 0xffffffffu);
}

bool same_chain(std::uint64_t a, std::uint64_t b) { return a >> 32 == b >> 32; }

}  // namespace

// The moment of the file as it is found; none where there is no mark.
Status Store::read_moment() {
  if (!keeps_mark_) return kOk;
  MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size < kFileMarkBytes) return kOk;
  std::array<std::uint64_t, 2> mark;
  MEMLITH_TRY(file->read(0, std::as_writable_bytes(std::span(mark))));
  // The mark may be half written over SQLite's own bytes; then a later commit of the log has it whole.
  if (mark[0] == kFileMark && mark[1] != kUnmarkedRest) moment_ = mark[1];
  return kOk;
}

// One more position of the log. A file is at the tail, at a later position to which a checkpoint has brought it, or on its way
// there from the tail.
void Store::look_for_moment(LogPosition tail, LogPosition at) {
  if (!moment_.has_value() || moment_found_) return;
  const std::uint64_t id = log_->log_id();
  if (at == tail) {
    moment_found_ =
        same_chain(*moment_, moment_of(tail, tail, id));  // a clean close may have moved the tail to the next segment
    return;
  }
  moment_found_ = *moment_ == moment_of(at, at, id) || *moment_ == moment_of(tail, at, id);
}

Status Store::check_moment() const {
  if (!moment_.has_value() || moment_found_) return kOk;
  const std::uint64_t unit_lsn = *moment_ & 0xffffffffu;
  return fail(Errc::corrupt, Detail::open,
              "{}: is not of the same moment as its log {}: the file holds commits up to LSN {}, and the log of that "
              "moment is not this one, which goes from LSN {} to {}. One of the two is a copy of another time, or "
              "belongs to another database; put back the two as they were together. Nothing was changed",
              path(), log_device_->path(), unit_lsn * kLsnUnit, log_->tail().lsn.value, log_->recovered().lsn.value);
}

// Says at home, durably, what the file holds from now on, and lets a mark that is on its way home say the same.
Status Store::note_moment(LogPosition whole, LogPosition reach) {
  if (!keeps_mark_) return kOk;
  const std::uint64_t moment = moment_of(whole, reach, log_->log_id());
  const auto bytes = std::as_bytes(std::span(&moment, 1));
  std::uint64_t coming = 0;
  std::uint64_t coming_bytes = 0;
  MEMLITH_TRY(overlay_.for_each(kFile, [&](std::uint64_t offset, std::span<const std::byte> piece) -> Status {
    if (offset != coming_bytes || offset >= sizeof coming) return kOk;
    const std::uint64_t count = std::min<std::uint64_t>(piece.size(), sizeof coming - offset);
    std::memcpy(reinterpret_cast<std::byte*>(&coming) + offset, piece.data(), count);
    coming_bytes += count;
    return kOk;
  }));
  if (coming_bytes == sizeof coming && coming == kFileMark) MEMLITH_TRY(overlay_.apply(kFile, sizeof coming, bytes));

  MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size < kFileMarkBytes) return kOk;
  std::array<std::uint64_t, 2> mark;
  MEMLITH_TRY(file->read(0, std::as_writable_bytes(std::span(mark))));
  if (mark[0] != kFileMark || mark[1] == moment) return kOk;
  MEMLITH_TRY(file->write(sizeof(std::uint64_t), bytes));
  return file->flush();
}

// A database of SQLite under the mark was in use when a crash came; without its log it is nobody's to take over.
Status Store::check_no_mark() {
  MEMLITH_TRY_ASSIGN(const bool there, volume_.exists(options_.file_name));
  if (!there) return kOk;
  MEMLITH_TRY_ASSIGN(Device* const file, home(kFile));
  MEMLITH_TRY_ASSIGN(const std::uint64_t size, file->size());
  std::array<std::byte, 24> first{};
  MEMLITH_TRY(file->read(0, std::span(first).first(std::min<std::uint64_t>(size, first.size()))));
  std::uint64_t mark = 0;
  std::memcpy(&mark, first.data(), sizeof mark);
  // In the header of every database of SQLite, and in hardly a file that a user begins with the same 8 bytes.
  constexpr std::byte kFractions[3] = {std::byte{64}, std::byte{32}, std::byte{32}};
  const auto zero = [](std::byte each) { return each == std::byte{0}; };
  const bool is_empty = size >= kFileMarkBytes && std::all_of(first.begin() + kFileMarkBytes, first.end(), zero);
  const bool is_database = size >= first.size() && std::memcmp(&first[21], kFractions, sizeof kFractions) == 0;
  if (mark != kFileMark || !(is_empty || is_database)) return kOk;
  return fail(Errc::corrupt, Detail::open,
              "{}: is a SQLite database that was in use when a crash came; its newest commits are in the log {}, which "
              "is missing, and without them the file need not be whole. Put the log back, or restore both from a "
              "backup. Nothing was changed",
              path(), volume_.path_of(log_name()));
}

}  // namespace memlith::core
