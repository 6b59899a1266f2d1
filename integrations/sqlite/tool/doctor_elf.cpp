#include "doctor_elf.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "cli/descriptor.hpp"
#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

// SQLite's schema table as its source describes it; a program that merely knows SQLite's files has no such text.
constexpr std::string_view kSqliteText = "CREATE TABLE x(type text,name text,tbl_name text";

// The bytes of a file. Nothing in them is believed.
class Image {
 public:
  explicit Image(std::string_view bytes) : bytes_(bytes) {}

  template <class Struct>
  [[nodiscard]] std::optional<Struct> at(std::uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(Struct)) return std::nullopt;
    Struct found;
    std::memcpy(&found, bytes_.data() + offset, sizeof found);
    return found;
  }
  [[nodiscard]] std::string text_at(std::uint64_t offset) const {
    if (offset >= bytes_.size()) return "";
    const std::string_view rest = bytes_.substr(offset);
    return std::string(rest.substr(0, std::min(rest.find('\0'), std::size_t{4096})));
  }
  [[nodiscard]] bool has(std::string_view text) const { return bytes_.find(text) != std::string_view::npos; }
  [[nodiscard]] bool starts_with(std::string_view text) const { return bytes_.starts_with(text); }

 private:
  std::string_view bytes_;
};

std::uint64_t offset_of(const Image& image, const Elf64_Ehdr& head, std::uint64_t address) {
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    const auto part = image.at<Elf64_Phdr>(head.e_phoff + std::uint64_t{i} * sizeof(Elf64_Phdr));
    if (!part.has_value()) break;
    const bool inside = part->p_type == PT_LOAD && address >= part->p_vaddr && address - part->p_vaddr < part->p_filesz;
    if (inside) return part->p_offset + (address - part->p_vaddr);
  }
  return UINT64_MAX;
}

void read_dynamic(const Image& image, const Elf64_Ehdr& head, const Elf64_Phdr& dynamic, ElfLook& look) {
  std::uint64_t names = UINT64_MAX;
  std::vector<std::uint64_t> needed;
  for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic.p_filesz; at += sizeof(Elf64_Dyn)) {
    const auto entry = image.at<Elf64_Dyn>(dynamic.p_offset + at);
    if (!entry.has_value() || entry->d_tag == DT_NULL) break;
    if (entry->d_tag == DT_NEEDED) needed.push_back(entry->d_un.d_val);
    if (entry->d_tag == DT_STRTAB) names = offset_of(image, head, entry->d_un.d_ptr);
  }
  for (const std::uint64_t each : needed) {
    if (names != UINT64_MAX) look.needed.push_back(image.text_at(names + each));
  }
}

void read_symbols(const Image& image, const Elf64_Ehdr& head, ElfLook& look) {
  for (unsigned i = 0; i < head.e_shnum; ++i) {
    const auto section = image.at<Elf64_Shdr>(head.e_shoff + std::uint64_t{i} * sizeof(Elf64_Shdr));
    if (!section.has_value()) return;
    if (section->sh_type != SHT_DYNSYM) continue;
    const auto names = image.at<Elf64_Shdr>(head.e_shoff + std::uint64_t{section->sh_link} * sizeof(Elf64_Shdr));
    if (!names.has_value()) return;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= section->sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = image.at<Elf64_Sym>(section->sh_offset + at);
      if (!symbol.has_value()) return;
      if (symbol->st_shndx == SHN_UNDEF) continue;
      const std::string name = image.text_at(names->sh_offset + symbol->st_name);
      if (name == "sqlite3_prepare_v2") look.exports_sqlite = true;
      if (name == "sqlite3_memlithdefault_init") look.is_plugin = true;
    }
  }
}

ElfLook look_at(const Image& image) {
  ElfLook look;
  if (image.starts_with("#!")) {
    std::string line = image.text_at(2);
    line = line.substr(0, line.find('\n'));
    look.interpreter = line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
    return look;
  }
  const auto head = image.at<Elf64_Ehdr>(0);
  if (!head.has_value() || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64) {
    return look;
  }
  look.is_elf = true;
  look.is_program = head->e_type == ET_EXEC;
  for (unsigned i = 0; i < head->e_phnum; ++i) {
    const auto part = image.at<Elf64_Phdr>(head->e_phoff + std::uint64_t{i} * sizeof(Elf64_Phdr));
    if (!part.has_value()) break;
    if (part->p_type == PT_INTERP) look.is_program = look.loads = true;
    if (part->p_type == PT_DYNAMIC) read_dynamic(image, *head, *part, look);
  }
  if (!look.needed.empty()) look.loads = true;
  read_symbols(image, *head, look);
  look.contains_sqlite = image.has(kSqliteText);
  look.is_go = image.has("\xff Go buildinf:");
  look.is_rust = image.has("libsqlite3-sys") || image.has("rusqlite");
  return look;
}

}  // namespace

bool ElfLook::needs(std::string_view library) const {
  return std::any_of(needed.begin(), needed.end(), [&](const std::string& each) { return each.starts_with(library); });
}

Result<ElfLook> look_at_elf(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return errno_failure(errno, fmt::format("cannot open {}", path));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return errno_failure(errno, fmt::format("cannot examine {}", path));
  if (!S_ISREG(status.st_mode)) return tool_failure(MEMLITH_INVALID, fmt::format("{} is not a regular file", path));
  if (status.st_size == 0) return ElfLook{};
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) return errno_failure(errno, fmt::format("cannot map {}", path));
  ElfLook look = look_at(Image(std::string_view(static_cast<const char*>(memory), bytes)));
  ::munmap(memory, bytes);
  return look;
}

}  // namespace memlith::tool
