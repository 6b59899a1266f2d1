#include "store/homes.hpp"

#include <utility>

#include "store/objects.hpp"

namespace memlith::core {

Result<Device*> Homes::get(ObjectId id) {
  const LockGuard lock(mutex_);
  if (const auto found = devices_.find(id); found != devices_.end()) return found->second.get();
  std::unique_ptr<Device> device;
  if (!names_.file.empty() && id == kFile) {
    MEMLITH_TRY_ASSIGN(OpenFile* const file, open_user_file());
    MEMLITH_TRY_ASSIGN(device, file->device(names_.file, Caching::buffered));
  } else {
    const OpenMode mode = read_only_ ? OpenMode::read_only : OpenMode::read_write;
    MEMLITH_TRY_ASSIGN(device, volume_.open(names_.home(id), mode, Caching::buffered));
  }
  MEMLITH_ASSERT(device != nullptr);
  return (devices_[id] = std::move(device)).get();
}

Result<OpenFile*> Homes::user_file() {
  const LockGuard lock(mutex_);
  return open_user_file();
}

Result<OpenFile*> Homes::open_user_file() {
  if (user_file_ == nullptr) {
    MEMLITH_TRY_ASSIGN(user_file_, volume_.open_file(names_.file, !read_only_));
  }
  return user_file_.get();
}

Result<Device*> Homes::get_if_there(ObjectId id) {
  auto found = get(id);
  if (!found.ok() && found.error().category == Errc::not_found) return static_cast<Device*>(nullptr);
  return found;
}

void Homes::keep(ObjectId id, std::unique_ptr<Device> device) {
  const LockGuard lock(mutex_);
  MEMLITH_ASSERT(device != nullptr);
  devices_[id] = std::move(device);
}

void Homes::forget(ObjectId id) {
  const LockGuard lock(mutex_);
  devices_.erase(id);
}

}  // namespace memlith::core
