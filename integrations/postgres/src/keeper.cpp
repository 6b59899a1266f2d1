#include "keeper.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "cluster.hpp"
#include "real_log.hpp"
#include "settled/settled_log.hpp"
#include "shm/helper.hpp"

namespace memlith_postgres {

namespace {

using memlith_settled::StoredLog;

constexpr std::uint64_t kLogMib = 64;
constexpr std::uint64_t kLogMibMin = 16;  // three batches
constexpr const char* kLogName = "pages";
constexpr unsigned kIdleMs = 200;
constexpr unsigned kPatienceMs = 10'000;  // with processes that were killed

std::uint64_t log_bytes() {
  const char* const given = std::getenv(kLogMibVariable);
  const std::uint64_t mib = given == nullptr ? kLogMib : std::strtoull(given, nullptr, 10);
  return std::max(mib, kLogMibMin) << 20;
}

// One process at a time has the log and makes and removes the mark: a keeper, or recover(). The keeper of a server that
// was killed first brings everything home, which takes as long as flushing what is dirty.
Result<Descriptor> take_turn(const std::string& log) {
  const std::string path = log + "/turn";
  Result<Descriptor> turn = open_file(path, O_RDWR | O_CREAT);
  if (!turn || ::flock(turn->get(), LOCK_EX | LOCK_NB) == 0) return turn;
  if (errno == EWOULDBLOCK) say("waiting for the keeper of the server before, which writes its pages to their files");
  while (::flock(turn->get(), LOCK_EX) != 0) {
    if (errno != EINTR) return errno_error("cannot lock " + path);
  }
  return turn;
}

// The store is busy as long as a keeper that was killed has not ended.
Result<std::unique_ptr<StoredLog>> open_log(const Cluster& cluster) {
  for (unsigned waited = 0;; waited += kIdleMs) {
    // The redo log has room for all that the log can hold.
    Result<std::unique_ptr<StoredLog>> log =
        StoredLog::open(cluster.store(), {.name = kLogName, .bytes = log_bytes(), .redo_bytes = log_bytes()});
    if (log || log.error().category() != MEMLITH_BUSY || waited >= kPatienceMs) return log;
    ::usleep(kIdleMs * 1000);
  }
}

// Large enough that it starts over only now and then, and a batch always finds room behind.
std::uint64_t checkpoint_bytes(const StoredLog& log) {
  const Result<memlith_applog_info> info = log.info();
  return info ? info->size / 2 : 0;
}

Result<Replayed> replay_into(const Cluster& cluster, StoredLog& log, PageLog& pages) {
  const Result<memlith_applog_info> info = log.info();
  if (!info) return info.error();
  if (!cluster.marked() && info->newest != info->consumed) {
    return Error(MEMLITH_CORRUPT, cluster.log() + " has pages that " + cluster.data() +
                                      " does not miss: one of the two was restored from a copy; remove the log if the "
                                      "data directory is the right one");
  }
  return pages.replay();
}

class Keeper {
 public:
  Keeper(Pages& pages, Cluster cluster, std::unique_ptr<StoredLog> log)
      : pages_(pages),
        cluster_(std::move(cluster)),
        log_(std::move(log)),
        homes_(cluster_.data()),
        page_log_(*log_, homes_, checkpoint_bytes(*log_)) {}

  Result<void> begin() {
    if (pages_.memory().started.load() != 0) {
      page_log_.resume(pages_);
      return {};
    }
    const Result<Replayed> replayed = replay_into(cluster_, *log_, page_log_);
    if (!replayed) return replayed.error();
    if (replayed->batches > 0) say("pages recovered: " + describe(*replayed));
    // Before the first batch: from the first page that only the log has on, a PostgreSQL without memlith must not open
    // the directory.
    if (Result<void> marked = cluster_.mark(); !marked) return marked;
    settle_files();
    pages_.memory().started.store(1);
    return {};
  }

  Result<void> run() {
    std::thread settler([this] { settle_behind(); });
    const Result<void> ran = log_batches();
    ends_.store(true);
    pages_.announce();
    settler.join();
    if (!settled_ || !ran) return settled_ ? ran : settled_;
    return finish();
  }

 private:
  Result<void> log_batches() {
    unsigned idle_ms = 0;
    while (pages_.memory().finish_wanted.load() == 0 && !ends_.load()) {
      const std::uint32_t ticket = pages_.ticket();
      const Result<bool> did = page_log_.step(pages_);
      if (!did) return did.error();
      if (*did) continue;
      pages_.wait(ticket, kIdleMs);
      idle_ms += ticket == pages_.ticket() ? kIdleMs : 0;
      if (idle_ms < kIdleMs) continue;
      idle_ms = 0;
      // The next server of the directory has memory of its own, so it is not taken for this one.
      if (::flock(pages_.descriptor(), LOCK_EX | LOCK_NB) == 0) break;
      if (errno != EWOULDBLOCK && errno != EINTR) return errno_error("cannot see whether the server lives");
    }
    return {};
  }
  // A thread beside: what it flushes may take longer than the batches have room for.
  void settle_behind() {
    while (!ends_.load()) {
      const std::uint32_t ticket = pages_.ticket();
      const Result<bool> did = page_log_.settle(pages_);
      if (!did) {
        settled_ = did.error();
        ends_.store(true);
        pages_.announce();
        return;
      }
      if (!*did) pages_.wait(ticket, kIdleMs);
    }
  }

  // ORDER settled-before-differences: a difference is logged of a page that is durable. PostgreSQL's pages are so after
  // its clean stop, and those of a log after its replay; but not those of a server that was killed without memlith, nor
  // of a directory that was just restored. No process of the server writes yet. [test
  // PagesTest.PagesThatWereDurableAtTheStartAreVouchedFor]
  void settle_files() {
    std::vector<std::string> folders = entries_of(cluster_.data() + "/pg_tblspc");
    folders.push_back(cluster_.data());
    const std::vector<std::uint64_t> devices = settle(folders);
    const Pages::Lock lock(pages_);
    auto& settled = pages_.memory().settled;
    std::copy_n(devices.begin(), std::min(devices.size(), settled.size()), settled.begin());
  }
  Result<void> finish() {
    if (Result<void> finished = page_log_.finish(pages_); !finished) return finished;
    // The mark goes last: the log of a directory without the mark is never replayed, so it has to be empty.
    if (Result<void> closed = log_->close(); !closed) return closed;
    return cluster_.unmark();
  }

  Pages& pages_;  // by a descriptor of its own: the server's processes have locked the one that they inherit
  Cluster cluster_;
  std::unique_ptr<StoredLog> log_;
  FileHomes homes_;
  PageLog page_log_;
  std::atomic<bool> ends_{false};
  Result<void> settled_;  // of the thread beside, once it has ended
};

// A process of its own, that no signal to the server's group or terminal reaches.
bool leave_parent() {
  if (::fork() != 0) return false;
  ::setsid();
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_NAME, "memlith-keeper");
  return true;
}

Result<void> run_keeper(Pages& pages, Descriptor& ready) {
  const SharedMemory& memory = pages.memory();
  const Result<Descriptor> turn = take_turn(memory.log.data());
  if (!turn) return turn.error();
  Result<Cluster> cluster = Cluster::open(memory.data.data(), memory.log.data());
  if (!cluster) return cluster.error();
  if (::chdir(cluster->log().c_str()) != 0) return errno_error("cannot enter " + cluster->log());
  Result<std::unique_ptr<StoredLog>> log = open_log(*cluster);
  if (!log) return log.error();
  Keeper keeper(pages, std::move(*cluster), std::move(*log));
  if (Result<void> begun = keeper.begin(); !begun) return begun;
  shm::tell_ready(ready);
  return keeper.run();
}

}  // namespace

std::string describe(const Replayed& replayed) {
  return std::to_string(replayed.batches) + " batches, " + std::to_string(replayed.pages) + " pages, " +
         std::to_string(replayed.skipped) + " skipped, " + std::to_string(replayed.bytes) + " bytes";
}

Result<void> start_keeper(int memory) {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&start_keeper), &self) == 0) {
    return Error(MEMLITH_UNSUPPORTED, "the library does not find itself");
  }
  shm::HelperProgram keeper;
  keeper.path = "/proc/self/exe";
  keeper.words = {"postgres: memlith keeper"};
  keeper.has_own_environment = true;
  keeper.environment = {
      "LD_PRELOAD=" + real_path(self.dli_fname),
      std::string(kKeeperVariable) + "=" + std::to_string(memory) + " " + std::to_string(shm::kReadyNumber)};
  if (const char* const mib = std::getenv(kLogMibVariable)) {
    keeper.environment.push_back(std::string(kLogMibVariable) + "=" + mib);
  }
  keeper.kept = memory;
  keeper.is_quiet = false;
  const memlith::core::Status started = shm::start_helper(keeper);
  return started.ok() ? Result<void>() : error_of(started);
}

int keep(int memory, int ready_end) {
  if (!leave_parent()) return 0;
  Descriptor ready(ready_end);
  // A descriptor of its own: with the inherited one, the keeper would hold the lock of the server's processes.
  Result<Descriptor> server = open_file("/proc/self/fd/" + std::to_string(memory), O_RDWR);
  ::close(memory);
  auto tell = [&ready](const Error& error) { shm::tell_failure(ready, error.category(), 0, error.message()); };
  if (!server) return tell(server.error()), 1;
  auto segment = Pages::Segment::map(std::move(*server), true);
  if (!segment.ok()) return tell(error_of(segment.error())), 1;
  Pages pages(std::move(*segment));
  if (!pages.begin_keeping()) {  // a keeper is there
    shm::tell_ready(ready);
    return 0;
  }
  SharedMemory& shared = pages.memory();
  const Result<void> ended = run_keeper(pages, ready);
  if (ended) {
    shared.finished.store(1);
  } else {
    tell(ended.error());
    say("the server's pages cannot be kept any more: " + ended.error().message());
    shared.failed.store(1);
  }
  pages.announce();
  return ended ? 0 : 1;
}

Result<Recovered> recover(const std::string& data, const std::string& log) {
  Result<Cluster> cluster = Cluster::open(data, log);
  if (!cluster) return cluster.error();
  const Result<Descriptor> life = cluster->take_life(kPatienceMs);
  if (!life) return life.error();
  const Result<Descriptor> turn = take_turn(cluster->log());
  if (!turn) return turn.error();
  cluster = Cluster::open(data, log);  // a keeper may have unmarked it meanwhile
  if (!cluster) return cluster.error();
  if (!cluster->marked()) return Recovered{};
  Result<std::unique_ptr<StoredLog>> stored = open_log(*cluster);
  if (!stored) return stored.error();
  FileHomes homes(cluster->data());
  PageLog pages(**stored, homes, checkpoint_bytes(**stored));
  const Result<Replayed> replayed = replay_into(*cluster, **stored, pages);
  if (!replayed) return replayed.error();
  if (Result<void> closed = (*stored)->close(); !closed) return closed.error();
  if (Result<void> unmarked = cluster->unmark(); !unmarked) return unmarked.error();
  return Recovered{.was_marked = true, .replayed = *replayed};
}

}  // namespace memlith_postgres
