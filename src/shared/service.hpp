// A keeper's further work, beside shared regions. Floor: shared. A floor above brings it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "region/session.hpp"
#include "shared/channel.hpp"

namespace memlith::core::shared {

// Called by the keeper's thread alone.
class Service {
 public:
  virtual ~Service() = default;
  // The first request of a client: the answer carries two memories. That number is of no other client.
  virtual Result<std::array<int, 2>> open(std::uint32_t client, const Request& request, Answer& answer) = 0;
  // A later one. If it returns a ticket, the answer waits until everything up to there is durable. Errors are the
  // client's; those of category io and poisoned end the keeper if the store has failed.
  virtual Result<std::optional<Lsn>> serve(std::uint32_t client, const Request& request, std::string_view payload,
                                           Answer& answer) = 0;
  // Between requests: a step of what earlier ones have left to do. False: there is nothing to do, or it cannot be done.
  virtual bool work() = 0;
  // The client has ended, or closed its handle.
  virtual void leave(std::uint32_t client) = 0;
  // The keeper ends because something could not be made durable. The clients are told, before their sockets end.
  virtual void say_failed() = 0;
};

using MakeService = std::function<std::unique_ptr<Service>(Session& session)>;

}  // namespace memlith::core::shared
