#include "dictionary.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "keys.hpp"
#include "record_store.hpp"
#include "store.hpp"
#include "unlocked.hpp"
#include "waits.hpp"

namespace nb = nanobind;

namespace memlith::python {

// ---- the store's part ----------------------------------------------------------------------------------------------

namespace {

// The turn to write, of one change, until it ends. The interpreter lock is held when it is made.
struct Turn {
  Gate* gate;
  explicit Turn(Gate& given) : gate(&given) { gate->begin(nullptr); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { end(); }
  void end() {
    if (gate != nullptr) std::exchange(gate, nullptr)->end(nullptr);
  }
};

}  // namespace

Records& Store::records() {
  if (handle_ == nullptr || records_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  return *records_;
}

std::shared_ptr<Dictionary> Store::open_dictionary(const std::string& name, const std::string& kind) {
  check_usable();
  const OwnerPtr owner = current();
  std::unique_lock<std::mutex> part;
  std::optional<Turn> turn;
  if (owner != nullptr && turn_.held_by(owner)) {
    part = lock_briefly(owner->use);
  } else {
    turn.emplace(turn_);
  }
  const Unlocked unlocked;
  const std::unique_lock lock(lock_);
  if (handle_ == nullptr) fail(MEMLITH_INVALID, "the store is closed");
  if (records_ == nullptr)
    records_ = std::make_unique<Records>(handle_, one_file_ ? kOneRegion : kRecordsRegion, read_only_);
  return records_->dictionary(name, kind);
}

// Dictionaries are a part of the transaction from here on. Returns the right to use its records; no lock if the
// transaction has ended meanwhile, or there is none.
std::unique_lock<std::mutex> Store::take_part(const OwnerPtr& owner) {
  if (owner == nullptr) return {};
  auto part = lock_briefly(owner->use);
  if (owner->open && owner->records) return part;
  part.unlock();
  const bool is_new = turn_.begin(owner);
  part = lock_briefly(owner->use);
  if (owner->open && owner->records) return part;  // by another thread of the transaction
  const auto lock = share(lock_);
  try {
    if (owner->open) records().begin();
  } catch (const Failure&) {
    if (is_new) turn_.end(owner.get());
    throw;
  }
  owner->records = owner->open;
  if (owner->open) return part;
  turn_.end(owner.get());
  return {};
}

bool Store::enter_inner_block(const OwnerPtr& owner) {
  const auto part = take_part(owner);
  if (!part.owns_lock()) return false;
  const auto lock = share(lock_);
  owner->savepoints.push_back({records().savepoint(), owner->logged.size()});
  return true;
}

bool Store::leave_inner_block(const OwnerPtr& owner, bool undo) {
  const auto part = lock_briefly(owner->use);
  if (!owner->open || owner->savepoints.empty()) return false;
  const Owner::Savepoint savepoint = owner->savepoints.back();
  owner->savepoints.pop_back();
  if (!undo) return true;
  const auto lock = share(lock_);
  records().undo_to(savepoint.records);
  owner->logged.resize(std::min(savepoint.logged, owner->logged.size()));
  return true;
}

void Store::read(const Reading& work) {
  check_usable();
  if (const auto part = take_part(current()); part.owns_lock()) {
    const auto lock = share(lock_);
    return work(records().transaction(), records().meta());
  }
  const auto lock = share(lock_);
  Records& all = records();
  struct Ends {
    Records& records;
    ~Ends() { records.end_reading(); }
  };
  memlith_kv_txn* const txn = all.begin_reading();
  const Ends ends{all};
  work(txn, all.meta());
}

void Store::write(bool weak, Length length, const Writing& work) {
  check_usable();
  if (const auto part = take_part(current()); part.owns_lock()) {
    if (length == Length::brief) {
      const auto lock = share(lock_);
      return work(records());
    }
    const Unlocked unlocked;
    const std::shared_lock lock(lock_);
    return work(records());
  }
  std::uint64_t ticket = 0;
  {
    Turn turn(turn_);
    const Unlocked unlocked;
    const std::shared_lock lock(lock_);
    Records& all = records();
    all.begin();
    try {
      work(all);
    } catch (const Failure&) {
      all.abort();
      throw;
    }
    ticket = all.commit();
    turn.end();
    if (weak || wait_here(ticket)) return;
  }
  wait(ticket);
}

void Store::append(const std::shared_ptr<Dictionary>& to, std::vector<Record> records, bool weak) {
  check_usable();
  if (current() != nullptr) fail(MEMLITH_INVALID, "append commits by itself, and is no part of a transaction");
  const auto turn = std::make_shared<Turn>(turn_);
  const auto given = std::make_shared<std::vector<Record>>(std::move(records));
  run([this, to, weak, turn, given] {
    const std::shared_lock lock(lock_);
    const std::uint64_t ticket = this->records().append(*to, *given);
    turn->end();
    if (!weak) check(memlith_wait(handle_, ticket));
  });
}

void Store::clear(const std::shared_ptr<Dictionary>& which, bool weak) {
  try {
    return write(weak, Length::any, [&](RecordWriter& records) { records.remove_range(*which, {}, {}); });
  } catch (const Failure& failure) {
    if (memlith_category(failure.code) != MEMLITH_FULL || current() != nullptr) throw;
  }
  // Too many records for one transaction.
  Turn turn(turn_);
  const Unlocked unlocked;
  const std::unique_lock lock(lock_);
  records().remake(*which);
}

// ---- a dictionary --------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kAppendBytes = 4 << 20;  // of one appending, behind which others write
constexpr std::size_t kBriefBytes = 16 << 10;

using Length = RecordStore::Length;

Length length_of(std::string_view value) { return value.size() <= kBriefBytes ? Length::brief : Length::any; }

// A value as it is stored: what `dumps` makes of it, or its own bytes.
class Value {
 public:
  Value(nb::handle value, nb::handle dumps) {
    holder_ = dumps.is_none() ? nb::borrow(value) : dumps(value);
    if (PyBytes_Check(holder_.ptr())) return;
    if (PyObject_GetBuffer(holder_.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  std::string_view bytes() const {
    if (view_.obj != nullptr) return {static_cast<const char*>(view_.buf), static_cast<std::size_t>(view_.len)};
    return {PyBytes_AsString(holder_.ptr()), static_cast<std::size_t>(PyBytes_Size(holder_.ptr()))};
  }

 private:
  nb::object holder_;
  Py_buffer view_{};
};

class Map {
 public:
  Map(nb::object store, const std::string& name, const std::string& kind, bool weak, nb::object dumps, nb::object loads)
      : owner_(std::move(store)),
        store_(nb::cast<RecordStore*>(owner_)),
        weak_(weak),
        dumps_(std::move(dumps)),
        loads_(std::move(loads)) {
    dictionary_ = store_->open_dictionary(name, kind);
  }

  nb::object at(nb::handle key) {
    nb::object found = find(key);
    if (!found.is_valid()) raise_missing(key);
    return found;
  }
  nb::object get(nb::handle key, nb::object otherwise) {
    nb::object found = find(key);
    return found.is_valid() ? found : otherwise;
  }

  bool contains(nb::handle key) {
    const std::string encoded = encode_key(key);
    bool found = false;
    store_->read([&](memlith_kv_txn* txn, memlith_kv_map) {
      memlith_bytes value{};
      found = present(memlith_kv_get(txn, dictionary_->map, encoded.data(), encoded.size(), &value));
    });
    return found;
  }

  std::uint64_t length() {
    std::uint64_t count = 0;
    store_->read([&](memlith_kv_txn* txn, memlith_kv_map meta) { count = Records::count(txn, meta, *dictionary_); });
    return count;
  }

  void set(nb::handle key, nb::handle value) {
    const std::string encoded = encode_key(key);
    const Value stored(value, dumps_);
    store_->write(weak_, length_of(stored.bytes()),
                  [&](RecordWriter& records) { records.put(*dictionary_, encoded, stored.bytes()); });
  }

  void remove(nb::handle key) {
    const std::string encoded = encode_key(key);
    bool found = false;
    store_->write(weak_, Length::brief, [&](RecordWriter& records) { found = records.remove(*dictionary_, encoded); });
    if (!found) raise_missing(key);
  }

  // The value, which is removed, or the object `otherwise`.
  nb::object take(nb::handle key, nb::object otherwise) {
    const std::string encoded = encode_key(key);
    std::optional<std::string> found;
    store_->write(weak_, Length::brief, [&](RecordWriter& records) {
      found.reset();
      if (const auto value = records.get(*dictionary_, encoded)) found = std::string(*value);
      if (found.has_value()) records.remove(*dictionary_, encoded);
    });
    return found.has_value() ? loaded(*found) : otherwise;
  }

  // The value; sets it first if there is none.
  nb::object set_default(nb::handle key, nb::object value) {
    if (nb::object found = find(key); found.is_valid()) return found;
    const std::string encoded = encode_key(key);
    const Value stored(value, dumps_);
    std::optional<std::string> found;
    store_->write(weak_, length_of(stored.bytes()), [&](RecordWriter& records) {
      found.reset();
      if (const auto before = records.get(*dictionary_, encoded)) {
        found = std::string(*before);
      } else {
        records.put(*dictionary_, encoded, stored.bytes());
      }
    });
    return found.has_value() ? loaded(*found) : value;
  }

  void clear() { store_->clear(dictionary_, weak_); }

  std::uint64_t remove_between(const nb::bytes& from, const nb::bytes& to) {
    std::uint64_t count = 0;
    store_->write(weak_, Length::any, [&](RecordWriter& records) {
      count = records.remove_range(*dictionary_, {from.c_str(), from.size()}, {to.c_str(), to.size()});
    });
    return count;
  }

  nb::tuple estimate_between(const nb::bytes& from, const nb::bytes& to) {
    const memlith_bytes first{from.c_str(), from.size()};
    const memlith_bytes end{to.c_str(), to.size()};
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
    store_->read([&](memlith_kv_txn* txn, memlith_kv_map) {
      check(memlith_kv_estimate(txn, dictionary_->map, first.size == 0 ? nullptr : &first,
                                end.size == 0 ? nullptr : &end, &records, &bytes));
    });
    return nb::make_tuple(records, bytes);
  }

  // Items of an iterable, in the order of their keys. No code of Python runs while the store appends.
  std::uint64_t append(nb::handle items) {
    std::vector<Record> records;
    std::uint64_t count = 0;
    std::size_t bytes = 0;
    const auto flush = [&] {
      const std::size_t appended = records.size();
      store_->append(dictionary_, std::exchange(records, {}), weak_);
      count += appended;
      bytes = 0;
    };
    for (const nb::handle item : nb::iter(items)) {
      const auto [key, value] = nb::cast<std::pair<nb::object, nb::object>>(item);
      const Value stored(value, dumps_);
      records.emplace_back(encode_key(key), stored.bytes());
      bytes += records.back().first.size() + records.back().second.size();
      if (bytes >= kAppendBytes) flush();
    }
    if (!records.empty()) flush();
    return count;
  }

  nb::tuple batch(const nb::bytes& from, const nb::bytes& to, bool backwards, std::uint64_t count, bool with_values);

 private:
  static bool present(std::int32_t code) {
    if (memlith_category(code) == MEMLITH_NOT_FOUND) return false;
    check(code);
    return true;
  }

  [[noreturn]] static void raise_missing(nb::handle key) {
    const nb::object arguments = nb::make_tuple(key);  // or a key that is a tuple would be taken for the arguments
    PyErr_SetObject(PyExc_KeyError, arguments.ptr());
    throw nb::python_error();
  }

  nb::object loaded(std::string_view value) const { return loaded(nb::bytes(value.data(), value.size())); }
  nb::object loaded(nb::object value) const { return loads_.is_none() ? value : loads_(value); }

  // Without an object if there is none.
  nb::object find(nb::handle key) {
    const std::string encoded = encode_key(key);
    nb::object value;
    store_->read([&](memlith_kv_txn* txn, memlith_kv_map) {
      memlith_bytes bytes{};
      if (!present(memlith_kv_get(txn, dictionary_->map, encoded.data(), encoded.size(), &bytes))) return;
      value = nb::bytes(bytes.data, bytes.size);
    });
    return value.is_valid() ? loaded(std::move(value)) : value;
  }

  nb::object owner_;
  RecordStore* store_;
  std::shared_ptr<Dictionary> dictionary_;
  bool weak_;
  nb::object dumps_;
  nb::object loads_;

  friend int map_traverse(PyObject* self, visitproc visit, void* arg);
  friend int map_clear(PyObject* self);
};

// Up to `count` records of the cursor, which has bounds, in one of the two orders.
std::vector<Record> look(memlith_kv_cursor* cursor, bool backwards, std::uint64_t count, bool with_values) {
  std::vector<Record> found;
  std::int32_t code = MEMLITH_OK;
  while (found.size() < count) {
    code = backwards ? memlith_kv_cursor_prev(cursor) : memlith_kv_cursor_next(cursor);
    if (code != MEMLITH_OK) break;
    memlith_bytes key{};
    memlith_bytes value{};
    check(memlith_kv_cursor_current(cursor, &key, with_values ? &value : nullptr));
    found.emplace_back(std::string(static_cast<const char*>(key.data), key.size),
                       std::string(static_cast<const char*>(value.data), value.size));
  }
  if (memlith_category(code) != MEMLITH_NOT_FOUND) check(code);
  return found;
}

// Keys, values (or None), and from where the next batch goes on; that is None behind the last one.
nb::tuple Map::batch(const nb::bytes& from, const nb::bytes& to, bool backwards, std::uint64_t count,
                     bool with_values) {
  const memlith_bytes first{from.c_str(), from.size()};
  const memlith_bytes end{to.c_str(), to.size()};
  std::vector<Record> found;
  store_->read([&](memlith_kv_txn* txn, memlith_kv_map) {
    memlith_kv_cursor* cursor = nullptr;
    check(memlith_kv_cursor_open(txn, dictionary_->map, &cursor));
    struct Close {
      memlith_kv_cursor* cursor;
      ~Close() { memlith_kv_cursor_close(cursor); }
    } const close{cursor};
    check(memlith_kv_cursor_set_bounds(cursor, first.size == 0 ? nullptr : &first, end.size == 0 ? nullptr : &end));
    found = look(cursor, backwards, count, with_values);
  });
  nb::list keys;
  nb::list values;
  for (const Record& each : found) {
    keys.append(decode_key(each.first));
    values.append(with_values ? loaded(each.second) : nb::none());
  }
  nb::object next = nb::none();
  if (!found.empty() && found.size() == count) {
    const std::string place = backwards ? found.back().first : found.back().first + '\0';
    next = nb::bytes(place.data(), place.size());
  }
  return nb::make_tuple(keys, values, next);
}

int map_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(nb::handle(self))) return 0;
  const Map* const map = nb::inst_ptr<Map>(nb::handle(self));
  Py_VISIT(map->owner_.ptr());
  Py_VISIT(map->dumps_.ptr());
  Py_VISIT(map->loads_.ptr());
  return 0;
}

int map_clear(PyObject* self) {
  Map* const map = nb::inst_ptr<Map>(nb::handle(self));
  map->dumps_ = nb::none();
  map->loads_ = nb::none();
  return 0;
}

PyType_Slot map_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(map_traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(map_clear)},
                           {0, nullptr}};

}  // namespace

void define_record_store(nb::module_& module) {
  nb::class_<RecordStore>(module, "RecordStore", "A store that has dictionaries.");
}

void define_dictionary(nb::module_& module) {
  nb::class_<Map>(module, "Map", nb::type_slots(map_slots), "Records of a store, as memlith.Dict uses them.")
      .def(nb::init<nb::object, const std::string&, const std::string&, bool, nb::object, nb::object>(),
           nb::arg("store"), nb::arg("name"), nb::arg("kind"), nb::arg("weak"), nb::arg("dumps").none(),
           nb::arg("loads").none())
      .def("__getitem__", &Map::at, nb::arg("key").none(),
           nb::sig("def __getitem__(self, key: typing.Any, /) -> typing.Any"))
      .def("__setitem__", &Map::set, nb::arg("key").none(), nb::arg("value").none(),
           nb::sig("def __setitem__(self, key: typing.Any, value: typing.Any, /) -> None"))
      .def("__delitem__", &Map::remove, nb::arg("key").none(),
           nb::sig("def __delitem__(self, key: typing.Any, /) -> None"))
      .def("__contains__", &Map::contains, nb::arg("key").none())
      .def("__len__", &Map::length)
      .def("get", &Map::get, nb::arg("key").none(), nb::arg("default").none() = nb::none(),
           "The value, or `default`: of the newest change, durable or not.",
           nb::sig("def get(self, key: typing.Any, default: typing.Any = None) -> typing.Any"))
      .def("take", &Map::take, nb::arg("key").none(), nb::arg("default").none(),
           nb::sig("def take(self, key: typing.Any, default: typing.Any) -> typing.Any"))
      .def("setdefault", &Map::set_default, nb::arg("key").none(), nb::arg("default").none() = nb::none(),
           "The value; sets it to `default` first if there is none.",
           nb::sig("def setdefault(self, key: typing.Any, default: typing.Any = None) -> typing.Any"))
      .def("clear", &Map::clear, "Removes all records, at once: a crash leaves all of them or none.")
      .def("remove_between", &Map::remove_between, nb::arg("start"), nb::arg("stop"))
      .def("estimate_between", &Map::estimate_between, nb::arg("start"), nb::arg("stop"),
           nb::sig("def estimate_between(self, start: bytes, stop: bytes) -> tuple[int, int]"))
      .def("append_items", &Map::append, nb::arg("items"), nb::sig("def append_items(self, items: typing.Any) -> int"))
      .def("batch", &Map::batch, nb::arg("start"), nb::arg("stop"), nb::arg("backwards"), nb::arg("count"),
           nb::arg("with_values"),
           nb::sig("def batch(self, start: bytes, stop: bytes, backwards: bool, count: int, with_values: bool) -> "
                   "tuple[list[typing.Any], list[typing.Any], bytes | None]"));
  module.def(
      "encode_key",
      [](nb::handle key) {
        const std::string encoded = encode_key(key);
        return nb::bytes(encoded.data(), encoded.size());
      },
      nb::arg("key").none(), "The bytes of a key, whose order is that of the keys.");
  module.def(
      "encode_prefix",
      [](nb::handle prefix) {
        const auto [from, to] = encode_prefix(prefix);
        return nb::make_tuple(nb::bytes(from.data(), from.size()), nb::bytes(to.data(), to.size()));
      },
      nb::arg("prefix").none(), nb::sig("def encode_prefix(prefix: typing.Any) -> tuple[bytes, bytes]"),
      "From where, and up to where, the keys are that begin so.");
}

}  // namespace memlith::python
