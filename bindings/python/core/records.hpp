// The kv store inside a store: dictionaries as maps of it, and their part in the store's transactions.
//
// Part: python. One thread at a time writes (Store::turn_), so no transaction of the kv store meets a lock; threads
// that wait for the disk do that after their turn, and share flushes. A transaction over arrays and dictionaries is a
// transaction of the store in which the regions and the kv store take part, and so one frame of the log.
#ifndef MEMLITH_PYTHON_RECORDS_HPP
#define MEMLITH_PYTHON_RECORDS_HPP

#include <memlith/kv.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "errors.hpp"

namespace memlith::python {

inline constexpr char kRecordsRegion[] = ".records";
inline constexpr char kOneRegion[] = "file";  // of a store in one file

using Record = std::pair<std::string, std::string>;  // key and value

// One for all that have opened it.
struct Dictionary {
  memlith_kv_map map = 0;  // changes when it is made anew
  std::string name;
};

// Changes of dictionaries in one transaction of the kv store. `has_counts`: it keeps how many records each has;
// otherwise the counts are unknown, and count() looks.
class RecordWriter {
 public:
  RecordWriter(memlith_kv_txn* txn, memlith_kv_map meta, bool has_counts)
      : writer_(txn), meta_(meta), has_counts_(has_counts) {}
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  ~RecordWriter() = default;  // touches nothing

  // remove: false if there is no such record.
  void put(const Dictionary& to, std::string_view key, std::string_view value);
  bool remove(const Dictionary& from, std::string_view key);
  std::optional<std::string_view> get(const Dictionary& from, std::string_view key);
  // Empty `from` and `to`: from the first on, up to the last. Returns how many there were.
  std::uint64_t remove_range(const Dictionary& from_which, std::string_view from, std::string_view to);

 protected:
  void set_count(const Dictionary& of, std::int64_t change);
  void put_count(const Dictionary& of, std::optional<std::uint64_t> count);

  memlith_kv_txn* writer_;
  memlith_kv_map meta_;  // kinds and counts of dictionaries

 private:
  const bool has_counts_;
};

class Records : public RecordWriter {
 public:
  Records(memlith_store* store, const char* region, bool read_only);
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;
  ~Records() = default;  // touches nothing: of a store that was closed, or of a forked child
  void close();
  // Before a close: makes durable what waits. Fails if there is no room for it yet, and not if the store is poisoned.
  void persist_waiting();

  // The dictionary of that name; creates it with that kind. INCOMPATIBLE if it was created with another kind.
  std::shared_ptr<Dictionary> dictionary(const std::string& name, const std::string& kind);
  // Removes all records at once, however many there are. No thread uses the dictionary, and no transaction is active.
  void remake(Dictionary& which);

  // A transaction that reads, begun anew; ends with end_reading. The interpreter lock guards it.
  memlith_kv_txn* begin_reading();
  void end_reading() { memlith_kv_abort(reader_); }

  // The transaction of the thread whose turn it is.
  void begin();
  bool active() const { return active_; }
  memlith_kv_txn* transaction() const { return writer_; }
  std::uint64_t commit();  // weak: visible, and durable after wait()
  void abort();
  // It is a part of a transaction of the store, which ends it; then ended() is called.
  void join(memlith_txn* tx) { check(memlith_txn_add_kv(tx, writer_)); }
  void ended() { active_ = false; }
  std::uint64_t savepoint();
  void undo_to(std::uint64_t savepoint);

  // In commits of their own, so no transaction is active. The records are in order and behind all that are there.
  // Returns the ticket of the last commit, and after a failure has put the first of them.
  std::uint64_t append(const Dictionary& to, const std::vector<Record>& records);
  static std::uint64_t count(memlith_kv_txn* txn, memlith_kv_map meta, const Dictionary& of);
  memlith_kv_map meta() const { return meta_; }

  void persist();

 private:
  void put_plain(std::string_view map, std::string_view key, std::string_view value);
  void restore_count(const Dictionary& of);
  memlith_kv_map map_of(const std::string& name);

  memlith_kv* handle_ = nullptr;
  const bool read_only_;
  memlith_kv_txn* reader_ = nullptr;
  bool active_ = false;
  std::map<std::string, std::weak_ptr<Dictionary>> dictionaries_;
};

}  // namespace memlith::python

#endif
