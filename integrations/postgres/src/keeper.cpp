#include "keeper.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "cluster.hpp"
#include "real_log.hpp"

namespace memlith_postgres {

namespace {

constexpr std::uint64_t kLogMib = 64;
constexpr std::uint64_t kLogMibMin = 16;  // three batches
constexpr unsigned kIdleMs = 200;
constexpr unsigned kWaitsUntilLook = 16;  // for a keeper that lives, while others go on announcing
constexpr unsigned kPatienceMs = 10'000;  // with processes that were killed
constexpr std::string_view kReady = "ready";

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
  if (!turn || ::flock(turn->number(), LOCK_EX | LOCK_NB) == 0) return turn;
  if (errno == EWOULDBLOCK) say("waiting for the keeper of the server before, which writes its pages to their files");
  while (::flock(turn->number(), LOCK_EX) != 0) {
    if (errno != EINTR) return errno_error("cannot lock " + path);
  }
  return turn;
}

// The store is busy as long as a keeper that was killed has not ended.
Result<std::unique_ptr<StoredLog>> open_log(const Cluster& cluster) {
  for (unsigned waited = 0;; waited += kIdleMs) {
    Result<std::unique_ptr<StoredLog>> log = StoredLog::open(cluster.store(), log_bytes());
    if (log || log.error().category() != MEMLITH_BUSY || waited >= kPatienceMs) return log;
    ::usleep(kIdleMs * 1000);
  }
}

Result<Replayed> replay_into(const Cluster& cluster, StoredLog& log, PageLog& pages) {
  if (!cluster.marked() && !log.is_empty()) {
    return Error(MEMLITH_CORRUPT, cluster.log() + " has pages that " + cluster.data() +
                                      " does not miss: one of the two was restored from a copy; remove the log if the "
                                      "data directory is the right one");
  }
  return pages.replay();
}

class Keeper {
 public:
  // `server` is not the descriptor that the server's processes inherit.
  Keeper(SharedMemory& memory, Descriptor server, Cluster cluster, std::unique_ptr<StoredLog> log)
      : pages_(&memory),
        server_(std::move(server)),
        cluster_(std::move(cluster)),
        log_(std::move(log)),
        homes_(cluster_.data()),
        page_log_(*log_, homes_, log_->checkpoint_bytes()) {}

  Result<void> begin() {
    if (pages_.memory().started.load() != 0) return page_log_.resume();
    const Result<Replayed> replayed = replay_into(cluster_, *log_, page_log_);
    if (!replayed) return replayed.error();
    if (replayed->batches > 0) say("pages recovered: " + describe(*replayed));
    // Before the first batch: from the first page that only the log has on, a PostgreSQL without memlith must not open
    // the directory.
    if (Result<void> marked = cluster_.mark(); !marked) return marked;
    pages_.memory().started.store(1);
    return {};
  }

  Result<void> run() {
    unsigned idle_ms = 0;
    while (pages_.memory().finish_wanted.load() == 0) {
      const std::uint32_t ticket = pages_.ticket();
      const Result<bool> did = page_log_.step(pages_);
      if (!did) return did.error();
      if (*did) continue;
      pages_.wait(ticket, kIdleMs);
      idle_ms += ticket == pages_.ticket() ? kIdleMs : 0;
      if (idle_ms < kIdleMs) continue;
      idle_ms = 0;
      // The next server of the directory has memory of its own, so it is not taken for this one.
      if (::flock(server_.number(), LOCK_EX | LOCK_NB) == 0) break;
      if (errno != EWOULDBLOCK && errno != EINTR) return errno_error("cannot see whether the server lives");
    }
    return finish();
  }

 private:
  Result<void> finish() {
    if (Result<void> finished = page_log_.finish(pages_); !finished) return finished;
    // The mark goes last: the log of a directory without the mark is never replayed, so it has to be empty.
    if (Result<void> closed = log_->close(); !closed) return closed;
    return cluster_.unmark();
  }

  Pages pages_;
  Descriptor server_;  // the shared memory, which every process of the server holds locked
  Cluster cluster_;
  std::unique_ptr<StoredLog> log_;
  FileHomes homes_;
  PageLog page_log_;
};

// Called once: a process that waits for the keeper reads to the end.
void tell(Descriptor& ready, std::string_view text) {
  if (!ready) return;
  [[maybe_unused]] const ssize_t told = ::write(ready.number(), text.data(), text.size());
  ready = Descriptor();
}

// A process of its own, that no signal to the server's group or terminal reaches.
bool leave_parent() {
  if (::fork() != 0) return false;
  ::setsid();
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_NAME, "memlith-keeper");
  return true;
}

Result<void> run_keeper(SharedMemory& memory, Descriptor server, Descriptor& ready) {
  const Result<Descriptor> turn = take_turn(memory.log.data());
  if (!turn) return turn.error();
  Result<Cluster> cluster = Cluster::open(memory.data.data(), memory.log.data());
  if (!cluster) return cluster.error();
  if (::chdir(cluster->log().c_str()) != 0) return errno_error("cannot enter " + cluster->log());
  Result<std::unique_ptr<StoredLog>> log = open_log(*cluster);
  if (!log) return log.error();
  Keeper keeper(memory, std::move(server), std::move(*cluster), std::move(*log));
  if (Result<void> begun = keeper.begin(); !begun) return begun;
  tell(ready, kReady);
  return keeper.run();
}

}  // namespace

std::string describe(const Replayed& replayed) {
  return std::to_string(replayed.batches) + " batches, " + std::to_string(replayed.pages) + " pages, " +
         std::to_string(replayed.skipped) + " skipped, " + std::to_string(replayed.bytes) + " bytes";
}

void say(const std::string& sentence) {
  const std::string line = "memlith: " + sentence + "\n";
  [[maybe_unused]] const ssize_t said = ::write(STDERR_FILENO, line.data(), line.size());
}

Result<Descriptor> make_memory(const std::string& data, const std::string& log) {
  Descriptor memory(::memfd_create("memlith-postgres", MFD_CLOEXEC));
  if (!memory || ::ftruncate(memory.number(), sizeof(SharedMemory)) != 0) {
    return errno_error("cannot make shared memory");
  }
  // The lock goes with the descriptor to every process of the server.
  if (::flock(memory.number(), LOCK_EX) != 0) return errno_error("cannot lock shared memory");
  SharedMemory* const mapped = map_memory(memory.number());
  if (mapped == nullptr) return errno_error("cannot map shared memory");
  const bool fits = data.size() < mapped->data.size() && log.size() < mapped->log.size();
  if (!fits) return Error(MEMLITH_INVALID, "the path of the data directory is too long");
  std::copy(data.begin(), data.end(), mapped->data.begin());
  std::copy(log.begin(), log.end(), mapped->log.begin());
  const bool prepared = Pages::prepare(*mapped);
  ::munmap(mapped, sizeof(SharedMemory));
  if (!prepared) return Error(MEMLITH_UNSUPPORTED, "this system has no mutexes that processes can share");
  return memory;
}

SharedMemory* map_memory(int descriptor) {
  void* const mapped = ::mmap(nullptr, sizeof(SharedMemory), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<SharedMemory*>(mapped);
}

Result<void> start_keeper(int memory) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  Descriptor heard(ends[0]);
  Descriptor told(ends[1]);
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&start_keeper), &self) == 0) {
    return Error(MEMLITH_UNSUPPORTED, "the library does not find itself");
  }
  std::vector<std::string> variables{
      "LD_PRELOAD=" + real_path(self.dli_fname),
      std::string(kKeeperVariable) + "=" + std::to_string(memory) + " " + std::to_string(told.number())};
  if (const char* const mib = std::getenv(kLogMibVariable))
    variables.push_back(std::string(kLogMibVariable) + "=" + mib);
  std::vector<char*> environment;
  for (std::string& each : variables) environment.push_back(each.data());
  environment.push_back(nullptr);
  std::string name = "postgres: memlith keeper";
  std::array<char*, 2> words{name.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int each : {memory, told.number()}) posix_spawn_file_actions_adddup2(&actions, each, each);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, words.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    errno = error;
    return errno_error("cannot start the keeper");
  }
  told = Descriptor();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::string answer;
  std::array<char, 1024> part{};
  while (true) {
    const ssize_t bytes = ::read(heard.number(), part.data(), part.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    answer.append(part.data(), static_cast<std::size_t>(bytes));
  }
  if (answer == kReady) return {};
  return Error(MEMLITH_IO, answer.empty() ? "the keeper has ended by itself" : answer);
}

int keep(int memory, int ready_end) {
  if (!leave_parent()) return 0;
  Descriptor ready(ready_end);
  // A descriptor of its own: with the inherited one, the keeper would hold the lock of the server's processes.
  Result<Descriptor> server = open_file("/proc/self/fd/" + std::to_string(memory), O_RDWR);
  SharedMemory* const mapped = server ? map_memory(server->number()) : nullptr;
  ::close(memory);
  if (mapped == nullptr) {
    tell(ready, "the keeper cannot map the shared memory");
    return 1;
  }
  const int error = pthread_mutex_trylock(&mapped->keeper_life);
  if (error == EOWNERDEAD) pthread_mutex_consistent(&mapped->keeper_life);
  if (error != 0 && error != EOWNERDEAD) {  // a keeper is there
    tell(ready, kReady);
    return 0;
  }
  Pages pages(mapped);
  mapped->keepers.fetch_add(1);
  const Result<void> ended = run_keeper(*mapped, std::move(*server), ready);
  if (ended) {
    mapped->finished.store(1);
  } else {
    tell(ready, ended.error().message());
    say("the server's pages cannot be kept any more: " + ended.error().message());
    mapped->failed.store(1);
  }
  pages.announce();
  pthread_mutex_unlock(&mapped->keeper_life);
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
  PageLog pages(**stored, homes, (*stored)->checkpoint_bytes());
  const Result<Replayed> replayed = replay_into(*cluster, **stored, pages);
  if (!replayed) return replayed.error();
  if (Result<void> closed = (*stored)->close(); !closed) return closed.error();
  if (Result<void> unmarked = cluster->unmark(); !unmarked) return unmarked.error();
  return Recovered{.was_marked = true, .replayed = *replayed};
}

// ---- waiting ----------------------------------------------------------------------------------------------------

std::uint64_t KeeperWaiting::counter(For what) const {
  const SharedMemory& memory = pages_.memory();
  if (what == For::checkpointed) return memory.checkpointed.load();
  return what == For::home ? memory.home.load() : memory.durable.load();
}

void KeeperWaiting::look_after_keeper() {
  SharedMemory& memory = pages_.memory();
  const int looking = pthread_mutex_trylock(&memory.keeper_starting);
  if (looking == EOWNERDEAD) pthread_mutex_consistent(&memory.keeper_starting);
  if (looking != 0 && looking != EOWNERDEAD) return;  // another process is at it
  const int dead = pthread_mutex_trylock(&memory.keeper_life);
  if (dead == EOWNERDEAD) pthread_mutex_consistent(&memory.keeper_life);
  if (dead == 0 || dead == EOWNERDEAD) {
    pthread_mutex_unlock(&memory.keeper_life);
    if (memory.failed.load() == 0 && memory.finished.load() == 0) {
      say("the keeper has died; starting another one");
      if (const Result<void> started = start_keeper(memory_); !started) {
        say(started.error().message());
        memory.failed.store(1);
        pages_.announce();
      }
    }
  }
  pthread_mutex_unlock(&memory.keeper_starting);
}

bool KeeperWaiting::wait(For what, std::uint64_t batch) {
  SharedMemory& memory = pages_.memory();
  if (counter(what) < batch && what != For::checkpointed) pages_.want(batch);
  for (unsigned waits = 1;; ++waits) {
    const std::uint32_t ticket = pages_.ticket();
    if (memory.failed.load() != 0) return false;
    if (counter(what) >= batch) return true;
    if (memory.finished.load() != 0) return false;
    pages_.wait(ticket, kIdleMs / 4);
    if (ticket == pages_.ticket() || waits % kWaitsUntilLook == 0) look_after_keeper();
  }
}

bool KeeperWaiting::finish() {
  SharedMemory& memory = pages_.memory();
  memory.finish_wanted.store(1);
  pages_.announce();
  while (true) {
    const std::uint32_t ticket = pages_.ticket();
    if (memory.failed.load() != 0) return false;
    if (memory.finished.load() != 0) return true;
    pages_.wait(ticket, kIdleMs / 4);
    if (ticket == pages_.ticket()) look_after_keeper();
  }
}

}  // namespace memlith_postgres
