// The VFS over the simulated disk: a World whose one folder is a SimVolume that the test can put in its place.
#pragma once

#include <memory>
#include <string>

#include "sim/sim.hpp"
#include "sqlite/src/world.hpp"
#include "words.hpp"

namespace memlith::test {

// Forwards to a shared volume, because the VFS owns one for each database.
class BorrowedVolume final : public core::Volume {
 public:
  explicit BorrowedVolume(core::Volume& volume) : volume_(volume) {}
  core::Result<std::unique_ptr<core::Device>> open(std::string_view name, core::OpenMode mode,
                                                   core::Caching caching) override {
    return volume_.open(name, mode, caching);
  }
  core::Result<bool> exists(std::string_view name) override { return volume_.exists(name); }
  core::Result<std::optional<core::FileIdentity>> identity_of(std::string_view name) override {
    return volume_.identity_of(name);
  }
  core::Result<std::vector<std::string>> list(std::string_view folder) override { return volume_.list(folder); }
  core::Status make_folder(std::string_view name) override { return volume_.make_folder(name); }
  core::Status rename(std::string_view from, std::string_view to) override { return volume_.rename(from, to); }
  core::Status remove(std::string_view name) override { return volume_.remove(name); }
  core::Status sync_folder(std::string_view name) override { return volume_.sync_folder(name); }
  core::Result<std::uint64_t> free_bytes() override { return volume_.free_bytes(); }
  core::Result<std::unique_ptr<core::OpenFile>> open_file(std::string_view name, bool writable) override {
    return volume_.open_file(name, writable);
  }
  std::string path_of(std::string_view name) const override { return volume_.path_of(name); }

 private:
  core::Volume& volume_;
};

class SimWorld final : public sqlite::World {
 public:
  core::SimVolume* volume = nullptr;

  core::Result<sqlite::Place> place_of(const std::string& path) override {
    return sqlite::Place{std::make_unique<BorrowedVolume>(*volume), name_of(path)};
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
