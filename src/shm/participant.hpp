// The processes that share a memory: each has a place, and the others can tell whether it lives. Floor: shm.
//
// No process numbers: these are other numbers, or 0, in another PID name space. A participant holds a lock of its own
// open file description (F_OFD_SETLK) on a byte of the memory's file, which the kernel releases when the process ends,
// however it ends. A process can hear of another's end without asking by a descriptor that the other has sent it
// (life_of_this_process).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/descriptor.hpp"
#include "base/not_for_children.hpp"
#include "base/status.hpp"
#include "shm/words.hpp"

namespace memlith::core::shm {

// The number of a participant. 0: none. No later participant gets the number of one that has ended, before its place
// was taken 2^18 times.
using ParticipantId = std::uint32_t;
inline constexpr unsigned kPlaceBits = 12;
inline constexpr unsigned kIdBits = 30;
inline constexpr std::uint32_t kPlaces = 1U << kPlaceBits;

// Lies in memory that processes share; zeros are one without participants.
struct Places {
  std::array<Word, kPlaces> uses;  // of each place: how often it was taken. Release; pairs with the load in lives()
};

// One place. Threads: any. It ends with the object, with the process, and with a call of exec(3). A forked child has it
// not: it takes its own.
class Participant {
 public:
  Participant() = default;
  // `memory` is the descriptor of the memory that has `places`, which stays mapped as long as the participant is there.
  // Errors: busy (all places are taken), too_many_files, io.
  static Result<Participant> join(int memory, Places& places);
  // The same, with an open file description of the memory's file that is the participant's alone and that nothing maps.
  static Result<Participant> join(Descriptor own, Places& places);

  // 0: no participant.
  [[nodiscard]] ParticipantId id() const { return id_; }
  [[nodiscard]] std::uint32_t place() const { return id_ & (kPlaces - 1); }
  // True if that participant lives, whatever process it is of; false if it has ended, or never was one. Costs a system
  // call. True if the kernel refuses to tell.
  [[nodiscard]] bool lives(ParticipantId id) const;
  // The open file description that ends with the participant, for locks behind the places.
  [[nodiscard]] int descriptor() const { return lock_.get(); }
  // True in the process that has joined, and not in a child that it has forked.
  [[nodiscard]] bool is_of_this_process() const;

 private:
  Descriptor lock_;  // an open file description that nothing maps: a mapping in a child would keep the lock
  std::unique_ptr<NotForChildren> not_for_children_;
  const Places* places_ = nullptr;
  ParticipantId id_ = 0;
  std::uint64_t process_ = 0;
};

// A descriptor that is readable (poll(2)) once this process has ended, in whichever process has it, and of whichever
// PID name space: a pidfd, for SCM_RIGHTS. Errors: unsupported (the kernel or its rules refuse).
Result<Descriptor> life_of_this_process();

}  // namespace memlith::core::shm
