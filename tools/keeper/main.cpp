// memlith-keeper: `memlith keeper` as memlith_shared_open starts it, and nothing else. The Python wheel brings this
// program, which finds it beside the module; where the command memlith is installed, nothing needs it.
//
//   memlith-keeper keeper --ready-fd N [--create] -- STORE
#include <charconv>
#include <cstdio>
#include <string_view>
#include <vector>

#include "keep.hpp"
#include "memlith/memlith.h"

int main(int count, char** words) {
  const std::vector<std::string_view> given(words + 1, words + count);
  memlith::tool::Keeping keeping;
  std::size_t at = 0;
  const auto is_next = [&](std::string_view word) { return at < given.size() && given[at] == word && ++at > 0; };
  bool understood = is_next("keeper") && is_next("--ready-fd") && at < given.size();
  if (understood) {
    const std::string_view number = given[at++];
    const char* const end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, keeping.ready_fd);
    keeping.create = is_next("--create");
    understood =
        read.ec == std::errc() && read.ptr == end && keeping.ready_fd >= 3 && is_next("--") && at + 1 == given.size();
  }
  if (!understood) {
    std::fputs("memlith-keeper: memlith starts this program by itself, for processes that share regions of a store\n",
               stderr);
    return 2;
  }
  keeping.store = given[at];
  return memlith::tool::keep(keeping).value_or(MEMLITH_OK) == MEMLITH_OK ? 0 : 1;
}
