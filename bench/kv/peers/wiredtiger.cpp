// WiredTiger: a B-tree with a log, a transaction for each change.
#include <fmt/format.h>
#include <wiredtiger.h>

#include <algorithm>

#include "kit/try.hpp"
#include "peer.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kCacheMibMin = 64;
constexpr char kTable[] = "table:peer";

MaybeFailure wt_result(int code, std::string_view doing) {
  if (code == 0) return {};
  return peer_failure("wiredtiger", doing, ::wiredtiger_strerror(code));
}

WT_ITEM wt_text(std::string_view text) {
  WT_ITEM item{};
  item.data = text.data();
  item.size = text.size();
  return item;
}
std::string_view text_of(const WT_ITEM& item) { return {static_cast<const char*>(item.data), item.size}; }

class WiredSession final : public KvSession {
 public:
  explicit WiredSession(WT_SESSION* session) : session_(session) {}
  ~WiredSession() override { (void)session_->close(session_, nullptr); }  // with its cursor
  WiredSession(const WiredSession&) = delete;
  WiredSession& operator=(const WiredSession&) = delete;

  [[nodiscard]] MaybeFailure open() {
    MEMLITH_TOOL_TRY(wt_result(session_->create(session_, kTable, "key_format=u,value_format=u"), "create"));
    return wt_result(session_->open_cursor(session_, kTable, nullptr, "overwrite=true", &cursor_), "open_cursor");
  }
  MaybeFailure put(std::string_view key, std::string_view value) override {
    return change([&] { return insert(key, value); });
  }
  MaybeFailure put_all(std::span<const KvPair> pairs) override {
    return change([&] {
      int code = 0;
      for (std::size_t i = 0; i < pairs.size() && code == 0; ++i) code = insert(pairs[i].first, pairs[i].second);
      return code;
    });
  }
  MaybeFailure remove(std::string_view key) override {
    return change([&] {
      set_key(key);
      const int code = cursor_->remove(cursor_);
      return code == WT_NOTFOUND ? 0 : code;
    });
  }
  MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
    set_key(key);
    int code = cursor_->search(cursor_);
    found = code == 0;
    WT_ITEM content{};
    if (found) code = cursor_->get_value(cursor_, &content);
    if (code == 0) value.assign(text_of(content));
    (void)cursor_->reset(cursor_);
    return code == WT_NOTFOUND ? MaybeFailure() : wt_result(code, "search");
  }
  MaybeFailure modify(std::span<const KvPair> pairs, std::string& seen, bool& found) override {
    return change([&] {
      int code = 0;
      found = true;
      for (std::size_t i = 0; i < pairs.size() && code == 0; ++i) {
        set_key(pairs[i].first);
        code = cursor_->search(cursor_);
        found = found && code == 0;
        if (code != 0 && code != WT_NOTFOUND) return code;
        WT_ITEM content{};
        if (code == 0 && cursor_->get_value(cursor_, &content) == 0) seen.assign(text_of(content));
        code = insert(pairs[i].first, pairs[i].second);
      }
      return code;
    });
  }
  [[nodiscard]] std::optional<std::uint64_t> aborts() const override { return aborts_; }
  MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
    set_key(from);
    int exact = 0;
    int code = cursor_->search_near(cursor_, &exact);
    if (code == 0 && exact < 0) code = cursor_->next(cursor_);
    while (code == 0 && count > 0) {
      WT_ITEM name{};
      WT_ITEM content{};
      code = cursor_->get_key(cursor_, &name);
      if (code == 0) code = cursor_->get_value(cursor_, &content);
      if (code != 0) break;
      visit(text_of(name), text_of(content));
      if (--count > 0) code = cursor_->next(cursor_);
    }
    (void)cursor_->reset(cursor_);
    return code == WT_NOTFOUND ? MaybeFailure() : wt_result(code, "scanning");
  }

 private:
  // The bytes stay valid until the cursor is used.
  void set_key(std::string_view key) {
    key_ = wt_text(key);
    cursor_->set_key(cursor_, &key_);
  }
  int insert(std::string_view key, std::string_view value) {
    set_key(key);
    WT_ITEM content = wt_text(value);
    cursor_->set_value(cursor_, &content);
    return cursor_->insert(cursor_);
  }
  template <class Act>
  MaybeFailure change(const Act& act) {
    for (;;) {
      MEMLITH_TOOL_TRY(wt_result(session_->begin_transaction(session_, nullptr), "begin"));
      const int code = act();
      if (code == 0) return wt_result(session_->commit_transaction(session_, nullptr), "commit");
      (void)session_->rollback_transaction(session_, nullptr);
      if (code != WT_ROLLBACK) return wt_result(code, "changing");
      ++aborts_;
    }
  }

  WT_SESSION* session_;
  WT_CURSOR* cursor_ = nullptr;
  WT_ITEM key_{};
  std::uint64_t aborts_ = 0;
};

class WiredStore final : public KvStore {
 public:
  ~WiredStore() override {
    if (connection_ != nullptr) (void)connection_->close(connection_, nullptr);
  }
  WiredStore() = default;
  WiredStore(const WiredStore&) = delete;
  WiredStore& operator=(const WiredStore&) = delete;

  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    const std::uint64_t cache_mib = options.cache_bytes != 0
                                        ? std::max<std::uint64_t>(1, options.cache_bytes >> 20)
                                        : std::max<std::uint64_t>(kCacheMibMin, options.bytes_expected * 2 >> 20);
    const std::string config = fmt::format(
        "create,cache_size={}MB,session_max={},log=(enabled=true),transaction_sync=(enabled={},method=fsync),"
        "checkpoint=(log_size=64MB,wait=60)",
        cache_mib, kThreadsMax + 100, options.durability == KvDurability::sync);
    return wt_result(::wiredtiger_open(options.folder.c_str(), nullptr, config.c_str(), &connection_),
                     "wiredtiger_open");
  }
  Result<std::unique_ptr<KvSession>> session() override {
    WT_SESSION* opened = nullptr;
    MEMLITH_TOOL_TRY(wt_result(connection_->open_session(connection_, nullptr, nullptr, &opened), "open_session"));
    auto session = std::make_unique<WiredSession>(opened);
    MEMLITH_TOOL_TRY(session->open());
    return std::unique_ptr<KvSession>(std::move(session));
  }

 private:
  WT_CONNECTION* connection_ = nullptr;
};

}  // namespace

KvPeer wiredtiger_peer() {
  return {"wiredtiger",
          fmt::format("{}.{}.{}", WIREDTIGER_VERSION_MAJOR, WIREDTIGER_VERSION_MINOR, WIREDTIGER_VERSION_PATCH),
          "transaction_sync=(enabled,method=fsync): each commit's log record is written and flushed",
          "log, and transaction_sync off: log records are written when their buffer is full, and not flushed",
          open_as<WiredStore>};
}

}  // namespace memlith::tool
