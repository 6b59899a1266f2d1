// The kv stores that a keeper keeps for its clients. Floor: processes.
//
// The keeper's thread alone commits: what a client proposes is validated and applied in one go, with the order of the
// requests as the order of the commits. Clients read the pages where they lie (kv/board.hpp).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "kv/board.hpp"
#include "kv/kv.hpp"
#include "shared/service.hpp"

namespace memlith::core::processes {

class KeptKvs final : public shared::Service {
 public:
  explicit KeptKvs(Session& session) : session_(session) {}

  Result<std::array<int, 2>> open(std::uint32_t client, const shared::Request& request,
                                  shared::Answer& answer) override;
  Result<std::optional<Lsn>> serve(std::uint32_t client, const shared::Request& request, std::string_view payload,
                                   shared::Answer& answer) override;
  bool work() override;  // frees pages
  void leave(std::uint32_t client) override;
  void say_failed() override;

 private:
  // A kv store, which belongs to its region and ends with the session.
  struct KeptKv {
    std::shared_ptr<kv::Board> board;
    kv::Kv* kv = nullptr;
    std::array<bool, kv::Board::kClientsMax> taken{};  // slots
  };
  struct Client {
    KeptKv* kept = nullptr;
    std::uint32_t slots = 0;
  };
  Result<KeptKv*> find_or_open(const std::string& name, const shared::Request& request);
  static Result<std::optional<Lsn>> commit(const Client& client, const shared::Request& request,
                                           std::string_view payload, shared::Answer& answer);
  static Status load(KeptKv& kept, std::uint64_t page);
  static void show(KeptKv& kept);

  Session& session_;
  std::map<std::string, KeptKv> kvs_;
  std::map<std::uint32_t, Client> clients_;
};

}  // namespace memlith::core::processes
