// Suite processes: a kv store that several processes have open, beside LMDB, SQLite and redb.
//
// Each process of each side opens the side's store and then waits at a socket. In a turn, the processes of one side
// work at the same time for a while, and then those of the next side: what else the machine does strikes all of them.
// redb is in Rust, so its processes run a program of their own (redb/src/main.rs) with the same messages: the parent
// sends the nanoseconds of a turn; the process answers with the nanoseconds it took, the number of its operations, and
// the time of each, all as numbers of 8 bytes. Its first answer, a number, says that it has opened or filled the store.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "kit/stats.hpp"
#include "kit/try.hpp"
#include "kv_bench.hpp"
#include "peers/memlith.hpp"
#include "peers/peer.hpp"
#include "records.hpp"

namespace memlith::tool {

namespace {

constexpr std::string_view kFillJob = "fill";
constexpr std::string_view kGetJob = "get";
constexpr std::string_view kPutJob = "put";
constexpr const char* kSharedSide = "memlith-shared";

KvDurability durability_of(std::string_view workload) {
  return workload == kGetJob || workload == kPutJob ? KvDurability::sync : KvDurability::none;
}

// ---- the store of memlith that several processes have open

class SharedStoreOfMany final : public KvStore {
 public:
  [[nodiscard]] MaybeFailure open(const KvOptions& options) {
    durability_ = options.durability == KvDurability::sync ? Durability::sync : Durability::weak;
    MEMLITH_TOOL_GET(kv_, checked(Kv::open_shared(options.folder + "/store", "kv", {.create = true}),
                                  "opening a kv store of several processes"));
    MEMLITH_TOOL_GET(map_, checked(kv_->map("map", {.create = true}), "opening a map"));
    return {};
  }
  Result<std::unique_ptr<KvSession>> session() override {
    const KvUse use{nullptr, &*kv_, map_, durability_};
    MEMLITH_TOOL_GET(KvTransaction writer, use.transaction(false));
    MEMLITH_TOOL_GET(KvTransaction reader, use.transaction(true));
    return make_session<MemlithSession>(use, std::move(writer), std::move(reader));
  }

 private:
  std::optional<Kv> kv_;
  KvMap map_ = 0;
  Durability durability_ = Durability::weak;
};

struct Contestant {
  KvPeer peer;
  std::string program = {};  // the processes' own; empty: this one
};

std::vector<Contestant> contestants(const KvBenchArguments& arguments) {
  std::vector<Contestant> all;
  KvPeer shared = memlith_side();
  shared.name = kSharedSide;
  shared.open = open_as<SharedStoreOfMany>;
  all.push_back({shared});
  all.push_back({memlith_side()});
  for (const KvPeer& peer : kv_peers()) {
    if (peer.name == "lmdb" || peer.name == "sqlite") all.push_back({peer});
    if (peer.name == "sqlite") {
      if (auto on_memlith = sqlite_on_memlith()) all.push_back({*on_memlith});
    }
  }
  if (!arguments.redb.empty()) {
    all.push_back({{"redb",
                    "4",
                    "ConcurrencyMode::MultiWriter, Durability::Immediate: a transaction for each operation",
                    {},  // in that mode redb refuses Durability::None
                    nullptr},
                   arguments.redb});
  }
  return all;
}

// ---- a process

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  // False if the other end is gone.
  [[nodiscard]] bool send(std::span<const std::uint64_t> numbers) const {
    return transfer(std::as_bytes(numbers), [this](const std::byte* at, std::size_t left) {
      return ::send(descriptor_, at, left, MSG_NOSIGNAL);
    });
  }
  [[nodiscard]] bool receive(std::span<std::uint64_t> numbers) const {
    return transfer(std::as_writable_bytes(numbers),
                    [this](std::byte* at, std::size_t left) { return ::recv(descriptor_, at, left, 0); });
  }

 private:
  template <class Bytes, class Call>
  static bool transfer(Bytes bytes, const Call& call) {
    while (!bytes.empty()) {
      const ssize_t count = call(bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return true;
  }
  int descriptor_;
};

struct Role {
  Contestant who;
  std::string folder;
  std::string_view workload;
  std::uint64_t number = 0;  // of the process
  std::uint64_t records = 0;
  std::uint64_t value_bytes = 0;
};

MaybeFailure serve(const Role& role, const Socket& parent) {
  MEMLITH_TOOL_GET(const auto store, role.who.peer.open({.folder = role.folder,
                                                         .durability = durability_of(role.workload),
                                                         .bytes_expected = role.records * role.value_bytes}));
  MEMLITH_TOOL_GET(const auto session, store->session());
  const Values values(role.value_bytes);
  std::vector<std::string> keys(role.records);
  for (std::uint64_t i = 0; i < role.records; ++i) {
    keys[i] = scattered_key(i);
    if (role.workload == kFillJob) MEMLITH_TOOL_TRY(session->put(keys[i], values.at(i)));
  }
  if (role.workload == kFillJob) MEMLITH_TOOL_TRY(session->finish());
  Random random(kSeed + role.number);
  std::string value;
  std::vector<std::uint64_t> answer{0};
  for (std::uint64_t turn_ns = 0; parent.send(answer) && parent.receive({&turn_ns, 1});) {
    answer.assign(2, 0);
    const std::uint64_t begin = now_ns();
    for (std::uint64_t before = begin; before - begin < turn_ns && !interrupted(); before = now_ns()) {
      const std::string& key = keys[random.below(role.records)];
      bool found = true;
      MEMLITH_TOOL_TRY(role.workload == kGetJob ? session->get(key, value, found)
                                                : session->put(key, values.at(random.next())));
      answer.push_back(now_ns() - before);
      if (!found) return tool_failure(MEMLITH_CORRUPT, fmt::format("{}: record {} is gone", role.who.peer.name, key));
    }
    answer[0] = now_ns() - begin;
    answer[1] = answer.size() - 2;
  }
  return role.workload == kGetJob ? MaybeFailure() : session->finish();
}

class Process {
 public:
  // This process has no store open and no other threads.
  static Result<Process> start(const Role& role, Format format) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return errno_failure(errno, "making a socket");
    const pid_t child = ::fork();
    if (child < 0) return errno_failure(errno, "starting a process");
    if (child != 0) {
      ::close(ends[1]);
      return Process(child, Socket(ends[0]));
    }
    ::close(ends[0]);
    if (role.who.program.empty()) ::_exit(exit_code_of(serve(role, Socket(ends[1])), format));
    (void)::dup2(ends[1], STDIN_FILENO);
    const std::string records = std::to_string(role.records);
    const std::string value_bytes = std::to_string(role.value_bytes);
    const std::string number = std::to_string(role.number);
    const std::string workload(role.workload);
    (void)::execl(role.who.program.c_str(), role.who.program.c_str(), (role.folder + "/data.redb").c_str(),
                  workload.c_str(), number.c_str(), records.c_str(), value_bytes.c_str(), nullptr);
    ::_exit(exit_code_of(errno_failure(errno, "starting " + role.who.program), format));
  }
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)), socket_(std::move(other.socket_)) {}
  Process& operator=(Process&&) = delete;
  ~Process() { (void)end(); }

  [[nodiscard]] MaybeFailure await_ready() {
    std::uint64_t ready = 0;
    return socket_.receive({&ready, 1}) ? MaybeFailure() : failed();
  }
  [[nodiscard]] MaybeFailure begin(std::uint64_t turn_ns) {
    return socket_.send({&turn_ns, 1}) ? MaybeFailure() : failed();
  }
  // Adds what the process did in the turn.
  [[nodiscard]] MaybeFailure finish(Repetition& repetition) {
    std::uint64_t head[2];
    if (!socket_.receive(head)) return failed();
    const std::size_t before = repetition.samples_ns.size();
    repetition.samples_ns.resize(before + head[1]);
    if (!socket_.receive(std::span(repetition.samples_ns).subspan(before))) return failed();
    repetition.ops_per_s += ratio_of(static_cast<double>(head[1]), seconds_of(head[0]));
    return {};
  }
  [[nodiscard]] MaybeFailure end() {
    if (pid_ < 0) return {};
    (void)::shutdown(socket_.descriptor(), SHUT_RDWR);  // closing it is not enough: later processes have it, too
    int status = 0;
    if (::waitpid(std::exchange(pid_, -1), &status, 0) >= 0 && status == 0) return {};
    return failed();
  }

 private:
  Process(pid_t pid, Socket socket) : pid_(pid), socket_(std::move(socket)) {}
  static Failure failed() {
    if (interrupted()) return interrupted_failure();
    return tool_failure(MEMLITH_IO, "a process that uses a store beside others failed; its message is above");
  }

  pid_t pid_;
  Socket socket_;
};

// ---- turns

struct Crew {
  Line line;
  std::vector<Process> processes = {};

  [[nodiscard]] MaybeFailure work(std::uint64_t turn_ns) {
    Repetition& repetition = line.repetitions.emplace_back();
    for (Process& each : processes) MEMLITH_TOOL_TRY(each.begin(turn_ns));
    for (Process& each : processes) MEMLITH_TOOL_TRY(each.finish(repetition));
    return interrupted() ? MaybeFailure(interrupted_failure()) : MaybeFailure();
  }
  [[nodiscard]] MaybeFailure end() {
    for (Process& each : processes) MEMLITH_TOOL_TRY(each.end());
    return {};
  }
};

class Contest {
 public:
  Contest(const KvBenchArguments& arguments, const ScratchFolder& scratch) : arguments_(arguments), scratch_(scratch) {}

  [[nodiscard]] MaybeFailure fill(std::vector<Contestant> all) {
    for (Contestant& each : all) {
      if (!arguments_.wants(each.peer.name)) continue;
      std::error_code error;
      std::filesystem::create_directory(scratch_.path_of(each.peer.name), error);
      if (error) return errno_failure(error.value(), "making a folder");
      MEMLITH_TOOL_GET(Process process, Process::start(role(each, kFillJob, 0), arguments_.format));
      MEMLITH_TOOL_TRY(process.await_ready());
      MEMLITH_TOOL_TRY(process.end());
      contestants_.push_back(std::move(each));
    }
    return {};
  }

  [[nodiscard]] MaybeFailure measure(std::string_view workload, std::uint64_t processes) {
    std::vector<Crew> crews;
    for (const Contestant& each : contestants_) {
      if (each.peer.name == "memlith" && processes > 1) continue;  // which one process has open
      if (each.peer.text_of(durability_of(workload)).empty()) continue;
      Crew& crew = crews.emplace_back(Crew{line_of(each.peer, workload, processes)});
      for (std::uint64_t number = 0; number < processes; ++number) {
        MEMLITH_TOOL_GET(Process process, Process::start(role(each, workload, number), arguments_.format));
        crew.processes.push_back(std::move(process));
      }
      for (Process& each_process : crew.processes) MEMLITH_TOOL_TRY(each_process.await_ready());
    }
    const auto turn_ns =
        static_cast<std::uint64_t>(arguments_.seconds * static_cast<double>(kNsPerSecond)) / arguments_.repetitions;
    for (Crew& crew : crews) MEMLITH_TOOL_TRY(crew.work(turn_ns / 4));
    for (Crew& crew : crews) crew.line.repetitions.clear();
    for (std::uint64_t turn = 0; turn < arguments_.repetitions; ++turn) {
      for (std::size_t i = 0; i < crews.size(); ++i) {
        MEMLITH_TOOL_TRY(crews[(turn + i) % crews.size()].work(turn_ns));
      }
    }
    std::vector<Line> lines;
    for (Crew& crew : crews) {
      MEMLITH_TOOL_TRY(crew.end());
      lines.push_back(std::move(crew.line));
    }
    print_lines(arguments_.format,
                fmt::format("{} of {} process{}", workload, processes, processes == 1 ? "" : "es at the same time"),
                lines, kSharedSide);
    return {};
  }

 private:
  [[nodiscard]] Role role(const Contestant& who, std::string_view workload, std::uint64_t number) const {
    return {who, scratch_.path_of(who.peer.name), workload, number, arguments_.records, arguments_.value_bytes};
  }
  [[nodiscard]] Line line_of(const KvPeer& peer, std::string_view workload, std::uint64_t processes) const {
    Line line;
    line.suite = "processes";
    line.side = peer.name;
    line.version = peer.version;
    line.workload = workload;
    const KvDurability durability = durability_of(workload);
    const bool weak = durability == KvDurability::none && peer.name.starts_with("memlith");
    line.durability = weak ? "weak" : name_of(durability);
    line.does = peer.text_of(durability);
    line.requested = {{"repetitions", arguments_.repetitions},
                      {"records", arguments_.records},
                      {"value_bytes", arguments_.value_bytes},
                      {"processes", processes}};
    return line;
  }

  const KvBenchArguments& arguments_;
  const ScratchFolder& scratch_;
  std::vector<Contestant> contestants_;
};

}  // namespace

MaybeFailure run_processes(const KvBenchArguments& arguments) {
  std::vector<Contestant> all = contestants(arguments);
  std::vector<std::string> names;
  for (const Contestant& each : all) names.push_back(each.peer.name);
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names));
  MEMLITH_TOOL_GET(const ScratchFolder scratch, ScratchFolder::make(arguments.folder));
  print_heading(arguments.format, arguments.folder,
                fmt::format("{} records of {} bytes; ratios over {}, turn by turn", arguments.records,
                            kTextKeyBytes + arguments.value_bytes, kSharedSide));
  Contest contest(arguments, scratch);
  MEMLITH_TOOL_TRY(contest.fill(std::move(all)));
  for (const std::string& workload : arguments.workloads) {
    for (const std::uint64_t processes : arguments.threads) MEMLITH_TOOL_TRY(contest.measure(workload, processes));
  }
  return {};
}

}  // namespace memlith::tool
