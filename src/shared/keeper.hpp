// The keeper: the process that has a store open for those that share its regions. Floor: shared.
//
// It does nothing else, so that a mistake in a program ends the program and not the keeper. It alone writes to the
// disk, through the engine: the log, the checkpoint and recovery are those of any store. It ends when its last client
// has gone, with the store closed; or when nothing can be made durable any more, with an error for everybody.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/status.hpp"
#include "shared/service.hpp"

namespace memlith::core::shared {

struct KeeperOptions {
  std::string path;  // of the store's folder
  bool create = false;
  std::chrono::milliseconds grace{200};                    // so long without a client, and the keeper ends
  std::chrono::milliseconds first_grace{5000};             // the same before the first client
  std::function<void()> ready;                             // clients can connect; may be empty
  MakeService service;                                     // may be empty: shared regions alone
  std::function<Result<std::unique_ptr<Session>>()> open;  // opens the store; empty: as `path` says
};

// Returns when the keeper has ended. Errors: exists (another keeper has the store, or begins or ends); those of opening
// a store; io, if something could not be made durable.
Status keep(const KeeperOptions& options);

}  // namespace memlith::core::shared
