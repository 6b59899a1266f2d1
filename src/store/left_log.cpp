#include "store/left_log.hpp"

#include <cstring>

#include "log/log.hpp"
#include "store/format.hpp"
#include "store/names.hpp"

namespace memlith::core {

Result<std::optional<LeftLog>> look_at_log(Volume& volume, const std::string& file_name) {
  const std::string name = file_log_name(file_name);
  MEMLITH_TRY_ASSIGN(const bool there, volume.exists(name));
  if (!there) return std::optional<LeftLog>();
  MEMLITH_TRY_ASSIGN(const auto device, volume.open(name, OpenMode::read_only, Caching::buffered));
  MEMLITH_TRY_ASSIGN(const auto log, Log::open(*device, {}));
  StoreHeader header;
  std::memcpy(&header, log->superblock().client, sizeof header);
  return std::optional(LeftLog{log->closed_cleanly(), header.by_caller == 1});
}

}  // namespace memlith::core
