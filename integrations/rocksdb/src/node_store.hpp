// The nodes of RocksDB's memtables, in a region of a memlith store. Floor: rocksdb.
//
// A node is an entry of a memtable, as RocksDB packs it, behind its length. The nodes of a memtable are a list, which
// fills blocks of its own, one after the other. Links are not persisted: an opening writes the entries into the
// database again, because RocksDB takes no memtable that is not empty.
//
// A persist makes all nodes of all lists durable, with a sequence number: entries behind it do not count after a crash.
// RocksDB publishes a number when the entries of its batch are all in their memtables, so a batch comes back whole.
//
// Each opening has an epoch. Blocks of an earlier one are what the last opening left. begin() gives them up in the
// commit that makes the first nodes of the new epoch durable.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memlith/memlith.hpp"

namespace memlith_rocksdb {

class NodeStore {
  struct Header;
  struct Root;
  struct Block;

 public:
  static constexpr std::uint64_t kBlockBytes = 1 << 20;
  static constexpr std::uint64_t kEntryBytesMax = kBlockBytes - 64;

  struct Left {
    std::uint64_t sequence;
    std::uint32_t family;
    std::uint8_t type;  // RocksDB's ValueType
    std::string_view key;
    std::string_view value;
  };

  // Nodes of all lists take at most `bytes_max`. Errors: those of Store::open and Store::region; CORRUPT.
  static memlith::Result<std::unique_ptr<NodeStore>> open(const std::string& path, std::uint64_t bytes_max);
  NodeStore(const NodeStore&) = delete;
  NodeStore& operator=(const NodeStore&) = delete;

  // The entries that the last opening left, in the order of the sequence numbers. Until begin().
  [[nodiscard]] std::span<const Left> left() const { return left_; }
  // Makes all nodes durable, and gives up what was left, in one commit. Before, no node counts after a crash.
  memlith::Result<void> begin(std::uint64_t sequence);
  // Makes the nodes up to this sequence number durable; without `wait`, soon. An error is for good.
  memlith::Result<void> persist(std::uint64_t sequence, bool wait);
  // From now on, lists that end are only given up if they were flushed.
  void stop();
  // Persists, too. Lists may outlive it, and take no entry any more.
  memlith::Result<void> close(std::uint64_t sequence);

  // Keeps room for these entries until release(), so that take() finds it. Errors: NO_SPACE.
  class Room {
   public:
    void add(std::uint32_t family, std::uint64_t entry_bytes);
    [[nodiscard]] std::uint64_t blocks() const;

   private:
    std::vector<std::uint32_t> families_;
    std::uint64_t small_bytes_ = 0;
    std::uint64_t large_entries_ = 0;
  };
  memlith::Result<void> reserve(const Room& room);
  void release(const Room& room);
  void add_limit(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t unpersisted() const { return unpersisted_.load(std::memory_order_relaxed); }

  // One thread at a time takes and adds.
  class List {
   public:
    List(NodeStore& store, std::uint32_t family);
    ~List();
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    // A place for an entry, which is part of the list after add(); another take() gives the same place before that.
    // Null: there is no room, and nothing becomes durable any more.
    char* take(std::uint32_t bytes);
    void add(const char* entry);
    // RocksDB has the entries in a file. Of two lists of a family, the older one is marked first.
    void mark_flushed() { flushed_.store(true, std::memory_order_release); }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

   private:
    friend class NodeStore;
    NodeStore& store_;
    const std::uint32_t family_;
    std::deque<Block> blocks_;
    std::atomic<std::uint64_t> bytes_{0};
    std::atomic<bool> flushed_{false};
    bool given_up_ = false;
  };

 private:
  struct Block {
    char* address;
    List* list;
    std::uint64_t filled;     // with the header
    std::uint64_t persisted;  // of it
  };

  NodeStore(memlith::Store store, memlith::Region region, std::uint64_t bytes_max);
  memlith::Result<void> scan();
  memlith::Result<void> read(const char* block);
  memlith::Result<void> grow();
  // These under the mutex.
  memlith::Result<memlith::Ticket> capture(std::uint64_t sequence);
  void give_up(List& list);
  void give_up_flushed();

  memlith::Store store_;
  memlith::Region region_;
  Root* root_ = nullptr;
  std::uint64_t epoch_ = 0;
  std::vector<Left> left_;
  std::atomic<std::uint64_t> unpersisted_{0};  // bytes

  std::mutex mutex_;  // guards all that follows
  bool serves_ = false;
  bool stops_ = false;
  bool closed_ = false;
  std::optional<memlith::Error> failure_;
  std::uint64_t blocks_max_;
  std::uint64_t blocks_ = 0;
  std::uint64_t reserved_ = 0;
  std::vector<char*> free_;
  std::vector<char*> left_blocks_;
  std::vector<List*> lists_;  // in the order in which they were made
  std::vector<Block*> changed_;
  std::optional<std::uint64_t> captured_;  // sequence number
  memlith::Ticket ticket_ = 0;             // of the last capture
  bool gave_up_ = false;                   // since the last capture
};

}  // namespace memlith_rocksdb
