// Decides the role of a process into which this library is preloaded: a server, before PostgreSQL reads anything; the
// keeper of one; or neither, as `postgres -V`, which pg_ctl runs before each start, and pg_ctl itself.
//
// A server starts in two steps. First it takes the lock of the cluster, makes the shared memory, and starts the keeper,
// which recovers. Then the program executes itself with full_page_writes=off on its command line, where no file of
// settings can change it: the setting is off exactly if this library is there.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster.hpp"
#include "keeper.hpp"
#include "process.hpp"

namespace memlith_postgres {

namespace {

constexpr unsigned kPatienceMs = 10'000;                  // with processes of a server that was killed
constexpr std::string_view kWithValue = "BcdfhkNprStvW";  // options of postgres that a word follows
Process* the_process = nullptr;

// True if these words start a server, and with which data directory; empty if not.
std::string data_of_server(int count, char** words) {
  const char* const variable = std::getenv("PGDATA");
  std::string data = variable == nullptr ? "" : variable;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const bool is_first_long = i == 1 && word.starts_with("--") && word.find('=') == std::string_view::npos;
    if (is_first_long || word.starts_with("-C") || word == "-V" || word == "-?" || word == "--version") return {};
    if (word == "-D" && i + 1 < count) {
      data = words[++i];
    } else if (word.starts_with("-D")) {
      data = word.substr(2);
    } else if (word.size() == 2 && word[0] == '-' && kWithValue.find(word[1]) != std::string_view::npos) {
      ++i;
    }
  }
  return data;
}

[[noreturn]] void refuse(const Error& error) {
  say(error.message());
  std::_Exit(1);
}

// The value that the server would start with, as `postgres -C` prints it; empty if this program does not know the
// setting, or its settings are wrong, which the server says itself.
std::string setting_of(std::string name, int count, char** words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const Descriptor heard(ends[0]);
  Descriptor told(ends[1]);
  std::string option = "-C";
  std::vector<char*> all(words, words + count);
  all.insert(all.end(), {option.data(), name.data(), nullptr});
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, told.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, all.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  told = Descriptor();
  std::string value;
  std::array<char, 256> part{};
  for (ssize_t bytes = 0; error == 0 && (bytes = ::read(heard.get(), part.data(), part.size())) > 0;) {
    value.append(part.data(), static_cast<std::size_t>(bytes));
  }
  while (error == 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return value.substr(0, value.find('\n'));
}

// The difference that is logged is taken against the page in the kernel's cache, which direct I/O goes around.
void refuse_direct_pages(int count, char** words) {
  const std::string direct = setting_of("debug_io_direct", count, words);
  if (direct.find("data") == std::string::npos) return;
  refuse(Error(MEMLITH_UNSUPPORTED, "the server's setting debug_io_direct is \"" + direct +
                                        "\", and memlith needs the kernel's cache for pages: take \"data\" out of it, "
                                        "or start the server without memlith"));
}

bool keep_across_exec(int descriptor, bool keep) { return ::fcntl(descriptor, F_SETFD, keep ? 0 : FD_CLOEXEC) == 0; }

// This library is for the server alone, and not for what it runs; others that were preloaded stay.
void stop_preloading() {
  const char* const before = std::getenv("LD_PRELOAD");
  std::string rest;
  for (std::string_view left = before == nullptr ? "" : before; !left.empty();) {
    const std::size_t end = std::min(left.find_first_of(": "), left.size());
    const std::string_view library = left.substr(0, end);
    if (!library.empty() && !library.ends_with("memlith_postgres.so")) {
      rest += (rest.empty() ? "" : ":") + std::string(library);
    }
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  if (rest.empty()) {
    ::unsetenv("LD_PRELOAD");
  } else {
    ::setenv("LD_PRELOAD", rest.c_str(), 1);
  }
}

void begin_server(const std::string& data, int count, char** words) {
  const char* const log = std::getenv(kLogVariable);
  const Result<Cluster> cluster = Cluster::open(data, log == nullptr ? "" : log);
  if (!cluster) refuse(cluster.error());
  if (cluster->release() != "15") refuse_direct_pages(count, words);
  const Result<Descriptor> life = cluster->take_life(kPatienceMs);
  if (!life) refuse(life.error());
  const auto memory = Pages::make(cluster->data(), cluster->log());
  if (!memory.ok()) refuse(error_of(memory.error()));
  // The lock goes with the descriptor to every process of the server.
  if (::flock(memory->descriptor(), LOCK_EX) != 0) refuse(errno_error("cannot lock shared memory"));
  if (const Result<void> started = start_keeper(memory->descriptor()); !started) refuse(started.error());

  if (!keep_across_exec(memory->descriptor(), true) || !keep_across_exec(life->get(), true)) {
    refuse(errno_error("cannot pass descriptors on"));
  }
  const std::string inherited = std::to_string(memory->descriptor()) + " " + std::to_string(life->get());
  ::setenv(kInheritedVariable, inherited.c_str(), 1);
  std::string option = "-c";
  std::string setting = "full_page_writes=off";
  std::vector<char*> all(words, words + count);
  all.push_back(option.data());
  all.push_back(setting.data());
  all.push_back(nullptr);
  ::execv("/proc/self/exe", all.data());
  refuse(errno_error("cannot start the server"));
}

// The descriptor of the life lock stays open in every process of the server, and in nothing else.
void go_on_as_server(int memory, int life) {
  auto mapped = Pages::Segment::map(Descriptor(memory), true);
  if (!mapped.ok()) refuse(error_of(mapped.error()));
  if (!keep_across_exec(memory, false) || !keep_across_exec(life, false)) {
    refuse(errno_error("cannot keep the descriptors of the server"));
  }
  ::unsetenv(kInheritedVariable);
  stop_preloading();
  the_process = new Process(std::move(*mapped));
}

bool read_pair(const char* name, int& first, int& second) {
  const char* const text = std::getenv(name);
  return text != nullptr && std::sscanf(text, "%d %d", &first, &second) == 2;
}

void start(int count, char** words) {
  if (std::strcmp(program_invocation_short_name, "postgres") != 0 && std::getenv(kKeeperVariable) == nullptr) {
    return;
  }
  int memory = -1;
  int other = -1;
  if (read_pair(kKeeperVariable, memory, other)) std::_Exit(keep(memory, other));
  if (read_pair(kInheritedVariable, memory, other)) return go_on_as_server(memory, other);
  const std::string data = data_of_server(count, words);
  if (!data.empty()) begin_server(data, count, words);
}

int (*the_main)(int, char**, char**) = nullptr;

int start_and_go_on(int count, char** words, char** environment) {
  start(count, words);
  return the_main(count, words, environment);
}

}  // namespace

Process* process() { return the_process; }

}  // namespace memlith_postgres

// The caller of main(): by then everything that is static is made, which is not so in a constructor.
extern "C" __attribute__((visibility("default"))) int __libc_start_main(int (*main)(int, char**, char**), int count,
                                                                        char** words, void (*init)(), void (*fini)(),
                                                                        void (*loader_fini)(), void* stack_end) {
  using Start = int (*)(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto real_start = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  memlith_postgres::the_main = main;
  return real_start(&memlith_postgres::start_and_go_on, count, words, init, fini, loader_fini, stack_end);
}
