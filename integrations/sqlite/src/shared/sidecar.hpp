// The file beside a database that holds the control block, and the locks that tell which processes are alive. Part of
// the SQLite plugin.
//
// Locks of open file descriptions: the system releases them when a process ends, however it ends, and they know no
// process numbers, so processes of several containers can share a database.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/not_for_children.hpp"
#include "control_block.hpp"

namespace memlith::sqlite::shared {

// Threads: any, but for construction and destruction.
class Sidecar {
 public:
  // The control block of the database `path`, mapped; made anew if no process uses it. Null where there can be none: no
  // permission, no space on the disk, no shared mapping, another version of the control block in use.
  static std::unique_ptr<Sidecar> attach(const std::string& path);
  // Removes the file if no other process uses it, and everything that was written is on the medium.
  ~Sidecar();
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;

  [[nodiscard]] ControlBlock& control() const { return *control_; }

  // The right to flush for all, as one of kLeaders; kLeaders: other threads or processes have it. `looks`: the leader
  // of a flush that seems to be in flight may have been killed.
  std::uint32_t try_lead(bool looks);
  void end_leading(std::uint32_t leader);

  // The number of this process, from 1 on, as long as the object lives.
  [[nodiscard]] std::uint32_t process() const { return process_; }

  // A slot for a connection of this process; kSlots if there is none.
  std::uint32_t take_slot();
  void give_slot(std::uint32_t slot);
  // True if the process that has the slot is alive; only for slots of other processes.
  [[nodiscard]] bool is_alive(std::uint32_t slot) const;

  // In a forked child: lets the parent's file go. The object is not used any more.
  void abandon();

 private:
  Sidecar(std::string file, int fd, ControlBlock* control, std::uint32_t process)
      : file_(std::move(file)), fd_(fd), not_for_children_(fd), control_(control), process_(process) {}

  std::string file_;
  int fd_;
  std::optional<core::NotForChildren> not_for_children_;  // a helper would keep the locks of a process that was killed
  ControlBlock* control_;
  std::uint32_t process_;  // the process holds a lock on the byte of this number
  mutable std::mutex slots_mutex_;
  std::uint64_t my_slots_ = 0;  // a bit for each; under slots_mutex_
};

// How long a waiting thread yields before it sleeps: waking it takes longer than a small transaction.
inline constexpr std::uint64_t kAwakeNs = 40'000;

// Waits until `word` is not `seen` and it is woken with one of `bits`, at most so long; wakes those that wait.
inline constexpr std::uint32_t kAnyBit = UINT32_MAX;
void wait_for_change(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::uint64_t nanoseconds,
                     std::uint32_t bits = kAnyBit);
void wake(std::atomic<std::uint32_t>& word, int count, std::uint32_t bits = kAnyBit);
// The thread lets others run, or sleeps.
void give_way();
void sleep_ns(std::uint64_t nanoseconds);
std::uint64_t now_ns();

}  // namespace memlith::sqlite::shared
