// Heaps: include/memlith/heap.h and include/memlith/derived.h. Floor: capi. A memlith_heap is a core::Heap, which its
// OpenRegion owns.
#include "memlith/heap.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "capi/errors.hpp"
#include "capi/handles.hpp"
#include "capi/in_region.hpp"
#include "heap/heap.hpp"
#include "heap/open_heaps.hpp"
#include "memlith/derived.h"
#include "private/inside.h"

using namespace memlith::core;

namespace {

constexpr std::uint64_t kDefaultBytes = 1 * kMiB;
constexpr std::uint64_t kDefaultAlignment = 16;

MEMLITH_EARLY_THREAD_LOCAL constinit thread_local memlith_heap* current_heap = nullptr;

Heap& heap_of(const memlith_heap* heap) { return *reinterpret_cast<Heap*>(const_cast<memlith_heap*>(heap)); }
memlith_heap* handle_of(Heap* heap) { return reinterpret_cast<memlith_heap*>(heap); }

static_assert(sizeof(memlith_derived) == sizeof(Derived) &&
              offsetof(memlith_derived, drop) == offsetof(Derived, drop) &&
              offsetof(memlith_derived, check) == offsetof(Derived, check));
Derived* inner(memlith_derived* derived) { return reinterpret_cast<Derived*>(derived); }
memlith_derived* outer(Derived* derived) { return reinterpret_cast<memlith_derived*>(derived); }

Status need_ours(const memlith_heap* heap) {
  MEMLITH_TRY(need_handle(heap, "heap"));
  return heap_of(heap).region().store().check_process();
}

Result<ObjectType> type_of(const memlith_type* type) {
  MEMLITH_TRY(need(type, "type"));
  if (type->struct_size != sizeof(memlith_type)) {
    return fail(Errc::invalid, Detail::argument, "struct_size is {}; set it to sizeof the struct", type->struct_size);
  }
  const std::string_view name = type->name == nullptr ? std::string_view() : type->name;
  return ObjectType{name, type->size, type->alignment, type->layout};
}

Result<ObjectType> named_type_of(const memlith_type* type) {
  MEMLITH_TRY_ASSIGN(const ObjectType named, type_of(type));
  MEMLITH_TRY(need(type->name, "the type's name"));
  return named;
}

Result<std::string_view> name_of(const char* name) {
  MEMLITH_TRY(need(name, "name"));
  return std::string_view(name);
}

// Found, or a block of zeros with that name.
Result<void*> find_or_make(Heap& heap, std::string_view name, const ObjectType& type) {
  const auto found = heap.names().find(name, type);
  if (found.ok()) return static_cast<void*>(found->address);
  if (found.error().category != Errc::not_found) return found.error();
  MEMLITH_TRY_ASSIGN(void* const made, heap.arenas().allocate(type.size, kDefaultAlignment));
  MEMLITH_TRY_ASSIGN(const std::uint64_t bytes, heap.arenas().block_bytes(made));
  std::memset(made, 0, bytes);
  Status named = heap.region().touch(made, bytes);
  if (named.ok()) named = heap.names().set(name, made, type);
  if (named.ok()) return made;
  const KeptSentence sentence;
  MEMLITH_TRY(heap.arenas().free(made));
  return named;
}

}  // namespace

extern "C" {

int32_t memlith_heap_open(memlith_store* store, const char* name, const memlith_region_options* options,
                          memlith_heap** result) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(store));
    MEMLITH_TRY(need(name, "name"));
    MEMLITH_TRY(need(result, "heap"));
    memlith_region_options given;
    MEMLITH_TRY(read_options(options, given));
    if (given.size == 0) given.size = kDefaultBytes;
    MEMLITH_TRY_ASSIGN(RegionOptions inner, region_options(given));
    inner.limited = Limited::if_told;
    inner.use_magic = kHeapMagic;
    inner.process_scope = !inner.thread_scope;
    Session& session = session_of(store);
    MEMLITH_TRY(Heap::place_as_made(session.store(), name, inner));
    const HeapOptions wanted{inner.create, inner.exclusive, given.max_size, inner.thread_scope};
    MEMLITH_TRY_ASSIGN(Heap* const heap, open_in_region(session, name, inner, [&wanted](Region& region) {
                         return Heap::open(region, wanted);
                       }));
    *result = handle_of(heap);
    return kOk;
  });
}

int32_t memlith_heap_close(memlith_heap* heap) {
  if (heap == nullptr) return 0;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    OpenRegion& region = *heap_of(heap).open_region();
    return region.session.close_region(region);
  });
}

memlith_region* memlith_heap_region(memlith_heap* heap) {
  return heap == nullptr ? nullptr : handle_of(heap_of(heap).open_region());
}

memlith_heap* memlith_heap_of(const void* address) {
  return handle_of(open_heap_at(reinterpret_cast<std::uintptr_t>(address)));
}

memlith_heap* memlith_heap_current(void) {
  return current_heap != nullptr ? current_heap : handle_of(only_open_heap());
}

memlith_heap* memlith_heap_used(void) { return calls_inside == 0 ? current_heap : nullptr; }

int32_t memlith_heap_owns(const void* address) {
  return heap_was_at(reinterpret_cast<std::uintptr_t>(address)) ? 1 : 0;
}

memlith_heap* memlith_heap_use(memlith_heap* heap) { return std::exchange(current_heap, heap); }

int32_t memlith_heap_allocate(memlith_heap* heap, uint64_t bytes, uint64_t alignment, void** block) {
  if (alignment == 0) alignment = kDefaultAlignment;
  if (heap != nullptr && block != nullptr) {
    if (void* const quick = heap_of(heap).arenas().allocate_at_once(bytes, alignment); quick != nullptr) {
      *block = quick;
      return MEMLITH_OK;
    }
  }
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    MEMLITH_TRY(need(block, "block"));
    MEMLITH_TRY_ASSIGN(*block, heap_of(heap).arenas().allocate(bytes, alignment));
    return kOk;
  });
}

int32_t memlith_heap_free(memlith_heap* heap, void* block) {
  if (block == nullptr) return MEMLITH_OK;
  if (heap != nullptr && heap_of(heap).arenas().free_at_once(block)) return MEMLITH_OK;
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    return heap_of(heap).arenas().free(block);
  });
}

int32_t memlith_heap_block_bytes(memlith_heap* heap, const void* block, uint64_t* bytes) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    MEMLITH_TRY(need(bytes, "bytes"));
    MEMLITH_TRY_ASSIGN(*bytes, heap_of(heap).arenas().block_bytes(block));
    return kOk;
  });
}

int32_t memlith_heap_set_name(memlith_heap* heap, const char* name, const void* object, const memlith_type* type) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    MEMLITH_TRY_ASSIGN(const std::string_view text, name_of(name));
    MEMLITH_TRY_ASSIGN(const ObjectType inner, named_type_of(type));
    return heap_of(heap).names().set(text, object, inner);
  });
}

int32_t memlith_heap_replace(memlith_heap* heap, const char* name, const void* object, const memlith_type* type) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    MEMLITH_TRY_ASSIGN(const std::string_view text, name_of(name));
    MEMLITH_TRY_ASSIGN(const ObjectType inner, named_type_of(type));
    return heap_of(heap).names().replace(text, object, inner);
  });
}

int32_t memlith_heap_find(memlith_heap* heap, const char* name, const memlith_type* type, void** object) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    MEMLITH_TRY(need(object, "object"));
    MEMLITH_TRY_ASSIGN(const std::string_view text, name_of(name));
    ObjectType wanted;
    if (type != nullptr) {
      MEMLITH_TRY_ASSIGN(wanted, type_of(type));
    }
    MEMLITH_TRY_ASSIGN(const NamedObject found,
                       type == nullptr ? heap_of(heap).names().find(text) : heap_of(heap).names().find(text, wanted));
    *object = found.address;
    return kOk;
  });
}

int32_t memlith_heap_remove_name(memlith_heap* heap, const char* name) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    MEMLITH_TRY_ASSIGN(const std::string_view text, name_of(name));
    return heap_of(heap).names().remove(text);
  });
}

int32_t memlith_heap_for_each(memlith_heap* heap,
                              void (*each)(void* context, const char* name, const memlith_type* type, void* object),
                              void* context) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    MEMLITH_TRY(need(reinterpret_cast<const void*>(each), "each"));
    MEMLITH_TRY_ASSIGN(const std::vector<NamedObject> all, heap_of(heap).names().all());
    for (const NamedObject& object : all) {
      const memlith_type type{sizeof type, object.type_name.c_str(), object.size, object.alignment, object.layout};
      each(context, object.name.c_str(), &type, object.address);
    }
    return kOk;
  });
}

int32_t memlith_heap_root(memlith_heap* heap, const memlith_type* type, void** root) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    MEMLITH_TRY(need(root, "root"));
    MEMLITH_TRY_ASSIGN(const ObjectType wanted, named_type_of(type));
    MEMLITH_TRY_ASSIGN(*root, find_or_make(heap_of(heap), "", wanted));
    return kOk;
  });
}

int32_t memlith_heap_persist(memlith_heap* heap) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    Region* const region = &heap_of(heap).region();
    return heap_of(heap).open_region()->session.persist({&region, 1}, Scope::process);
  });
}

int32_t memlith_heap_verify(memlith_heap* heap, memlith_heap_report* target) {
  return guarded([&]() -> Status {
    MEMLITH_TRY(need_ours(heap));
    MEMLITH_TRY_ASSIGN(const HeapReport found, heap_of(heap).verify());
    if (target == nullptr) return kOk;
    memlith_heap_report report{};
    report.region_bytes = found.region_bytes;
    report.header_bytes = found.header_bytes;
    report.block_bytes = found.block_bytes;
    report.slab_bytes = found.slab_bytes;
    report.free_bytes = found.free_bytes;
    report.blocks = found.blocks;
    report.names = found.names;
    return write_info(target, report);
  });
}

memlith_derived* memlith_derived_find(const void* address) {
  Heap* const heap = open_heap_at(reinterpret_cast<std::uintptr_t>(address));
  return heap == nullptr ? nullptr : outer(heap->derived().find(address));
}

memlith_derived* memlith_derived_set(const void* address, memlith_derived* old, memlith_derived* made) {
  const InsideHere inside;
  Heap* const heap = open_heap_at(reinterpret_cast<std::uintptr_t>(address));
  return heap == nullptr ? nullptr : outer(heap->derived().set(address, inner(old), inner(made)));
}

}  // extern "C"
