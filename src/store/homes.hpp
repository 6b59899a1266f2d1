// The home files that a store has open. Floor: store.
#pragma once

#include <map>
#include <memory>

#include "base/sync.hpp"
#include "device/volume.hpp"
#include "store/names.hpp"

namespace memlith::core {

// Threads: any. A device is open until its object is forgotten or the store is closed.
class Homes {
 public:
  // `user_file` of a one-file store is opened when it is needed first, if it is not open already.
  Homes(Volume& volume, const StoreNames& names, bool read_only, std::shared_ptr<OpenFile>& user_file)
      : volume_(volume), names_(names), read_only_(read_only), user_file_(user_file) {}

  Result<Device*> get(ObjectId id);
  Result<OpenFile*> user_file();
  // Null if there is none. An open home file is not looked up by name: the process may have given up the right to do
  // so.
  Result<Device*> get_if_there(ObjectId id);
  void keep(ObjectId id, std::unique_ptr<Device> device);
  void forget(ObjectId id);

 private:
  Volume& volume_;
  const StoreNames& names_;
  const bool read_only_;
  std::shared_ptr<OpenFile>& user_file_;
  Mutex mutex_;
  Result<OpenFile*> open_user_file() MEMLITH_REQUIRES(mutex_);

  std::map<ObjectId, std::unique_ptr<Device>> devices_ MEMLITH_GUARDED_BY(mutex_);
};

}  // namespace memlith::core
