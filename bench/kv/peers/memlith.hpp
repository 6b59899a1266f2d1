// Shared by memlith's own sides and suites: an open kv store, a session of one, and an application log before one.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "kit/try.hpp"
#include "memlith/applog.hpp"
#include "memlith/kv.hpp"
#include "peer.hpp"

namespace memlith::tool {

// A kv store in a store of its own, with one map.
struct OpenedKv {
  std::optional<Store> store;  // closed after the kv store
  std::optional<Kv> kv;
  KvMap map = 0;

  [[nodiscard]] MaybeFailure open(const std::string& path, const StoreOptions& options, bool is_volatile = false);
};

// For each weak commit: not at all; for its ticket, which hurries its flush; or until it is told, which does not.
enum class Waiting : std::uint8_t { none, hurrying, told };

// A kv store of memlith as a session uses it.
struct KvUse {
  Store* store = nullptr;
  Kv* kv = nullptr;
  KvMap map = 0;
  Durability durability = Durability::weak;
  Waiting waiting = Waiting::none;

  // `act` in one transaction, which is `txn` begun again; once more if another one was in its way, which is counted.
  template <class Act>
  MaybeFailure change(KvTransaction& txn, const Act& act, std::uint64_t* aborts = nullptr) const {
    for (;;) {
      MEMLITH_TOOL_TRY(failure_of(txn.renew(), "beginning a transaction"));
      const auto done = act();
      if (done) return commit(txn);
      if (done.error().category() != MEMLITH_CONFLICT) return failure_of(done, "changing records");
      if (aborts != nullptr) ++*aborts;
    }
  }
  [[nodiscard]] MaybeFailure commit(KvTransaction& txn) const {
    const auto ticket = txn.commit(durability);
    if (!ticket || waiting == Waiting::none) return failure_of(ticket, "committing");
    if (waiting == Waiting::hurrying) return failure_of(store->wait(*ticket), "waiting for a commit");
    const auto told = std::make_shared<std::promise<std::int32_t>>();
    const auto asked = kv->on_durable(*ticket, [told](std::int32_t code) { told->set_value(code); });
    MEMLITH_TOOL_TRY(failure_of(asked, "asking for a commit"));
    if (told->get_future().get() == MEMLITH_OK) return {};
    return failure_of(store->wait(*ticket), "waiting for a commit");
  }
  // A transaction that is to be begun again.
  [[nodiscard]] Result<KvTransaction> transaction(bool reads) const {
    MEMLITH_TOOL_GET(KvTransaction txn, checked(kv->begin({.read_only = reads}), "beginning a transaction"));
    (void)txn.abort();
    return txn;
  }
};

class MemlithSession : public KvSession {
 public:
  MemlithSession(const KvUse& use, KvTransaction writer, KvTransaction reader)
      : use_(use), writer_(std::move(writer)), reader_(std::move(reader)) {}
  MaybeFailure put(std::string_view key, std::string_view value) override;
  MaybeFailure put_all(std::span<const KvPair> pairs) override;
  MaybeFailure remove(std::string_view key) override;
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override;
  MaybeFailure modify(std::span<const KvPair> pairs, std::string& seen, bool& found) override;
  [[nodiscard]] std::optional<std::uint64_t> aborts() const override { return aborts_; }
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override;
  MaybeFailure finish() override { return failure_of(use_.kv->persist(), "persisting"); }

 private:
  template <class Act>
  MaybeFailure read(const Act& act);
  template <class Act>
  MaybeFailure change(const Act& act) {
    return use_.change(writer_, act, &aborts_);
  }

  KvUse use_;
  std::uint64_t aborts_ = 0;
  KvTransaction writer_;
  KvTransaction reader_;
};

// A thread that moves the entries of an application log into a kv store of the same store, a hundred a commit.
class LogMover {
 public:
  using Apply = std::function<memlith::Result<void>(KvTransaction& txn, const LogEntry& entry)>;

  LogMover() = default;
  ~LogMover() { (void)stop(); }
  LogMover(const LogMover&) = delete;
  LogMover& operator=(const LogMover&) = delete;

  // All outlive the thread. `apply` does what an entry says.
  void start(Store& store, AppLog& log, Kv& kv, Apply apply);
  // Ends the thread; its failure, if it had one.
  [[nodiscard]] MaybeFailure stop();
  // Waits until this entry, or a later one, was moved.
  [[nodiscard]] MaybeFailure wait(std::uint64_t number) const;

 private:
  [[nodiscard]] MaybeFailure move_all(Store& store, AppLog& log, Kv& kv);
  [[nodiscard]] memlith::Result<void> move_some(Store& store, AppLog& log, KvTransaction& txn, std::uint64_t& newest);

  Apply apply_;
  std::atomic<std::uint64_t> moved_{0};
  std::atomic<bool> stopping_{false};
  MaybeFailure failure_;  // the thread's; others look at it when failed_, or behind its end
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

}  // namespace memlith::tool
