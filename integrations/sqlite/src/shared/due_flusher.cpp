#include "due_flusher.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "../line_log.hpp"

namespace memlith::sqlite::shared {

namespace {

// How often a process looks whether something is due that another one promised.
constexpr std::uint64_t kDueFlusherLooksNs = 200'000'000;

OneOfProcess<DueFlusher> g_due_flusher;

}  // namespace

// The log through a descriptor of its own, because SQLite's belong to the threads of the connections. SQLite locks no
// log, so closing the descriptor releases no lock.
class DueFlusher::OwnLog final : public Log {
 public:
  OwnLog(Node& node, sqlite3_vfs& vfs, const std::string& path) : node_(node), vfs_(vfs), path_(path + "-wal") {}
  ~OwnLog() override { (void)file_.close(); }

  bool open() {
    struct stat before{};
    struct stat after{};
    if (::stat(path_.c_str(), &before) != 0) return false;
    if (file_.open(vfs_, path_.c_str(), SQLITE_OPEN_WAL | SQLITE_OPEN_READWRITE, nullptr) != SQLITE_OK) return false;
    opened_at_ = node_.group.number();
    const bool same = ::stat(path_.c_str(), &after) == 0 && is_same(before, after);
    if (!same) (void)file_.close();
    opened_ = after;
    return same;
  }
  // The newest promised position: SQLite's index is mapped by the connections only.
  [[nodiscard]] std::optional<Position> newest() const override {
    const std::uint64_t promised = node_.sidecar->control().promised.load(std::memory_order_acquire);
    return promised != 0 ? std::optional(Position::of(promised)) : std::nullopt;
  }
  int flush() override {
    struct stat named{};
    if (::stat(path_.c_str(), &named) != 0) {
      // SQLite removes a log when everything in it is durable in the database.
      return errno == ENOENT ? SQLITE_OK : SQLITE_IOERR_FSYNC;
    }
    if (!file_.is_open() || !is_same(named, opened_)) {
      (void)file_.close();
      if (!open()) return SQLITE_IOERR_FSYNC;
    }
    return file_->xSync(file_.file(), SQLITE_SYNC_NORMAL);
  }
  [[nodiscard]] std::uint64_t opened_at() const override { return opened_at_; }
  int write_again() override { return SQLITE_BUSY; }  // a connection does

 private:
  static bool is_same(const struct stat& one, const struct stat& other) {
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
  }

  Node& node_;  // lives while the log is used
  sqlite3_vfs& vfs_;
  const std::string path_;
  RealFile file_;
  struct stat opened_{};
  std::uint64_t opened_at_ = UINT64_MAX;
};

DueFlusher& DueFlusher::of_process() { return g_due_flusher.get(); }

// The process ends without having closed its connections.
void DueFlusher::at_exit() {
  DueFlusher* const flusher = g_due_flusher.find();
  if (flusher == nullptr || !flusher->mutex_.try_lock()) return;
  std::vector<Due> all;
  {
    const std::lock_guard guard(flusher->mutex_, std::adopt_lock);
    std::uint64_t next = 0;
    all = flusher->find_due(UINT64_MAX, next);
  }
  for (const Due& each : all) (void)each.node->group.flush(*each.log);
}

bool DueFlusher::start() {
  if (!runs_) runs_ = start_thread([this] { run(); });
  return runs_;
}

bool DueFlusher::watch(const std::shared_ptr<Node>& node, sqlite3_vfs& vfs, const std::string& path) {
  const std::lock_guard guard(mutex_);
  for (const Watched& each : entries_) {
    if (each.node.lock() == node) return start();
  }
  auto log = std::make_shared<OwnLog>(*node, vfs, path);
  if (!log->open()) return false;
  entries_.push_back({node, std::move(log)});
  return start();
}

void DueFlusher::wake() {
  const std::lock_guard guard(mutex_);
  woken_ = true;
  changed_.notify_one();
}

// The logs that are due at `now`; sets `next` to the time of the next look, if that is earlier.
std::vector<DueFlusher::Due> DueFlusher::find_due(std::uint64_t now, std::uint64_t& next) {
  std::vector<Due> all;
  std::erase_if(entries_, [](const Watched& each) { return each.node.expired(); });
  for (Watched& each : entries_) {
    auto node = each.node.lock();
    if (node == nullptr || node->group.failed()) continue;
    const std::uint64_t due = node->group.due_ns();
    if (due == 0) continue;
    const std::uint64_t then = std::max(due, each.not_before_ns);
    if (then > now) {
      next = std::min(next, then);
      continue;
    }
    each.not_before_ns = now + kDueFlusherLooksNs;  // unless the flush succeeds
    all.push_back({std::move(node), each.log});
  }
  return all;
}

void DueFlusher::flush(const std::vector<Due>& all) {
  for (const Due& each : all) {
    const int code = each.node->group.flush_due(*each.log);
    if (code == SQLITE_IOERR_FSYNC) log_line("error: a flush of a write-ahead log failed; commits in doubt are lost");
    if (code != SQLITE_OK) continue;
    const std::lock_guard guard(mutex_);
    for (Watched& entry : entries_) {
      if (entry.log == each.log) entry.not_before_ns = 0;
    }
  }
}

void DueFlusher::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    woken_ = false;
    const std::uint64_t now = now_ns();
    std::uint64_t next = now + kDueFlusherLooksNs;
    std::vector<Due> all = find_due(now, next);
    if (entries_.empty()) {
      runs_ = false;
      return;
    }
    if (!all.empty()) {
      lock.unlock();
      flush(all);
      all.clear();
      lock.lock();
      continue;
    }
    changed_.wait_for(lock, std::chrono::nanoseconds(next - now), [this] { return woken_; });
  }
}

}  // namespace memlith::sqlite::shared
