#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>

#include "../line_log.hpp"
#include "base/process.hpp"
#include "connection.hpp"

namespace memlith::sqlite::shared {

namespace {

// A busy handler sleeps within this time after the refusal.
constexpr std::uint64_t kSoonNs = 1'000'000;

std::weak_ptr<Connection>& last_used() {
  thread_local std::weak_ptr<Connection> instance;
  return instance;
}
struct LastRefused {
  std::weak_ptr<Connection> connection;
  std::uint64_t when = 0;
};
LastRefused& last_refused() {
  thread_local LastRefused instance;
  return instance;
}

}  // namespace

void note_used(const std::shared_ptr<Connection>& connection) { last_used() = connection; }

void note_refused(const std::shared_ptr<Connection>& connection) { last_refused() = {connection, now_ns()}; }

std::shared_ptr<Connection> take_refused() {
  LastRefused& last = last_refused();
  if (last.when == 0) return nullptr;
  auto connection = last.connection.lock();
  const bool soon = now_ns() - last.when <= kSoonNs;
  last = {};
  return soon ? connection : nullptr;
}

Registry::Registry() : process_mark_(core::process_mark()) {}

// The mutex keeps changes away while the process forks.
Registry& Registry::get() {
  static Registry* const instance = [] {
    ::pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); }, [] { get().mutex_.unlock(); });
    return new Registry;
  }();
  return *instance;
}

std::shared_ptr<Connection> Registry::add(const Api& api, sqlite3_vfs& own, const std::string& path,
                                          const Options& options) {
  const std::lock_guard guard(mutex_);
  if (of_engine_.contains(path)) return nullptr;
  sqlite3_vfs* first = &own;
  for (const auto& [key, connection] : connections_) {
    if (connection->path() == path && !connection->inherited()) first = &connection->vfs();
  }
  auto connection = std::make_shared<Connection>(api, *first, first != &own, path, options);
  connections_[connection.get()] = connection;
  return connection;
}

void Registry::remove(const Connection& connection) {
  const std::lock_guard guard(mutex_);
  connections_.erase(&connection);
}

bool Registry::has(std::string_view path) const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [&](const auto& entry) { return entry.second->path() == path; });
}

bool Registry::knows(std::string_view path) {
  const std::lock_guard guard(mutex_);
  return has(path);
}

bool Registry::knows_or(std::string_view path, const std::function<bool()>& look) {
  const std::lock_guard guard(mutex_);
  return has(path) || look();
}

std::shared_ptr<void> Registry::claim_for_engine(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (has(path)) return nullptr;
  of_engine_.insert(path);
  return {this, [path](Registry* registry) {
            const std::lock_guard releasing(registry->mutex_);
            const auto claimed = registry->of_engine_.find(path);  // a forked child has let it go
            if (claimed != registry->of_engine_.end()) registry->of_engine_.erase(claimed);
          }};
}

std::shared_ptr<Connection> Registry::owner_of_wal(std::string_view name) {
  auto connection = last_used().lock();
  if (connection == nullptr || connection->inherited() || connection->wal().is_open()) return nullptr;
  return name == connection->path() + "-wal" ? connection : nullptr;
}

std::shared_ptr<Node> Registry::node_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return nullptr;
  const std::lock_guard guard(mutex_);
  auto& known = nodes_[{info.st_dev, info.st_ino}];
  if (auto node = known.lock(); node != nullptr) return node;
  auto sidecar = Sidecar::attach(path);
  if (!sidecar.ok()) {
    if (without_page_.insert({info.st_dev, info.st_ino}).second) {
      log_line("{}: mode shared as plain SQLite: {}", path, core::last_error_text());
    }
    return nullptr;
  }
  auto node = std::make_shared<Node>(std::move(*sidecar));
  known = node;
  return node;
}

void Registry::leave_parent() {
  const std::lock_guard guard(mutex_);
  if (process_mark_ == core::process_mark()) return;
  process_mark_ = core::process_mark();
  abandon_all();
}

void Registry::abandon_all() {
  for (const auto& [key, connection] : connections_) connection->abandon();
  connections_.clear();
  nodes_.clear();
  of_engine_.clear();
}

}  // namespace memlith::sqlite::shared
