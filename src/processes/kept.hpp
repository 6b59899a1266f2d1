// All that a keeper keeps beside shared regions: kv stores and application logs. Floor: processes.
#pragma once

#include <map>

#include "processes/kept_kvs.hpp"
#include "processes/kept_logs.hpp"

namespace memlith::core::processes {

class Kept final : public shared::Service {
 public:
  explicit Kept(Session& session) : kvs_(session), logs_(session) {}

  Result<std::array<int, 2>> open(std::uint32_t client, const shared::Request& request,
                                  shared::Answer& answer) override;
  Result<std::optional<Lsn>> serve(std::uint32_t client, const shared::Request& request, std::string_view payload,
                                   shared::Answer& answer) override;
  bool work() override { return kvs_.work(); }
  void leave(std::uint32_t client) override;
  void say_failed() override;

 private:
  KeptKvs kvs_;
  KeptLogs logs_;
  std::map<std::uint32_t, shared::Service*> clients_;  // the service of each client
};

}  // namespace memlith::core::processes
