// A kv store that several processes have open, in one of them. Floor: processes.
//
// Reads are those of any kv store, on the pages of the keeper, which this process cannot write to. A transaction that
// writes keeps its writes, and what it has read, to itself; its commit is one message, and the keeper does the rest. So
// a process that dies, at whatever instruction, leaves nothing but its snapshots, which the keeper ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "kv/open_kv.hpp"
#include "processes/join.hpp"
#include "shared/line.hpp"
#include "shared/meet.hpp"

namespace memlith::core::processes {

struct KvClientOptions : Joining {
  std::uint64_t max_size = 0;
  std::uint64_t window_ms = 0;  // 0: as it is
  std::uint64_t window_bytes = 0;
};

// Threads: any. In a forked child nothing but its end.
class KvClient final : public kv::OpenKv, private kv::PagesKeeper {
 public:
  static Result<std::unique_ptr<KvClient>> open(const KvClientOptions& options);
  // That keeper has answered to the request to open the kv store.
  static Result<std::unique_ptr<KvClient>> join(const std::string& name, shared::Joined joined);
  ~KvClient() override;

  // Errors of all but reads: poisoned - the keeper has ended; io - it ended meanwhile.
  [[nodiscard]] Status check_process() const override;
  [[nodiscard]] bool read_only() const override { return false; }
  Result<kv::MapNumber> open_map(std::string_view name, bool create, bool exclusive) override;
  Status remove_map(std::string_view name) override;
  Status append(kv::MapNumber number, const NextRecord& next, std::uint64_t& appended) override;
  Status persist() override { return wait(Lsn{}); }
  Lsn durable_ticket() override;
  Status wait(Lsn ticket) override;
  Status set_window(kv::Window window) override;
  Result<kv::KvInfo> info() override;
  Result<kv::KvReport> verify() override;

 private:
  KvClient(std::string name, std::uint64_t process);
  [[nodiscard]] Status check_begin(bool only_reads) override;
  Result<std::uint64_t> commit(kv::Transaction& transaction, kv::Durability durability, Lsn* ticket) override;
  Result<std::uint64_t> commit_read(kv::Transaction& transaction, kv::Durability durability, Lsn* ticket);
  [[nodiscard]] std::uint64_t log_bytes_max() const override { return board_->head().log_bytes_max; }

  Status load(kv::PageNumber page) override;
  Status settle(std::size_t slot) override;
  [[nodiscard]] Status check() const override;
  Result<shared::Answer> ask(const shared::Request& request, std::string_view payload = {});
  static void raise(std::atomic<std::uint64_t>& known, std::uint64_t to);

  const std::uint64_t process_;  // mark of the process that has opened it
  shared::Line line_;
  std::atomic<std::uint64_t> known_durable_{0};         // a commit; so are all before
  std::atomic<std::uint64_t> known_durable_ticket_{0};  // likewise, from answers, which come before the board tells
};

}  // namespace memlith::core::processes
