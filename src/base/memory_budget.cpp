#include "base/memory_budget.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/units.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
constexpr std::uint64_t kForTheRest = 64 * kMiB;

// "max" of version 2, and what is no number, are no limit.
std::uint64_t limit_in(const std::string& file) {
  const std::string text = text_of(file.c_str());
  std::uint64_t limit = kNoLimit;
  return std::from_chars(text.data(), text.data() + text.size(), limit).ec == std::errc() ? limit : kNoLimit;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool has(std::string_view list, std::string_view word) {
  const std::vector<std::string_view> words = split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The smallest limit from the group up to the folder at which the hierarchy is mounted.
std::uint64_t limit_of(const std::string& mounted, std::string_view group, const char* file) {
  std::uint64_t limit = limit_in(mounted + file);
  std::string folder = mounted;
  for (const std::string_view each : split(group, '/')) {
    if (each.empty()) continue;
    folder += "/" + std::string(each);
    limit = std::min(limit, limit_in(folder + file));
  }
  return limit;
}

// In a container, the name of the group may begin above the folder that is mounted there.
std::string_view below(std::string_view group, std::string_view mounted_root) {
  return mounted_root != "/" && group.starts_with(mounted_root) ? group.substr(mounted_root.size()) : group;
}

// proc_pid_cgroup(5): NUMBER:CONTROLLERS:GROUP, without controllers in version 2.
std::string_view group_of(std::string_view groups, bool v2) {
  for (const std::string_view line : split(groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() : has(controllers, "memory")) return line.substr(second + 1);
  }
  return "/";
}

}  // namespace

std::uint64_t memory_allowed(const std::string& root) {
  const std::string groups = text_of((root + "/proc/self/cgroup").c_str());
  const std::string mounts = text_of((root + "/proc/self/mountinfo").c_str());
  std::uint64_t limit =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const std::string_view line : split(mounts, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    const std::vector<std::string_view> place = split(line.substr(0, dash), ' ');
    const std::vector<std::string_view> kind = split(line.substr(dash + 3), ' ');
    if (place.size() < 5 || kind.size() < 3) continue;
    const bool v2 = kind[0] == "cgroup2";
    if (!v2 && (kind[0] != "cgroup" || !has(kind[2], "memory"))) continue;
    limit = std::min(limit, limit_of(root + std::string(place[4]), below(group_of(groups, v2), place[3]),
                                     v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  }
  return limit;
}

// The rest of the process needs memory as well, a checkpoint for one.
std::uint64_t memory_for_stores() {
  const std::uint64_t allowed = memory_allowed();
  return allowed - std::min(allowed / 2, kForTheRest);
}

MemoryBudget::MemoryBudget(std::uint64_t told_bytes)
    : told_(told_bytes != 0), max_bytes_(told_ ? told_bytes : memory_for_stores()) {
  if (!told_) sharing_.fetch_add(1, std::memory_order_relaxed);
}

MemoryBudget::~MemoryBudget() {
  if (!told_) sharing_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace memlith::core
