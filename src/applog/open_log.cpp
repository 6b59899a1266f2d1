#include "applog/open_log.hpp"

#include "applog/format.hpp"

namespace memlith::core::applog {

Status too_large(std::uint64_t bytes, std::uint64_t bytes_max) {
  return fail(Errc::full, Detail::object,
              "the entries need {} bytes, and half of log_max_bytes is {}; append fewer at once, or open the store "
              "with a larger log_max_bytes",
              bytes, bytes_max);
}

Status check_sizes(std::span<const OpenLog::Content> entries, std::uint64_t bytes_max, std::uint64_t& bytes) {
  if (entries.empty()) return fail(Errc::invalid, Detail::argument, "there are no entries to append");
  for (const OpenLog::Content& each : entries) {
    if (each.size() > kEntryBytesMax) {
      return fail(Errc::invalid, Detail::argument, "an entry has less than 4 GiB; this one has {} bytes", each.size());
    }
    bytes += stored_bytes(each.size());
  }
  return bytes + kPageBytes > bytes_max ? too_large(bytes, bytes_max) : kOk;
}

}  // namespace memlith::core::applog
