#include "applog/board.hpp"

#include <atomic>
#include <new>
#include <utility>

#include "base/assert.hpp"

namespace memlith::core::applog {

static_assert(sizeof(BoardHead) <= kPageBytes);

Board::~Board() {
  if (keeps_) head().life.end();
}

namespace {
Result<shm::Mapping> map_shown(int memory, std::uint64_t region_bytes, bool for_reading) {
  shm::Mapping::Options options;
  options.for_reading = for_reading;
  options.is_sparse = true;
  auto mapped = shm::Mapping::map(memory, kPageBytes + region_bytes, options);
  if (mapped.ok()) return mapped;
  return fail(mapped.error().category, Detail::mapping,
              "cannot map {} bytes of addresses for an application log of several processes; make it with a smaller "
              "max_size or raise the limit of the process (ulimit -v)",
              kPageBytes + region_bytes);
}
}  // namespace

Result<std::unique_ptr<Board>> Board::make(std::uint64_t region_bytes) {
  auto board = std::unique_ptr<Board>(new Board);
  MEMLITH_TRY_ASSIGN(const Descriptor memory, shm::make_memory("memlith-applog", kPageBytes + region_bytes));
  MEMLITH_TRY_ASSIGN(board->shown_, shm::open_for_reading(memory.get()));
  MEMLITH_TRY_ASSIGN(board->mapping_, map_shown(memory.get(), region_bytes, false));
  MEMLITH_TRY_ASSIGN(board->bells_,
                     shm::Segment<Bells>::make("memlith-applog-bells", false, [](Bells&) { return kOk; }));
  auto* const head = new (board->mapping_.data()) BoardHead{};
  MEMLITH_TRY(head->life.begin());
  board->keeps_ = true;
  return board;
}

Result<std::unique_ptr<Board>> Board::join(int shown, Descriptor bells, std::uint64_t region_bytes) {
  auto board = std::unique_ptr<Board>(new Board);
  MEMLITH_TRY_ASSIGN(board->mapping_, map_shown(shown, region_bytes, true));
  MEMLITH_TRY_ASSIGN(board->bells_, shm::Segment<Bells>::map(std::move(bells), false));
  return board;
}

void Board::forget_memory() {
  mapping_.forget();
  bells_.forget();
}

// The fences: a reader that has seen a byte stored after one of these finds the number that was shown before.
void Board::show_consumed(std::uint64_t number) {
  head().consumed.store(number, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}

Board::Changing::Changing(Board* board) : board_(board) {
  if (board_ == nullptr) return;
  shm::Shared<std::uint64_t>& changes = board_->head().changes;
  const std::uint64_t before = changes.load(std::memory_order_relaxed);
  MEMLITH_ASSERT(before % 2 == 0);
  changes.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}

Board::Changing::~Changing() {
  if (board_ == nullptr) return;
  shm::Shared<std::uint64_t>& changes = board_->head().changes;
  changes.store(changes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

bool Board::still_lies(const Place& place) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  return head().consumed.load(std::memory_order_relaxed) < place.number &&
         head().changes.load(std::memory_order_relaxed) == place.changes;
}

}  // namespace memlith::core::applog
