// A sorted map in a region, for many threads: the persistent memtable of MemSnap (ASPLOS 2024, section 7.2). Floor:
// rocksdb.
//
// Only nodes and their lowest links are persisted. A node is a key and its value, and says which node comes next. The
// towers above the nodes, a lock for each, and what is free are in ordinary memory; open() makes them anew by a walk
// along the nodes. Nodes are packed into pages. Each writer fills pages of its own, so that a persist captures few of
// them.
//
// A transaction changes the values of some keys. It locks the nodes of its keys, and the node in front of each new one,
// in the order of the keys, so that no two transactions wait for each other. It keeps its locks until the region's
// persist has captured what its thread stored. Captures have one order, and the log keeps it: a crash leaves all
// transactions up to one of them, whole. A reader locks one node at a time. What it sees was captured, and may not be
// durable yet.
//
// Nothing is given back: a removed key keeps its node, without a value, and what a longer value replaces is used again
// after the next opening. After a persist that failed, memory and store differ: every later call returns that error,
// and the list has to be opened again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memlith/memlith.hpp"

namespace memlith_rocksdb {

class SkipList {
  struct Node;
  struct Root;
  class Tower;

 public:
  using Visit = std::function<bool(std::string_view key, std::string_view value)>;

  // The list in the region of that name, which is made if it is missing. The store outlives the list, and is open once.
  // Errors: those of Store::region; CORRUPT, if the region holds no list, or a damaged one.
  static memlith::Result<std::unique_ptr<SkipList>> open(memlith::Store& store, const std::string& name,
                                                         std::uint64_t size);
  ~SkipList();
  SkipList(const SkipList&) = delete;
  SkipList& operator=(const SkipList&) = delete;

  // Changes the list; for one thread at a time, on which the changes are persisted.
  class Writer {
   public:
    explicit Writer(SkipList& list) : list_(list) {}
    // Calls `change` for each key, which rise strictly, with the key's place among them and its value, if it has one;
    // what it leaves is the new value, and nothing removes the key. The ticket is that of the transaction: wait for it,
    // and it is durable.
    // Errors: INVALID: the keys do not rise. NO_SPACE, NO_MEMORY: nothing was changed. Those of persist_async.
    using Change = std::function<void(std::size_t place, std::optional<std::string>& value)>;
    memlith::Result<memlith::Ticket> transact(std::span<const std::string_view> keys, const Change& change);

   private:
    friend class SkipList;
    // The change of one key.
    struct Step {
      Tower* tower = nullptr;   // of its node, which is new and not linked yet if `before` is set
      Tower* before = nullptr;  // in front of a new node; locked
      char* place = nullptr;    // a new one for the value of an old node
      std::optional<std::string> value = {};
      bool had_value = false;
    };
    memlith::Result<void> prepare(std::span<const std::string_view> keys, const Change& change);
    memlith::Result<void> store_steps();
    memlith::Result<void> store_new(Step& step);
    memlith::Result<void> store_value(const Step& step);
    void end();

    SkipList& list_;
    char* free_ = nullptr;  // of the page that is being filled
    std::uint64_t free_bytes_ = 0;
    std::vector<Step> steps_;
    std::vector<Tower*> locked_;  // in the order of their keys, then those of new nodes
  };

  [[nodiscard]] std::optional<std::string> get(std::string_view key) const;
  // Records in the order of their keys, from the first that is not before `from`, until `visit` returns false.
  void scan(std::string_view from, const Visit& visit) const;
  // Records; not exact while a transaction is under way.
  [[nodiscard]] std::uint64_t records() const { return records_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kHeightMax = 16;

  SkipList(memlith::Store& store, memlith::Region region) : store_(store), region_(std::move(region)) {}
  memlith::Result<void> open_nodes();
  memlith::Result<void> check(const Node* node, const Node* before) const;
  [[nodiscard]] bool holds(const void* address, std::uint64_t bytes) const;
  memlith::Result<char*> take(Writer& writer, std::uint64_t bytes);
  memlith::Result<Node*> make_node(Writer& writer, std::string_view key, std::string_view value);
  // The last tower before the key, on each level. Returns the one behind it on the lowest.
  Tower* find(std::string_view key, std::span<Tower*> before) const;
  void link(Tower& tower, std::span<Tower* const> before);
  [[nodiscard]] int draw_height();

  memlith::Store& store_;
  memlith::Region region_;
  Root* root_ = nullptr;
  Tower* head_ = nullptr;
  std::atomic<std::uint64_t> records_{0};
  std::atomic<std::uint64_t> draws_{0};
  std::atomic<std::int32_t> failure_{0};  // of a persist: nothing works any more

  std::mutex space_;
  std::vector<char*> free_pages_;  // before end_; under the mutex, as the next
  char* end_ = nullptr;            // behind it nothing was taken yet
};

}  // namespace memlith_rocksdb
