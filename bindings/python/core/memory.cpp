#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "errors.hpp"
#include "unlocked.hpp"

namespace nb = nanobind;

namespace memlith::python {

namespace {

// Never destroyed: arrays may die after everything else of the process.
std::map<std::uint64_t, std::weak_ptr<Mapping>>& mappings() {
  static auto* const all = new std::map<std::uint64_t, std::weak_ptr<Mapping>>;
  return *all;
}

// Pages as they are at `from`, elsewhere. What remains at `from` is of no use to anybody.
void* move_aside(char* from, std::uint64_t bytes) {
  void* const aside =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (aside == MAP_FAILED) return nullptr;
  void* const moved = ::mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, aside);
  if (moved != MAP_FAILED) {
    // A region tracked by faults in which nothing is changed is one mapping, and its pages are protected.
    if (::mprotect(moved, bytes, PROT_READ | PROT_WRITE) == 0) return moved;
    Py_FatalError("memlith: cannot make the memory of arrays writable");
  }
  // The kernel is older than 5.13, or moves only what is one mapping, which a region tracked by faults is not.
  std::memcpy(aside, from, bytes);
  return aside;
}

int memory_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Memory* const memory = nb::inst_ptr<Memory>(nb::handle(self));
  return PyBuffer_FillInfo(view, self, memory->address, static_cast<Py_ssize_t>(memory->bytes), memory->read_only,
                           flags);
}

int memory_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(nb::handle(self))) return 0;
  Py_VISIT(nb::inst_ptr<Memory>(nb::handle(self))->owner.ptr());
  return 0;
}

int memory_clear(PyObject* self) {
  nb::inst_ptr<Memory>(nb::handle(self))->owner.reset();
  return 0;
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(memory_buffer)},
                              {Py_tp_traverse, reinterpret_cast<void*>(memory_traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(memory_clear)},
                              {0, nullptr}};

// Releases a buffer of Python's, whatever happens.
struct Buffer {
  Py_buffer view{};
  Buffer(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view, flags) != 0) throw nb::python_error();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view); }
  char* data() const { return static_cast<char*>(view.buf); }
};

// Copies what differs, line by line, so that a tracker finds only the pages in which something changes. Returns the
// bytes of the lines that it copied.
std::uint64_t copy_changed(nb::handle to, nb::handle from) {
  const Buffer target(to, PyBUF_WRITABLE | PyBUF_ANY_CONTIGUOUS), source(from, PyBUF_ANY_CONTIGUOUS);
  if (target.view.len != source.view.len) fail(MEMLITH_INVALID, "the two buffers have different sizes");
  const Unlocked unlocked;
  constexpr std::size_t kLine = 256;
  const auto bytes = static_cast<std::size_t>(target.view.len);
  std::uint64_t copied = 0;
  for (std::size_t at = 0; at < bytes; at += kLine) {
    const std::size_t count = std::min(kLine, bytes - at);
    if (std::memcmp(target.data() + at, source.data() + at, count) == 0) continue;
    std::memcpy(target.data() + at, source.data() + at, count);
    copied += count;
  }
  return copied;
}

}  // namespace

Mapping::~Mapping() {
  const auto found = mappings().find(address_);
  if (found != mappings().end() && found->second.expired()) mappings().erase(found);
  make_way();
}

std::shared_ptr<Mapping> Mapping::find(const Identity& identity, std::uint64_t address) {
  const auto found = mappings().find(address);
  if (found == mappings().end()) return nullptr;
  std::shared_ptr<Mapping> mapping = found->second.lock();
  return mapping != nullptr && mapping->identity_ == identity ? mapping : nullptr;
}

std::shared_ptr<Mapping> Mapping::of(const Identity& identity, std::uint64_t address) {
  std::shared_ptr<Mapping> mapping = find(identity, address);
  if (mapping == nullptr) {
    mapping = std::make_shared<Mapping>(identity, address);
    mappings()[address] = mapping;
  }
  return mapping;
}

std::string Mapping::name_at(std::uint64_t address) {
  const auto found = mappings().find(address);
  const std::shared_ptr<Mapping> mapping = found == mappings().end() ? nullptr : found->second.lock();
  return mapping != nullptr ? mapping->identity_.name : "";
}

void Mapping::detach(memlith_region* region) {
  const std::uint64_t bytes = std::max(memlith_region_size(region), std::exchange(extended_bytes_, 0));
  void* const aside = move_aside(address(), bytes);
  if (aside == nullptr) {
    fail(MEMLITH_NO_MEMORY, "no memory for the arrays that outlive their region \"" + identity_.name +
                                "\"; delete them, or close the store later");
  }
  memlith_region_close(region);
  // Nothing else comes here meanwhile: the kernel places memory elsewhere by itself.
  if (::mremap(aside, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address()) == MAP_FAILED) {
    const int number = errno;
    Py_FatalError((std::string("memlith: cannot move the memory of arrays back: ") + std::strerror(number)).c_str());
  }
  detached_bytes_ = bytes;
}

std::uint64_t Mapping::make_way() {
  if (detached_bytes_ != 0) ::munmap(address(), detached_bytes_);
  return std::exchange(detached_bytes_, 0);
}

void Mapping::fill_in(std::uint64_t bytes) {
  if (::mmap(address(), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED) {
    Py_FatalError("memlith: cannot keep the addresses of arrays");
  }
  detached_bytes_ = bytes;
}

void Mapping::extend(std::uint64_t region_bytes, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t mapped = (region_bytes + page - 1) / page * page;
  if (mapped < bytes && ::mmap(address() + mapped, bytes - mapped, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    Py_FatalError("memlith: cannot keep the addresses of arrays");
  }
  extended_bytes_ = bytes;
}

void Mapping::allow_stores(std::uint64_t bytes) const {
  if (writable_exports_) ::mprotect(address(), bytes, PROT_READ | PROT_WRITE);
}

void define_memory(nb::module_& module) {
  nb::class_<Memory>(module, "Memory", nb::type_slots(memory_slots),
                     "Memory of a region or a snapshot, by the buffer protocol.")
      .def("__len__", [](const Memory& memory) { return memory.bytes; })
      .def_prop_ro("address", [](const Memory& memory) { return reinterpret_cast<std::uintptr_t>(memory.address); })
      .def_ro("read_only", &Memory::read_only);
  module.def("copy_changed", &copy_changed, nb::arg("to"), nb::arg("source"),
             "Copies what differs between two contiguous buffers of one size; returns how many bytes it copied.");
}

}  // namespace memlith::python
