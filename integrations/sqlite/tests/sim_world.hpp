// The VFS over the simulated disk: a World whose one folder is a SimVolume that the test can put in its place.
#pragma once

#include <memory>
#include <string>

#include "sim/decorators.hpp"
#include "sim/sim.hpp"
#include "sqlite/src/world.hpp"
#include "words.hpp"

namespace memlith::test {

class SimWorld final : public sqlite::World {
 public:
  core::SimVolume* volume = nullptr;

  core::Result<sqlite::Place> place_of(const std::string& path) override {
    // Each database owns its volume.
    return sqlite::Place{std::make_unique<core::VolumeDecorator>(*volume), name_of(path)};
  }
  core::Result<std::string> identity_of(const std::string& path) override {
    MEMLITH_TRY_ASSIGN(const bool there, volume->exists(name_of(path)));
    return there ? path : std::string();
  }
  core::Status create(const std::string& path) override {
    return volume->open(name_of(path), core::OpenMode::create, core::Caching::buffered).status();
  }
  bool may_write(const std::string&) override { return true; }
  core::Result<std::unique_ptr<sqlite::HostLock>> host(core::Volume& of, const std::string& name,
                                                       bool writable) override {
    MEMLITH_TRY_ASSIGN(auto file, of.open_file(name, writable));
    return std::unique_ptr<sqlite::HostLock>(std::make_unique<NoLock>(std::move(file)));
  }

 private:
  class NoLock final : public sqlite::HostLock {
   public:
    explicit NoLock(std::shared_ptr<core::OpenFile> file) : file_(std::move(file)) {}
    core::Status make_exclusive() override { return core::kOk; }
    core::Status share() override { return core::kOk; }
    [[nodiscard]] std::shared_ptr<core::OpenFile> file() const override { return file_; }
    [[nodiscard]] bool removed() const override { return false; }

   private:
    std::shared_ptr<core::OpenFile> file_;
  };
  static std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }
};

inline constexpr const char* kSimVfs = "memlith-sim";

// Stores that are small enough to have their states enumerated.
inline void register_sim(SimWorld& world, const char* name, std::uint64_t slots_max) {
  sqlite::Options options;
  options.growth_bytes_min = 4096;
  options.store.manual_checkpoint = true;
  options.store.slot_bytes = 4096;
  options.store.log_bytes = 4 * options.store.slot_bytes;
  options.store.log_max_bytes = slots_max * options.store.slot_bytes;
  options.store.log.batch_bytes = 4096;
  options.store.log.stream_chunk_bytes = 4096;
  options.store.log.window_bytes = 4096;
  options.store.log.recovery_window_bytes = 4096;
  options.store.direct_replay_bytes_min = 0;
  options.store.home_flush_bytes = 8192;
  auto vfs = sqlite::Vfs::make(linked_api(), *new sqlite::Databases(world, options), name);
  EXPECT_EQ(vfs.release()->register_it(false), SQLITE_OK);  // both live as long as the process
}

// The world behind the VFS "memlith-sim".
inline SimWorld& sim_world() {
  static SimWorld* const world = [] {
    auto* const made = new SimWorld;
    register_sim(*made, kSimVfs, 256);
    return made;
  }();
  return *world;
}

}  // namespace memlith::test
