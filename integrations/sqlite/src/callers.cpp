#include "callers.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

namespace memlith::sqlite {

namespace {

constexpr std::array<std::string_view, 3> kOpens = {"sqlite3_open", "sqlite3_open16", "sqlite3_open_v2"};
constexpr const char* kOpen = "sqlite3_open_v2";

#if defined(__x86_64__)
constexpr unsigned kAddressInData = R_X86_64_64;
#elif defined(__aarch64__)
constexpr unsigned kAddressInData = R_AARCH64_ABS64;
#else
constexpr unsigned kAddressInData = ~0u;  // none is found
#endif

bool opens(std::string_view name) { return std::find(kOpens.begin(), kOpens.end(), name) != kOpens.end(); }

struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  [[nodiscard]] bool has(std::uintptr_t address) const { return begin <= address && address < end; }
};

// Where an object has the address of a function of SQLite.
struct Reference {
  std::string name;
  std::uintptr_t slot = 0;
  std::uintptr_t value = 0;
  bool in_data = false;  // and not among those by which it calls
};

struct Object {
  std::string path;  // empty: the program
  std::uintptr_t base = 0;
  std::vector<AddressRange> ranges;
  AddressRange fixed;  // read-only since the loader has finished
  std::string soname;
  std::vector<std::string> needed;
  std::vector<Reference> references;

  [[nodiscard]] bool has(std::uintptr_t address) const {
    return std::any_of(ranges.begin(), ranges.end(), [&](const AddressRange& range) { return range.has(address); });
  }
  [[nodiscard]] bool refers_to_opening() const {
    return std::any_of(references.begin(), references.end(), [](const Reference& each) { return opens(each.name); });
  }
  [[nodiscard]] bool is_called(std::string_view name) const {
    const std::string_view whole(path);
    return name == whole || name == soname || name == whole.substr(whole.rfind('/') + 1);
  }
};

// ---- what is loaded ------------------------------------------------------------------------------------------------

void read_references(Object& object, const ElfW(Rela) * relocations, std::size_t bytes, std::size_t skipped,
                     const ElfW(Sym) * symbols, const char* names) {
  constexpr std::string_view kPrefix = "sqlite3_";
  for (std::size_t i = skipped; i < bytes / sizeof *relocations; ++i) {
    const auto symbol = ELF64_R_SYM(relocations[i].r_info);
    if (symbol == 0) continue;
    const char* const name = names + symbols[symbol].st_name;
    if (std::strncmp(name, kPrefix.data(), kPrefix.size()) != 0) continue;
    Reference reference;
    reference.name = name;
    reference.slot = object.base + relocations[i].r_offset;
    std::memcpy(&reference.value, reinterpret_cast<const void*>(reference.slot), sizeof reference.value);
    reference.in_data = ELF64_R_TYPE(relocations[i].r_info) == kAddressInData;
    object.references.push_back(std::move(reference));
  }
}

void read_dynamic(Object& object, const ElfW(Dyn) * dynamic) {
  std::map<ElfW(Sxword), std::uintptr_t> values;
  std::vector<std::uintptr_t> needed;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_NEEDED) needed.push_back(dynamic->d_un.d_val);
    values[dynamic->d_tag] = dynamic->d_un.d_ptr;
  }
  // The loader has replaced offsets by addresses, except in objects whose dynamic section is read-only.
  const auto address = [&](ElfW(Sxword) tag) {
    const std::uintptr_t value = values[tag];
    return value != 0 && value < object.base ? object.base + value : value;
  };
  const auto* const names = reinterpret_cast<const char*>(address(DT_STRTAB));
  const auto* const symbols = reinterpret_cast<const ElfW(Sym)*>(address(DT_SYMTAB));
  if (names == nullptr || symbols == nullptr) return;
  for (const std::uintptr_t each : needed) object.needed.emplace_back(names + each);
  if (values.count(DT_SONAME) != 0) object.soname = names + values[DT_SONAME];
  if (values.count(DT_RELA) != 0) {
    read_references(object, reinterpret_cast<const ElfW(Rela)*>(address(DT_RELA)), values[DT_RELASZ],
                    values[DT_RELACOUNT], symbols, names);
  }
  if (values.count(DT_JMPREL) != 0 && values[DT_PLTREL] == DT_RELA) {
    read_references(object, reinterpret_cast<const ElfW(Rela)*>(address(DT_JMPREL)), values[DT_PLTRELSZ], 0, symbols,
                    names);
  }
}

Object read_object(const dl_phdr_info& info) {
  Object object;
  object.path = info.dlpi_name != nullptr ? info.dlpi_name : "";
  object.base = info.dlpi_addr;
  const std::uintptr_t page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    const AddressRange range{object.base + header.p_vaddr, object.base + header.p_vaddr + header.p_memsz};
    if (header.p_type == PT_LOAD) object.ranges.push_back(range);
    if (header.p_type == PT_GNU_RELRO) object.fixed = {range.begin / page * page, range.end / page * page};
    if (header.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(range.begin);
  }
  if (dynamic != nullptr) read_dynamic(object, dynamic);
  return object;
}

// Visits the objects in the order in which they were loaded. The loader holds a lock meanwhile, under which it must not
// be called.
std::vector<Object> read_objects() {
  std::vector<Object> objects;
  bool out_of_memory = false;
  const std::function<void(const dl_phdr_info&)> add = [&](const dl_phdr_info& info) {
    try {
      objects.push_back(read_object(info));
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  };
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        (*static_cast<const std::function<void(const dl_phdr_info&)>*>(to))(*info);
        return 0;
      },
      const_cast<void*>(static_cast<const void*>(&add)));
  if (out_of_memory) throw std::bad_alloc();
  return objects;
}

unsigned long long unloaded_so_far() {
  unsigned long long count = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<unsigned long long*>(to) = info->dlpi_subs;
        return 1;  // it is the same with each of them
      },
      &count);
  return count;
}

class Handle {
 public:
  explicit Handle(const Object& object)
      : handle_(::dlopen(object.path.empty() ? nullptr : object.path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {}
  ~Handle() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  [[nodiscard]] std::uintptr_t find(const char* name) const {
    return handle_ != nullptr ? reinterpret_cast<std::uintptr_t>(::dlsym(handle_, name)) : 0;
  }
  void* release() { return std::exchange(handle_, nullptr); }

 private:
  void* handle_;
};

class Process {
 public:
  Process() : objects_(read_objects()), mine_(find(reinterpret_cast<std::uintptr_t>(&kOpens))) {}

  [[nodiscard]] const Object* find(std::uintptr_t address) const {
    const auto found =
        std::find_if(objects_.begin(), objects_.end(), [&](const Object& each) { return each.has(address); });
    return found != objects_.end() ? &*found : nullptr;
  }
  [[nodiscard]] const Object* find_sqlite_of(const Object* caller) const;
  [[nodiscard]] std::vector<const Object*> all() const;
  struct Change {
    std::uintptr_t slot = 0;
    std::uintptr_t wanted = 0;
    bool fixed = false;  // read-only
  };
  [[nodiscard]] std::vector<Change> own_opens(const Object& sqlite) const;

 private:
  // The address of the object's own definition; 0 if there is none.
  [[nodiscard]] std::uintptr_t own(const Object& object, const char* name) const {
    const std::uintptr_t found = Handle(object).find(name);
    return object.has(found) ? found : 0;
  }
  [[nodiscard]] bool is_sqlite(const Object& object) const { return &object != mine_ && own(object, kOpen) != 0; }
  [[nodiscard]] bool needs(const Object& root, const Object& wanted, std::vector<const Object*>& seen) const;
  [[nodiscard]] const Object* bound_to(const Object& caller) const;
  [[nodiscard]] const Object* of_program() const;
  [[nodiscard]] const Object* in_scope_of(const Object& caller) const;

  std::vector<Object> objects_;
  const Object* mine_;
};

// The bindings of the caller's other references decide. A reference that is not bound yet leads to the caller's own
// code.
const Object* Process::bound_to(const Object& caller) const {
  for (const Reference& each : caller.references) {
    if (opens(each.name)) continue;
    const Object* const found = find(each.value);
    if (found == nullptr || found == mine_) continue;
    if (found == &caller && own(caller, each.name.c_str()) != each.value) continue;
    if (is_sqlite(*found)) return found;
  }
  return nullptr;
}

// The program, the libraries that it is linked to, and objects that were loaded globally since.
const Object* Process::of_program() const {
  const Object* const found = find(reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_NEXT, kOpen)));
  return found != mine_ ? found : nullptr;
}

bool Process::needs(const Object& root, const Object& wanted, std::vector<const Object*>& seen) const {
  if (&root == &wanted) return true;
  if (std::find(seen.begin(), seen.end(), &root) != seen.end()) return false;
  seen.push_back(&root);
  return std::any_of(root.needed.begin(), root.needed.end(), [&](const std::string& name) {
    const auto found =
        std::find_if(objects_.begin(), objects_.end(), [&](const Object& each) { return each.is_called(name); });
    return found != objects_.end() && needs(*found, wanted, seen);
  });
}

// The loader searches the objects that were loaded together with the caller, beginning with the object for which the
// caller was first loaded.
const Object* Process::in_scope_of(const Object& caller) const {
  for (const Object& root : objects_) {
    std::vector<const Object*> seen;
    if (root.path.empty() || &root == mine_ || !needs(root, caller, seen)) continue;
    const Object* const found = find(Handle(root).find(kOpen));
    if (found != nullptr && found != mine_) return found;
  }
  return nullptr;
}

const Object* Process::find_sqlite_of(const Object* caller) const {
  const auto by_references = [this](const Object& object) {
    if (const Object* const found = bound_to(object); found != nullptr) return found;
    if (const Object* const found = of_program(); found != nullptr) return found;
    return in_scope_of(object);
  };
  if (caller != nullptr && (caller->refers_to_opening() || bound_to(*caller) != nullptr)) return by_references(*caller);
  // A function that ends in a jump may belong to one of the libraries that the caller is linked to, or else to any
  // library.
  for (const bool anywhere : {false, true}) {
    std::vector<const Object*> meant;
    for (const Object& each : objects_) {
      if (&each == mine_ || !each.refers_to_opening()) continue;
      std::vector<const Object*> seen;
      if (!anywhere && (caller == nullptr || caller->path.empty() || !needs(*caller, each, seen))) continue;
      const Object* const found = by_references(each);
      if (found != nullptr && std::find(meant.begin(), meant.end(), found) == meant.end()) meant.push_back(found);
    }
    if (meant.size() == 1) return meant.front();
    if (meant.size() > 1) return nullptr;
  }
  if (const Object* const found = of_program(); found != nullptr) return found;
  const auto there = all();
  return there.size() == 1 ? there.front() : nullptr;
}

std::vector<const Object*> Process::all() const {
  std::vector<const Object*> found;
  for (const Object& each : objects_) {
    if (is_sqlite(each)) found.push_back(&each);
  }
  return found;
}

// The places in the library's table for extensions that hold the plugin's functions, and the functions that belong
// there.
std::vector<Process::Change> Process::own_opens(const Object& sqlite) const {
  std::vector<Change> changes;
  for (const Reference& each : sqlite.references) {
    if (!each.in_data || !opens(each.name) || mine_ == nullptr || !mine_->has(each.value)) continue;
    const std::uintptr_t wanted = own(sqlite, each.name.c_str());
    if (wanted != 0) changes.push_back({each.slot, wanted, sqlite.fixed.has(each.slot)});
  }
  return changes;
}

void apply(const std::vector<Process::Change>& changes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (const Process::Change& each : changes) {
    auto* const begin = reinterpret_cast<void*>(each.slot / page * page);
    if (each.fixed && ::mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) continue;
    std::memcpy(reinterpret_cast<void*>(each.slot), &each.wanted, sizeof each.wanted);
    if (each.fixed) (void)::mprotect(begin, page, PROT_READ);
  }
}

Library make_library(const Object& object) {
  Handle handle(object);
  Library library;
  library.base = reinterpret_cast<const void*>(object.base);
  library.path = object.path;
  if (object.path.empty()) {
    char path[4096];
    const ssize_t bytes = ::readlink("/proc/self/exe", path, sizeof path);
    library.path = bytes > 0 ? std::string(path, static_cast<std::size_t>(bytes)) : "the program";
  }
  library.handle = handle.release();
  return library;
}

}  // namespace

void* Library::find(const char* name) const {
  void* const found = handle != nullptr ? ::dlsym(handle, name) : nullptr;
  Dl_info its{};
  Dl_info known{};
  // A definition in a library that it only needs belongs to another SQLite.
  const bool is_own = found != nullptr && ::dladdr(found, &its) != 0 && ::dladdr(::dlsym(handle, kOpen), &known) != 0 &&
                      its.dli_fbase == known.dli_fbase;
  return is_own ? found : nullptr;
}

std::optional<Library> find_sqlite_of(const void* return_address) {
  static std::mutex
      // Not held during calls of the loader, which may hold its own lock while it calls a constructor that opens a
      // database.
      mutex;
  static auto* const libraries = new std::map<const void*, Library>;    // by base; they stay loaded
  static auto* const answers = new std::map<const void*, const void*>;  // a return address to a base
  static unsigned long long valid_for = 0;
  const unsigned long long unloaded = unloaded_so_far();
  {
    const std::lock_guard lock(mutex);
    // Another object may have been loaded at the addresses of an unloaded one.
    if (unloaded != valid_for) answers->clear();
    valid_for = unloaded;
    if (const auto known = answers->find(return_address); known != answers->end()) return libraries->at(known->second);
  }
  const Process process;
  const Object* const caller = process.find(reinterpret_cast<std::uintptr_t>(return_address));
  const Object* const sqlite = process.find_sqlite_of(caller);
  if (sqlite == nullptr) return std::nullopt;
  const auto changes = process.own_opens(*sqlite);
  Library library = make_library(*sqlite);
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = libraries->try_emplace(library.base, std::move(library));
  if (is_new) apply(changes);
  // For a call through a pointer, the answer depends on which other objects are loaded.
  if (caller != nullptr && caller->refers_to_opening() && valid_for == unloaded)
    (*answers)[return_address] = found->first;
  return found->second;
}

std::vector<Library> find_all_sqlites() {
  const Process process;
  std::vector<Library> libraries;
  for (const Object* const each : process.all()) libraries.push_back(make_library(*each));
  return libraries;
}

}  // namespace memlith::sqlite
