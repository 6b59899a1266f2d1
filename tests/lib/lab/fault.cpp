#include "fault.hpp"

namespace memlith::lab {

using core::SimFaults;

namespace {

struct NamedFault {
  std::string_view name;
  std::string_view sentence;
};
constexpr NamedFault kEntries[kFaults] = {
    {"dropped", "a write in flight is lost as a whole"},
    {"reordered", "a later operation is kept and an earlier one lost"},
    {"torn_512", "some 512-byte sectors of a write are kept, others lost"},
    {"torn_4096", "some 4 KiB blocks of a write are kept, others lost"},
    {"garbage", "a sector in flight holds neither the old bytes nor the new ones"},
    {"torn_block", "the whole physical block around a sector in flight is garbage (stores that allow for it)"},
    {"stale_sector", "a sector in the middle of a kept write still has its old bytes"},
    {"lost_name", "a creation, renaming or removal whose folder was not flushed is undone"},
    {"lost_size", "a change of a file's length that was not flushed is undone"},
    {"misdirected",
     "an unflushed write to the log or the directory lands at another place of that file, instead or too"},
    {"bit_rot", "a bit of the log or the directory flips at rest"},
    {"other_moment", "the file or its log is replaced by a copy of an earlier moment (files with an in-use header)"},
    {"write_error", "the n-th write fails with EIO, done or not"},
    {"write_error_for_ever", "from the n-th on, every write fails with EIO"},
    {"short_write", "the n-th write is done by half and fails with EIO"},
    {"flush_error", "the n-th flush fails with EIO, and what was unflushed is gone, or still unflushed"},
    {"flush_forgotten",
     "the n-th flush fails with EIO; what was unflushed, or some of it, is in the page cache only, which is still "
     "read"},
    {"read_error", "the n-th read fails with EIO"},
    {"read_flip", "a bit flips in what the n-th read returns"},
    {"no_space", "the n-th creation or growth of a file fails with ENOSPC"},
    {"no_space_for_ever", "from the n-th on, every creation or growth of a file fails with ENOSPC"},
    {"resize_error", "the n-th change of a file's length fails with EIO, done or not"},
    {"folder_error", "the n-th flush of a folder fails with EIO, done or not"},
    {"name_error", "the n-th renaming or removal of a file fails with EIO, done or not"},
    {"full_write", "the n-th write fails with ENOSPC, done by half or not"},
    {"recovery_crash", "the power is cut again at an operation of the recovery"},
    {"recovery_crash_twice", "and once more at an operation of the recovery after that"},
    {"killed", "the program is killed, another recovers with the power on, and the power is cut during or after that"},
    {"second_life", "the program goes on after the recovery, does again what was interrupted, and crashes again"},
};

}  // namespace

std::string_view name_of(Fault fault) { return kEntries[static_cast<std::size_t>(fault)].name; }
std::string_view sentence_of(Fault fault) { return kEntries[static_cast<std::size_t>(fault)].sentence; }

bool parse_fault(std::string_view word, Fault& fault) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    if (kEntries[i].name != word) continue;
    fault = static_cast<Fault>(i);
    return true;
  }
  return false;
}

bool is_call_fault(Fault fault) { return fault >= Fault::write_error && fault <= Fault::full_write; }

bool is_for_ever(Fault fault) { return fault == Fault::write_error_for_ever || fault == Fault::no_space_for_ever; }

SimFaults::Kind kind_of(Fault fault) {
  switch (fault) {
    case Fault::write_error:
    case Fault::write_error_for_ever: return SimFaults::Kind::fail_write;
    case Fault::short_write: return SimFaults::Kind::short_write;
    case Fault::flush_error: return SimFaults::Kind::fail_flush;
    case Fault::flush_forgotten: return SimFaults::Kind::forget_flush;
    case Fault::read_error: return SimFaults::Kind::fail_read;
    case Fault::read_flip: return SimFaults::Kind::flip_bit;
    case Fault::no_space:
    case Fault::no_space_for_ever: return SimFaults::Kind::no_space;
    case Fault::resize_error: return SimFaults::Kind::fail_resize;
    case Fault::name_error: return SimFaults::Kind::fail_name;
    case Fault::full_write: return SimFaults::Kind::full_write;
    default: return SimFaults::Kind::fail_folder;
  }
}

}  // namespace memlith::lab
