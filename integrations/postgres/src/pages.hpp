// The pages that are on their way to the log and to their files, in memory that all processes of a server share. Floor:
// postgres.
//
// Two batches take turns. One is filled by the processes that write pages; the other, if it is sealed, is being written
// by the keeper: to the log, then home. A page that is in one of them is read from there. Batches have numbers; the
// counters say up to which batch everything is durable in the log, written home, and flushed at home (checkpointed).
//
// A PROCESS MAY DIE ANYWHERE, also while it holds the lock: every change is either one store of a counter, or is staged
// first and done again by the process that takes the lock next (repair). The lock, the waits and the lives of processes
// are those of the floor shm.
//
// Nothing here does I/O, allocates memory, or throws, but for the first lock of a process: the code runs inside of
// PostgreSQL's processes.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "names.hpp"
#include "records.hpp"
#include "shm/bell.hpp"
#include "shm/participant.hpp"
#include "shm/robust_mutex.hpp"
#include "shm/segment.hpp"
#include "wal_tail.hpp"

namespace memlith_postgres {

namespace shm = memlith::core::shm;

struct PageLimits {
  static constexpr std::uint32_t kPages = 2048;  // of a batch
  static constexpr std::uint32_t kFiles = 32768;
  static constexpr std::uint32_t kRecordBytes = 4 << 20;
  static constexpr std::size_t kDevices = 16;
};

enum class FileState : std::uint32_t { unused, live, gone };  // gone: was removed; its records are still in the log

struct SharedFile {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  // The last batches that have a record of it, one of a page or of more pages, and one of a cut; 0: none.
  std::uint64_t newest_batch = 0;
  std::uint64_t page_batch = 0;
  std::uint64_t cut_batch = 0;
  FileState state = FileState::unused;
  std::uint32_t serial = 0;    // of this use of the entry
  std::uint32_t next = 0;      // in the chain of its bucket, plus one
  std::uint32_t blocks = 0;    // the file's length in pages, as far as it is known
  std::uint32_t vouched = 0;   // so many pages were flushed at home, and every change since then is in the log
  std::uint32_t dirtied = 0;   // counts what was done to the file itself
  std::uint32_t flushed = 0;   // `dirtied` as of the last flush
  std::uint32_t asks = 0;      // the next fsync has to flush the file itself
  std::uint32_t unlogged = 0;  // a crash empties the relation, so its pages are written home at once
  std::array<char, kPathBytesMax + 1> path{};
};

// A file as a descriptor remembers it.
struct FileRef {
  std::uint32_t index = 0;
  std::uint32_t serial = 0;  // 0: no file
  explicit operator bool() const { return serial != 0; }
};

struct Batch {
  struct Page {
    std::uint32_t file = 0;
    std::uint32_t block = 0;
    std::uint32_t next = 0;  // in the chain of its bucket, plus one
  };
  static constexpr std::uint32_t kBuckets = 4096;
  shm::Word pages{0};
  shm::Word records{0};
  shm::Word bytes{0};  // of the records
  std::array<std::uint32_t, kBuckets> buckets{};
  std::array<Page, PageLimits::kPages> page{};
  alignas(4096) std::array<std::array<std::byte, kPageBytes>, PageLimits::kPages> content{};
  std::array<std::byte, PageLimits::kRecordBytes + sizeof(RecordHead) + kContentBytesMax> record{};
};

// A change that is done in several stores: those after `ready` are repeated if their process dies.
struct Staged {
  shm::Word ready{0};
  std::uint32_t batch = 0;  // index
  std::uint32_t slot = 0;   // of the page; PageLimits::kPages: a record without a page
  Batch::Page page{};
  std::uint32_t records = 0;
  std::uint32_t bytes = 0;
  std::uint32_t file = 0;
  std::uint32_t cuts = 0;  // a record of a length
  std::uint64_t number = 0;
  std::array<std::byte, kPageBytes> content{};
};

struct SharedMemory {
  static constexpr std::uint64_t kLayout = 3;
  using Counter = shm::Shared<std::uint64_t>;
  shm::RobustMutex mutex;
  shm::RobustMutex keeper_starting;  // held by the process that looks after the keeper's life
  shm::Word keeper{0};               // the keeper, as a participant
  shm::Bell moved;                   // by each counter
  // Numbers of batches, guarded by the mutex for writing.
  Counter filling{0};  // the one that is being filled
  Counter wanted{0};   // everything up to here is to be written soon
  Counter durable{0};
  Counter home{0};
  Counter checkpointed{0};
  shm::Word checkpoint_wanted{0};
  shm::Word finish_wanted{0};
  shm::Word finished{0};
  shm::Word failed{0};            // nothing is acknowledged any more
  shm::Word started{0};           // a keeper has replayed; later ones go on
  shm::Word keepers{0};           // that were started
  std::array<char, 1024> data{};  // the data directory, and the folder of its log; constant
  std::array<char, 1024> log{};
  // Devices on which every file was durable as it was when the server started; 0: none more. Set by the first keeper.
  std::array<std::uint64_t, PageLimits::kDevices> settled{};
  std::uint32_t files = 0;   // entries that were ever used
  std::uint32_t gone = 0;    // entries of removed files, or more
  std::uint32_t reuse = 0;   // where the search for an entry to use again goes on
  std::uint32_t deaths = 0;  // of processes that held the lock
  std::array<std::uint32_t, 16384> buckets{};
  std::array<SharedFile, PageLimits::kFiles> file{};
  Staged staged{};
  std::array<Batch, 2> batch{};
  WalTail wal;
};

// One process's way to the shared memory.
class Pages {
 public:
  using Segment = shm::Segment<SharedMemory>;
  explicit Pages(Segment segment) : segment_(std::move(segment)), memory_(&*segment_) {}
  // New memory for a server, for the processes that inherit its descriptor. Errors: also invalid (the paths are too
  // long).
  static memlith::core::Result<Segment> make(std::string_view data, std::string_view log);

  class Lock {
   public:
    explicit Lock(Pages& pages) : pages_(pages) { pages_.lock(); }
    ~Lock() { pages_.unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Pages& pages_;
  };

  [[nodiscard]] SharedMemory& memory() const { return *memory_; }
  [[nodiscard]] int descriptor() const { return segment_.descriptor(); }
  // This process among those that share the memory. A forked child takes a place of its own.
  const shm::Participant& self();
  // This process is the keeper from now on. False: another one is, and lives.
  bool begin_keeping();
  [[nodiscard]] bool has_keeper() { return self().lives(memory_->keeper.load()); }

  // ---- with the lock held
  // The file's entry, which is new if the file has none. Nothing if all entries are in use. A file with pages that has
  // no entry yet is as it was when the server started: the process that makes a file adds it without pages.
  FileRef add_file(std::uint64_t device, std::uint64_t inode, std::string_view path, std::uint32_t blocks,
                   bool unlogged = false);
  FileRef find_file(std::uint64_t device, std::uint64_t inode);
  // Null if the entry belongs to another file by now.
  SharedFile* file(FileRef file);
  // The records of a removed file stay until a checkpoint.
  void remove_file(FileRef file);
  // True if the log may still have records of a file of that name that was removed.
  bool has_removed(std::string_view path);
  [[nodiscard]] bool is_in_log(const SharedFile& file) const {
    return file.newest_batch > memory_->checkpointed.load();
  }

  // The newest content of the page, if it is on its way; valid while the lock is held.
  const std::byte* find_page(FileRef file, std::uint32_t block);
  [[nodiscard]] bool has_room() const;
  // Puts the page into the batch that is being filled, as it differs from `base`, which may be null: then the record
  // holds the whole page. There is room. With `keep`, the page is read from here until it is home.
  void put_page(FileRef file, std::uint32_t block, const std::byte* page, const std::byte* base, bool keep);
  // The file is cut, or has become longer. There is room.
  void put_length(FileRef file, std::uint32_t blocks);
  void put_longer(FileRef file, std::uint32_t blocks);

  // The newest batch that has records; the one before the one that is being filled, if that is empty.
  [[nodiscard]] std::uint64_t newest_number() const { return memory_->filling.load() - (fresh_is_empty() ? 1 : 0); }

  // ---- the keeper, with the lock held
  // The batch that is to be written, after ending the one that is being filled if that is wanted. Null: nothing to do.
  Batch* seal();
  void set_durable();
  void set_home();
  void set_checkpointed(std::uint64_t number);
  [[nodiscard]] std::uint64_t sealed_number() const { return memory_->filling.load() - 1; }

  // ---- without the lock
  // True if the entry still belongs to that file; an answer of a moment ago.
  [[nodiscard]] bool is_current(FileRef file) const {
    return std::atomic_ref(memory_->file[file.index].serial).load(std::memory_order_relaxed) == file.serial;
  }
  // True if every page that was put before the call is home. One look at `filling`: if it is the batch of such a page,
  // the batch has no records only after the page was home.
  [[nodiscard]] bool is_empty() const {
    const std::uint64_t home = memory_->home.load();
    const std::uint64_t filling = memory_->filling.load();
    return home + 1 == filling && memory_->batch[filling % 2].records.load(std::memory_order_acquire) == 0;
  }
  // Sees to it that everything up to that batch is written soon.
  void want(std::uint64_t number);
  void announce() { memory_->moved.ring(); }  // something has changed that others wait for
  [[nodiscard]] std::uint32_t ticket() const { return memory_->moved.ticket(); }
  // Until announce() was called after ticket(), or for so long.
  void wait(std::uint32_t ticket, std::uint32_t milliseconds) const {
    memory_->moved.wait(ticket, std::chrono::milliseconds(milliseconds));
  }

 private:
  // Lock alone calls these.
  void lock() MEMLITH_NO_THREAD_SAFETY_ANALYSIS;
  void unlock() MEMLITH_NO_THREAD_SAFETY_ANALYSIS { memory_->mutex.unlock(); }
  void repair();
  void do_staged(bool chain);
  static void chain_pages(Batch& batch);
  void chain_files();
  static void clear(Batch& batch);
  [[nodiscard]] bool fresh_is_empty() const { return filling_batch().records == 0; }
  [[nodiscard]] Batch& filling_batch() const { return memory_->batch[memory_->filling.load() % 2]; }
  [[nodiscard]] Batch* sealed_batch() const;
  [[nodiscard]] bool is_settled(std::uint64_t device) const;
  std::optional<std::uint32_t> take_entry();
  void unchain(std::uint32_t index);
  void stage_record(const RecordHead& head, std::uint32_t slot);

  Segment segment_;
  SharedMemory* memory_;
  shm::Participant self_;
};

}  // namespace memlith_postgres
