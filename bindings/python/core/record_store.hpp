// Where dictionaries live: a store of one process (Store), or one that several have open (SharedStore).
//
// Part: python.
#ifndef MEMLITH_PYTHON_RECORD_STORE_HPP
#define MEMLITH_PYTHON_RECORD_STORE_HPP

#include <memlith/kv.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "records.hpp"

namespace memlith::python {

class RecordStore {
 public:
  virtual ~RecordStore() = default;
  // The dictionary of that name; creates it with that kind. INCOMPATIBLE if it was created with another kind.
  virtual std::shared_ptr<Dictionary> open_dictionary(const std::string& name, const std::string& kind) = 0;
  // `work` gets a transaction. It holds the interpreter lock, and does not run Python code.
  using Reading = std::function<void(memlith_kv_txn* txn, memlith_kv_map meta)>;
  virtual void read(const Reading& work) = 0;
  // `work` is a part of the transaction around it, or a commit of its own; then it may be called again, after a
  // conflict. It does not need the interpreter lock, which is kept for a brief part of a transaction: to get it back
  // takes longer where other threads want it, who wait for the transaction.
  using Writing = std::function<void(RecordWriter& records)>;
  enum class Length { brief, any };
  virtual void write(bool weak, Length length, const Writing& work) = 0;
  // In commits of its own, which are durable in the end unless `weak`. Holds the interpreter lock when it is called.
  virtual void append(const std::shared_ptr<Dictionary>& to, std::vector<Record> records, bool weak) = 0;
  virtual void clear(const std::shared_ptr<Dictionary>& which, bool weak) = 0;
};

}  // namespace memlith::python

#endif
