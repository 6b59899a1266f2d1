// Shared by the entry points of kv stores: the objects behind the handles. Floor: capi.
//
// A memlith_kv is a kv::OpenKv: a kv::Kv, which its OpenRegion owns, or a client of a keeper, which the handle owns.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_set>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "kv/kv.hpp"
#include "memlith/kv.h"

namespace memlith::core {

struct KvCursorHandle;

// A transaction, and its cursors that the program has not closed.
struct KvTransactionHandle {
  kv::Transaction* transaction;
  std::unordered_set<KvCursorHandle*> cursors = {};
};
struct KvCursorHandle {
  KvTransactionHandle& owner;
  kv::Cursor cursor;
};

inline kv::OpenKv& kv_of(memlith_kv* handle) { return *reinterpret_cast<kv::OpenKv*>(handle); }
inline memlith_kv* handle_of(kv::OpenKv* kv) { return reinterpret_cast<memlith_kv*>(kv); }
// Where no other process has it open. `what`: what the caller asked for, for the message.
inline Result<kv::Kv*> alone(kv::OpenKv& kv, std::string_view what) {
  if (kv::Kv* const found = kv.alone(); found != nullptr) return found;
  return fail(Errc::unsupported, Detail::kv,
              "kv store \"{}\" is open in several processes, where there is no {}; open its memlith store in one "
              "process, or do without",
              kv.pages().words.name(), what);
}
inline KvTransactionHandle& handle_of(memlith_kv_txn* txn) { return *reinterpret_cast<KvTransactionHandle*>(txn); }
inline kv::Transaction& transaction_of(memlith_kv_txn* txn) { return *handle_of(txn).transaction; }
inline KvCursorHandle& handle_of(memlith_kv_cursor* cursor) { return *reinterpret_cast<KvCursorHandle*>(cursor); }
inline kv::Cursor& cursor_of(memlith_kv_cursor* cursor) { return handle_of(cursor).cursor; }

inline Status need_ours(memlith_kv* handle) {
  MEMLITH_TRY(need_handle(handle, "key-value store"));
  return kv_of(handle).check_process();
}

inline Status need_ours(memlith_kv_txn* txn) {
  MEMLITH_TRY(need_handle(txn, "transaction"));
  return transaction_of(txn).kv().check_process();
}

inline Status need_ours(memlith_kv_cursor* cursor) {
  MEMLITH_TRY(need_handle(cursor, "cursor"));
  return handle_of(cursor).owner.transaction->kv().check_process();
}

inline Result<std::string_view> text_of(const void* data, std::uint64_t bytes, const char* what) {
  if (bytes > 0) MEMLITH_TRY(need(data, what));
  return std::string_view(static_cast<const char*>(data), bytes);
}
// Null: none.
inline Result<std::optional<std::string_view>> optional_text_of(const memlith_bytes* bytes, const char* what) {
  if (bytes == nullptr) return std::optional<std::string_view>();
  MEMLITH_TRY_ASSIGN(const std::string_view text, text_of(bytes->data, bytes->size, what));
  return std::optional(text);
}

inline memlith_bytes plain(std::string_view text) { return {text.data(), text.size()}; }

// Expected often, so without the time to make a message.
inline Status not_found(std::string_view text) {
  set_error_text(text);
  return Status{Errc::not_found, Detail::kv, 0, 0};
}

}  // namespace memlith::core
