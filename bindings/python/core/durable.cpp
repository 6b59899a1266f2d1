#include "durable.hpp"

#include <algorithm>

namespace memlith::python {

std::int32_t DurableWaits::wait(memlith_store* store, std::uint64_t ticket) {
  std::uint64_t newest = 0;
  {
    std::unique_lock lock(mutex_);
    newest_ = std::max(newest_, ticket);
    if (led_) {
      Waiter waiter{ticket};
      waiters_.push_back(&waiter);
      waiter.changed.wait(lock, [&] { return waiter.told != Waiter::Told::nothing; });
      if (waiter.told == Waiter::Told::durable) return MEMLITH_OK;
    }
    led_ = true;
    newest = newest_;
  }
  const std::int32_t code = memlith_wait(store, newest);
  {
    const std::lock_guard lock(mutex_);
    tell(newest, code != MEMLITH_OK);
  }
  // The failure may be of a newer commit than that of this thread.
  return code == MEMLITH_OK || newest == ticket ? code : memlith_wait(store, ticket);
}

// With mutex_ held. After a failure each thread asks for itself.
void DurableWaits::tell(std::uint64_t durable, bool failed) {
  led_ = false;
  std::erase_if(waiters_, [&](Waiter* each) {
    const bool is_durable = each->ticket <= durable && !failed;
    if (!is_durable && led_) return false;
    each->told = is_durable ? Waiter::Told::durable : Waiter::Told::lead;
    led_ = led_ || !is_durable;
    each->changed.notify_one();
    return true;
  });
}

}  // namespace memlith::python
