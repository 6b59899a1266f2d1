#include "records.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "errors.hpp"

namespace memlith::python {

namespace {

constexpr char kMetaMap[] = "memlith.python";
// Keys of kMetaMap: "n" and a map's name for its count, "k" and the name for its kind. An empty count is unknown.

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

Records::Records(memlith_store* store, const char* region, bool read_only)
    : RecordWriter(nullptr, 0, true), read_only_(read_only) {
  memlith_kv_options options{};
  options.struct_size = sizeof options;
  options.flags = read_only ? 0 : MEMLITH_CREATE;
  check(memlith_kv_open(store, region, &options, &handle_));
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

void Records::persist_waiting() { check_room(memlith_kv_persist(handle_)); }

memlith_kv_map Records::map_of(const std::string& name) {
  memlith_kv_map map = 0;
  check(memlith_kv_map_open(handle_, name.c_str(), read_only_ ? 0 : MEMLITH_CREATE, &map));
  return map;
}

std::shared_ptr<Dictionary> Records::dictionary(const std::string& name, const std::string& kind) {
  if (name.empty()) fail(MEMLITH_INVALID, "a dictionary has a name");
  const std::string key = "k=" + name;
  std::string stored(find(active_ ? writer_ : begin_reading(), meta_, key).value_or(""));
  if (!active_) end_reading();
  if (stored.empty() && !read_only_) {
    if (active_) fail(MEMLITH_INVALID, "a transaction cannot create \"" + name + "\"; create it before");
    begin();
    check(memlith_kv_put(writer_, meta_, key.data(), key.size(), kind.data(), kind.size()));
    commit();
    persist();
    stored = kind;
  }
  if (stored.empty()) fail(MEMLITH_NOT_FOUND, "there is no dictionary \"" + name + "\", and the store is read-only");
  if (stored != kind) {
    fail(MEMLITH_INCOMPATIBLE, "\"" + name + "\" was created as " + stored + ", and cannot be opened as " + kind);
  }
  std::weak_ptr<Dictionary>& known = dictionaries_[name];
  if (auto found = known.lock()) {
    if (read_only_) found->map = map_of(found->name);  // the process that writes may have made it anew
    return found;
  }
  const auto found = std::make_shared<Dictionary>(Dictionary{map_of("=" + name), "=" + name});
  if (!active_ && !read_only_) restore_count(*found);
  known = found;
  return found;
}

void Records::remake(Dictionary& which) {
  begin();                         // which also frees the transaction that was too large
  put_count(which, std::nullopt);  // a crash before the end leaves the count to restore_count
  commit();
  persist();
  check(memlith_kv_map_remove(handle_, which.name.c_str()));
  which.map = map_of(which.name);
  begin();
  put_count(which, 0);
  commit();
  persist();
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

std::optional<std::string_view> RecordWriter::get(const Dictionary& from, std::string_view key) {
  return find(writer_, from.map, key);
}

void RecordWriter::put(const Dictionary& to, std::string_view key, std::string_view value) {
  const bool is_new = has_counts_ && !get(to, key).has_value();
  check(memlith_kv_put(writer_, to.map, key.data(), key.size(), value.data(), value.size()));
  if (is_new) set_count(to, +1);
}

bool RecordWriter::remove(const Dictionary& from, std::string_view key) {
  const std::int32_t code = memlith_kv_remove(writer_, from.map, key.data(), key.size());
  if (memlith_category(code) == MEMLITH_NOT_FOUND) return false;
  check(code);
  set_count(from, -1);
  return true;
}

std::uint64_t RecordWriter::remove_range(const Dictionary& from_which, std::string_view from, std::string_view to) {
  const memlith_bytes first{from.data(), from.size()};
  const memlith_bytes end{to.data(), to.size()};
  std::uint64_t count = 0;
  check(memlith_kv_remove_range(writer_, from_which.map, from.empty() ? nullptr : &first, to.empty() ? nullptr : &end,
                                &count));
  if (count > 0) set_count(from_which, -static_cast<std::int64_t>(count));
  return count;
}

std::uint64_t Records::append(const Dictionary& to, const std::vector<Record>& records) {
  // The commits of the appending do not know the count. A crash between them leaves none, and count() looks then.
  begin();
  const std::string key = "n" + to.name;
  const std::optional<std::string_view> stored = find(writer_, meta_, key);
  const bool known = !stored.has_value() || !stored->empty();
  const std::uint64_t before = known ? number_in(stored) : 0;
  put_count(to, std::nullopt);
  commit();
  auto next = records.begin();
  struct Rest {
    std::vector<Record>::const_iterator& next;
    std::vector<Record>::const_iterator end;
  } rest{next, records.end()};
  const auto give = [](void* context, memlith_bytes* name, memlith_bytes* value) {
    Rest& left = *static_cast<Rest*>(context);
    if (left.next == left.end) return 1;
    *name = {left.next->first.data(), left.next->first.size()};
    *value = {left.next->second.data(), left.next->second.size()};
    ++left.next;
    return 0;
  };
  std::uint64_t appended = 0;
  const auto count_them = [&] {
    begin();
    if (known) put_count(to, before + appended);
    return commit();
  };
  try {
    check(memlith_kv_map_append(handle_, to.map, give, &rest, &appended));
  } catch (const Failure&) {
    count_them();
    throw;
  }
  return count_them();
}

std::uint64_t Records::count(memlith_kv_txn* txn, memlith_kv_map meta, const Dictionary& of) {
  const std::optional<std::string_view> stored = find(txn, meta, "n" + of.name);
  if (!stored.has_value() || !stored->empty()) return number_in(stored);
  std::uint64_t records = 0;
  const auto add = [](void* context, memlith_bytes, memlith_bytes) {
    ++*static_cast<std::uint64_t*>(context);
    return 0;
  };
  check(memlith_kv_get_range(txn, of.map, nullptr, nullptr, add, &records));
  return records;
}

void RecordWriter::set_count(const Dictionary& of, std::int64_t change) {
  if (!has_counts_) return;
  const std::optional<std::string_view> stored = find(writer_, meta_, "n" + of.name);
  if (stored.has_value() && stored->empty()) return;  // count() looks
  put_count(of, number_in(stored) + static_cast<std::uint64_t>(change));
}

void RecordWriter::put_count(const Dictionary& of, std::optional<std::uint64_t> count) {
  const std::string key = "n" + of.name;
  const std::uint64_t number = count.value_or(0);
  check(memlith_kv_put(writer_, meta_, key.data(), key.size(), &number, count.has_value() ? sizeof number : 0));
}

// After an appending that a crash has cut.
void Records::restore_count(const Dictionary& of) {
  const std::optional<std::string_view> stored = find(begin_reading(), meta_, "n" + of.name);
  const bool unknown = stored.has_value() && stored->empty();
  end_reading();
  if (!unknown) return;
  begin();
  put_count(of, count(writer_, meta_, of));
  commit();
}

void Records::persist() { check(memlith_kv_persist(handle_)); }

}  // namespace memlith::python
