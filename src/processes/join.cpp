#include "processes/join.hpp"

#include <filesystem>
#include <system_error>

namespace memlith::core::processes {

Result<shared::Joined> join_keeper(const Joining& joining, Kind kind, shared::Request request) {
  if (joining.name.empty() || joining.name.size() >= request.name.size()) {
    return fail(Errc::invalid, Detail::argument, "the name of {} has 1 to {} bytes",
                kind == Kind::kv ? "a kv store" : "an application log", request.name.size() - 1);
  }
  joining.name.copy(request.name.data(), request.name.size() - 1);
  request.creates = flags_of(joining.create, joining.exclusive);
  request.address = static_cast<std::uint64_t>(kind);
  std::error_code error;
  const std::string path = std::filesystem::absolute(joining.path, error).string();
  if (error) return fail_errno(error.value(), Detail::open, "{}: cannot find the folder", joining.path);
  return shared::meet({path, joining.create, joining.program, joining.patience}, request);
}

}  // namespace memlith::core::processes
