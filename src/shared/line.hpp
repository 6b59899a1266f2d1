// The way from a client to its keeper: requests of any number of threads, and the answers to them. Floor: shared.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/not_for_children.hpp"
#include "base/sync.hpp"
#include "shared/channel.hpp"

namespace memlith::core::shared {

// Threads: any; connect() while no other thread uses it.
class Line {
 public:
  explicit Line(std::string name) : name_(std::move(name)) {}  // for messages
  // From now on to the keeper at that socket, whose answer to `open` was received.
  void connect(Descriptor socket);
  // Sends the request and returns the answer to it. Errors: io - the keeper has ended; whether it did what was asked is
  // unknown.
  Result<Answer> ask(Request request, std::string_view payload = {});
  // A hint: the socket has ended.
  [[nodiscard]] bool has_ended() const { return ended_.load(std::memory_order_relaxed); }
  // No request waits for its answer.
  [[nodiscard]] bool is_idle();

 private:
  struct PendingCall {
    std::uint64_t number = 0;
    bool answered = false;
    Answer answer;
  };
  bool send(Request request, std::string_view payload) MEMLITH_REQUIRES(mutex_);
  void receive_one() MEMLITH_REQUIRES(mutex_);

  const std::string name_;
  Descriptor socket_;
  std::optional<NotForChildren> not_for_children_;  // the socket: a child's would not end with this process
  std::atomic<bool> ended_{false};                  // set under the mutex

  Mutex mutex_;
  ConditionVariable answered_;
  std::vector<PendingCall*> calls_ MEMLITH_GUARDED_BY(mutex_);
  bool receiving_ MEMLITH_GUARDED_BY(mutex_) = false;  // a thread waits at the socket
  std::uint64_t requests_ MEMLITH_GUARDED_BY(mutex_) = 0;
};

}  // namespace memlith::core::shared
