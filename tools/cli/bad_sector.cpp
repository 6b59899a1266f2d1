// SIGNAL CONTEXT: a load of the program itself raised the signal, so that no lock of the allocator or of standard
// output is held by another part of this thread, and the handler may call both. It never returns.
#include "bad_sector.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

std::atomic<Format> g_format{Format::text};

// "FILE at offset N"; empty if no file is mapped there.
std::string file_at(std::uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint64_t offset = 0;
    int name = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %*s %*s %n", &begin, &end, &offset,
                    &name) < 3) {
      continue;
    }
    if (address < begin || address >= end) continue;
    const std::string file = line.substr(static_cast<std::size_t>(name));
    return file.starts_with('/') ? fmt::format("{} at offset {}", printable(file), address - begin + offset) : "";
  }
  return {};
}

void tell(int signal, siginfo_t* info, void*) {
  const std::string where = info->si_code > 0 ? file_at(reinterpret_cast<std::uintptr_t>(info->si_addr)) : "";
  if (where.empty()) {  // strikes again when the handler returns
    ::signal(signal, SIG_DFL);
    if (info->si_code <= 0) ::raise(signal);
    return;
  }
  const Failure failure = tool_failure(
      MEMLITH_IO, fmt::format("cannot read {}: the disk does not give it back, or the file was cut short", where),
      "Check the kernel's messages about the disk (dmesg). What cannot be read, no opening gives back: restore it from "
      "a copy or an archive.");
  ::_exit(report_failure(failure, g_format));
}

}  // namespace

void tell_bad_sectors(Format format) {
  g_format = format;
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = tell;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace memlith::tool
