// The mutants that only leave out or reorder writes and flushes: they stand between the engine and the simulated disk,
// so that nothing of them is in the engine's code. mutants/mutants.hpp lists them beside the others.
//
// What a write or a flush is for is told from the outside: by the file's name, the place in the log and the first
// bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "device/volume.hpp"

namespace memlith::lab {

class MutantVolume final : public core::Volume {
 public:
  // The volume itself, unless the active mutant is one of those here. Then `mutated`, which has to outlive the store.
  static core::Volume& over(core::Volume& volume, std::optional<MutantVolume>& mutated);

  explicit MutantVolume(core::Volume& volume) : volume_(volume) {}
  core::Result<std::unique_ptr<core::Device>> open(std::string_view name, core::OpenMode mode,
                                                   core::Caching caching) override;
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
  core::Result<std::unique_ptr<core::OpenFile>> open_file(std::string_view name, bool writable) override;
  [[nodiscard]] std::string path_of(std::string_view name) const override { return volume_.path_of(name); }

 private:
  core::Volume& volume_;
};

}  // namespace memlith::lab
