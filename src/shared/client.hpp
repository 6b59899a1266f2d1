// A shared region in a program that uses it. Floor: shared.
//
// A handle is a connection to the keeper, the two memories, and the transactions of this process. Threads: any; one
// thread at a time uses a transaction; opening and closing as everywhere. In a forked child only close() may be called.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/sync.hpp"
#include "region/tracker.hpp"
#include "shared/channel.hpp"
#include "shared/control.hpp"
#include "shared/line.hpp"
#include "shm/segment.hpp"

namespace memlith::core::shared {

struct ClientOptions {
  std::string path;    // of the store's folder
  std::string region;  // its name
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;  // of a new region; 0: chosen
  bool create = false;
  std::string program;                         // the path of `memlith`; empty: find_program()
  std::chrono::milliseconds patience{60'000};  // with a keeper that begins or ends
};

class Client;

class SharedTransaction {
 public:
  SharedTransaction(Client& client, std::uint64_t number) : client_(client), number_(number) {}
  [[nodiscard]] Client& client() const { return client_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  // Takes the range and keeps its bytes.
  Status touch_before(const void* address, std::uint64_t bytes, std::chrono::milliseconds timeout);
  // The memory is as it was, the newest range first.
  void restore() const;
  [[nodiscard]] bool is_empty() const { return touched_.empty(); }

 private:
  struct Touched {
    Range range;
    std::size_t image = 0;  // place of its bytes in images_
  };
  [[nodiscard]] bool has(Range range) const;

  Client& client_;
  const std::uint64_t number_;
  std::vector<Touched> touched_;
  std::vector<std::byte> images_;
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> open(const ClientOptions& options);
  // Aborts open transactions.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] std::byte* address() const { return memory_.data(); }
  [[nodiscard]] std::uint64_t size() const { return memory_.bytes(); }

  // Errors of all: poisoned (the keeper has ended), invalid (a forked child).
  // If the keeper was killed, as by the end of its PID name space, begin() starts another one and goes on with what is
  // durable, at the same address: unless a transaction is open or waits, the disk has failed, or a weak commit of this
  // handle is not known to be durable. Errors then: also those of open().
  Result<SharedTransaction*> begin();
  // The transaction has ended on ok. `waits`: durable on ok; otherwise captured. Returns the ticket.
  Result<std::uint64_t> commit(SharedTransaction& tx, bool waits);
  // The transaction has ended.
  Status abort(SharedTransaction& tx);
  Status wait(std::uint64_t ticket);

  [[nodiscard]] Status check() const;
  [[nodiscard]] Status check_process() const;

 private:
  friend class SharedTransaction;
  explicit Client(ClientOptions options) : options_(std::move(options)), name_(options_.region), line_(name_) {}
  Status map(const Answer& answer, Memories memories);
  Status go_on() MEMLITH_REQUIRES(mutex_);
  // `ticket`: 0 of a transaction that was aborted, or has no range.
  void end(const SharedTransaction& tx, std::uint64_t ticket, bool durable);
  [[nodiscard]] Status poisoned() const;
  ClientOptions options_;  // constant after open, as what follows; the path is absolute
  const std::string name_;
  std::uint64_t process_ = 0;  // mark of the process that has opened it
  shm::Mapping memory_;
  // The way to the keeper. go_on() changes it under the mutex, when there is no transaction and nothing waits; so it is
  // constant for a transaction and for a thread that waits.
  std::uint32_t number_ = 0;  // of the client
  Control control_;
  Line line_;

  Mutex mutex_;
  std::uint64_t transactions_ever_ MEMLITH_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<SharedTransaction>> transactions_ MEMLITH_GUARDED_BY(mutex_);
  // The newest ticket of a weak commit of this handle, and the newest one that is known to be durable.
  std::uint64_t weak_ MEMLITH_GUARDED_BY(mutex_) = 0;
  std::uint64_t durable_ MEMLITH_GUARDED_BY(mutex_) = 0;
};

}  // namespace memlith::core::shared
