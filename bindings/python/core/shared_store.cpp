#include "shared_store.hpp"

#include <memlith/kv.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "errors.hpp"
#include "unlocked.hpp"

namespace nb = nanobind;

namespace memlith::python {

namespace {

constexpr char kMetaMap[] = "memlith.python";

bool is(const Failure& failure, std::int32_t category) { return memlith_category(failure.code) == category; }

// Twice as long each time, up to about 1 ms.
void pause(unsigned tries) {
  std::this_thread::sleep_for(std::chrono::microseconds(std::uint64_t{1} << std::min(tries, 10U)));
}

// Calls act(txn) and commits, until that is no conflict.
template <class Act>
void transact(memlith_kv* kv, std::uint32_t mode, const Act& act) {
  struct Own {
    memlith_kv_txn* txn = nullptr;
    ~Own() { memlith_kv_txn_free(txn); }
  } own;
  check(memlith_kv_begin(kv, 0, &own.txn));
  for (unsigned tries = 0;; ++tries) {
    try {
      act(own.txn);
      return check(memlith_kv_commit(own.txn, mode, nullptr));
    } catch (const Failure& failure) {
      if (!is(failure, MEMLITH_CONFLICT)) throw;
    }
    pause(tries);
    check(memlith_kv_renew(own.txn));
  }
}

memlith_kv_map map_of(memlith_kv* kv, const std::string& name) {
  memlith_kv_map map = 0;
  check(memlith_kv_map_open(kv, name.c_str(), MEMLITH_CREATE, &map));
  return map;
}

// The value, or nothing.
std::string value_in(memlith_kv_txn* txn, memlith_kv_map map, const std::string& key, bool& found) {
  memlith_bytes value{};
  const std::int32_t code = memlith_kv_get(txn, map, key.data(), key.size(), &value);
  found = memlith_category(code) != MEMLITH_NOT_FOUND;
  if (!found) return {};
  check(code);
  return {static_cast<const char*>(value.data), value.size};
}

}  // namespace

// ---- handles -------------------------------------------------------------------------------------------------------

struct SharedStore::Handle {
  // Nothing in a forked child: it is the parent's.
  ~Handle() {
    if (process != ::getpid()) return;
    memlith_kv_txn_free(reader);
    (void)memlith_kv_close(kv);
  }
  const pid_t process = ::getpid();
  memlith_kv* kv = nullptr;
  memlith_kv_map meta = 0;
  memlith_kv_txn* reader = nullptr;
  std::atomic<bool> may_lose{false};  // there was a weak commit since everything was durable
};

// One transaction, freed with the object, before its handle.
struct SharedStore::OwnTransaction {
  explicit OwnTransaction(HandlePtr given) : handle(std::move(given)) { check(memlith_kv_begin(handle->kv, 0, &txn)); }
  ~OwnTransaction() { memlith_kv_txn_free(txn); }  // refused in a forked child
  OwnTransaction(const OwnTransaction&) = delete;
  OwnTransaction& operator=(const OwnTransaction&) = delete;
  const HandlePtr handle;
  memlith_kv_txn* txn = nullptr;
};

SharedStore::SharedStore(const nb::bytes& path, bool create, const nb::bytes& program)
    : path_(path.c_str()), create_(create), program_(program.c_str()), handle_(open()) {}

SharedStore::~SharedStore() = default;

void SharedStore::close() {
  is_closed_ = true;
  blocks_.clear();
  handle_ = nullptr;
}

SharedStore::HandlePtr SharedStore::open() const {
  const Unlocked unlocked;
  auto made = std::make_shared<Handle>();
  memlith_kv_options options{};
  options.struct_size = sizeof options;
  options.flags = create_ ? MEMLITH_CREATE : 0;
  options.program = program_.empty() ? nullptr : program_.c_str();
  check(memlith_kv_open_shared(path_.c_str(), kRecordsRegion, &options, &made->kv));
  made->meta = map_of(made->kv, kMetaMap);
  check(memlith_kv_begin(made->kv, MEMLITH_KV_READ_ONLY, &made->reader));
  check(memlith_kv_abort(made->reader));
  return made;
}

SharedStore::HandlePtr SharedStore::handle() {
  if (is_closed_) fail(MEMLITH_INVALID, "the store is closed");
  if (handle_->process != ::getpid()) replace(handle_);
  return handle_;
}

// Another thread may have done so meanwhile.
void SharedStore::replace(const HandlePtr& ended) {
  const bool is_inherited = ended->process != ::getpid();
  if (handle_ != ended) return;
  HandlePtr made = open();
  if (handle_ != ended) return;
  for (auto& [name, known] : dictionaries_) {
    if (const auto dictionary = known.lock()) dictionary->map = map_of(made->kv, dictionary->name);
  }
  handle_ = std::move(made);
  if (is_inherited || !ended->may_lose) return;
  fail(MEMLITH_POISONED,
       "the keeper of the store has ended, and weak changes of this process may be lost; the next call goes on with "
       "what was durable");
}

// Calls act(handle) without the interpreter lock; again with another handle if the keeper had ended before anything was
// tried.
template <class Act>
void SharedStore::with_handle(const Act& act) {
  for (bool again = false;; again = true) {
    const HandlePtr current = handle();
    try {
      const Unlocked unlocked;
      return act(current);
    } catch (const Failure& failure) {
      if (again || !is(failure, MEMLITH_POISONED)) throw;
    }
    replace(current);
  }
}

// ---- dictionaries --------------------------------------------------------------------------------------------------

std::shared_ptr<Dictionary> SharedStore::open_dictionary(const std::string& name, const std::string& kind) {
  if (name.empty()) fail(MEMLITH_INVALID, "a dictionary has a name");
  if (block() != nullptr) fail(MEMLITH_INVALID, "a dictionary is opened outside of blocks");
  const std::string kind_key = "k=" + name;
  const std::string count_key = "n=" + name;
  memlith_kv_map map = 0;
  with_handle([&](const HandlePtr& handle) {
    transact(handle->kv, MEMLITH_COMMIT_SYNC, [&](memlith_kv_txn* txn) {
      bool found = false;
      const std::string stored = value_in(txn, handle->meta, kind_key, found);
      if (found && stored != kind) {
        fail(MEMLITH_INCOMPATIBLE, "\"" + name + "\" was created as " + stored + ", and cannot be opened as " + kind);
      }
      if (!found) {
        check(memlith_kv_put(txn, handle->meta, kind_key.data(), kind_key.size(), kind.data(), kind.size()));
      }
      // A count would make each new record a conflict with those of other processes.
      const std::string count = value_in(txn, handle->meta, count_key, found);
      if (!found || !count.empty()) {
        check(memlith_kv_put(txn, handle->meta, count_key.data(), count_key.size(), nullptr, 0));
      }
    });
    map = map_of(handle->kv, "=" + name);
  });
  std::weak_ptr<Dictionary>& known = dictionaries_[name];
  if (auto found = known.lock()) return found;
  const auto made = std::make_shared<Dictionary>(Dictionary{map, "=" + name});
  known = made;
  return made;
}

void SharedStore::read(const Reading& work) {
  if (Block* const own = block()) return work(own->own->txn, own->own->handle->meta);
  for (bool again = false;; again = true) {
    const HandlePtr current = handle();
    struct Ends {
      memlith_kv_txn* txn;
      ~Ends() { (void)memlith_kv_abort(txn); }
    };
    try {
      check(memlith_kv_renew(current->reader));
      const Ends ends{current->reader};
      return work(current->reader, current->meta);
    } catch (const Failure& failure) {
      if (again || !is(failure, MEMLITH_POISONED)) throw;
    }
    replace(current);
  }
}

void SharedStore::write(bool weak, Length /*length*/, const Writing& work) {
  if (Block* const own = block()) {
    RecordWriter writer(own->own->txn, own->own->handle->meta, false);
    const Unlocked unlocked;
    return work(writer);
  }
  with_handle([&](const HandlePtr& handle) {
    if (weak) handle->may_lose = true;
    transact(handle->kv, weak ? MEMLITH_COMMIT_WEAK : MEMLITH_COMMIT_SYNC, [&](memlith_kv_txn* txn) {
      RecordWriter writer(txn, handle->meta, false);
      work(writer);
    });
  });
}

void SharedStore::append(const std::shared_ptr<Dictionary>& to, std::vector<Record> records, bool /*weak*/) {
  if (block() != nullptr) fail(MEMLITH_INVALID, "append commits by itself, and is no part of a transaction");
  struct Rest {
    std::vector<Record>::const_iterator next;
    std::vector<Record>::const_iterator end;
  };
  const auto give = [](void* context, memlith_bytes* name, memlith_bytes* value) {
    Rest& left = *static_cast<Rest*>(context);
    if (left.next == left.end) return 1;
    *name = {left.next->first.data(), left.next->first.size()};
    *value = {left.next->second.data(), left.next->second.size()};
    ++left.next;
    return 0;
  };
  with_handle([&](const HandlePtr& handle) {
    Rest rest{records.begin(), records.end()};
    check(memlith_kv_map_append(handle->kv, to->map, give, &rest, nullptr));
  });
}

void SharedStore::clear(const std::shared_ptr<Dictionary>& which, bool weak) {
  write(weak, Length::any, [&](RecordWriter& records) { records.remove_range(*which, {}, {}); });
}

void SharedStore::persist() {
  with_handle([](const HandlePtr& handle) {
    handle->may_lose = false;
    const std::int32_t code = memlith_kv_persist(handle->kv);
    if (code != MEMLITH_OK) handle->may_lose = true;
    check(code);
  });
}

// ---- blocks --------------------------------------------------------------------------------------------------------

SharedStore::Block* SharedStore::block() {
  const auto found = blocks_.find(PyThread_get_thread_ident());
  if (found == blocks_.end()) return nullptr;
  if (found->second.own->handle->process == ::getpid()) return &found->second;
  fail(MEMLITH_INVALID, "the block is of the process that forked this one; fork outside of blocks");
}

void SharedStore::begin_block() {
  if (Block* const outer = block()) {
    std::uint64_t point = 0;
    check(memlith_kv_savepoint(outer->own->txn, &point));
    return outer->savepoints.push_back(point);
  }
  std::shared_ptr<OwnTransaction> own;
  with_handle([&](const HandlePtr& handle) { own = std::make_shared<OwnTransaction>(handle); });
  blocks_[PyThread_get_thread_ident()].own = std::move(own);
}

void SharedStore::end_block(bool commits, bool weak) {
  Block* const own = block();
  if (own == nullptr) fail(MEMLITH_INVALID, "the store was closed in a block, whose changes did not take effect");
  if (!own->savepoints.empty()) {
    const std::uint64_t point = own->savepoints.back();
    own->savepoints.pop_back();
    if (!commits) check(memlith_kv_undo_to(own->own->txn, point));
    return;
  }
  const std::shared_ptr<OwnTransaction> ends = std::move(own->own);
  blocks_.erase(PyThread_get_thread_ident());
  if (!commits) return;
  if (weak) ends->handle->may_lose = true;
  const Unlocked unlocked;
  check(memlith_kv_commit(ends->txn, weak ? MEMLITH_COMMIT_WEAK : MEMLITH_COMMIT_SYNC, nullptr));
}

void define_shared_store(nb::module_& module) {
  nb::class_<SharedStore, RecordStore>(module, "SharedStore",
                                       "A store of several processes, as memlith.SharedStore uses it.")
      .def(nb::init<const nb::bytes&, bool, const nb::bytes&>(), nb::arg("path"), nb::arg("create"), nb::arg("program"))
      .def("close", &SharedStore::close)
      .def_prop_ro("closed", &SharedStore::closed)
      .def_prop_ro("in_block", &SharedStore::in_block)
      .def("persist", &SharedStore::persist)
      .def("begin_block", &SharedStore::begin_block)
      .def("end_block", &SharedStore::end_block, nb::arg("commits"), nb::arg("weak"));
}

}  // namespace memlith::python
