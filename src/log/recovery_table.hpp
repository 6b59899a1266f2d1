// The meaning of the end of the frames when a log is opened: the table that Log::recover() decides by. Floor: log.
//
// The reader stops at the first place without a valid frame. That place is the end of the log, or damage; both look
// alike there. The rows say which it is by what else is known. Exactly one row matches whatever was found, which the
// compiler checks; tests name the rows by their letters (tests/unit/log/recovery_rows_test.cpp). docs/states.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace memlith::core {

// Where the frames end, measured at the place up to which the superblock says that the log was durable.
enum class FramesEnd : std::uint8_t {
  before = 1,         // valid frames stop before it
  at = 2,             // there, after the frame that the superblock names
  at_of_another = 4,  // there, after another frame
  behind = 8,         // valid frames go on; impossible for a closed log, of which nothing behind it is read
};

struct RecoveryInputs {
  bool closed = false;  // the superblock names the end: the log was closed, or is held for an archive
  FramesEnd end = FramesEnd::before;
  bool later_proof = false;  // a frame behind the end says that more had been durable when it was sealed
  bool unproven = false;     // the newest frames may be in the page cache only: nothing says that they were durable
};

enum class RecoveryDecision : std::uint8_t {
  take,       // the log ends here, and all of its frames are on the medium
  take_anew,  // the log ends here; Log::secure() writes the frames that nothing proves once more
  refuse,     // commits that were acknowledged are lost; nothing is changed
};

struct RecoveryRow {
  static constexpr std::uint8_t kEither = 2;
  char letter;
  std::uint8_t closed;  // 0, 1 or kEither; likewise later_proof and unproven
  std::uint8_t ends;    // of FramesEnd
  std::uint8_t later_proof;
  std::uint8_t unproven;
  RecoveryDecision decision;
  const char* reason;

  [[nodiscard]] constexpr bool matches(const RecoveryInputs& found) const {
    constexpr auto fits = [](std::uint8_t wanted, bool value) {
      return wanted == kEither || wanted == static_cast<std::uint8_t>(value);
    };
    return fits(closed, found.closed) && (ends & static_cast<std::uint8_t>(found.end)) != 0 &&
           fits(later_proof, found.later_proof) && fits(unproven, found.unproven);
  }
};

namespace recovery_table {
inline constexpr std::uint8_t kNo = 0;
inline constexpr std::uint8_t kYes = 1;
inline constexpr std::uint8_t kAny = RecoveryRow::kEither;
inline constexpr auto kBefore = static_cast<std::uint8_t>(FramesEnd::before);
inline constexpr auto kAt = static_cast<std::uint8_t>(FramesEnd::at);
inline constexpr auto kOther = static_cast<std::uint8_t>(FramesEnd::at_of_another);
inline constexpr auto kBehind = static_cast<std::uint8_t>(FramesEnd::behind);
using enum RecoveryDecision;

// clang-format off
inline constexpr RecoveryRow kRows[] = {
    //   closed ends           proof unproven decision   reason
    {'A', kYes, kAt,            kAny, kAny, take,      "the log ends where it was closed"},
    {'B', kAny, kBefore,        kAny, kAny, refuse,    "frames are missing that its superblock says were durable"},
    {'C', kAny, kOther,         kAny, kAny, refuse,    "another frame stands where the superblock says it was durable"},
    {'D', kNo,  kAt | kBehind,  kYes, kAny, refuse,    "a later frame shows that frames from here on were durable"},
    {'E', kNo,  kAt | kBehind,  kNo,  kNo,  take,      "a crash ended the log; all of its frames were durable"},
    {'F', kNo,  kAt | kBehind,  kNo,  kYes, take_anew, "a crash ended the log; the medium may lack its newest frames"},
};
// clang-format on

constexpr int matching(const RecoveryInputs& found) {
  int count = 0;
  for (const RecoveryRow& row : kRows) count += row.matches(found) ? 1 : 0;
  return count;
}

// True if each combination that can be found matches one row, and no row is for nothing.
constexpr bool is_complete() {
  bool used[sizeof kRows / sizeof *kRows] = {};
  for (const FramesEnd end : {FramesEnd::before, FramesEnd::at, FramesEnd::at_of_another, FramesEnd::behind}) {
    for (int bits = 0; bits < 8; ++bits) {
      const RecoveryInputs found{(bits & 1) != 0, end, (bits & 2) != 0, (bits & 4) != 0};
      if (found.closed && end == FramesEnd::behind) continue;
      if (matching(found) != 1) return false;
      for (std::size_t i = 0; i < sizeof kRows / sizeof *kRows; ++i) used[i] = used[i] || kRows[i].matches(found);
    }
  }
  for (const bool row : used) {
    if (!row) return false;
  }
  return true;
}
static_assert(is_complete());
}  // namespace recovery_table

// The row for what was found; null if that is impossible.
constexpr const RecoveryRow* row_for(const RecoveryInputs& found) {
  for (const RecoveryRow& row : recovery_table::kRows) {
    if (row.matches(found)) return &row;
  }
  return nullptr;
}

}  // namespace memlith::core
