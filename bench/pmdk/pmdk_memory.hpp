// The side of PMDK: a libpmemobj pool, one transaction for each operation. References are PMEMoids, as in PMDK's own
// maps; a change is a snapshot of the bytes in the undo log.
#pragma once

#include <libpmemobj.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace pmdk_bench {

class Memory {
 public:
  template <class T>
  struct Ref {
    PMEMoid id;
  };
  static constexpr const char* kSide = "pmdk";
  static constexpr const char* kMedium = "memory";
  static constexpr const char* kDurability = "each operation, undo log";

  Memory(const std::string& folder, std::uint64_t bytes) {
    const std::string path = folder + "/pool";
    pool_ = pmemobj_create(path.c_str(), "bench", bytes, 0600);
    if (pool_ == nullptr) fail("create");
  }
  ~Memory() { pmemobj_close(pool_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <class Root>
  Root* root() {
    return static_cast<Root*>(pmemobj_direct(pmemobj_root(pool_, sizeof(Root))));
  }
  template <class T>
  static T* get(Ref<T> reference) {
    return static_cast<T*>(pmemobj_direct(reference.id));
  }
  template <class T>
  static bool is(Ref<T> reference) {
    return reference.id.off != 0;
  }
  void begin() {
    if (pmemobj_tx_begin(pool_, nullptr, TX_PARAM_NONE) != 0) fail("begin");
  }
  void commit() {
    pmemobj_tx_commit();
    if (pmemobj_tx_end() != 0) fail("commit");
  }
  void change(const void* at, std::uint64_t bytes) {
    if (pmemobj_tx_add_range_direct(at, bytes) != 0) fail("snapshot");
  }
  void fresh(const void*, std::uint64_t) {}  // an object that the transaction made needs no snapshot
  template <class T>
  Ref<T> allocate() {
    return {allocate_bytes(sizeof(T))};
  }
  PMEMoid allocate_bytes(std::uint64_t bytes) {
    const PMEMoid made = pmemobj_tx_alloc(bytes, 1);
    if (made.off == 0) fail("allocate");
    return made;
  }
  template <class T>
  void release(Ref<T> gone) {
    release(gone.id);
  }
  void release(PMEMoid gone) {
    if (pmemobj_tx_free(gone) != 0) fail("free");
  }
  using Block = PMEMoid;

 private:
  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "pmdk: %s: %s\n", what, pmemobj_errormsg());
    std::exit(1);
  }
  PMEMobjpool* pool_;
};

}  // namespace pmdk_bench
