// memlith sqlite doctor PID and DATABASE: which processes have which databases open, and how.
#include <dirent.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "doctor.hpp"
#include "sqlite_head.hpp"

namespace memlith::tool {

namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A process as /proc shows it.
struct Process {
  int number = 0;
  fs::path folder;
  std::string program;
  std::set<std::string> mapped;     // files that it executes code of
  std::set<std::string> opened;     // names of its descriptors
  std::set<std::string> databases;  // main databases among them
  std::optional<std::string> preload;
  bool is_privileged = false;

  // Its files, as its mount name space has them.
  [[nodiscard]] std::string seen_here(const std::string& path) const { return (folder / "root").string() + path; }
  [[nodiscard]] bool has_open(const std::string& path) const { return opened.contains(path); }
};

bool is_database(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  Result<SqliteLook> look = look_at_sqlite(path.string());
  return look.ok() && look->bytes > 0 && !look->is(MEMLITH_SQLITE_FOREIGN);
}

void read_descriptors(Process& process) {
  std::error_code error;
  for (fs::directory_iterator each(process.folder / "fd", error), end; !error && each != end; each.increment(error)) {
    std::error_code gone;
    const std::string name = fs::read_symlink(each->path(), gone).string();
    if (gone || !name.starts_with('/')) continue;
    process.opened.insert(name);
    // A log of memlith's begins like a database that has one.
    const bool belongs = name.ends_with(".memlith") || name.ends_with("-wal") || name.ends_with("-shm");
    if (!belongs && is_database(each->path())) process.databases.insert(name);
  }
}

void read_maps(Process& process) {
  std::ifstream maps(process.folder / "maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    const std::size_t rights = line.find(' ');
    if (path == std::string::npos || rights == std::string::npos || line.size() < rights + 5) continue;
    if (line[rights + 3] == 'x') process.mapped.insert(line.substr(path));
  }
}

void read_environment(Process& process) {
  const std::string all = read_all(process.folder / "environ");
  constexpr std::string_view kName = "LD_PRELOAD=";
  for (std::size_t at = 0; at < all.size();) {
    const std::string one(all.c_str() + at);
    if (one.starts_with(kName)) process.preload = one.substr(kName.size());
    at += one.size() + 1;
  }
  const std::string auxv = read_all(process.folder / "auxv");
  for (std::size_t at = 0; at + sizeof(Elf64_auxv_t) <= auxv.size(); at += sizeof(Elf64_auxv_t)) {
    Elf64_auxv_t entry;
    std::memcpy(&entry, auxv.data() + at, sizeof entry);
    if (entry.a_type == AT_SECURE) process.is_privileged = entry.a_un.a_val != 0;
  }
}

Result<Process> look_at_process(int number) {
  Process process;
  process.number = number;
  process.folder = fmt::format("/proc/{}", number);
  std::error_code error;
  if (!fs::exists(process.folder, error)) {
    return tool_failure(MEMLITH_NOT_FOUND, fmt::format("there is no process {}", number));
  }
  process.program = fs::read_symlink(process.folder / "exe", error).string();
  if (error) return errno_failure(error.value(), fmt::format("cannot examine process {}", number));
  read_maps(process);
  read_descriptors(process);
  read_environment(process);
  return process;
}

std::string name_of(const Process& process) { return fmt::format("process {} ({})", process.number, process.program); }

// Why the plugin is not in the process.
Finding without_plugin(const Process& process) {
  const std::string program = process.seen_here(process.program);
  Finding finding = examine_program(program, process.program);
  finding.subject = name_of(process);
  const bool wanted = process.preload.has_value() && process.preload->find("memlith_sqlite") != std::string::npos;
  if (process.is_privileged) {
    finding.text = "runs with other privileges than the one that started it, so the dynamic loader ignores LD_PRELOAD";
  } else if (wanted && finding.reach != Reach::no) {
    const std::string first = process.preload->substr(0, process.preload->find_first_of(": "));
    const bool there = ::access(process.seen_here(first).c_str(), R_OK) == 0;
    finding.text = there
                       ? fmt::format("was started with LD_PRELOAD={}, but the loader did not load it", *process.preload)
                       : fmt::format(
                             "was started with LD_PRELOAD={}, and cannot see that file: mount it into the "
                             "container, or give its path there",
                             *process.preload);
  } else {
    finding.text = fmt::format("does not have memlith_sqlite.so; the program {}", finding.text);
  }
  finding.reach = Reach::no;
  return finding;
}

// Each SQLite of the process that the plugin cannot get at from outside.
void add_own_sqlites(const Process& process, std::vector<Finding>& findings) {
  for (const std::string& each : process.mapped) {
    Result<ElfLook> look = look_at_elf(process.seen_here(each));
    if (!look.ok() || look->is_plugin || !look->contains_sqlite) continue;
    if (look->exports_sqlite && !look->is_program) continue;
    findings.push_back({each, Reach::no, "contains a SQLite of its own, which LD_PRELOAD does not reach",
                        advice_for_program(process.program, *look)});
  }
}

Finding examine_open(const Process& process, const std::string& database, bool has_plugin) {
  Finding finding{fmt::format("{}, {}", database, name_of(process)), Reach::yes, "", {}};
  if (process.has_open(database + "-memlith")) {
    finding.text = "is on memlith, in mode shared";
  } else if (process.has_open(database + ".memlith")) {
    finding.text = "is on memlith, with the engine";
  } else {
    finding.reach = Reach::no;
    finding.text = "is on plain SQLite";
    if (has_plugin) {
      finding.text += fs::path(process.program).filename().string().starts_with("php")
                          ? ": PHP loads its modules with RTLD_DEEPBIND, so their calls do not reach the plugin"
                          : ", or not in use yet: no log or control block of memlith is open beside it";
      finding.advice = advice_for_program(process.program, ElfLook{});
      finding.advice
          .emplace_back("MEMLITH_SQLITE_LOG=stderr says of each opened database which VFS it is on, and why.");
    }
  }
  return finding;
}

std::vector<Finding> examine(const Process& process, const std::string* only) {
  std::vector<Finding> findings;
  bool has_plugin = false;
  for (const std::string& each : process.mapped) has_plugin = has_plugin || each.ends_with("memlith_sqlite.so");
  for (const std::string& each : process.databases) {
    if (only == nullptr || each == *only) findings.push_back(examine_open(process, each, has_plugin));
  }
  if (has_plugin && findings.empty()) {
    findings.push_back({name_of(process), Reach::yes, "has memlith_sqlite.so, and no database open", {}});
  }
  if (!has_plugin) findings.push_back(without_plugin(process));
  add_own_sqlites(process, findings);
  return findings;
}

// On these, locks and shared mappings do not hold between machines.
std::string network_of(const std::string& path) {
  struct statfs system{};
  if (::statfs(path.c_str(), &system) != 0) return "";
  switch (static_cast<std::uint32_t>(system.f_type)) {
    case 0x6969: return "NFS";
    case 0x517B:
    case 0xFF534D42:
    case 0xFE534D42: return "SMB";
    case 0x01021997: return "9P";
    case 0x00C36400: return "Ceph";
    default: return "";
  }
}

Finding examine_file(const std::string& path, const SqliteLook& look) {
  Finding finding{path, Reach::unknown, "", {}};
  std::error_code error;
  constexpr std::size_t kWriteVersionAt = 18;
  const std::string head = read_all(path).substr(0, 100);
  const bool is_wal = head.size() > kWriteVersionAt && head[kWriteVersionAt] == 2;
  if (look.is(MEMLITH_SQLITE_MARKED)) {
    finding.reach = Reach::yes;
    finding.text = "is marked: memlith's engine has it, or had it when it was killed";
    finding.advice = {"Plain SQLite and mode shared open it after it was closed there, or after:",
                      fmt::format("    memlith recover {}", path)};
  } else {
    finding.text = fmt::format("is an ordinary database{}{}", is_wal ? " in WAL mode" : " with a rollback journal",
                               fs::exists(path + "-memlith", error) ? "; its control block is there" : "");
    if (!is_wal) finding.advice = {"Mode shared shares flushes in WAL mode only:", "    PRAGMA journal_mode = wal"};
  }
  if (const std::string network = network_of(path); !network.empty()) {
    finding.reach = Reach::no;
    finding.text += fmt::format("; it lies on a network file system ({})", network);
    finding.advice = {"Put it on a local file system."};
  }
  return finding;
}

}  // namespace

Result<std::vector<Finding>> examine_process(int number) {
  Result<Process> process = look_at_process(number);
  if (!process.ok()) return process.failure();
  return examine(*process, nullptr);
}

Result<std::vector<Finding>> examine_database(const std::string& path) {
  Result<SqliteLook> look = look_at_sqlite(path);
  if (!look.ok()) return look.failure();
  std::error_code error;
  const std::string real = fs::canonical(path, error).string();
  if (error) return errno_failure(error.value(), fmt::format("cannot examine {}", path));
  std::vector<Finding> findings{examine_file(real, *look)};
  std::size_t unseen = 0;
  for (fs::directory_iterator each("/proc", error), end; !error && each != end; each.increment(error)) {
    const std::string name = each->path().filename().string();
    int number = 0;
    const auto [last, problem] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (problem != std::errc{} || last != name.data() + name.size() || number == ::getpid()) continue;
    if (::access((each->path() / "fd").c_str(), R_OK) != 0) {
      ++unseen;
      continue;
    }
    Result<Process> process = look_at_process(number);
    if (!process.ok() || !process->databases.contains(real)) continue;
    std::vector<Finding> more = examine(*process, &real);
    std::move(more.begin(), more.end(), std::back_inserter(findings));
  }
  if (findings.size() == 1) {
    const std::string besides =
        unseen != 0 ? fmt::format(" ({} processes of others could not be examined)", unseen) : "";
    findings.push_back({real, Reach::unknown, fmt::format("is open in no process{}", besides), {}});
  }
  return findings;
}

}  // namespace memlith::tool
