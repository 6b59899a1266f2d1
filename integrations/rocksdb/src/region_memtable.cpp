#include "region_memtable.hpp"

#include <cstring>
#include <new>
#include <utility>

namespace memlith_rocksdb {

namespace {

using rocksdb::KeyHandle;
using rocksdb::MemTableRep;
using rocksdb::Slice;

// The keys of the index are references: a zero, and the address of an entry. No entry begins with a zero, because its
// first byte is the length of a key with its tag of 8 bytes.
constexpr std::size_t kReferenceBytes = 1 + sizeof(const char*);

const char* entry_of(const char* key) {
  if (*key != 0) return key;
  const char* entry = nullptr;
  std::memcpy(&entry, key + 1, sizeof entry);
  return entry;
}

class ByEntry final : public MemTableRep::KeyComparator {
 public:
  explicit ByEntry(const MemTableRep::KeyComparator& order) : order_(order) {}
  Slice decode_key(const char* key) const override { return order_.decode_key(entry_of(key)); }
  int operator()(const char* one, const char* other) const override { return order_(entry_of(one), entry_of(other)); }
  int operator()(const char* one, const Slice& other) const override { return order_(entry_of(one), other); }

 private:
  const MemTableRep::KeyComparator& order_;
};

class EntryIterator final : public MemTableRep::Iterator {
 public:
  // RocksDB does not publish its arenas' class, so a second iterator of the index is the memory for this one.
  static MemTableRep::Iterator* make(MemTableRep& index, rocksdb::Arena* arena) {
    if (arena == nullptr) return new EntryIterator(index.GetIterator(), true);
    MemTableRep::Iterator* const memory = index.GetIterator(arena);
    memory->~Iterator();
    return new (memory) EntryIterator(index.GetIterator(arena), false);
  }
  ~EntryIterator() override { owns_ ? delete at_ : at_->~Iterator(); }
  bool Valid() const override { return at_->Valid(); }
  const char* key() const override { return entry_of(at_->key()); }
  void Next() override { at_->Next(); }
  void Prev() override { at_->Prev(); }
  void Seek(const Slice& key, const char* entry) override { at_->Seek(key, entry); }
  void SeekForPrev(const Slice& key, const char* entry) override { at_->SeekForPrev(key, entry); }
  void RandomSeek() override { at_->RandomSeek(); }
  void SeekToFirst() override { at_->SeekToFirst(); }
  void SeekToLast() override { at_->SeekToLast(); }

 private:
  EntryIterator(MemTableRep::Iterator* at, bool owns) : at_(at), owns_(owns) {}
  MemTableRep::Iterator* const at_;
  const bool owns_;
};
// An iterator of the index has a list, a place in it, and more.
static_assert(sizeof(EntryIterator) <= sizeof(MemTableRep::Iterator) + 2 * sizeof(void*));

// RocksDB's own skip list, of references.
class Rep final : public MemTableRep {
 public:
  Rep(std::shared_ptr<NodeStore> nodes, std::uint32_t family, const KeyComparator& order, rocksdb::Allocator* memory,
      const rocksdb::SliceTransform* prefix, rocksdb::Logger* logger)
      : MemTableRep(memory),
        nodes_(std::move(nodes)),
        list_(*nodes_, family),
        order_(order),
        index_(rocksdb::SkipListFactory().CreateMemTableRep(order_, memory, prefix, logger)) {}

  KeyHandle Allocate(const size_t bytes, char** entry) override {
    *entry = list_.take(static_cast<std::uint32_t>(bytes));
    lost_ = *entry == nullptr;
    return lost_ ? MemTableRep::Allocate(bytes, entry) : *entry;
  }
  void Insert(KeyHandle entry) override { (void)InsertKey(entry); }
  bool InsertKey(KeyHandle entry) override { return index_->InsertKey(add(entry)); }
  bool InsertKeyWithHint(KeyHandle entry, void** hint) override { return index_->InsertKeyWithHint(add(entry), hint); }
  bool Contains(const char* key) const override { return index_->Contains(key); }
  void MarkReadOnly() override { index_->MarkReadOnly(); }
  void MarkFlushed() override { list_.mark_flushed(); }
  size_t ApproximateMemoryUsage() override { return index_->ApproximateMemoryUsage() + list_.bytes(); }
  uint64_t ApproximateNumEntries(const Slice& begin, const Slice& end) override {
    return index_->ApproximateNumEntries(begin, end);
  }
  void Get(const rocksdb::LookupKey& key, void* context, bool (*visit)(void*, const char*)) override {
    std::pair<void*, bool (*)(void*, const char*)> call(context, visit);
    index_->Get(key, &call, [](void* given, const char* reference) {
      const auto& [of_visit, to_visit] = *static_cast<decltype(call)*>(given);
      return to_visit(of_visit, entry_of(reference));
    });
  }
  MemTableRep::Iterator* GetIterator(rocksdb::Arena* arena) override { return EntryIterator::make(*index_, arena); }

 private:
  KeyHandle add(KeyHandle handle) {
    const char* const entry = static_cast<const char*>(handle);
    if (!lost_) list_.add(entry);
    char* reference = nullptr;
    const KeyHandle node = index_->Allocate(kReferenceBytes, &reference);
    *reference = 0;
    std::memcpy(reference + 1, &entry, sizeof entry);
    return node;
  }

  const std::shared_ptr<NodeStore> nodes_;
  NodeStore::List list_;
  const ByEntry order_;
  const std::unique_ptr<MemTableRep> index_;
  bool lost_ = false;  // the entry at hand: there was no room, and the database fails
};

}  // namespace

MemTableRep* RegionMemtables::CreateMemTableRep(const Rep::KeyComparator& order, rocksdb::Allocator* memory,
                                                const rocksdb::SliceTransform* prefix, rocksdb::Logger* logger,
                                                std::uint32_t family) {
  return new memlith_rocksdb::Rep(nodes_, family, order, memory, prefix, logger);
}

}  // namespace memlith_rocksdb
