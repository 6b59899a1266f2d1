// The kv store inside a store: dictionaries as maps of it, and their part in the store's transactions.
//
// Part: python. One thread at a time writes (Store::turn_), so no transaction of the kv store meets a lock; threads
// that wait for the disk do that after their turn, and share flushes.
//
// A transaction over arrays and dictionaries is one frame of the log, which holds the bytes of the arrays and, in the
// region `kNotesRegion`, a note of what the transaction writes to dictionaries. The frame decides: the kv store commits
// afterwards, and opening repeats the notes that it has not seen. A note is overwritten when the kv store's commit is
// durable. ORDER: a note goes to the log before the kv store's commit of it, and after every commit that its
// transaction may have read (test_a_killed_transaction_is_whole).
#ifndef MEMLITH_PYTHON_RECORDS_HPP
#define MEMLITH_PYTHON_RECORDS_HPP

#include <memlith/kv.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memlith::python {

inline constexpr char kRecordsRegion[] = ".records";
inline constexpr char kNotesRegion[] = ".transactions";
inline constexpr char kIncomplete[] =
    "the process that wrote to this store was killed; open the store for writing once, which completes its last "
    "transaction";
// A process that writes completes a transaction within moments, and its dictionaries' window.
inline constexpr int kLooks = 500;
inline constexpr std::chrono::milliseconds kLookEvery{2};

struct Dictionary {
  memlith_kv_map map = 0;
  std::string name;
};

class Records {
 public:
  // Opens the kv store, and repeats the notes that it lacks. `notes` is null in a read-only store without any.
  Records(memlith_store* store, memlith_region* notes, bool read_only);
  // In a store that is only read: whether every transaction over arrays and dictionaries is in the dictionaries.
  bool is_complete();
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;
  ~Records() = default;  // touches nothing: of a store that was closed, or of a forked child
  void close();
  // Before a close: makes durable what waits. Fails if there is no room for it yet, and not if the store is poisoned.
  void settle();

  // The dictionary of that name; creates it with that kind. INCOMPATIBLE if it was created with another kind.
  Dictionary dictionary(const std::string& name, const std::string& kind);

  // A transaction that reads, begun anew; ends with end_reading. The interpreter lock guards it.
  memlith_kv_txn* begin_reading();
  void end_reading() { memlith_kv_abort(reader_); }

  // The transaction of the thread whose turn it is; `noted` if it is part of one of the store's.
  void begin(bool noted);
  bool active() const { return active_; }
  memlith_kv_txn* transaction() const { return writer_; }
  std::uint64_t commit();  // weak: visible, and durable after wait()
  void abort();
  std::uint64_t savepoint();
  void undo_to(std::uint64_t savepoint);

  // In that transaction. remove: false if there is no such record.
  void put(const Dictionary& to, std::string_view key, std::string_view value);
  bool remove(const Dictionary& from, std::string_view key);
  std::optional<std::string_view> get(const Dictionary& from, std::string_view key);
  void clear(const Dictionary& which);
  static std::uint64_t count(memlith_kv_txn* txn, memlith_kv_map meta, const Dictionary& of);
  memlith_kv_map meta() const { return meta_; }

  // Puts the note of the transaction into its region, for the frame that the caller makes next.
  void write_note();
  void forget_note();  // the frame was not made

  void wait(std::uint64_t ticket);
  void persist();

 private:
  void put_plain(std::string_view map, std::string_view key, std::string_view value);
  void set_count(const Dictionary& of, std::int64_t change);
  void note(char kind, std::string_view map, std::string_view key, std::string_view value);
  void set_applied(std::uint64_t sequence);
  void repeat_notes();
  void repeat(std::string_view operations);
  Dictionary map_of(std::string_view name);

  memlith_kv* handle_ = nullptr;
  memlith_region* const notes_;
  const bool read_only_;
  memlith_kv_map meta_ = 0;  // kinds and counts of dictionaries, and the newest note that was applied
  memlith_kv_txn* reader_ = nullptr;
  memlith_kv_txn* writer_ = nullptr;
  bool active_ = false;
  bool noted_ = false;
  bool broken_ = false;               // a note is durable, and could not be applied
  std::string operations_;            // of the transaction, as its note will hold them
  std::vector<std::size_t> lengths_;  // of operations_, at each savepoint
  std::uint64_t sequence_ = 0;        // of the newest note
  std::uint64_t noted_commit_ = 0;    // the kv store's commit of the newest note
  std::uint64_t used_bytes_ = 0;      // of the region of notes
};

}  // namespace memlith::python

#endif
