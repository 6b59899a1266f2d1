#include "records.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "errors.hpp"

namespace memlith::python {

namespace {

constexpr char kMetaMap[] = "memlith.python";
// Of kMetaMap: counts have "n" and the name of the map, kinds "k" and the name.

std::optional<std::string_view> find(memlith_kv_txn* txn, memlith_kv_map map, std::string_view key) {
  memlith_bytes value{};
  const std::int32_t code = memlith_kv_get(txn, map, key.data(), key.size(), &value);
  if (memlith_category(code) == MEMLITH_NOT_FOUND) return std::nullopt;
  check(code);
  return std::string_view(static_cast<const char*>(value.data), value.size);
}

std::uint64_t number_in(std::optional<std::string_view> value) {
  std::uint64_t number = 0;
  if (!value.has_value()) return number;
  if (value->size() != sizeof number) fail(MEMLITH_CORRUPT, "the length of a dictionary is damaged");
  std::memcpy(&number, value->data(), sizeof number);
  return number;
}

}  // namespace

// ---- open and close ------------------------------------------------------------------------------------------------

Records::Records(memlith_store* store, bool read_only) : read_only_(read_only) {
  memlith_kv_options options{};
  options.struct_size = sizeof options;
  options.flags = read_only ? 0 : MEMLITH_REGION_CREATE;
  check(memlith_kv_open(store, kRecordsRegion, &options, &handle_));
  try {
    check(memlith_kv_map_open(handle_, kMetaMap, options.flags, &meta_));
    check(memlith_kv_begin(handle_, MEMLITH_KV_READ_ONLY, &reader_));
    check(memlith_kv_abort(reader_));
  } catch (const Failure&) {
    try {
      close();
    } catch (const Failure&) {  // the first failure counts
    }
    throw;
  }
}

void Records::close() {
  memlith_kv_txn_free(std::exchange(reader_, nullptr));
  memlith_kv_txn_free(std::exchange(writer_, nullptr));
  active_ = false;
  check(memlith_kv_close(std::exchange(handle_, nullptr)));
}

void Records::settle() {
  const std::int32_t code = memlith_kv_persist(handle_);
  switch (memlith_category(code)) {
    case MEMLITH_NO_SPACE:
    case MEMLITH_FULL:
    case MEMLITH_NO_MEMORY:
    case MEMLITH_TOO_MANY_FILES: check(code); break;
    default: break;
  }
}

Dictionary Records::map_of(std::string_view name) {
  Dictionary made{0, std::string(name)};
  check(memlith_kv_map_open(handle_, made.name.c_str(), read_only_ ? 0 : MEMLITH_REGION_CREATE, &made.map));
  return made;
}

Dictionary Records::dictionary(const std::string& name, const std::string& kind) {
  if (name.empty()) fail(MEMLITH_INVALID, "a dictionary has a name");
  const std::string key = "k=" + name;
  std::string stored(find(active_ ? writer_ : begin_reading(), meta_, key).value_or(""));
  if (!active_) end_reading();
  if (stored.empty() && !read_only_) {
    if (active_) fail(MEMLITH_INVALID, "a transaction cannot create \"" + name + "\"; create it before");
    begin();
    check(memlith_kv_put(writer_, meta_, key.data(), key.size(), kind.data(), kind.size()));
    wait(commit());
    stored = kind;
  }
  if (stored.empty()) fail(MEMLITH_NOT_FOUND, "there is no dictionary \"" + name + "\", and the store is read-only");
  if (stored != kind) {
    fail(MEMLITH_INCOMPATIBLE, "\"" + name + "\" was created as " + stored + ", and cannot be opened as " + kind);
  }
  return map_of("=" + name);
}

// ---- transactions --------------------------------------------------------------------------------------------------

memlith_kv_txn* Records::begin_reading() {
  check(memlith_kv_renew(reader_));
  return reader_;
}

void Records::begin() {
  if (read_only_) fail(MEMLITH_READ_ONLY, "the store was opened read-only");
  memlith_kv_txn_free(std::exchange(writer_, nullptr));
  check(memlith_kv_begin(handle_, 0, &writer_));
  active_ = true;
}

std::uint64_t Records::commit() {
  active_ = false;
  std::uint64_t ticket = 0;
  check(memlith_kv_commit(writer_, MEMLITH_COMMIT_WEAK, &ticket));
  return ticket;
}

void Records::abort() {
  active_ = false;
  memlith_kv_abort(writer_);
}

std::uint64_t Records::savepoint() {
  std::uint64_t number = 0;
  check(memlith_kv_savepoint(writer_, &number));
  return number;
}

void Records::undo_to(std::uint64_t savepoint) { check(memlith_kv_undo_to(writer_, savepoint)); }

// ---- records -------------------------------------------------------------------------------------------------------

std::optional<std::string_view> Records::get(const Dictionary& from, std::string_view key) {
  return find(writer_, from.map, key);
}

void Records::put(const Dictionary& to, std::string_view key, std::string_view value) {
  const bool is_new = !get(to, key).has_value();
  check(memlith_kv_put(writer_, to.map, key.data(), key.size(), value.data(), value.size()));
  if (is_new) set_count(to, +1);
}

bool Records::remove(const Dictionary& from, std::string_view key) {
  const std::int32_t code = memlith_kv_remove(writer_, from.map, key.data(), key.size());
  if (memlith_category(code) == MEMLITH_NOT_FOUND) return false;
  check(code);
  set_count(from, -1);
  return true;
}

void Records::clear(const Dictionary& which) {
  memlith_kv_cursor* cursor = nullptr;
  check(memlith_kv_cursor_open(writer_, which.map, &cursor));
  std::int32_t code = memlith_kv_cursor_first(cursor);
  std::vector<std::string> keys;
  for (; code == MEMLITH_OK; code = memlith_kv_cursor_next(cursor)) {
    memlith_bytes key{};
    code = memlith_kv_cursor_current(cursor, &key, nullptr);
    if (code != MEMLITH_OK) break;
    keys.emplace_back(static_cast<const char*>(key.data), key.size);
  }
  memlith_kv_cursor_close(cursor);
  if (memlith_category(code) != MEMLITH_NOT_FOUND) check(code);
  for (const std::string& key : keys) remove(which, key);
}

std::uint64_t Records::count(memlith_kv_txn* txn, memlith_kv_map meta, const Dictionary& of) {
  return number_in(find(txn, meta, "n" + of.name));
}

void Records::set_count(const Dictionary& of, std::int64_t change) {
  const std::string key = "n" + of.name;
  const std::uint64_t now = count(writer_, meta_, of) + static_cast<std::uint64_t>(change);
  check(memlith_kv_put(writer_, meta_, key.data(), key.size(), &now, sizeof now));
}

void Records::wait(std::uint64_t ticket) { check(memlith_kv_wait(handle_, ticket)); }

void Records::persist() { check(memlith_kv_persist(handle_)); }

}  // namespace memlith::python
