#include "skip_list.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>

namespace memlith_rocksdb {

namespace {

using memlith::Error;
using memlith::Result;

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kAlign = 8;
constexpr std::uint64_t kRoomStep = 16;  // of values: one that grows a little stays in its place
constexpr std::uint64_t kFieldBytesMax = 1u << 30;
constexpr std::uint64_t kAddressSpaceFactor = 16;

std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t step) { return (bytes + step - 1) / step * step; }

// A lock of four bytes; a waiter sleeps.
class NodeLock {
 public:
  void lock() {
    std::uint32_t seen = 0;
    if (state_.compare_exchange_strong(seen, kHeld, std::memory_order_acquire)) return;
    while (state_.exchange(kWaitedFor, std::memory_order_acquire) != 0) state_.wait(kWaitedFor);
  }
  void unlock() {
    if (state_.exchange(0, std::memory_order_release) == kWaitedFor) state_.notify_one();
  }

 private:
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kWaitedFor = 2;
  std::atomic<std::uint32_t> state_{0};
};

}  // namespace

// ---- what is persisted ---------------------------------------------------------------------------------------------

// The key lies behind the node. So does the value at first; one that does not fit there gets a place of its own.
struct SkipList::Node {
  Node* next;
  char* value;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint32_t value_room;
  std::uint32_t has_value;

  [[nodiscard]] char* behind() { return reinterpret_cast<char*>(this + 1); }
  [[nodiscard]] std::string_view key() const { return {reinterpret_cast<const char*>(this + 1), key_bytes}; }
};

struct SkipList::Root {
  Node* first = nullptr;
};

// ---- what is not ---------------------------------------------------------------------------------------------------

// A node's links on all levels, and its lock, which also guards the value and the lowest link. The head has no node.
class SkipList::Tower {
 public:
  static Tower* make(Node* node, int height) {
    void* const memory = ::operator new(sizeof(Tower) + static_cast<std::size_t>(height) * sizeof(Link), std::nothrow);
    return memory == nullptr ? nullptr : new (memory) Tower(node, height);
  }
  static void destroy(Tower* tower) { ::operator delete(tower); }

  [[nodiscard]] Tower* next(int level) const { return links()[level].load(std::memory_order_acquire); }
  void set_next(int level, Tower* tower) { links()[level].store(tower, std::memory_order_release); }
  bool replace_next(int level, Tower* expected, Tower* tower) {
    return links()[level].compare_exchange_strong(expected, tower, std::memory_order_acq_rel);
  }
  [[nodiscard]] int height() const { return height_; }
  // Where the region says which node comes next.
  [[nodiscard]] Node** place_of_next(Root* root) const { return node == nullptr ? &root->first : &node->next; }

  Node* const node;
  NodeLock lock;

 private:
  using Link = std::atomic<Tower*>;
  Tower(Node* of, int height) : node(of), height_(height) {
    for (int level = 0; level < height; ++level) new (&links()[level]) Link(nullptr);
  }
  [[nodiscard]] Link* links() const {
    return reinterpret_cast<Link*>(reinterpret_cast<std::uintptr_t>(this) + sizeof(Tower));
  }
  int height_;
};

// ---- opening -------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<SkipList>> SkipList::open(memlith::Store& store, const std::string& name, std::uint64_t size) {
  auto region = store.region(name, {.create = true,
                                    .thread_scope = true,
                                    .tracker = memlith::Tracker::touched,
                                    .size = std::max(rounded_up(size, kPageBytes), 2 * kPageBytes),
                                    .max_size = std::max(size, kPageBytes) * kAddressSpaceFactor});
  if (!region) return region.error();
  std::unique_ptr<SkipList> list(new SkipList(store, std::move(*region)));
  if (auto opened = list->open_nodes(); !opened) return opened.error();
  return list;
}

SkipList::~SkipList() {
  for (Tower* tower = head_; tower != nullptr;) Tower::destroy(std::exchange(tower, tower->next(0)));
}

bool SkipList::holds(const void* address, std::uint64_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(region_.address());
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return at >= begin + kPageBytes && at - begin <= region_.size() && region_.size() - (at - begin) >= bytes;
}

// The bytes of the disk are input: every node is looked at before it is used.
Result<void> SkipList::check(const Node* node, const Node* before) const {
  const auto bad = [&](const char* what) {
    return Error(MEMLITH_CORRUPT, "region \"" + std::string(region_.info().name) + "\": a node of the list " + what);
  };
  if (reinterpret_cast<std::uintptr_t>(node) % kAlign != 0 || !holds(node, sizeof(Node))) return bad("lies outside");
  if (!holds(node, sizeof(Node) + node->key_bytes)) return bad("has a key that lies outside");
  if (!holds(node->value, node->value_room)) return bad("has a value that lies outside");
  if (node->value_bytes > node->value_room || node->has_value > 1) return bad("has a value of an impossible size");
  if (before != nullptr && before->key() >= node->key()) return bad("is out of order");
  return {};
}

// The towers are made in the order of the nodes, so each is linked behind the last one of its levels.
Result<void> SkipList::open_nodes() {
  auto root = region_.root<Root>(1);
  if (!root) return root.error();
  // Writers persist what their own threads stored.
  if (auto persisted = region_.persist(memlith::Scope::thread); !persisted) return persisted;
  root_ = *root;
  head_ = Tower::make(nullptr, kHeightMax);
  if (head_ == nullptr) return Error(MEMLITH_NO_MEMORY);
  std::array<Tower*, kHeightMax> last;
  last.fill(head_);
  char* const base = static_cast<char*>(region_.address());
  std::vector<bool> used(region_.size() / kPageBytes);
  const auto use = [&](const char* begin, std::uint64_t bytes) {
    for (std::uint64_t at = static_cast<std::uint64_t>(begin - base); bytes > 0;) {
      used[at / kPageBytes] = true;
      const std::uint64_t step = std::min(bytes, kPageBytes - at % kPageBytes);
      at += step;
      bytes -= step;
    }
  };
  const Node* before = nullptr;
  for (Node* node = root_->first; node != nullptr; before = std::exchange(node, node->next)) {
    if (auto fine = check(node, before); !fine) return fine;
    Tower* const tower = Tower::make(node, draw_height());
    if (tower == nullptr) return Error(MEMLITH_NO_MEMORY);
    for (int level = 0; level < tower->height(); ++level) {
      last[static_cast<std::size_t>(level)]->set_next(level, tower);
      last[static_cast<std::size_t>(level)] = tower;
    }
    use(reinterpret_cast<const char*>(node), sizeof(Node) + node->key_bytes);
    use(node->value, node->value_room);
    if (node->has_value != 0) records_.fetch_add(1, std::memory_order_relaxed);
  }
  std::uint64_t pages = used.size();
  while (pages > 1 && !used[pages - 1]) --pages;
  end_ = base + pages * kPageBytes;
  for (std::uint64_t page = pages; page-- > 1;) {
    if (!used[page]) free_pages_.push_back(base + page * kPageBytes);
  }
  return {};
}

int SkipList::draw_height() {
  std::uint64_t bits = draws_.fetch_add(0x9e3779b97f4a7c15u, std::memory_order_relaxed);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits ^= bits >> 27;
  // A level has a quarter of the towers of the one below.
  return 1 + std::min(std::countr_zero(bits | (std::uint64_t{1} << 62)) / 2, kHeightMax - 1);
}

// ---- space ---------------------------------------------------------------------------------------------------------

Result<char*> SkipList::take(Writer& writer, std::uint64_t bytes) {
  bytes = rounded_up(bytes, kAlign);
  if (bytes > writer.free_bytes_) {
    const std::lock_guard lock(space_);
    const std::uint64_t whole = rounded_up(bytes, kPageBytes);
    char* begin = end_;
    if (whole == kPageBytes && !free_pages_.empty()) {
      begin = free_pages_.back();
      free_pages_.pop_back();
    } else {
      const std::uint64_t needed = static_cast<std::uint64_t>(end_ - static_cast<char*>(region_.address())) + whole;
      if (needed > region_.size()) {
        const std::uint64_t larger = std::min(std::max(needed, region_.size() * 2), region_.info().max_size);
        if (larger < needed) return Error(MEMLITH_NO_SPACE, "the region of the list is full");
        if (auto grown = region_.grow(larger); !grown) return grown.error();
      }
      end_ += whole;
    }
    if (whole > kPageBytes) return begin;
    writer.free_ = begin;
    writer.free_bytes_ = kPageBytes;
  }
  writer.free_bytes_ -= bytes;
  return std::exchange(writer.free_, writer.free_ + bytes);
}

// A new node, to which nothing leads yet.
Result<SkipList::Node*> SkipList::make_node(Writer& writer, std::string_view key, std::string_view value) {
  const std::uint64_t value_at = rounded_up(sizeof(Node) + key.size(), kAlign);
  const std::uint64_t room = rounded_up(std::max<std::uint64_t>(value.size(), 1), kRoomStep);
  auto taken = take(writer, value_at + room);
  if (!taken) return taken.error();
  Node* const node = new (*taken) Node{.next = nullptr,
                                       .value = *taken + value_at,
                                       .key_bytes = static_cast<std::uint32_t>(key.size()),
                                       .value_bytes = static_cast<std::uint32_t>(value.size()),
                                       .value_room = static_cast<std::uint32_t>(room),
                                       .has_value = 1};
  std::memcpy(node->behind(), key.data(), key.size());
  std::memcpy(node->value, value.data(), value.size());
  return node;
}

// ---- looking -------------------------------------------------------------------------------------------------------

SkipList::Tower* SkipList::find(std::string_view key, std::span<Tower*> before) const {
  Tower* at = head_;
  Tower* behind = nullptr;
  for (int level = kHeightMax - 1; level >= 0; --level) {
    behind = at->next(level);
    while (behind != nullptr && behind->node->key() < key) behind = std::exchange(at, behind)->next(level);
    before[static_cast<std::size_t>(level)] = at;
  }
  return behind;
}

std::optional<std::string> SkipList::get(std::string_view key) const {
  std::array<Tower*, kHeightMax> before;
  Tower* const tower = find(key, before);
  if (tower == nullptr || tower->node->key() != key) return std::nullopt;
  const std::lock_guard lock(tower->lock);
  if (tower->node->has_value == 0) return std::nullopt;
  return std::string(tower->node->value, tower->node->value_bytes);
}

void SkipList::scan(std::string_view from, const Visit& visit) const {
  std::array<Tower*, kHeightMax> before;
  std::string value;
  for (Tower* tower = find(from, before); tower != nullptr; tower = tower->next(0)) {
    {
      const std::lock_guard lock(tower->lock);
      if (tower->node->has_value == 0) continue;
      value.assign(tower->node->value, tower->node->value_bytes);
    }
    if (!visit(tower->node->key(), value)) return;
  }
}

// ---- transactions --------------------------------------------------------------------------------------------------

// ORDER capture-before-unlock: another transaction may build on these nodes only when the persist has captured them.
// Otherwise it could be in the log before them, and a crash could leave a link to a node that is not there.
// [test SkipList.TransactionsOfThreadsComeBackWhole]
Result<memlith::Ticket> SkipList::Writer::transact(std::span<const std::string_view> keys, const Change& change) {
  if (const std::int32_t code = list_.failure_.load(); code != MEMLITH_OK) return Error(code);
  if (auto ready = prepare(keys, change); !ready) {
    end();
    return ready.error();
  }
  auto stored = store_steps();
  auto ticket = stored ? list_.region_.persist_async(memlith::Scope::thread) : Result<memlith::Ticket>(stored.error());
  if (!ticket) list_.failure_.store(ticket.error().code());
  end();
  return ticket;
}

void SkipList::Writer::end() {
  for (Tower* const each : locked_) each->lock.unlock();
  locked_.clear();
  for (const Step& step : steps_) {
    if (step.before != nullptr) Tower::destroy(step.tower);  // it was not linked
  }
  steps_.clear();
}

// Locks, asks `change`, and takes the space; nothing that another thread can see is stored to.
Result<void> SkipList::Writer::prepare(std::span<const std::string_view> keys, const Change& change) {
  std::array<Tower*, kHeightMax> before;
  const auto lock = [this](Tower* tower) {
    if (!locked_.empty() && locked_.back() == tower) return;
    tower->lock.lock();
    locked_.push_back(tower);
  };
  for (std::size_t place = 0; place < keys.size(); ++place) {
    const std::string_view key = keys[place];
    if (key.size() > kFieldBytesMax || (place > 0 && keys[place - 1] >= key)) {
      return Error(MEMLITH_INVALID, "the keys of a transaction rise, and have at most 1 GiB");
    }
    Tower* at = list_.find(key, before);
    Tower* front = before[0];
    if (at == nullptr || at->node->key() != key) {
      lock(front);
      // Others may have put nodes there before it was locked.
      for (at = front->next(0); at != nullptr && at->node->key() < key; at = front->next(0)) lock(front = at);
    }
    Step step;
    const bool is_new = at == nullptr || at->node->key() != key;
    if (!is_new) {
      lock(at);
      step.tower = at;
      step.had_value = at->node->has_value != 0;
      if (step.had_value) step.value.emplace(at->node->value, at->node->value_bytes);
    }
    change(place, step.value);
    if (step.value && step.value->size() > kFieldBytesMax) return Error(MEMLITH_INVALID, "a value has at most 1 GiB");
    if (is_new && step.value) {
      auto node = list_.make_node(*this, key, *step.value);
      if (!node) return node.error();
      step.tower = Tower::make(*node, list_.draw_height());
      if (step.tower == nullptr) return Error(MEMLITH_NO_MEMORY);
      step.before = front;
    } else if (step.value && step.value->size() > at->node->value_room) {
      auto taken = list_.take(*this, rounded_up(step.value->size(), kRoomStep));
      if (!taken) return taken.error();
      step.place = *taken;
    }
    if (step.tower != nullptr) steps_.push_back(std::move(step));
  }
  return {};
}

// Every node that is stored to is locked. From the last to the first: of several new nodes behind the same one, the
// later is linked before the earlier.
Result<void> SkipList::Writer::store_steps() {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const bool has_value = step->value.has_value();
    if (auto stored = step->before != nullptr ? store_new(*step) : store_value(*step); !stored) return stored;
    if (has_value && !step->had_value) list_.records_.fetch_add(1, std::memory_order_relaxed);
    if (!has_value && step->had_value) list_.records_.fetch_sub(1, std::memory_order_relaxed);
  }
  return {};
}

Result<void> SkipList::Writer::store_new(Step& step) {
  const memlith::Region& region = list_.region_;
  Node* const node = step.tower->node;
  Node** const link = step.before->place_of_next(list_.root_);
  const auto bytes = static_cast<std::uint64_t>(node->value - reinterpret_cast<char*>(node)) + node->value_bytes;
  if (auto told = region.touch(node, bytes); !told) return told;
  if (auto told = region.touch(link); !told) return told;
  node->next = *link;
  *link = node;
  locked_.push_back(step.tower);
  step.tower->lock.lock();  // before others can find it
  std::array<Tower*, kHeightMax> before;
  (void)list_.find(node->key(), before);
  list_.link(*step.tower, before);
  step.before = nullptr;
  return {};
}

Result<void> SkipList::Writer::store_value(const Step& step) {
  const memlith::Region& region = list_.region_;
  Node* const node = step.tower->node;
  const std::string_view value = step.value ? std::string_view(*step.value) : std::string_view();
  if (auto told = region.touch(node); !told) return told;
  if (step.place != nullptr) {
    node->value = step.place;
    node->value_room = static_cast<std::uint32_t>(rounded_up(value.size(), kRoomStep));
  }
  node->has_value = step.value ? 1 : 0;
  node->value_bytes = static_cast<std::uint32_t>(value.size());
  if (value.empty()) return {};
  if (auto told = region.touch(node->value, value.size()); !told) return told;
  std::memcpy(node->value, value.data(), value.size());
  return {};
}

// The lowest link is the lock's; others may link their towers on higher levels meanwhile.
void SkipList::link(Tower& tower, std::span<Tower* const> before) {
  tower.set_next(0, before[0]->next(0));
  before[0]->set_next(0, &tower);
  for (int level = 1; level < tower.height(); ++level) {
    Tower* at = before[static_cast<std::size_t>(level)];
    for (;;) {
      Tower* behind = at->next(level);
      while (behind != nullptr && behind->node->key() < tower.node->key()) {
        behind = std::exchange(at, behind)->next(level);
      }
      tower.set_next(level, behind);
      if (at->replace_next(level, behind, &tower)) break;
    }
  }
}

}  // namespace memlith_rocksdb
