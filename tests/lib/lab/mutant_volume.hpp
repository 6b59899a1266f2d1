// The mutants that only leave out or reorder writes and flushes: they stand between the engine and the simulated disk,
// so that nothing of them is in the engine's code. mutants/mutants.hpp lists them beside the others.
//
// The purpose of a write or a flush is told from the outside: by the file's name, the place in the log and the first
// bytes.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "sim/decorators.hpp"

namespace memlith::lab {

class MutantVolume final : public core::VolumeDecorator {
 public:
  // The volume itself, unless the active mutant is one of those here. Then `mutated`, which has to outlive the store.
  static core::Volume& over(core::Volume& volume, std::optional<MutantVolume>& mutated);

  using core::VolumeDecorator::VolumeDecorator;

 private:
  std::unique_ptr<core::Device> decorate(std::unique_ptr<core::Device> device, std::string_view name,
                                         bool writable) override;
};

}  // namespace memlith::lab
