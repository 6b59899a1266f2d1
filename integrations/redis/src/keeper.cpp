// Implements keeper.h: the store of a Redis server. plugin redis.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "redis/src/keeper.hpp"

using memlith::IntegerKey;
using memlith::Result;
using memlith_redis::Batch;
using memlith_redis::is_refusal;
using memlith_redis::Kind;
using memlith_redis::Mover;
using memlith_redis::Records;

namespace {

// No write of a client may be larger than this; what is larger than the log makes the log grow.
constexpr std::uint64_t kLargestWrite = std::uint64_t{16} << 30;
constexpr std::uint64_t kChangedPagesBytes = 32ull << 20;  // of the kv store, in memory; Redis has the data as well
constexpr std::uint64_t kWaitingBytesMax = 64 << 20;

std::string_view bytes_of(const void* bytes, std::size_t count) { return {static_cast<const char*>(bytes), count}; }

std::string part_key(std::uint64_t id, std::uint32_t number) {
  return std::string(std::string_view(IntegerKey(id))) +
         std::string(std::string_view(IntegerKey(std::uint64_t{number})));
}

}  // namespace

struct keeper {
  explicit keeper(memlith::Store opened) : store(std::move(opened)) {}

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
    if (db == KEEPER_STATE_DB) return 0;
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

  Result<void> append(std::string_view bytes) {
    const std::uint64_t needed = bytes.size() + 64;
    if (room < needed) {
      if (auto made = make_room(needed); !made) return made;
    }
    auto number = log->append(bytes);
    if (!number) return number.error();
    newest = *number;
    room -= std::min(room, needed);
    if (mover->weak()) {
      mover->appended(bytes.size());
      return {};
    }
    return log->write();
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

keeper* keeper_open(const char* path, uint64_t log_bytes, char* why, size_t why_bytes) {
  const auto failed = [&](const std::string& message) -> keeper* {
    std::snprintf(why, why_bytes, "%s", message.c_str());
    return nullptr;
  };
  auto store = memlith::Store::open(path, {.create = true,
                                           .log_max_bytes = 2 * kLargestWrite,
                                           .memory_max_bytes = kChangedPagesBytes});
  if (!store) return failed(store.error().message());
  auto made = std::make_unique<keeper>(std::move(*store));
  if (const std::string wrong = made->open_parts(log_bytes); !wrong.empty()) return failed(wrong);
  return made.release();
}

int keeper_close(keeper* keeper) {
  const std::unique_ptr<struct keeper> owned(keeper);
  const int stopped = keeper_stop(keeper);
  if (const int closed = keeper->done(keeper->records.kv().close()); closed != 0) return closed;
  if (const int closed = keeper->done(keeper->log->close()); closed != 0) return closed;
  const int closed = keeper->done(keeper->store.close());
  return stopped != 0 ? stopped : closed;
}

const char* keeper_error(keeper* keeper) {
  if (std::string why = keeper->mover->failure(); !why.empty()) keeper->error = std::move(why);
  return keeper->error.c_str();
}

int keeper_is_new(keeper* keeper) { return keeper->newest == 0 && keeper->maps.empty() ? 1 : 0; }

// ---- what was kept

int keeper_load(keeper* keeper, keeper_record record, void* context) {
  auto txn = keeper->records.kv().begin({.read_only = true});
  if (!txn) return keeper->done(txn.error());
  std::map<int, std::uint64_t> all = keeper->maps;
  all[KEEPER_STATE_DB] = 0;
  for (const auto& [db, number] : all) {
    auto map = keeper->records.map_of(number);
    if (!map) return keeper->done(map.error());
    int status = 0;
    auto read = txn->get_range(*map, {}, {}, [&](std::string_view key, std::string_view value) {
      status = record(context, db, key.data(), key.size(), value.data(), value.size());
      return status == 0;
    });
    if (!read) return keeper->done(read);
    if (status != 0) return keeper->fail("a record cannot be loaded");
  }
  return 0;
}

uint64_t keeper_records(keeper* keeper) {
  auto info = keeper->records.kv().info();
  return info ? info->records : 0;
}

int keeper_load_parts(keeper* keeper, uint64_t id, keeper_part_found found, void* context) {
  auto txn = keeper->records.kv().begin({.read_only = true});
  if (!txn) return keeper->done(txn.error());
  int status = 0;
  auto read = txn->get_range(keeper->records.parts(), IntegerKey(id), IntegerKey(id + 1),
                             [&](std::string_view key, std::string_view part) {
                               const auto number = memlith::integer_of_key<std::uint64_t>(key.substr(8));
                               status = found(context, static_cast<std::uint32_t>(number), part.data(), part.size());
                               return status == 0;
                             });
  if (!read) return keeper->done(read);
  return status == 0 ? 0 : keeper->fail("a part of a value cannot be loaded");
}

int keeper_sweep(keeper* keeper, int (*alive)(void* context, uint64_t id), void* context) {
  std::vector<std::uint64_t> dead;
  {
    auto txn = keeper->records.kv().begin({.read_only = true});
    if (!txn) return keeper->done(txn.error());
    auto cursor = txn->cursor(keeper->records.parts());
    if (!cursor) return keeper->done(cursor.error());
    auto there = cursor->first();
    while (there && *there) {
      auto record = cursor->current();
      if (!record) return keeper->done(record.error());
      const auto id = memlith::integer_of_key<std::uint64_t>(record->key.substr(0, 8));
      if (alive(context, id) == 0) dead.push_back(id);
      there = cursor->seek(IntegerKey(id + 1));
    }
    if (!there) return keeper->done(there.error());
  }
  for (const std::uint64_t id : dead) {
    if (const int removed = keeper->done(keeper->records.remove_object(id)); removed != 0) return removed;
  }
  return 0;
}

int keeper_replay(keeper* keeper, int (*entry)(void* context, const char* bytes, size_t byte_count), void* context) {
  if (const int rewound = keeper->done(keeper->log->rewind()); rewound != 0) return rewound;
  for (;;) {
    auto read = keeper->log->read();
    if (!read) return keeper->done(read.error());
    if (!*read) return 0;
    if (entry(context, (*read)->content.data(), (*read)->content.size()) != 0) {
      return keeper->fail("entry " + std::to_string((*read)->number) + " of the log cannot be applied");
    }
  }
}

int keeper_forget(keeper* keeper) {
  keeper->batch = {};
  keeper->rebound.clear();
  const int read = keeper->done(keeper->records.read_bindings());
  keeper->maps = keeper->records.found_bindings();
  return read;
}

int keeper_start(keeper* keeper, int durability, uint64_t window_ms) {
  auto info = keeper->log->info();
  if (!info) return keeper->done(info.error());
  keeper->mover->start(durability, window_ms, info->size);
  return 0;
}

int keeper_stop(keeper* keeper) {
  keeper->mover->stop();
  return keeper->mover->failed() ? keeper->fail(keeper->mover->failure()) : 0;
}

void keeper_set_durability(keeper* keeper, int durability, uint64_t window_ms) {
  keeper->mover->set_durability(durability, window_ms);
}

// ---- the log

int keeper_append(keeper* keeper, const char* bytes, size_t byte_count) {
  const Result<void> appended = keeper->append({bytes, byte_count});
  const bool refused = !appended && keeper->mover->weak() && is_refusal(appended.error());
  return refused ? KEEPER_NO_ROOM : keeper->done(appended);
}

int keeper_write(keeper* keeper) { return keeper->done(keeper->log->write()); }

int keeper_has_room(keeper* keeper) { return keeper->mover->refused() ? 0 : 1; }

int keeper_failed(keeper* keeper) { return keeper->mover->failed() ? 1 : 0; }

// ---- a cut

int keeper_put(keeper* keeper, int db, const void* key, size_t key_bytes, const void* value, size_t value_bytes) {
  const std::uint64_t map = keeper->map_for(db);
  keeper->batch.add({Kind::put, map, bytes_of(key, key_bytes), bytes_of(value, value_bytes)});
  return 0;
}

int keeper_remove(keeper* keeper, int db, const void* key, size_t key_bytes) {
  if (db != KEEPER_STATE_DB && !keeper->maps.contains(db)) return 0;
  keeper->batch.add({Kind::remove, keeper->map_for(db), bytes_of(key, key_bytes), {}});
  return 0;
}

uint64_t keeper_new_object(keeper* keeper) { return keeper->next_object++; }

int keeper_put_part(keeper* keeper, uint64_t id, uint32_t number, const void* bytes, size_t byte_count) {
  keeper->batch.add({Kind::part, id, part_key(id, number), bytes_of(bytes, byte_count)});
  return 0;
}

int keeper_add_part(keeper* keeper, uint64_t id, uint32_t number, const void* bytes, size_t byte_count) {
  keeper->batch.add({Kind::add, id, part_key(id, number), bytes_of(bytes, byte_count)});
  return 0;
}

int keeper_drop_object(keeper* keeper, uint64_t id) {
  keeper->batch.dropped_objects.push_back(id);
  return 0;
}

void keeper_void(keeper* keeper) { keeper->batch.operations.clear(); }

int keeper_empty_db(keeper* keeper, int db) {
  const auto found = keeper->maps.find(db);
  if (found == keeper->maps.end()) return 0;
  keeper->batch.dropped_maps.push_back(found->second);
  keeper->maps.erase(found);
  keeper->rebound.insert(db);
  return 0;
}

void keeper_swap_dbs(keeper* keeper, int one, int other) {
  const std::uint64_t first = keeper->maps.contains(one) ? keeper->maps[one] : 0;
  const std::uint64_t second = keeper->maps.contains(other) ? keeper->maps[other] : 0;
  const auto give = [&](int db, std::uint64_t map) {
    if (map == 0) {
      keeper->maps.erase(db);
    } else {
      keeper->maps[db] = map;
    }
    keeper->rebound.insert(db);
  };
  give(one, second);
  give(other, first);
}

size_t keeper_cut_bytes(keeper* keeper) { return keeper->batch.operations.size(); }

int keeper_cut(keeper* keeper) {
  keeper->say_bindings();
  if (keeper->newest == keeper->cut && keeper->batch.empty()) return 0;
  Batch batch = std::exchange(keeper->batch, {});
  batch.entry = keeper->newest;
  keeper->cut = keeper->newest;
  ++keeper->cuts;
  keeper->mover->hand_over(std::move(batch));
  return 0;
}

int keeper_cut_piece(keeper* keeper) {
  Batch piece;
  piece.operations = std::exchange(keeper->batch.operations, {});
  piece.new_maps = std::exchange(keeper->batch.new_maps, {});
  keeper->mover->hand_over(std::move(piece));
  return keeper->mover->wait_until_less(kWaitingBytesMax) ? 0 : keeper->fail("the disk has no room for the kv store");
}

int keeper_settle(keeper* keeper) {
  if (!keeper->mover->wait_until_less(1)) return keeper->fail("the disk has no room for the kv store");
  return keeper->done(keeper->records.kv().persist());
}

int keeper_get_facts(keeper* keeper, keeper_facts* facts) {
  auto log = keeper->log->info();
  if (!log) return keeper->done(log.error());
  auto kv = keeper->records.kv().info();
  if (!kv) return keeper->done(kv.error());
  *facts = {log->size,    log->size - log->room,          log->newest,      log->durable, log->consumed,
            keeper->cuts, keeper->mover->waiting_bytes(), kv->region_bytes, kv->records,  keeper->waits};
  return 0;
}
