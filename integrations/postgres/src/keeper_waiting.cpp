#include "keeper_waiting.hpp"

namespace memlith_postgres {

namespace {

constexpr unsigned kLookMs = 50;
constexpr unsigned kWaitsUntilLook = 16;  // for a keeper that lives, while others go on announcing

}  // namespace

std::uint64_t KeeperWaiting::counter(For what) const {
  const SharedMemory& memory = pages_.memory();
  if (what == For::checkpointed) return memory.checkpointed.load();
  return what == For::home ? memory.home.load() : memory.durable.load();
}

void KeeperWaiting::look_after_keeper() {
  SharedMemory& memory = pages_.memory();
  if (!memory.keeper_starting.try_lock(pages_.self(), [] {})) return;  // another process is at it
  if (!pages_.has_keeper() && memory.failed.load() == 0 && memory.finished.load() == 0) {
    say("the keeper has died; starting another one");
    if (const Result<void> started = start_(pages_.descriptor()); !started) {
      say(started.error().message());
      memory.failed.store(1);
      pages_.announce();
    }
  }
  memory.keeper_starting.unlock();
}

bool KeeperWaiting::wait(For what, std::uint64_t batch) {
  SharedMemory& memory = pages_.memory();
  if (counter(what) < batch && what != For::checkpointed) pages_.want(batch);
  for (unsigned waits = 1;; ++waits) {
    const std::uint32_t ticket = pages_.ticket();
    if (memory.failed.load() != 0) return false;
    if (counter(what) >= batch) return true;
    if (memory.finished.load() != 0) return false;
    pages_.wait(ticket, kLookMs);
    if (ticket == pages_.ticket() || waits % kWaitsUntilLook == 0) look_after_keeper();
  }
}

bool KeeperWaiting::finish() {
  SharedMemory& memory = pages_.memory();
  memory.finish_wanted.store(1);
  pages_.announce();
  while (true) {
    const std::uint32_t ticket = pages_.ticket();
    if (memory.failed.load() != 0) return false;
    if (memory.finished.load() != 0) return true;
    pages_.wait(ticket, kLookMs);
    if (ticket == pages_.ticket()) look_after_keeper();
  }
}

}  // namespace memlith_postgres
