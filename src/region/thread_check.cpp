#include "region/thread_check.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "base/units.hpp"
#include "region/code_place.hpp"

namespace memlith::core {

bool ThreadCheck::is_wanted() {
  const char* const value = std::getenv("MEMLITH_CHECK_THREADS");
  return value != nullptr && std::string_view(value) != "" && std::string_view(value) != "0";
}

void ThreadCheck::tell_of_other_handler() {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  constexpr std::string_view kLine =
      "memlith: MEMLITH_CHECK_THREADS finds nothing from here on: the program has installed a handler of SIGTRAP, "
      "which the check needs. Install it before the first region is opened; memlith calls it for all traps of others\n";
  (void)!::write(STDERR_FILENO, kLine.data(), kLine.size());
}

namespace {
std::string text_of(const StorePlace& place, std::uint64_t page) {
  const std::string code =
      place.code == 0 ? "by memlith_prepare" : fmt::format("at {:#x} {}", place.code, code_place(place.code));
  return fmt::format("thread {} to offset {:#x} {}", place.thread, page * kPageBytes + place.offset, code);
}
}  // namespace

void ThreadCheck::report(std::span<const SharedPage> pages) const {
  for (const SharedPage& each : pages) {
    if (but_ && but_(each.page)) continue;
    const std::string line = fmt::format(
        "memlith: {}: region \"{}\": two threads stored to page {} between persists of thread scope, so a persist of "
        "one takes the other's store along or leaves its own out: {}; {}. Give each thread pages of its own, let the "
        "threads persist before they pass a page on, or open the region with the explicit tracker\n",
        store_, region_, each.page, text_of(each.first, each.page), text_of(each.second, each.page));
    (void)!::write(STDERR_FILENO, line.data(), line.size());
  }
}

}  // namespace memlith::core
