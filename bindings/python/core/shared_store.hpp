// A store whose dictionaries several processes have open, as Python sees it (memlith_kv_open_shared).
//
// Part: python. The interpreter lock guards everything but what a transaction does. A handle that a keeper's end has
// poisoned, or that a forked child has inherited, is replaced by a new one at the next call, unless that would hide a
// loss.
#ifndef MEMLITH_PYTHON_SHARED_STORE_HPP
#define MEMLITH_PYTHON_SHARED_STORE_HPP

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "record_store.hpp"

namespace memlith::python {

class SharedStore final : public RecordStore {
 public:
  SharedStore(const nanobind::bytes& path, bool create, const nanobind::bytes& program);
  ~SharedStore() override;
  void close();
  bool closed() const { return is_closed_; }
  void persist();

  std::shared_ptr<Dictionary> open_dictionary(const std::string& name, const std::string& kind) override;
  void read(const Reading& work) override;
  void write(bool weak, Length length, const Writing& work) override;
  void append(const std::shared_ptr<Dictionary>& to, std::vector<Record> records, bool weak) override;
  void clear(const std::shared_ptr<Dictionary>& which, bool weak) override;

  // A block of this thread, whose changes take effect together at its end: CONFLICT there if what it read has changed.
  // One within another can be undone by itself.
  bool in_block() { return block() != nullptr; }
  void begin_block();
  void end_block(bool commits, bool weak);

 private:
  struct Handle;
  struct OwnTransaction;
  using HandlePtr = std::shared_ptr<Handle>;
  // The transaction of a block belongs to the handle, also when the store has another one by now.
  struct Block {
    std::shared_ptr<OwnTransaction> own;
    std::vector<std::uint64_t> savepoints;  // of the blocks within
  };
  HandlePtr open() const;
  HandlePtr handle();
  void replace(const HandlePtr& ended);
  Block* block();
  template <class Act>
  void with_handle(const Act& act);

  const std::string path_;
  const bool create_;
  const std::string program_;
  bool is_closed_ = false;
  HandlePtr handle_;
  std::map<unsigned long, Block> blocks_;  // by thread
  std::map<std::string, std::weak_ptr<Dictionary>> dictionaries_;
};

void define_shared_store(nanobind::module_& module);

}  // namespace memlith::python

#endif
