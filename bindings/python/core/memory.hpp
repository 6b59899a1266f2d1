// The memory of regions, and who in Python still uses it.
//
// Part: python. A NumPy array in a region is a pointer that Python may keep for ever, while a store can be closed at
// any time. Therefore:
//  - `Mapping` is the memory of one region at its address. Python's arrays hold it through `Memory`.
//  - Closing a region whose mapping is held *detaches* the mapping: the pages move aside, the region is closed, and the
//    pages move back. The arrays keep their values, and are ordinary memory that reaches no store.
//  - Opening the same region again *attaches*: the arrays of the earlier opening show the region again. Another region
//    that belongs at these addresses cannot be opened as long as the arrays live (ADDRESS_TAKEN).
// The interpreter lock guards all of it, and is held from the moment the pages are aside until they are back.
#ifndef MEMLITH_PYTHON_MEMORY_HPP
#define MEMLITH_PYTHON_MEMORY_HPP

#include <memlith/memlith.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>

namespace memlith::python {

// Which region of which store: two stores may have regions at one address, a copied store even of one name.
struct Identity {
  std::uint64_t device = 0;
  std::uint64_t folder = 0;
  std::uint64_t log = 0;
  std::string name;
  bool operator==(const Identity&) const = default;
};

class Mapping {
 public:
  Mapping(Identity identity, std::uint64_t address) : identity_(std::move(identity)), address_(address) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  // The mapping that arrays hold of this region, or null.
  static std::shared_ptr<Mapping> find(const Identity& identity, std::uint64_t address);
  // The same, or a new one that later calls of find() return.
  static std::shared_ptr<Mapping> of(const Identity& identity, std::uint64_t address);
  // The name of the region whose mapping arrays hold there, of any store; empty: none do.
  static std::string name_at(std::uint64_t address);

  char* address() const { return reinterpret_cast<char*>(address_); }
  bool detached() const { return detached_bytes_ != 0; }

  // Closes the region; its memory stays. Fails without an effect if there is no memory for that.
  void detach(memlith_region* region);
  // Gives the addresses up, so that the region can be opened there. Returns how many bytes lay there.
  std::uint64_t make_way();
  // After make_way: the region could not be opened. The arrays get zeros instead.
  void fill_in(std::uint64_t bytes);

  void was_exported(bool writable) { writable_exports_ = writable_exports_ || writable; }
  // The region is shorter than arrays of an earlier opening, whose growth was not persisted: zeros follow it.
  void extend(std::uint64_t region_bytes, std::uint64_t bytes);
  // Arrays that were made writable must not fault when the region is opened read-only.
  void allow_stores(std::uint64_t bytes) const;

 private:
  const Identity identity_;
  const std::uint64_t address_;
  std::uint64_t detached_bytes_ = 0;
  std::uint64_t extended_bytes_ = 0;  // up to where extend() put zeros
  bool writable_exports_ = false;
};

// Part of a mapping (or a snapshot) as Python's buffer protocol shows it; the base of an array. Holds `owner`, so that
// a store is not closed by the garbage collector while an array in it is in use.
struct Memory {
  std::shared_ptr<void> holder;
  nanobind::object owner;
  void* address = nullptr;
  std::uint64_t bytes = 0;
  bool read_only = false;
};

void define_memory(nanobind::module_& module);

}  // namespace memlith::python

#endif
