// The memory in which several processes read one application log: the bytes of its region, and which of them count.
// Floor: applog.
//
// The keeper alone writes the shown part, which its clients map for reading. A reader copies an entry from where it
// lies, and then looks whether it lay there all the while: the bytes of an entry are written over only after the board
// has said that it is consumed, or that places have changed. Clients write to the bells, a second memory, and nowhere
// else. So a client that dies, at whatever instruction, leaves nothing that others wait for.
//
// The shown part is sparse: what was never used takes addresses only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "base/units.hpp"
#include "shm/bell.hpp"
#include "shm/keeper_life.hpp"
#include "shm/segment.hpp"
#include "shm/words.hpp"

namespace memlith::core::applog {

// The first bytes of the shown part. Numbers are those of entries; 0: none.
struct BoardHead {
  std::uint64_t append_bytes_max;  // constant: of check_sizes()
  // How often entries were dropped at the newer end, or moved; odd while that is under way. Release; pairs with the
  // fence in Board::still_lies().
  alignas(64) shm::Shared<std::uint64_t> changes;
  shm::Shared<std::uint64_t> consumed;  // up to that one; likewise
  shm::Shared<std::uint64_t> logged;    // up to that one they are in the redo log
  shm::Shared<std::uint64_t> durable;   // up to that one they are known to be durable
  alignas(64) shm::KeeperLife life;
};

// The changes that processes wait for.
struct Bells {
  static constexpr std::uint64_t kLayout = 1;
  shm::Bell logged;  // more entries are in the redo log
  shm::Bell freed;   // there is more room
};

// The place of an entry in the shown bytes, for as long as it is not consumed and `changes` is the board's.
struct Place {
  std::uint64_t number = 0;
  std::uint64_t at = 0;  // a position (format.hpp)
  std::uint64_t capacity = 0;
  std::uint64_t base = 0;
  std::uint64_t changes = 0;
};

class Board {
 public:
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // ---- the keeper

  // `region_bytes`: the most that the region may have. The calling thread is the keeper's, which lives until the board
  // ends, in that thread.
  static Result<std::unique_ptr<Board>> make(std::uint64_t region_bytes);
  // The descriptors: of the shown part, for reading, and of the bells.
  [[nodiscard]] int shown() const { return shown_.get(); }
  [[nodiscard]] int bell_memory() const { return bells_.descriptor(); }
  // Before bytes of what was consumed are written over.
  void show_consumed(std::uint64_t number);
  void show_logged(std::uint64_t number) { head().logged.store(number, std::memory_order_release); }
  void show_durable(std::uint64_t number) { head().durable.store(number, std::memory_order_release); }
  // As long as this lives, places change, and the numbers of the head may go back. Null: there is no board.
  class Changing {
   public:
    explicit Changing(Board* board);
    ~Changing();
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;

   private:
    Board* const board_;
  };
  void say_ended() { head().life.say_ended(); }

  // ---- a client

  static Result<std::unique_ptr<Board>> join(int shown, Descriptor bells, std::uint64_t region_bytes);
  [[nodiscard]] bool has_keeper() const { return head().life.lasts(); }
  // True if the entry of that place lay there up to now: what was copied from there is that entry. Also if there was
  // none yet.
  [[nodiscard]] bool still_lies(const Place& place) const;
  // In a forked child, which has no such memory.
  void forget_memory();

  // ---- both

  [[nodiscard]] BoardHead& head() const { return *reinterpret_cast<BoardHead*>(mapping_.data()); }
  [[nodiscard]] Bells& bells() const { return *bells_; }
  // The region's bytes, from the first on.
  [[nodiscard]] std::byte* region() const { return mapping_.data() + kPageBytes; }

 private:
  Board() = default;

  Descriptor shown_;
  shm::Mapping mapping_;
  shm::Segment<Bells> bells_;
  bool keeps_ = false;  // is the keeper's
};

}  // namespace memlith::core::applog
