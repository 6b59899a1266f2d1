#include "store/background.hpp"

#include <atomic>
#include <cstdint>

#include "base/process.hpp"
#include "base/sync.hpp"

namespace memlith::core {

namespace {
// Belongs to one process. A forked child gets another, because the mutex may be held, at the fork, by a thread that the
// child does not have.
struct Registry {
  std::uint64_t process = 0;
  Mutex mutex;
  std::weak_ptr<Background> shared MEMLITH_GUARDED_BY(mutex);
};

Registry& registry() {
  static std::atomic<Registry*> latest{nullptr};
  Registry* found = latest.load(std::memory_order_acquire);
  while (found == nullptr || found->process != process_mark()) {
    auto made = std::make_unique<Registry>();
    made->process = process_mark();
    // The parent's object stays as it is.
    if (latest.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) found = made.release();
  }
  return *found;
}
}  // namespace

std::shared_ptr<Background> Background::of_process() {
  Registry& own = registry();
  const LockGuard lock(own.mutex);
  std::shared_ptr<Background> shared = own.shared.lock();
  if (shared == nullptr) own.shared = shared = std::make_shared<Background>();
  return shared;
}

}  // namespace memlith::core
