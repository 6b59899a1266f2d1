#include "store/homes.hpp"

#include <utility>

namespace memlith::core {

Result<Device*> Homes::get(ObjectId id) {
  const LockGuard lock(mutex_);
  if (const auto found = devices_.find(id); found != devices_.end()) return found->second.get();
  MEMLITH_TRY_ASSIGN(auto device, volume_.open(names_.home(id), mode_, Caching::buffered));
  return (devices_[id] = std::move(device)).get();
}

Result<Device*> Homes::get_if_there(ObjectId id) {
  auto found = get(id);
  if (!found.ok() && found.error().category == Errc::not_found) return static_cast<Device*>(nullptr);
  return found;
}

void Homes::keep(ObjectId id, std::unique_ptr<Device> device) {
  const LockGuard lock(mutex_);
  devices_[id] = std::move(device);
}

void Homes::forget(ObjectId id) {
  const LockGuard lock(mutex_);
  devices_.erase(id);
}

}  // namespace memlith::core
