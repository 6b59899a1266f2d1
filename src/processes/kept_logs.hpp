// The application logs that a keeper keeps for its clients. Floor: processes.
//
// The keeper appends, writes, consumes and truncates what clients ask for, in the order of the requests. Clients read
// entries where they lie (applog/board.hpp).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "applog/applog.hpp"
#include "shared/service.hpp"

namespace memlith::core::processes {

class KeptLogs final : public shared::Service {
 public:
  explicit KeptLogs(Session& session) : session_(session) {}

  Result<std::array<int, 2>> open(std::uint32_t client, const shared::Request& request,
                                  shared::Answer& answer) override;
  Result<std::optional<Lsn>> serve(std::uint32_t client, const shared::Request& request, std::string_view payload,
                                   shared::Answer& answer) override;
  bool work() override { return false; }
  void leave(std::uint32_t client) override { clients_.erase(client); }
  void say_failed() override;

 private:
  // An application log, which belongs to its region and ends with the session.
  struct KeptLog {
    std::shared_ptr<applog::Board> board;
    applog::AppLog* log = nullptr;
  };
  Result<KeptLog*> find_or_open(const std::string& name, const shared::Request& request);
  static Status append(applog::AppLog& log, const shared::Request& request, std::string_view payload,
                       shared::Answer& answer);
  static std::optional<Lsn> find_place(applog::AppLog& log, const shared::Request& request, shared::Answer& answer);

  Session& session_;
  std::map<std::string, KeptLog> logs_;
  std::map<std::uint32_t, KeptLog*> clients_;
};

}  // namespace memlith::core::processes
