#include "node_store.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace memlith_rocksdb {

namespace {

using memlith::Error;
using memlith::Result;
using memlith::Ticket;

constexpr std::uint64_t kRootBytes = 4096;
constexpr std::uint64_t kGrowBlocks = 16;
constexpr std::uint64_t kAddressSpaceFactor = 16;
constexpr std::uint64_t kLengthBytes = sizeof(std::uint32_t);
constexpr std::uint64_t kTagBytes = 8;                           // of a key: sequence number and type
constexpr std::uint64_t kSmallMax = NodeStore::kBlockBytes / 4;  // of entries that waste at most so much of a block
constexpr std::uint64_t kLogBytes = 32 << 20;

// Takes a length, a varint32, and as many bytes as it says from `rest`. False: `rest` has fewer.
bool read_prefixed(std::string_view& rest, std::string_view& bytes) {
  std::uint64_t length = 0;
  for (int shift = 0;; shift += 7) {
    if (rest.empty() || shift > 28) return false;
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    length |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  if (length > rest.size()) return false;
  bytes = rest.substr(0, length);
  rest.remove_prefix(length);
  return true;
}

}  // namespace

struct NodeStore::Root {
  std::uint64_t epoch = 0;  // 0: no opening has begun
  std::uint64_t sequence = 0;
};

struct NodeStore::Header {
  std::uint64_t epoch;  // another than the root's: the block is free
  std::uint32_t family;
  std::uint32_t filled;
};

// ---- opening -------------------------------------------------------------------------------------------------------

NodeStore::NodeStore(memlith::Store store, memlith::Region region, std::uint64_t bytes_max)
    : store_(std::move(store)), region_(std::move(region)), blocks_max_(bytes_max / kBlockBytes) {}

Result<std::unique_ptr<NodeStore>> NodeStore::open(const std::string& path, std::uint64_t bytes_max) {
  auto store = memlith::Store::open(path, {.create = true, .tell_dropped = false, .log_bytes = kLogBytes});
  if (!store) return store.error();
  auto region =
      store->region("memtables",
                    {.create = true,
                     .tracker = memlith::Tracker::touched,
                     .size = kRootBytes + kGrowBlocks * kBlockBytes,
                     .max_size = kRootBytes + kAddressSpaceFactor * std::max(bytes_max, kGrowBlocks * kBlockBytes)});
  if (!region) return region.error();
  std::unique_ptr<NodeStore> nodes(new NodeStore(std::move(*store), std::move(*region), bytes_max));
  if (auto scanned = nodes->scan(); !scanned) return scanned.error();
  return nodes;
}

Result<void> NodeStore::scan() {
  auto root = region_.root<Root>(1);
  if (!root) return root.error();
  root_ = *root;
  epoch_ = root_->epoch;
  blocks_ = (region_.size() - kRootBytes) / kBlockBytes;
  for (std::uint64_t number = blocks_; number-- > 0;) {
    char* const block = static_cast<char*>(region_.address()) + kRootBytes + number * kBlockBytes;
    const auto* const header = reinterpret_cast<const Header*>(block);
    // An opening that did not get to begin() may have left blocks, too.
    epoch_ = std::max(epoch_, header->epoch);
    if (root_->epoch == 0 || header->epoch != root_->epoch) {
      free_.push_back(block);
      continue;
    }
    left_blocks_.push_back(block);
    if (auto fine = read(block); !fine) return fine;
  }
  ++epoch_;
  std::sort(left_.begin(), left_.end(),
            [](const Left& one, const Left& other) { return one.sequence < other.sequence; });
  return {};
}

// The bytes of the disk are input: every length is looked at before it is used.
Result<void> NodeStore::read(const char* block) {
  const auto* const header = reinterpret_cast<const Header*>(block);
  const Error bad(MEMLITH_CORRUPT, "region \"memtables\": a block holds what is no entry of a memtable");
  if (header->filled < sizeof(Header) || header->filled > kBlockBytes) return bad;
  std::string_view rest(block + sizeof(Header), header->filled - sizeof(Header));
  while (!rest.empty()) {
    std::uint32_t bytes = 0;
    if (rest.size() < kLengthBytes) return bad;
    std::memcpy(&bytes, rest.data(), kLengthBytes);
    rest.remove_prefix(kLengthBytes);
    if (bytes > rest.size()) return bad;
    std::string_view entry = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    std::string_view key;
    std::string_view value;
    if (!read_prefixed(entry, key) || key.size() < kTagBytes || !read_prefixed(entry, value)) return bad;
    std::uint64_t tag = 0;
    std::memcpy(&tag, key.data() + key.size() - kTagBytes, kTagBytes);
    key.remove_suffix(kTagBytes);
    if (tag >> 8 > root_->sequence) continue;
    left_.push_back({tag >> 8, header->family, static_cast<std::uint8_t>(tag), key, value});
  }
  return {};
}

// ---- room ----------------------------------------------------------------------------------------------------------

void NodeStore::Room::add(std::uint32_t family, std::uint64_t entry_bytes) {
  if (std::find(families_.begin(), families_.end(), family) == families_.end()) families_.push_back(family);
  if (entry_bytes > kSmallMax) {
    ++large_entries_;
  } else {
    small_bytes_ += entry_bytes + kLengthBytes;
  }
}

// A list leaves a block when an entry does not fit, and for a large one once more; a block without a large entry is
// left when only kSmallMax bytes are free. A family may have to begin a block for its first entry.
std::uint64_t NodeStore::Room::blocks() const {
  constexpr std::uint64_t kFilledLeast = kBlockBytes - sizeof(Header) - kLengthBytes - kSmallMax;
  return families_.size() + 2 * large_entries_ + small_bytes_ / kFilledLeast;
}

Result<void> NodeStore::reserve(const Room& room) {
  const std::uint64_t wanted = room.blocks();
  const std::lock_guard lock(mutex_);
  if (serves_ && blocks_ - free_.size() + reserved_ + wanted > blocks_max_) {
    return Error(MEMLITH_NO_SPACE, "the memtables fill the " + std::to_string(blocks_max_ * kBlockBytes >> 20) +
                                       " MiB that they may have: wait for a flush, or end old iterators and snapshots");
  }
  while (free_.size() < reserved_ + wanted) {
    if (auto grown = grow(); !grown) return grown;
  }
  reserved_ += wanted;
  return {};
}

void NodeStore::release(const Room& room) {
  const std::lock_guard lock(mutex_);
  reserved_ -= room.blocks();
}

void NodeStore::add_limit(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  blocks_max_ += bytes / kBlockBytes;
}

Result<void> NodeStore::grow() {
  if (auto grown = region_.grow(region_.size() + kGrowBlocks * kBlockBytes); !grown) return grown;
  blocks_ += kGrowBlocks;
  char* const end = static_cast<char*>(region_.address()) + region_.size();
  for (std::uint64_t number = 1; number <= kGrowBlocks; ++number) free_.push_back(end - number * kBlockBytes);
  return {};
}

// ---- lists ---------------------------------------------------------------------------------------------------------

NodeStore::List::List(NodeStore& store, std::uint32_t family) : store_(store), family_(family) {
  const std::lock_guard lock(store_.mutex_);
  store_.lists_.push_back(this);
}

// A list that was not flushed ends with its family, or with the database, which stop() tells.
NodeStore::List::~List() {
  const std::lock_guard lock(store_.mutex_);
  if (store_.closed_) return;
  if (!store_.stops_ || flushed_.load(std::memory_order_acquire)) store_.give_up(*this);
  std::erase_if(store_.changed_, [&](const Block* each) { return each->list == this; });
  std::erase(store_.lists_, this);
  for (const Block& each : blocks_) store_.free_.push_back(each.address);
}

char* NodeStore::List::take(std::uint32_t bytes) {
  if (blocks_.empty() || blocks_.back().filled + kLengthBytes + bytes > kBlockBytes) {
    const std::lock_guard lock(store_.mutex_);
    if (store_.closed_) return nullptr;
    if (store_.free_.empty()) {
      if (auto grown = store_.grow(); !grown) {
        store_.failure_ = grown.error();
        return nullptr;
      }
    }
    blocks_.push_back({store_.free_.back(), this, sizeof(Header), sizeof(Header)});
    store_.free_.pop_back();
  }
  char* const place = blocks_.back().address + blocks_.back().filled;
  std::memcpy(place, &bytes, kLengthBytes);
  return place + kLengthBytes;
}

void NodeStore::List::add(const char* entry) {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, entry - kLengthBytes, kLengthBytes);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  store_.unpersisted_.fetch_add(bytes, std::memory_order_relaxed);
  const std::lock_guard lock(store_.mutex_);
  Block& block = blocks_.back();
  if (block.filled == block.persisted) store_.changed_.push_back(&block);
  block.filled += kLengthBytes + bytes;
}

// ---- persists ------------------------------------------------------------------------------------------------------

void NodeStore::give_up(List& list) {
  if (std::exchange(list.given_up_, true)) return;
  for (const Block& each : list.blocks_) {
    auto* const header = reinterpret_cast<Header*>(each.address);
    header->epoch = 0;
    // The older values of a list that only seems to be given up would come back after a crash.
    if (auto told = region_.touch(header); !told) failure_ = told.error();
  }
  gave_up_ = true;
}

// From the newest list on: RocksDB marks the older of two lists first, so a list that is marked here has only marked
// ones before it. In the other direction, a newer list could be given up without an older one, whose values would come
// back after a crash.
void NodeStore::give_up_flushed() {
  for (auto each = lists_.rbegin(); each != lists_.rend(); ++each) {
    if ((*each)->flushed_.load(std::memory_order_acquire)) give_up(**each);
  }
}

Result<Ticket> NodeStore::capture(std::uint64_t sequence) {
  for (Block* const each : changed_) {
    if (!each->list->given_up_) {
      auto* const header = reinterpret_cast<Header*>(each->address);
      *header = {epoch_, each->list->family_, static_cast<std::uint32_t>(each->filled)};
      if (auto told = region_.touch(header); !told) return told.error();
      if (auto told = region_.touch(each->address + each->persisted, each->filled - each->persisted); !told) {
        return told.error();
      }
    }
    each->persisted = each->filled;
  }
  changed_.clear();
  unpersisted_.store(0, std::memory_order_relaxed);
  if (serves_) {
    *root_ = {epoch_, sequence};
    if (auto told = region_.touch(root_); !told) return told.error();
  }
  gave_up_ = false;
  return region_.persist_async();
}

Result<void> NodeStore::persist(std::uint64_t sequence, bool wait) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return *failure_;
    give_up_flushed();
    if (failure_) return *failure_;
    if (gave_up_ || !captured_ || *captured_ < sequence) {
      sequence = std::max(sequence, captured_.value_or(0));
      auto captured = capture(sequence);
      if (!captured) {
        failure_ = captured.error();
        return captured.error();
      }
      ticket_ = *captured;
      captured_ = sequence;
    }
    ticket = ticket_;
  }
  return wait ? store_.wait(ticket) : Result<void>();
}

Result<void> NodeStore::begin(std::uint64_t sequence) {
  {
    const std::lock_guard lock(mutex_);
    serves_ = true;
    captured_.reset();
  }
  if (auto persisted = persist(sequence, true); !persisted) return persisted;
  left_.clear();
  const std::lock_guard lock(mutex_);
  free_.insert(free_.end(), left_blocks_.begin(), left_blocks_.end());
  left_blocks_.clear();
  return {};
}

void NodeStore::stop() {
  const std::lock_guard lock(mutex_);
  stops_ = true;
}

Result<void> NodeStore::close(std::uint64_t sequence) {
  const auto persisted = persist(sequence, true);
  const std::lock_guard lock(mutex_);
  closed_ = true;
  const auto closed = store_.close();
  return persisted ? closed : persisted;
}

}  // namespace memlith_rocksdb
