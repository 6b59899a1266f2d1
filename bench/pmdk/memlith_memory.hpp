// The side of memlith: a heap in a store on byte-addressable memory (MEMLITH_IO_DAX), durable after each operation.
// Compiled with memlith-c++, the program records its stores (tracker `instrumented`); otherwise it names them
// (`explicit`).
#pragma once

#include <memlith/heap.h>
#include <memlith/memlith.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace pmdk_bench {

class Memory {
 public:
  template <class T>
  using Ref = T*;
#ifdef MEMLITH_INSTRUMENTED
  static constexpr const char* kSide = "memlith instrumented";
#else
  static constexpr const char* kSide = "memlith explicit";
#endif
  static constexpr const char* kMedium = "memory";
  static constexpr const char* kDurability = "each operation, redo log";

  Memory(const std::string& folder, std::uint64_t bytes) {
    memlith_store_options store_options{};
    store_options.struct_size = sizeof store_options;
    store_options.flags = MEMLITH_OPEN_CREATE;
    store_options.io = MEMLITH_IO_DAX;
    need(memlith_store_open((folder + "/store").c_str(), &store_options, &store_), "store");
    memlith_region_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_CREATE;
    options.size = bytes;
#ifdef MEMLITH_INSTRUMENTED
    options.tracker = MEMLITH_TRACKER_INSTRUMENTED;
#else
    options.tracker = MEMLITH_TRACKER_EXPLICIT;
#endif
    need(memlith_heap_open(store_, "heap", &options, &heap_), "heap");
    region_ = memlith_heap_region(heap_);
  }
  ~Memory() { need(memlith_store_close(store_), "close"); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <class Root>
  Root* root() {
    const memlith_type type{sizeof type, "root", sizeof(Root), alignof(Root), 1};
    void* root = nullptr;
    need(memlith_heap_root(heap_, &type, &root), "root");
    commit();
    return static_cast<Root*>(root);
  }
  template <class T>
  static T* get(T* reference) {
    return reference;
  }
  template <class T>
  static bool is(T* reference) {
    return reference != nullptr;
  }
  void begin() {}
  void commit() { need(memlith_heap_persist(heap_), "persist"); }
#ifdef MEMLITH_INSTRUMENTED
  void change(const void*, std::uint64_t) {}
#else
  void change(const void* at, std::uint64_t bytes) { memlith_touch(region_, at, bytes); }
#endif
  void fresh(const void* at, std::uint64_t bytes) { change(at, bytes); }
  template <class T>
  T* allocate() {
    return static_cast<T*>(allocate_bytes(sizeof(T)));
  }
  void* allocate_bytes(std::uint64_t bytes) {
    void* block = nullptr;
    need(memlith_heap_allocate(heap_, bytes, 0, &block), "allocate");
    return block;
  }
  template <class T>
  void release(T* block) {
    need(memlith_heap_free(heap_, block), "free");
  }
  using Block = void*;

 private:
  static void need(std::int32_t code, const char* what) {
    if (code == MEMLITH_OK) return;
    char text[512] = "";
    memlith_last_error(text, sizeof text);
    std::fprintf(stderr, "memlith: %s: %s\n", what, text);
    std::exit(1);
  }

  memlith_store* store_ = nullptr;
  memlith_heap* heap_ = nullptr;
  memlith_region* region_ = nullptr;
};

}  // namespace pmdk_bench
