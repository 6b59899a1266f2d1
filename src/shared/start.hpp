// Starting the keeper of a store. Floor: shared.
//
// `memlith keeper --ready-fd N` writes to its descriptor N, once: "ready", or "CATEGORY DETAIL SENTENCE", numbers and
// text of the failure.
#pragma once

#include <string>

#include "base/descriptor.hpp"
#include "base/status.hpp"

namespace memlith::core::shared {

// The program `memlith`, whose command `keeper` is the keeper: where `given` says (not empty), else near the library or
// program that this code is in, else in PATH. Errors: not_found.
Result<std::string> find_program(const std::string& given);

// A keeper that was started, and tells how that went.
class Starting {
 public:
  // `path`: of the store, absolute.
  static Result<Starting> start(const std::string& program, const std::string& path, bool create);
  // Until it listens, or has failed. False: it ended without a word. Errors: exists (another keeper has the store);
  // those of opening a store.
  [[nodiscard]] Result<bool> wait() const;

 private:
  explicit Starting(Descriptor told) : told_(std::move(told)) {}
  Descriptor told_;
};

}  // namespace memlith::core::shared
