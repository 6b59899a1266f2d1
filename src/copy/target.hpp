// Builds a store from what a CopySource hands out. Floor: copy. docs/architecture.md, "Copies of a store in use".
//
// The store appears whole or not at all. Until the end its log has another name, and a one-file store's file, too. What
// an interrupted copy left is removed by the next one to the same place. The new store has a log of its own, with an
// identity of its own, and is closed cleanly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "copy/sink.hpp"
#include "device/volume.hpp"
#include "store/names.hpp"
#include "store/sums.hpp"

namespace memlith::core {

// One thread at a time.
class CopyTarget final : public CopySink {
 public:
  // `file_name`: of a one-file store, in the volume, which outlives this object.
  CopyTarget(Volume& volume, StoreKind kind, std::string file_name);
  // For a one-file store: gives the finished file its name, unless that name is taken by now (exists). Without it, the
  // volume renames the file after a look.
  using GiveName = std::function<Status(const std::string& from, const std::string& to)>;
  void set_give_name(GiveName give_name) { give_name_ = std::move(give_name); }
  ~CopyTarget() override;  // as after a crash, unless the store is finished or abandoned

  // Makes the place ready. Errors: exists (a store, its file or commits for it); busy (another process makes a store
  // there).
  Status prepare();
  Status begin(const CopiedState& start) override;
  Result<bool> take(ObjectId object, Device& home) override;
  Status put(ObjectId object, std::uint64_t offset, std::span<const std::byte> bytes) override;
  // The store is there, durably, on ok. On failure there is none, or a whole one if only the last flush of its name
  // failed.
  Status finish(const CopiedState& state);
  // Removes what was made, after a failure, unless there is a whole store.
  void abandon();

 private:
  struct Home {
    std::unique_ptr<Device> device;
    std::uint64_t bytes = 0;  // its length
    std::unique_ptr<NewSums> sums;
  };

  Status check_free();
  Status remove_left_over();
  Result<Home*> home_of(ObjectId object);
  Status reserve(Home& home, std::uint64_t bytes);
  Status finish_homes(const CopiedState& state);
  Status finish_file(const CopiedState& state, Home& home);
  Status make_directory(const CopiedState& state);
  Status make_log(const CopiedState& state);
  Status close_cleanly();
  Status give_names();
  Status name_file();
  // Whose lock keeps other copies away, and which says that what is there is a copy's.
  [[nodiscard]] std::string mark_name() const;

  Volume& volume_;
  const StoreKind kind_;
  const StoreNames names_;    // of the finished store
  const StoreNames working_;  // until then
  GiveName give_name_;
  std::unique_ptr<VolumeLock> lock_;  // of the mark
  std::uint64_t log_id_ = 0;
  std::map<ObjectId, Home> homes_;
};

}  // namespace memlith::core
