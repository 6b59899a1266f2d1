#include "program.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace memlith::preload {

namespace {

constexpr int kInterpretersMax = 4;
constexpr std::uint64_t kHeadersMax = 1 << 20;

#if defined(__x86_64__)
constexpr std::uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
#endif

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] bool read(std::uint64_t offset, void* bytes, std::size_t count) const {
    return ::pread(fd_, bytes, count, static_cast<off_t>(offset)) == static_cast<ssize_t>(count);
  }
  [[nodiscard]] std::string first_line() const {
    std::array<char, 256> text{};
    const ssize_t got = ::pread(fd_, text.data(), text.size() - 1, 0);
    return got <= 0 ? std::string() : std::string(text.data(), std::strcspn(text.data(), "\n"));
  }

 private:
  int fd_;
};

// A Go program makes its system calls itself, also if it is linked dynamically.
bool is_go(const File& file, const Elf64_Ehdr& head) {
  if (head.e_shoff == 0 || head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shstrndx >= head.e_shnum) return false;
  std::vector<Elf64_Shdr> sections(head.e_shnum);
  if (!file.read(head.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) return false;
  const Elf64_Shdr& names = sections[head.e_shstrndx];
  if (names.sh_size > kHeadersMax) return false;
  std::string text(names.sh_size, '\0');
  if (!file.read(names.sh_offset, text.data(), text.size())) return false;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_name < text.size() && std::strcmp(&text[section.sh_name], ".go.buildinfo") == 0) return true;
  }
  return false;
}

std::string why_not_elf(const File& file) {
  Elf64_Ehdr head{};
  if (!file.read(0, &head, sizeof head) || head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != kMachine) {
    return "is built for another kind of processor, and memlith's library cannot be loaded into it";
  }
  if (is_go(file, head)) return "is a Go program, which makes its system calls itself, where memlith does not see them";
  if (head.e_phentsize != sizeof(Elf64_Phdr)) return "has program headers of another size";
  std::vector<Elf64_Phdr> parts(head.e_phnum);
  if (!file.read(head.e_phoff, parts.data(), parts.size() * sizeof(Elf64_Phdr))) return "has no program headers";
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type == PT_INTERP) return {};
  }
  return "is statically linked, and memlith's library cannot be loaded into it";
}

std::string why_not_at(const std::string& path, int depth) {
  struct stat seen{};
  if (::stat(path.c_str(), &seen) != 0) return {};  // starting it will say so
  if ((seen.st_mode & S_ISUID) != 0 || (seen.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP)) {
    return "is a set-user-ID or set-group-ID program, into which the loader loads no library of the caller";
  }
  if (::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) {
    return "has file capabilities, and the loader loads no library of the caller into it";
  }
  const File file(path);
  if (!file.is_open()) return {};
  std::array<char, SELFMAG> magic{};
  if (file.read(0, magic.data(), magic.size()) && std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0) {
    return why_not_elf(file);
  }
  const std::string line = file.first_line();
  if (!line.starts_with("#!") || depth == kInterpretersMax) return {};
  const std::size_t begin = line.find_first_not_of(" \t", 2);
  if (begin == std::string::npos) return {};
  return why_not_at(line.substr(begin, line.find_first_of(" \t", begin) - begin), depth + 1);
}

}  // namespace

std::string why_not(const std::string& path) { return why_not_at(path, 0); }

}  // namespace memlith::preload
