// Implements datastore.h: the store of a Redis server. plugin redis.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "redis/src/datastore.hpp"

using memlith::IntegerKey;
using memlith::Result;
using memlith_redis::Batch;
using memlith_redis::Kind;
using memlith_redis::Mover;
using memlith_redis::Records;
using memlith_settled::is_refusal;

namespace {

// No write of a client may be larger than this; what is larger than the log makes the log grow.
constexpr std::uint64_t kLargestWrite = std::uint64_t{16} << 30;
constexpr std::uint64_t kChangedPagesBytes = 64ull << 20;  // of the kv store, in memory; Redis has the data as well
constexpr std::uint64_t kWaitingBytesMax = 64 << 20;

std::string_view bytes_of(const void* bytes, std::size_t count) { return {static_cast<const char*>(bytes), count}; }

std::string part_key(std::uint64_t id, std::uint32_t number) {
  return std::string(std::string_view(IntegerKey(id))) +
         std::string(std::string_view(IntegerKey(std::uint64_t{number})));
}

}  // namespace

struct datastore {
  explicit datastore(memlith::Store opened) : store(std::move(opened)) {}

  memlith::Store store;
  std::optional<memlith::AppLog> log;
  Records records;
  std::optional<Mover> mover;
  std::string error;

  // Used by the one thread that calls.
  std::map<int, std::uint64_t> maps;  // of each database that has records
  std::set<int> rebound;              // since the last cut
  Batch batch;
  std::uint64_t next_map = 1, next_object = 1;
  std::uint64_t newest = 0, cut = 0, cuts = 0, waits = 0;
  std::uint64_t room = 0;  // in the log, at least

  int fail(std::string why) {
    error = std::move(why);
    return -1;
  }
  int done(const Result<void>& result) { return result ? 0 : fail(result.error().message()); }

  std::uint64_t map_for(int db) {
    if (db == DATASTORE_STATE_DB) return 0;
    std::uint64_t& map = maps[db];
    if (map == 0) {
      map = next_map++;
      batch.new_maps.push_back(map);
      rebound.insert(db);
    }
    return map;
  }

  // Empty, or why the log and the kv store cannot be used together.
  std::string open_parts(std::uint64_t log_bytes) {
    if (auto opened = open(log_bytes); !opened) return opened.error().message();
    if (records.found_cut() == cut) return {};
    return "the log and the kv store do not belong together: entry " + std::to_string(cut) +
           " is the newest that the log knows to be in the kv store, and the kv store has entry " +
           std::to_string(records.found_cut()) + "; restore the folder as a whole";
  }

  Result<void> open(std::uint64_t log_bytes) {
    auto opened = memlith::AppLog::open(store, "log",
                                        {.create = true,
                                         .when_full = memlith::WhenFull::grow,
                                         .size = log_bytes,
                                         .max_size = std::max(2 * kLargestWrite, log_bytes)});
    if (!opened) return opened.error();
    log.emplace(std::move(*opened));
    if (auto done = records.open(store); !done) return done;
    maps = records.found_bindings();
    next_map = records.next_map();
    next_object = records.next_object();
    auto info = log->info();
    if (!info) return info.error();
    newest = info->newest;
    cut = info->consumed;
    room = info->room;
    mover.emplace(store, *log, records);
    return {};
  }

  // Waits until the log has room, or until there is nothing left to wait for.
  Result<void> make_room(std::uint64_t bytes) {
    for (bool waited = false;; waited = true) {
      auto info = log->info();
      if (!info) return info.error();
      room = info->room;
      if (room >= bytes || info->consumed >= cut || mover->failed() || mover->refused()) return {};
      if (!waited) ++waits;
      mover->hurry();
      mover->wait_for_move();
    }
  }

  Result<void> append(std::string_view bytes, bool ahead = false) {
    const std::uint64_t needed = bytes.size() + 64;
    if (room < needed) {
      if (auto made = make_room(needed); !made) return made;
    }
    auto number = log->append(bytes);
    if (!number) return number.error();
    newest = *number;
    room -= std::min(room, needed);
    if (mover->weak() || ahead) {
      mover->appended(bytes.size());
      return {};
    }
    return mover->write();
  }

  void say_bindings() {
    for (const int db : rebound) {
      const IntegerKey key(static_cast<std::int32_t>(db));
      if (const auto found = maps.find(db); found != maps.end()) {
        batch.add({Kind::bind, 0, key, IntegerKey(found->second)});
      } else {
        batch.add({Kind::unbind, 0, key, {}});
      }
    }
    rebound.clear();
  }
};

datastore* datastore_open(const char* path, uint64_t log_bytes, char* why, size_t why_bytes) {
  const auto failed = [&](const std::string& message) -> datastore* {
    std::snprintf(why, why_bytes, "%s", message.c_str());
    return nullptr;
  };
  auto store = memlith::Store::open(path, {.create = true,
                                           .log_max_bytes = 2 * kLargestWrite,
                                           .memory_max_bytes = kChangedPagesBytes});
  if (!store) return failed(store.error().message());
  auto made = std::make_unique<datastore>(std::move(*store));
  if (const std::string wrong = made->open_parts(log_bytes); !wrong.empty()) return failed(wrong);
  return made.release();
}

int datastore_close(datastore* datastore) {
  const std::unique_ptr<struct datastore> owned(datastore);
  const int stopped = datastore_stop(datastore);
  if (const int closed = datastore->done(datastore->records.kv().close()); closed != 0) return closed;
  if (const int closed = datastore->done(datastore->log->close()); closed != 0) return closed;
  const int closed = datastore->done(datastore->store.close());
  return stopped != 0 ? stopped : closed;
}

const char* datastore_error(datastore* datastore) {
  if (std::string why = datastore->mover->failure(); !why.empty()) datastore->error = std::move(why);
  return datastore->error.c_str();
}

int datastore_is_new(datastore* datastore) { return datastore->newest == 0 && datastore->maps.empty() ? 1 : 0; }

// ---- what was kept

int datastore_load(datastore* datastore, datastore_record record, void* context) {
  auto txn = datastore->records.kv().begin({.read_only = true});
  if (!txn) return datastore->done(txn.error());
  std::map<int, std::uint64_t> all = datastore->maps;
  all[DATASTORE_STATE_DB] = 0;
  for (const auto& [db, number] : all) {
    auto map = datastore->records.map_of(number);
    if (!map) return datastore->done(map.error());
    int status = 0;
    auto read = txn->get_range(*map, {}, {}, [&](std::string_view key, std::string_view value) {
      status = record(context, db, key.data(), key.size(), value.data(), value.size());
      return status == 0;
    });
    if (!read) return datastore->done(read);
    if (status != 0) return datastore->fail("a record cannot be loaded");
  }
  return 0;
}

uint64_t datastore_records(datastore* datastore) {
  auto info = datastore->records.kv().info();
  return info ? info->records : 0;
}

int datastore_load_parts(datastore* datastore, uint64_t id, datastore_part_found found, void* context) {
  auto txn = datastore->records.kv().begin({.read_only = true});
  if (!txn) return datastore->done(txn.error());
  int status = 0;
  auto read = txn->get_range(datastore->records.parts(), IntegerKey(id), IntegerKey(id + 1),
                             [&](std::string_view key, std::string_view part) {
                               const auto number = memlith::integer_of_key<std::uint64_t>(key.substr(8));
                               status = found(context, static_cast<std::uint32_t>(number), part.data(), part.size());
                               return status == 0;
                             });
  if (!read) return datastore->done(read);
  return status == 0 ? 0 : datastore->fail("a part of a value cannot be loaded");
}

int datastore_sweep(datastore* datastore, int (*alive)(void* context, uint64_t id), void* context) {
  std::vector<std::uint64_t> dead;
  {
    auto txn = datastore->records.kv().begin({.read_only = true});
    if (!txn) return datastore->done(txn.error());
    auto cursor = txn->cursor(datastore->records.parts());
    if (!cursor) return datastore->done(cursor.error());
    auto there = cursor->first();
    while (there && *there) {
      auto record = cursor->current();
      if (!record) return datastore->done(record.error());
      const auto id = memlith::integer_of_key<std::uint64_t>(record->key.substr(0, 8));
      if (alive(context, id) == 0) dead.push_back(id);
      there = cursor->seek(IntegerKey(id + 1));
    }
    if (!there) return datastore->done(there.error());
  }
  for (const std::uint64_t id : dead) {
    if (const int removed = datastore->done(datastore->records.remove_object(id)); removed != 0) return removed;
  }
  return 0;
}

int datastore_replay(datastore* datastore, int (*entry)(void* context, const char* bytes, size_t byte_count),
                     void* context) {
  if (const int rewound = datastore->done(datastore->log->rewind()); rewound != 0) return rewound;
  for (;;) {
    auto read = datastore->log->read();
    if (!read) return datastore->done(read.error());
    if (!*read) return 0;
    if (entry(context, (*read)->content.data(), (*read)->content.size()) != 0) {
      return datastore->fail("entry " + std::to_string((*read)->number) + " of the log cannot be applied");
    }
  }
}

int datastore_forget(datastore* datastore) {
  datastore->batch = {};
  datastore->rebound.clear();
  const int read = datastore->done(datastore->records.read_bindings());
  datastore->maps = datastore->records.found_bindings();
  return read;
}

int datastore_start(datastore* datastore, int durability, uint64_t window_ms) {
  auto info = datastore->log->info();
  if (!info) return datastore->done(info.error());
  datastore->mover->start(durability, window_ms, info->size);
  return 0;
}

int datastore_stop(datastore* datastore) {
  datastore->mover->stop();
  return datastore->mover->failed() ? datastore->fail(datastore->mover->failure()) : 0;
}

void datastore_set_durability(datastore* datastore, int durability, uint64_t window_ms) {
  datastore->mover->set_durability(durability, window_ms);
}

// ---- the log

int datastore_append(datastore* datastore, const char* bytes, size_t byte_count) {
  const Result<void> appended = datastore->append({bytes, byte_count});
  const bool refused = !appended && datastore->mover->weak() && is_refusal(appended.error());
  return refused ? DATASTORE_NO_ROOM : datastore->done(appended);
}

int datastore_append_ahead(datastore* datastore, const char* bytes, size_t byte_count) {
  const Result<void> appended = datastore->append({bytes, byte_count}, true);
  return !appended && is_refusal(appended.error()) ? DATASTORE_NO_ROOM : datastore->done(appended);
}

uint64_t datastore_newest(datastore* datastore) { return datastore->newest; }

uint64_t datastore_durable(datastore* datastore) { return datastore->log->durable(); }

void datastore_tell_progress(datastore* datastore, int fd) { datastore->mover->tell_progress(fd); }

uint64_t datastore_flush_us(datastore* datastore) { return datastore->mover->flush_us(); }

int datastore_write(datastore* datastore) { return datastore->done(datastore->log->write()); }

int datastore_has_room(datastore* datastore) { return datastore->mover->refused() ? 0 : 1; }

int datastore_failed(datastore* datastore) { return datastore->mover->failed() ? 1 : 0; }

// ---- a cut

int datastore_put(datastore* datastore, int db, const void* key, size_t key_bytes, const void* value,
                  size_t value_bytes) {
  const std::uint64_t map = datastore->map_for(db);
  datastore->batch.add({Kind::put, map, bytes_of(key, key_bytes), bytes_of(value, value_bytes)});
  return 0;
}

int datastore_remove(datastore* datastore, int db, const void* key, size_t key_bytes) {
  if (db != DATASTORE_STATE_DB && !datastore->maps.contains(db)) return 0;
  datastore->batch.add({Kind::remove, datastore->map_for(db), bytes_of(key, key_bytes), {}});
  return 0;
}

uint64_t datastore_new_object(datastore* datastore) { return datastore->next_object++; }

int datastore_put_part(datastore* datastore, uint64_t id, uint32_t number, const void* bytes, size_t byte_count) {
  datastore->batch.add({Kind::part, id, part_key(id, number), bytes_of(bytes, byte_count)});
  return 0;
}

int datastore_add_part(datastore* datastore, uint64_t id, uint32_t number, const void* bytes, size_t byte_count) {
  datastore->batch.add({Kind::add, id, part_key(id, number), bytes_of(bytes, byte_count)});
  return 0;
}

int datastore_drop_object(datastore* datastore, uint64_t id) {
  datastore->batch.dropped_objects.push_back(id);
  return 0;
}

void datastore_void(datastore* datastore) { datastore->batch.operations.clear(); }

int datastore_empty_db(datastore* datastore, int db) {
  const auto found = datastore->maps.find(db);
  if (found == datastore->maps.end()) return 0;
  datastore->batch.dropped_maps.push_back(found->second);
  datastore->maps.erase(found);
  datastore->rebound.insert(db);
  return 0;
}

void datastore_swap_dbs(datastore* datastore, int one, int other) {
  const std::uint64_t first = datastore->maps.contains(one) ? datastore->maps[one] : 0;
  const std::uint64_t second = datastore->maps.contains(other) ? datastore->maps[other] : 0;
  const auto give = [&](int db, std::uint64_t map) {
    if (map == 0) {
      datastore->maps.erase(db);
    } else {
      datastore->maps[db] = map;
    }
    datastore->rebound.insert(db);
  };
  give(one, second);
  give(other, first);
}

size_t datastore_cut_bytes(datastore* datastore) { return datastore->batch.operations.size(); }

int datastore_cut(datastore* datastore) {
  datastore->say_bindings();
  if (datastore->newest == datastore->cut && datastore->batch.empty()) return 0;
  Batch batch = std::exchange(datastore->batch, {});
  batch.entry = datastore->newest;
  datastore->cut = datastore->newest;
  ++datastore->cuts;
  datastore->mover->hand_over(std::move(batch));
  return 0;
}

int datastore_cut_piece(datastore* datastore) {
  Batch piece;
  piece.operations = std::exchange(datastore->batch.operations, {});
  piece.new_maps = std::exchange(datastore->batch.new_maps, {});
  datastore->mover->hand_over(std::move(piece));
  return datastore->mover->wait_until_less(kWaitingBytesMax) ? 0
                                                             : datastore->fail("the disk has no room for the kv store");
}

int datastore_checkpoint(datastore* datastore) {
  if (!datastore->mover->wait_until_less(1)) return datastore->fail("the disk has no room for the kv store");
  return datastore->done(datastore->records.kv().persist());
}

int datastore_get_facts(datastore* datastore, datastore_facts* facts) {
  auto log = datastore->log->info();
  if (!log) return datastore->done(log.error());
  auto kv = datastore->records.kv().info();
  if (!kv) return datastore->done(kv.error());
  *facts = {log->size,
            log->size - log->room,
            log->newest,
            log->durable,
            log->consumed,
            datastore->cuts,
            datastore->mover->waiting_bytes(),
            kv->region_bytes,
            kv->records,
            datastore->waits};
  return 0;
}
