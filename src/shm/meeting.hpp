// Memory of processes that know nothing of each other but the name of a file. Floor: shm.
//
// The memory is a file, mapped, and its content is of the processes that are there. The first one to come makes it
// anew, whatever a killed process, another boot or a damaged disk left in the file; the last one to go may remove the
// file. One process at a time comes or goes. Locks of open file descriptions tell which are there: the system releases
// them when a process ends, however it ends.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "shm/participant.hpp"
#include "shm/segment.hpp"

namespace memlith::core::shm {

struct MeetingPlace {
  std::string file;               // in a folder of the machine's own, not of a network
  std::string like;               // the users of this file may use that one
  std::uint64_t spare_bytes = 0;  // no file is made if the disk has less room than that for others
};

// ---- the file, as a process has it that comes or goes: an open file description that nothing maps
// The file, made if it is not there. No other process comes or goes until let_others() or the end of the description.
// Errors: busy (one was stopped while it came or went), too_many_files, permission, io.
Result<Descriptor> come(const MeetingPlace& place);
enum class Found { others, nothing, remains };  // remains: of processes that did not go
// The caller has come, and is there from now on. Unless others are, the file has `bytes` zeros. Errors: no_space, io.
Result<Found> enter(int door, const MeetingPlace& place, std::uint64_t bytes);
// The same file once more. Errors: as come().
Result<Descriptor> open_again(int door, const MeetingPlace& place);
void let_others(int door);
// True if the caller may remove the file: it is the only one, and none comes before its description ends.
bool is_last(int door, const MeetingPlace& place);

// A process's part in a T in such memory; T as in Segment. Threads: any, but for construction and destruction.
template <class T>
class Meeting {
 public:
  // `fill(T&, bool remains)` is called if no other process is there; `remains`: processes were that did not leave().
  // Errors: those of come() and enter(), and of Segment::map() and Participant::join().
  template <class Fill>
  static Result<Meeting> attend(MeetingPlace place, Fill&& fill) {
    MEMLITH_TRY_ASSIGN(Descriptor door, come(place));
    MEMLITH_TRY_ASSIGN(const Found found, enter(door.get(), place, Segment<T>::bytes()));
    MEMLITH_TRY_ASSIGN(Descriptor memory, open_again(door.get(), place));
    const auto fill_it = [&](T& content) {
      std::forward<Fill>(fill)(content, found == Found::remains);
      return kOk;
    };
    Meeting part;
    MEMLITH_TRY_ASSIGN(part.segment_, found == Found::others ? Segment<T>::map(std::move(memory), false)
                                                             : Segment<T>::make(std::move(memory), false, fill_it));
    MEMLITH_TRY_ASSIGN(part.self_, part.segment_.join(std::move(door)));
    let_others(part.self_.descriptor());
    part.place_ = std::move(place);
    return part;
  }
  // Goes. The last one removes the file if `is_over(const T&)`; otherwise the next one finds remains.
  template <class IsOver>
  void leave(IsOver&& is_over) {
    if (is_last(self_.descriptor(), place_) && std::forward<IsOver>(is_over)(std::as_const(*segment_))) {
      (void)::unlink(place_.file.c_str());
    }
    *this = Meeting();
  }
  // Goes as a killed process does; in a forked child, lets the parent's part alone.
  void abandon() {
    if (!self_.is_of_this_process()) segment_.forget();
    *this = Meeting();
  }

  explicit operator bool() const { return static_cast<bool>(segment_); }
  T& operator*() const { return *segment_; }
  [[nodiscard]] const Participant& self() const { return self_; }

 private:
  Segment<T> segment_;
  Participant self_;  // ends first
  MeetingPlace place_;
};

}  // namespace memlith::core::shm
