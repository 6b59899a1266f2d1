// LevelDB's interface, which RocksDB took over: a store of either, as it comes but for `sync`.
#pragma once

#include <memory>

#include "peer.hpp"

namespace memlith::tool {

// `Types` names the library's own: Db, Slice, WriteBatch, WriteOptions, Iterator; and kName.
template <class Types>
class LsmStore : public KvStore {
 public:
  Result<std::unique_ptr<KvSession>> session() override { return make_session<Session>(*db_, sync_); }

 protected:
  static MaybeFailure result_of(const auto& status, std::string_view doing) {
    if (status.ok()) return {};
    return peer_failure(Types::kName, doing, status.ToString());
  }
  // Db::Open, with what it leaves in a pointer.
  [[nodiscard]] MaybeFailure open_with(const auto& settings, const KvOptions& options) {
    sync_ = options.durability == KvDurability::sync;
    typename Types::Db* db = nullptr;
    auto failure = result_of(Types::Db::Open(settings, options.folder, &db), "Open");
    db_.reset(db);
    return failure;
  }

 private:
  class Session final : public KvSession {
   public:
    Session(typename Types::Db& db, bool sync) : db_(db) { write_.sync = sync; }

    MaybeFailure put(std::string_view key, std::string_view value) override {
      return result_of(db_.Put(write_, slice(key), slice(value)), "Put");
    }
    MaybeFailure put_all(std::span<const KvPair> pairs) override {
      typename Types::WriteBatch batch;
      for (const auto& [key, value] : pairs) (void)batch.Put(slice(key), slice(value));
      return result_of(db_.Write(write_, &batch), "Write");
    }
    MaybeFailure get(std::string_view key, std::string& value, bool& found) override {
      const auto status = db_.Get({}, slice(key), &value);
      found = status.ok();
      return status.IsNotFound() ? MaybeFailure() : result_of(status, "Get");
    }
    MaybeFailure remove(std::string_view key) override { return result_of(db_.Delete(write_, slice(key)), "Delete"); }
    MaybeFailure scan(std::string_view from, std::uint64_t count, const Visit& visit) override {
      const std::unique_ptr<typename Types::Iterator> at(db_.NewIterator({}));
      for (at->Seek(slice(from)); at->Valid() && count > 0; at->Next(), --count) {
        visit({at->key().data(), at->key().size()}, {at->value().data(), at->value().size()});
      }
      return result_of(at->status(), "iterating");
    }

   private:
    static typename Types::Slice slice(std::string_view text) { return {text.data(), text.size()}; }

    typename Types::Db& db_;
    typename Types::WriteOptions write_;
  };

  std::unique_ptr<typename Types::Db> db_;
  bool sync_ = false;
};

}  // namespace memlith::tool
