// Starting the keeper of a store. Floor: shared.
//
// `memlith keeper --ready-fd N` tells on its descriptor N how that went, as each helper does (shm/helper.hpp).
#pragma once

#include <string>

#include "base/status.hpp"

namespace memlith::core::shared {

// The program `memlith`, whose command `keeper` is the keeper: where `given` says (not empty), else near the library or
// program that this code is in, else in PATH. Errors: not_found.
Result<std::string> find_program(const std::string& given);

// Returns when the keeper of the store at that absolute path listens. Errors: exists (another keeper has the store);
// those of opening a store; io (the program never said a word).
Status start_keeper(const std::string& program, const std::string& path, bool create);

}  // namespace memlith::core::shared
