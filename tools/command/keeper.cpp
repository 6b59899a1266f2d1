// memlith keeper STORE: the process that has a store open for those that share its regions.
#include "keeper/keep.hpp"

#include <fmt/format.h>

#include "cli/store_path.hpp"
#include "commands.hpp"

namespace memlith::tool {

MaybeFailure run_keeper(const KeeperArguments& arguments) {
  const std::optional<std::int32_t> code =
      keep({arguments.path, arguments.create, static_cast<std::uint64_t>(arguments.grace_s * 1000),
            static_cast<int>(arguments.ready_fd)});
  if (!code.has_value()) return {};
  if (*code != MEMLITH_OK) return library_failure(*code, {});
  if (arguments.format == Format::json) {
    write_json({{"path", arguments.path}, {"closed", true}});
  } else {
    write_line(fmt::format("{}: closed, because no process shares its regions any more", printable(arguments.path)));
  }
  return {};
}

}  // namespace memlith::tool
