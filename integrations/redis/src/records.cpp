// The kv store: databases, records, objects of several parts. plugin redis.
#include <array>
#include <charconv>

#include "redis/src/datastore.hpp"

namespace memlith_redis {

using memlith::Error;
using memlith::IntegerKey;
using memlith::Result;

namespace {

constexpr std::string_view kDatabase = "db.";
constexpr std::int32_t kCut = -1;  // among the bindings: not a database, but the newest entry of the log

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

Result<void> Records::open(const memlith::Store& store) {
  auto kv = memlith::Kv::open(store, "kv", {.create = true});
  if (!kv) return kv.error();
  kv_.emplace(std::move(*kv));
  for (auto [name, map] :
       {std::pair{"parts", &parts_}, std::pair{"bindings", &bindings_}, std::pair{"other", &other_}}) {
    auto opened = kv_->map(name, {.create = true});
    if (!opened) return opened.error();
    *map = *opened;
  }
  maps_[0] = other_;
  if (auto read = read_bindings(); !read) return read;
  if (auto removed = remove_unbound_maps(); !removed) return removed;
  auto txn = kv_->begin({.read_only = true});
  if (!txn) return txn.error();
  auto cursor = txn->cursor(parts_);
  if (!cursor) return cursor.error();
  auto there = cursor->last();
  if (!there) return there.error();
  if (!*there) return {};
  auto record = cursor->current();
  if (!record) return record.error();
  next_object_ = memlith::integer_of_key<std::uint64_t>(record->key.substr(0, 8)) + 1;
  return {};
}

Result<void> Records::read_bindings() {
  found_.clear();
  cut_ = 0;
  auto txn = kv_->begin({.read_only = true});
  if (!txn) return txn.error();
  return txn->get_range(bindings_, {}, {}, [this](std::string_view database, std::string_view map) {
    const auto number = memlith::integer_of_key<std::int32_t>(database);
    (number == kCut ? cut_ : found_[number]) = memlith::integer_of_key<std::uint64_t>(map);
    return true;
  });
}

// Removes maps of a snapshot that a crash cut off, or of databases that were emptied.
Result<void> Records::remove_unbound_maps() {
  std::vector<std::string> unbound;
  std::set<std::uint64_t> bound;
  for (const auto& [database, map] : found_) bound.insert(map);
  std::array<char, 256> name{};
  for (std::uint64_t index = 0;; ++index) {
    const std::int32_t code = memlith_kv_map_at(kv_->handle(), index, name.data(), name.size());
    if (code != MEMLITH_OK && memlith_category(code) == MEMLITH_NOT_FOUND) break;
    if (code != MEMLITH_OK) return Error(code);
    const std::string_view text = name.data();
    if (!text.starts_with(kDatabase)) continue;
    const auto number = number_in(text.substr(kDatabase.size()));
    if (!number) continue;
    next_map_ = std::max(next_map_, *number + 1);
    if (!bound.contains(*number)) unbound.emplace_back(text);
  }
  for (const std::string& each : unbound) {
    if (auto removed = kv_->remove_map(each); !removed) return removed;
  }
  return {};
}

Result<memlith::KvMap> Records::map_of(std::uint64_t number) {
  if (const auto found = maps_.find(number); found != maps_.end()) return found->second;
  auto map = kv_->map(std::string(kDatabase) + std::to_string(number), {.create = true});
  if (map) maps_[number] = *map;
  return map;
}

Result<void> Records::change(memlith::KvTransaction& txn, const Operation& operation) {
  switch (operation.kind) {
    case Kind::part:  // written before
    case Kind::add: return txn.put(parts_, operation.key, operation.value);
    case Kind::bind: return txn.put(bindings_, operation.key, operation.value);
    case Kind::put: {
      auto map = map_of(operation.number);
      return map ? txn.put(*map, operation.key, operation.value) : map.error();
    }
    case Kind::remove:
    case Kind::unbind: break;
  }
  auto map = operation.kind == Kind::unbind ? Result<memlith::KvMap>(bindings_) : map_of(operation.number);
  if (!map) return map.error();
  auto removed = txn.remove(*map, operation.key);
  return !removed && removed.error().category() == MEMLITH_NOT_FOUND ? Result<void>() : removed;
}

Result<void> Records::apply(memlith::KvTransaction& txn, const Batch& batch) {
  Result<void> done;
  batch.each([&](const Operation& operation) {
    if (operation.kind == Kind::part) return true;
    done = change(txn, operation);
    return done.ok();
  });
  return done;
}

Result<void> Records::note_cut(memlith::KvTransaction& txn, std::uint64_t entry) {
  return txn.put(bindings_, IntegerKey(kCut), IntegerKey(entry));
}

Result<void> Records::remove_object(std::uint64_t id) {
  const IntegerKey first(id);
  const IntegerKey end(id + 1);
  std::vector<std::string> keys;
  {
    auto txn = kv_->begin({.read_only = true});
    if (!txn) return txn.error();
    auto read = txn->get_range(parts_, first, end, [&](std::string_view key, std::string_view) {
      keys.emplace_back(key);
      return true;
    });
    if (!read) return read;
  }
  auto done = kv_->transact(
      [&](memlith::KvTransaction& txn) -> Result<void> {
        for (const std::string& key : keys) {
          if (auto removed = txn.remove(parts_, key); !removed) return removed;
        }
        return {};
      },
      memlith::Durability::weak);
  return done ? Result<void>() : done.error();
}

Result<void> Records::drop(const Batch& batch) {
  for (const std::uint64_t id : batch.dropped_objects) {
    if (auto removed = remove_object(id); !removed) return removed;
  }
  for (const std::uint64_t number : batch.dropped_maps) {
    maps_.erase(number);
    auto removed = kv_->remove_map(std::string(kDatabase) + std::to_string(number));
    if (!removed && removed.error().category() != MEMLITH_NOT_FOUND) return removed;
  }
  return {};
}

}  // namespace memlith_redis
