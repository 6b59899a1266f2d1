#include "shared/meet.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "base/sync.hpp"
#include "shared/start.hpp"
#include "shm/participant.hpp"

namespace memlith::core::shared {

namespace {

constexpr auto kPauseLeast = std::chrono::milliseconds(1);
constexpr auto kPauseMost = std::chrono::milliseconds(20);

// Null: no keeper listens, or it has ended meanwhile.
Result<std::unique_ptr<Joined>> join(const Meeting& meeting, const Request& request) {
  auto socket = meeting.connect();
  if (!socket.ok() && socket.error().category == Errc::not_found) return std::unique_ptr<Joined>();
  MEMLITH_TRY(socket.status());
  auto joined = std::make_unique<Joined>();
  joined->socket = std::move(*socket);
  // A socket that a child of this process has, too, does not end with this process.
  const Result<Descriptor> life = shm::life_of_this_process();
  if (!life.ok() && life.error().category != Errc::unsupported) return life.error();
  if (!send_request(joined->socket.get(), request, life.ok() ? life->get() : -1) ||
      !receive_answer(joined->socket.get(), joined->answer, &joined->memories)) {
    return std::unique_ptr<Joined>();
  }
  MEMLITH_TRY(joined->answer.status());
  if (joined->memories.region.get() < 0 || joined->memories.control.get() < 0) {
    return fail(Errc::too_many_files, Detail::open, "no descriptor is left for a shared region");
  }
  return joined;
}

// True if a keeper has to be started now: none lives, begins or ends.
Result<bool> needs_keeper(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return true;  // the keeper says why not, or makes the store
  MEMLITH_TRY_ASSIGN(const Meeting meeting, Meeting::at(path));
  MEMLITH_TRY_ASSIGN(const bool locked, meeting.is_locked());
  return !locked;
}

}  // namespace

Result<Joined> meet(const KeeperWish& wish, const Request& request) {
  const auto until = SteadyClock::now() + wish.patience;
  auto pause = kPauseLeast;
  for (;;) {
    auto meeting = Meeting::at(wish.path);
    if (meeting.ok()) {
      MEMLITH_TRY_ASSIGN(const std::unique_ptr<Joined> joined, join(*meeting, request));
      if (joined != nullptr) return std::move(*joined);
    } else if (meeting.error().category != Errc::not_found) {
      return meeting.error();
    }
    MEMLITH_TRY_ASSIGN(const bool needs, needs_keeper(wish.path));
    if (needs) {
      MEMLITH_TRY_ASSIGN(const std::string program, find_program(wish.program));
      const Status started = start_keeper(program, wish.path, wish.create);
      if (!started.ok() && started.category != Errc::exists) return started;
    }
    if (SteadyClock::now() >= until) {
      return fail(Errc::busy, Detail::lock, "{}: its keeper did not begin or end within {} ms", wish.path,
                  wish.patience.count());
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kPauseMost);
  }
}

}  // namespace memlith::core::shared
