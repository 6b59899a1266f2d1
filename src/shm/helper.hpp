// A process that a program starts beside itself, when it needs it. Floor: shm.
//
// The helper tells how its start went on descriptor kReadyNumber, once, and closes it: "ready", or
// "CATEGORY DETAIL SENTENCE", numbers and text of the failure. The process that is started may leave the program by a
// fork and end at once: who waits, waits for the word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/status.hpp"

namespace memlith::core::shm {

inline constexpr int kReadyNumber = 3;

struct HelperProgram {
  std::string path;
  std::vector<std::string> words;        // with the program's own name as the first
  std::vector<std::string> environment;  // "NAME=VALUE"
  bool has_own_environment = false;      // else it has this program's
  int kept = -1;                         // a descriptor that it has under the same number, above kReadyNumber; or none
  bool is_quiet = true;                  // its standard streams lead nowhere: a reader to their end waits for no helper
};

// Starts the helper and returns when it is ready. It has no signal that is blocked or ignored, and none of the
// program's other descriptors that are closed by exec(3). One that ends without a word, as when it is killed, is
// started again, a few times. Errors: those that the helper tells; io: it never said a word.
Status start_helper(const HelperProgram& program);

// ---- the helper. Each takes the descriptor, and does nothing if that is negative.
void tell_ready(Descriptor& ready);
// `category` and `detail`: numbers of Errc and Detail.
void tell_failure(Descriptor& ready, int category, int detail, std::string_view sentence);

}  // namespace memlith::core::shm
