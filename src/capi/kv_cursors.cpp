// Records of key-value stores one after the other, by cursors or by calls of a function: include/memlith/kv.h.
// Floor: capi.
#include <memory>
#include <string>

#include "capi/kv_handles.hpp"

using namespace memlith::core;

namespace {

// A step of a cursor: NOT_FOUND where there is no record.
template <class Step>
std::int32_t step(memlith_kv_cursor* cursor, Step&& move) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(cursor));
    MEMLITH_TRY_ASSIGN(const bool found, move(cursor_of(cursor)));
    return found ? kOk : not_found("there is no such record");
  });
}

}  // namespace

extern "C" {

int32_t memlith_kv_cursor_open(memlith_kv_txn* txn, memlith_kv_map map, memlith_kv_cursor** cursor) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY(need(cursor, "cursor"));
    auto made =
        std::unique_ptr<KvCursorHandle>(new KvCursorHandle{handle_of(txn), kv::Cursor(transaction_of(txn), map)});
    MEMLITH_TRY(made->cursor.check());
    handle_of(txn).cursors.insert(made.get());
    *cursor = reinterpret_cast<memlith_kv_cursor*>(made.release());
    return kOk;
  });
}

void memlith_kv_cursor_close(memlith_kv_cursor* cursor) {
  if (cursor == nullptr) return;
  (void)guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(cursor));
    const std::unique_ptr<KvCursorHandle> owned(&handle_of(cursor));
    owned->owner.cursors.erase(owned.get());
    return kOk;
  });
}

int32_t memlith_kv_cursor_first(memlith_kv_cursor* cursor) {
  return step(cursor, [](kv::Cursor& at) { return at.first(); });
}
int32_t memlith_kv_cursor_last(memlith_kv_cursor* cursor) {
  return step(cursor, [](kv::Cursor& at) { return at.last(); });
}
int32_t memlith_kv_cursor_next(memlith_kv_cursor* cursor) {
  return step(cursor, [](kv::Cursor& at) { return at.next(); });
}
int32_t memlith_kv_cursor_prev(memlith_kv_cursor* cursor) {
  return step(cursor, [](kv::Cursor& at) { return at.prev(); });
}
int32_t memlith_kv_cursor_seek(memlith_kv_cursor* cursor, const void* key, uint64_t key_bytes) {
  return step(cursor, [&](kv::Cursor& at) -> Result<bool> {
    MEMLITH_TRY_ASSIGN(const std::string_view wanted, text_of(key, key_bytes, "key"));
    return at.seek(wanted);
  });
}

int32_t memlith_kv_cursor_set_bounds(memlith_kv_cursor* cursor, const memlith_bytes* from, const memlith_bytes* to) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(cursor));
    MEMLITH_TRY_ASSIGN(const auto begin, optional_text_of(from, "from"));
    MEMLITH_TRY_ASSIGN(const auto end, optional_text_of(to, "to"));
    return cursor_of(cursor).set_bounds(begin, end);
  });
}
int32_t memlith_kv_cursor_set_prefix(memlith_kv_cursor* cursor, const void* prefix, uint64_t prefix_bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(cursor));
    MEMLITH_TRY_ASSIGN(const std::string_view wanted, text_of(prefix, prefix_bytes, "prefix"));
    return cursor_of(cursor).set_prefix(wanted);
  });
}

int32_t memlith_kv_cursor_current(memlith_kv_cursor* cursor, memlith_bytes* key, memlith_bytes* value) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(cursor));
    if (value == nullptr) {
      MEMLITH_TRY_ASSIGN(const auto own, cursor_of(cursor).current_key());
      if (!own.has_value()) return not_found("the cursor stands on no record");
      if (key != nullptr) *key = plain(*own);
      return kOk;
    }
    MEMLITH_TRY_ASSIGN(const auto record, cursor_of(cursor).current());
    if (!record.has_value()) return not_found("the cursor stands on no record");
    if (key != nullptr) *key = plain(record->key);
    *value = plain(record->value);
    return kOk;
  });
}

int32_t memlith_kv_cursor_remove(memlith_kv_cursor* cursor) {
  return step(cursor, [](kv::Cursor& at) { return at.remove(); });
}

// ---- without a cursor

int32_t memlith_kv_get_range(memlith_kv_txn* txn, memlith_kv_map map, const memlith_bytes* from,
                             const memlith_bytes* to,
                             int (*record)(void* context, memlith_bytes key, memlith_bytes value), void* context) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY(need(reinterpret_cast<const void*>(record), "record"));
    MEMLITH_TRY_ASSIGN(const auto begin, optional_text_of(from, "from"));
    MEMLITH_TRY_ASSIGN(const auto end, optional_text_of(to, "to"));
    if (transaction_of(txn).read_only()) {
      return transaction_of(txn).for_each(map, begin.value_or(""), end,
                                          [&](std::string_view key, std::string_view value) {
                                            return record(context, plain(key), plain(value)) == 0;
                                          });
    }
    const auto cursor = std::make_unique<kv::Cursor>(transaction_of(txn), map);
    MEMLITH_TRY(cursor->set_bounds(begin, end));
    for (;;) {
      MEMLITH_TRY_ASSIGN(const bool found, cursor->next());
      if (!found) return kOk;
      MEMLITH_TRY_ASSIGN(const kv::Cursor::Record at, cursor->peek());
      if (record(context, plain(at.key), plain(at.value)) != 0) return kOk;
    }
  });
}

int32_t memlith_kv_salvage(memlith_kv_txn* txn, memlith_kv_map map,
                           int (*record)(void* context, memlith_bytes key, memlith_bytes value),
                           void (*lost)(void* context, const memlith_bytes* from, const memlith_bytes* to,
                                        const char* sentence),
                           void* context) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(txn));
    MEMLITH_TRY(need(reinterpret_cast<const void*>(record), "record"));
    MEMLITH_TRY(need(reinterpret_cast<const void*>(lost), "lost"));
    if (!transaction_of(txn).read_only()) {
      return fail(Errc::invalid, Detail::argument, "the transaction may write; begin it with MEMLITH_KV_READ_ONLY");
    }
    const auto visit = [&](std::string_view key, std::string_view value) {
      return record(context, plain(key), plain(value)) == 0;
    };
    const auto skip = [&](std::string_view from, std::optional<std::string_view> to, const Status&) {
      const std::string sentence(last_error_text());
      const memlith_bytes first = plain(from);
      const memlith_bytes end = plain(to.value_or(""));
      lost(context, from.empty() ? nullptr : &first, to.has_value() ? &end : nullptr, sentence.c_str());
    };
    return transaction_of(txn).for_each(map, "", std::nullopt, visit, skip);
  });
}

}  // extern "C"
