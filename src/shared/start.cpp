#include "shared/start.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>

#include "shm/helper.hpp"

namespace memlith::core::shared {

namespace {

std::string real_path(const std::string& path) {
  std::array<char, PATH_MAX> found{};
  return ::realpath(path.c_str(), found.data()) == nullptr ? std::string() : found.data();
}

bool is_program(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// The folder of the library, or of the program that contains it.
std::string own_folder() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&find_program), &self) == 0 || self.dli_fname == nullptr) return {};
  std::string own = real_path(self.dli_fname);
  // The name of a program may be the one that it was started by.
  if (own.empty()) own = real_path("/proc/self/exe");
  return own.substr(0, own.rfind('/'));
}

}  // namespace

Result<std::string> find_program(const std::string& given) {
  if (!given.empty()) {
    if (is_program(given)) return given;
    return fail(Errc::not_found, Detail::open, "{}: this is no program; set `program` to the path of memlith", given);
  }
  const std::string folder = own_folder();
  for (const char* const place : {"/memlith", "/memlith-keeper", "/../bin/memlith", "/../../bin/memlith"}) {
    if (!folder.empty() && is_program(folder + place)) return folder + place;
  }
  const char* const path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/usr/bin:/bin" : path;
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string candidate = (end == begin ? "." : folders.substr(begin, end - begin)) + "/memlith";
    if (is_program(candidate)) return candidate;
    begin = end + 1;
  }
  return fail(Errc::not_found, Detail::open,
              "the program memlith, which keeps shared regions, is neither near {} nor in PATH; install memlith's "
              "tools, set `program` to its path, or start `memlith keeper STORE` before",
              folder);
}

Status start_keeper(const std::string& program, const std::string& path, bool create) {
  shm::HelperProgram keeper;
  keeper.path = program;
  keeper.words = {program, "keeper", "--ready-fd", std::to_string(shm::kReadyNumber)};
  if (create) keeper.words.emplace_back("--create");
  keeper.words.insert(keeper.words.end(), {"--", path});
  return shm::start_helper(keeper);
}

}  // namespace memlith::core::shared
