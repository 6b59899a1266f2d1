#include "processes/kept.hpp"

#include "processes/asks.hpp"

namespace memlith::core::processes {

Result<std::array<int, 2>> Kept::open(std::uint32_t client, const shared::Request& request, shared::Answer& answer) {
  shared::Service* service = nullptr;
  switch (static_cast<Kind>(request.address)) {
    case Kind::kv: service = &kvs_; break;
    case Kind::applog: service = &logs_; break;
    default: return fail(Errc::unsupported, Detail::argument, "the keeper of this store keeps nothing of that kind");
  }
  clients_[client] = service;
  return service->open(client, request, answer);
}

Result<std::optional<Lsn>> Kept::serve(std::uint32_t client, const shared::Request& request, std::string_view payload,
                                       shared::Answer& answer) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return fail(Errc::invalid, Detail::argument, "nothing was opened");
  return found->second->serve(client, request, payload, answer);
}

void Kept::leave(std::uint32_t client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  found->second->leave(client);
  clients_.erase(found);
}

void Kept::say_failed() {
  kvs_.say_failed();
  logs_.say_failed();
}

}  // namespace memlith::core::processes
