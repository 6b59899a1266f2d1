#include "records.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "errors.hpp"

namespace memlith::python {

namespace {

constexpr char kMetaMap[] = "memlith.python";
constexpr std::string_view kAppliedKey = "a";  // counts have "n" and the name of the map, kinds "k" and the name
constexpr std::uint64_t kNotesMagic = 0x31207365746f6e6d;
constexpr std::uint64_t kNotesBytesMax = std::uint64_t{1} << 20;  // then earlier notes are made superfluous first
constexpr std::uint64_t kNothing = sizeof(std::uint64_t) * 2;     // magic and used bytes

template <class Number>
void put_plain_number(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class Number>
Number take_number(std::string_view& from) {
  Number number{};
  if (from.size() < sizeof number) fail(MEMLITH_CORRUPT, "a note of a transaction in this store is cut short");
  std::memcpy(&number, from.data(), sizeof number);
  from.remove_prefix(sizeof number);
  return number;
}

std::string_view take_text(std::string_view& from) {
  const auto bytes = take_number<std::uint32_t>(from);
  if (from.size() < bytes) fail(MEMLITH_CORRUPT, "a note of a transaction in this store is cut short");
  const std::string_view text = from.substr(0, bytes);
  from.remove_prefix(bytes);
  return text;
}

std::optional<std::string_view> find(memlith_kv_txn* txn, memlith_kv_map map, std::string_view key) {
  memlith_bytes value{};
  const std::int32_t code = memlith_kv_get(txn, map, key.data(), key.size(), &value);
  if (memlith_category(code) == MEMLITH_NOT_FOUND) return std::nullopt;
  check(code);
  return std::string_view(static_cast<const char*>(value.data), value.size);
}

std::uint64_t number_in(std::optional<std::string_view> value) {
  return value.has_value() ? take_number<std::uint64_t>(*value) : 0;
}

}  // namespace

// ---- open and close ------------------------------------------------------------------------------------------------

Records::Records(memlith_store* store, memlith_region* notes, bool read_only) : notes_(notes), read_only_(read_only) {
  memlith_kv_options options{};
  options.struct_size = sizeof options;
  options.flags = read_only ? 0 : MEMLITH_REGION_CREATE;
  check(memlith_kv_open(store, kRecordsRegion, &options, &handle_));
  try {
    check(memlith_kv_map_open(handle_, kMetaMap, options.flags, &meta_));
    check(memlith_kv_begin(handle_, MEMLITH_KV_READ_ONLY, &reader_));
    sequence_ = number_in(find(reader_, meta_, kAppliedKey));
    check(memlith_kv_abort(reader_));
    if (notes_ != nullptr) repeat_notes();
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
    begin(false);
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
  if (broken_)
    fail(MEMLITH_POISONED,
         "a transaction is durable but could not be applied to dictionaries; close the "
         "store and open it again, which applies it");
  check(memlith_kv_renew(reader_));
  return reader_;
}

void Records::begin(bool noted) {
  if (read_only_) fail(MEMLITH_READ_ONLY, "the store was opened read-only");
  if (broken_) begin_reading();  // which says what is wrong
  memlith_kv_txn_free(std::exchange(writer_, nullptr));
  check(memlith_kv_begin(handle_, 0, &writer_));
  active_ = true;
  noted_ = noted;
  operations_.clear();
  lengths_.clear();
}

std::uint64_t Records::commit() {
  active_ = false;
  std::uint64_t ticket = 0;
  const bool has_note = noted_ && !operations_.empty();
  const std::int32_t code = memlith_kv_commit(writer_, MEMLITH_KV_WEAK, &ticket);
  broken_ = has_note && code != MEMLITH_OK;
  check(code);
  if (has_note) {
    ++sequence_;
    noted_commit_ = ticket;
  }
  return ticket;
}

void Records::abort() {
  active_ = false;
  memlith_kv_abort(writer_);
}

std::uint64_t Records::savepoint() {
  std::uint64_t number = 0;
  check(memlith_kv_savepoint(writer_, &number));
  lengths_.resize(number - 1);
  lengths_.push_back(operations_.size());
  return number;
}

void Records::undo_to(std::uint64_t savepoint) {
  check(memlith_kv_undo_to(writer_, savepoint));
  operations_.resize(lengths_.at(savepoint - 1));
}

// ---- records -------------------------------------------------------------------------------------------------------

std::optional<std::string_view> Records::get(const Dictionary& from, std::string_view key) {
  return find(writer_, from.map, key);
}

void Records::put(const Dictionary& to, std::string_view key, std::string_view value) {
  const bool is_new = !get(to, key).has_value();
  check(memlith_kv_put(writer_, to.map, key.data(), key.size(), value.data(), value.size()));
  if (is_new) set_count(to, +1);
  note('+', to.name, key, value);
}

bool Records::remove(const Dictionary& from, std::string_view key) {
  const std::int32_t code = memlith_kv_remove(writer_, from.map, key.data(), key.size());
  if (memlith_category(code) == MEMLITH_NOT_FOUND) return false;
  check(code);
  set_count(from, -1);
  note('-', from.name, key, {});
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

// ---- notes ---------------------------------------------------------------------------------------------------------

void Records::note(char kind, std::string_view map, std::string_view key, std::string_view value) {
  if (!noted_) return;
  operations_.push_back(kind);
  for (const std::string_view text : {map, key, value}) {
    put_plain_number(operations_, static_cast<std::uint32_t>(text.size()));
    operations_.append(text);
  }
}

// The region holds notes one after another, each with its number and its length. A note that follows others counts on
// all of them; any other commit in between must be durable first, or a crash could keep the note without that commit.
void Records::write_note() {
  memlith_kv_info info{};
  info.struct_size = sizeof info;
  check(memlith_kv_get_info(handle_, &info));
  const std::uint64_t length = sizeof(std::uint64_t) * 2 + operations_.size();
  const bool only_notes_wait = info.commits == noted_commit_ && used_bytes_ > kNothing;
  if (info.durable < info.commits && (!only_notes_wait || used_bytes_ + length > kNotesBytesMax)) persist();
  if (operations_.empty()) return;
  if (memlith_kv_durable(handle_) >= info.commits || used_bytes_ == 0) used_bytes_ = kNothing;
  if (used_bytes_ + length > memlith_region_size(notes_)) {
    check(memlith_region_grow(notes_, std::max(2 * memlith_region_size(notes_), 2 * (used_bytes_ + length))));
  }

  char* const region = static_cast<char*>(memlith_region_address(notes_));
  std::string text;
  put_plain_number(text, sequence_ + 1);
  put_plain_number(text, std::uint64_t{operations_.size()});
  text += operations_;
  std::memcpy(region + used_bytes_, text.data(), text.size());
  check(memlith_touch(notes_, region + used_bytes_, text.size()));
  used_bytes_ += length;
  std::memcpy(region, &kNotesMagic, sizeof kNotesMagic);
  std::memcpy(region + sizeof kNotesMagic, &used_bytes_, sizeof used_bytes_);
  check(memlith_touch(notes_, region, kNothing));
  set_applied(sequence_ + 1);
}

void Records::set_applied(std::uint64_t sequence) {
  check(memlith_kv_put(writer_, meta_, kAppliedKey.data(), kAppliedKey.size(), &sequence, sizeof sequence));
}

void Records::forget_note() {
  used_bytes_ = 0;  // of what the region holds nothing is needed: the next note begins where all is durable
  noted_commit_ = 0;
}

bool Records::is_complete() {
  if (notes_ == nullptr) return true;
  sequence_ = number_in(find(begin_reading(), meta_, kAppliedKey));
  end_reading();
  try {
    repeat_notes();
  } catch (const Failure& failure) {
    if (memlith_category(failure.code) != MEMLITH_READ_ONLY) throw;
    return false;
  }
  return true;
}

void Records::repeat_notes() {
  std::string_view text(static_cast<const char*>(memlith_region_address(notes_)), memlith_region_size(notes_));
  const auto magic = take_number<std::uint64_t>(text);
  const auto used = take_number<std::uint64_t>(text);
  if (magic == 0) return;
  if (magic != kNotesMagic) fail(MEMLITH_INCOMPATIBLE, "the transactions of this store are of another version");
  if (used < kNothing || used - kNothing > text.size()) fail(MEMLITH_CORRUPT, "the notes of transactions do not fit");
  text = text.substr(0, used - kNothing);
  while (!text.empty()) {
    const auto sequence = take_number<std::uint64_t>(text);
    const auto bytes = take_number<std::uint64_t>(text);
    if (bytes > text.size()) fail(MEMLITH_CORRUPT, "a note of a transaction in this store is cut short");
    const std::string_view operations = text.substr(0, bytes);
    text.remove_prefix(bytes);
    if (sequence <= sequence_) continue;
    if (read_only_) {
      fail(MEMLITH_READ_ONLY, kIncomplete);
    }
    sequence_ = sequence;
    repeat(operations);
  }
}

void Records::repeat(std::string_view operations) {
  std::vector<std::pair<std::string_view, Dictionary>> maps;
  for (std::string_view rest = operations; !rest.empty();) {  // before the transaction, in which no map is created
    rest.remove_prefix(1);
    const std::string_view name = take_text(rest);
    take_text(rest), take_text(rest);
    const auto same = [name](const auto& map) { return map.first == name; };
    if (std::none_of(maps.begin(), maps.end(), same)) maps.emplace_back(name, map_of(name));
  }
  begin(false);
  while (!operations.empty()) {
    const char kind = operations.front();
    operations.remove_prefix(1);
    const std::string_view name = take_text(operations);
    const std::string_view key = take_text(operations);
    const std::string_view value = take_text(operations);
    const auto map = std::find_if(maps.begin(), maps.end(), [name](const auto& each) { return each.first == name; });
    if (kind == '+') {
      put(map->second, key, value);
    } else {
      remove(map->second, key);
    }
  }
  set_applied(sequence_);
  wait(commit());
}

}  // namespace memlith::python
