// The file beside a database by which the processes that have it in mode shared meet: the control block lies there.
// Part of the SQLite plugin.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "control_block.hpp"
#include "shm/meeting.hpp"

namespace memlith::sqlite::shared {

// Threads: any, but for construction and destruction.
class Sidecar {
 public:
  // The control block of the database `path`, made anew if no process uses it. Errors: there can be none (no
  // permission, no space on the disk, no shared mapping, a network's file system, another version in use).
  static core::Result<std::unique_ptr<Sidecar>> attach(const std::string& path);
  // Removes the file if no other process uses it, and everything that was written is on the medium.
  ~Sidecar();
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;

  [[nodiscard]] ControlBlock& control() const { return *meeting_; }

  // The right to flush for all, as one of kLeaders; kLeaders: other threads or processes have it. `looks`: the leader
  // of a flush that seems to be in flight may have been killed.
  std::uint32_t try_lead(bool looks);
  void end_leading(std::uint32_t leader);

  [[nodiscard]] core::shm::ParticipantId process() const { return meeting_.self().id(); }

  // A slot for a connection of this process; kSlots if there is none.
  std::uint32_t take_slot();
  void give_slot(std::uint32_t slot);
  // True if the process that has the slot is alive.
  [[nodiscard]] bool is_alive(std::uint32_t slot) const;

  // In a forked child: lets the parent's part alone. The object is not used any more.
  void abandon() { meeting_.abandon(); }

 private:
  using Meeting = core::shm::Meeting<ControlBlock>;
  Sidecar(Meeting meeting, std::string log) : meeting_(std::move(meeting)), log_(std::move(log)) {}

  Meeting meeting_;
  const std::string log_;
};

// How long a waiting thread yields before it sleeps: waking it takes longer than a small transaction.
inline constexpr std::uint64_t kAwakeNs = 40'000;

}  // namespace memlith::sqlite::shared
