// How a process of the server waits for the keeper. Floor: postgres.
#pragma once

#include <cstdint>
#include <functional>

#include "file_calls.hpp"
#include "files.hpp"
#include "pages.hpp"

namespace memlith_postgres {

// A process of the server waits, and sees to it that there is a keeper.
class KeeperWaiting final : public Waiting {
 public:
  // `start` starts a keeper of the memory of that descriptor, and returns when it is ready.
  using Start = std::function<Result<void>(int memory)>;
  KeeperWaiting(Pages& pages, Start start) : pages_(pages), start_(std::move(start)) {}
  bool wait(For what, std::uint64_t batch) override;
  // Has the keeper end, with an ordinary data directory. False: it could not.
  bool finish();

 private:
  [[nodiscard]] std::uint64_t counter(For what) const;
  void look_after_keeper();

  Pages& pages_;
  const Start start_;
};

}  // namespace memlith_postgres
