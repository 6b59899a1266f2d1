#include "kv/kv.hpp"

#include <algorithm>

#include "base/no_throw.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kNameBytesMax = 255;
}  // namespace

bool holds_kv(const Region& region) {
  return region.size() >= kHeaderOffset + sizeof(StoreHeader) &&
         load_as<StoreHeader>(region.address() + kHeaderOffset).magic == kMagic;
}

// ---- open ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Kv>> Kv::open(Region& region, const KvOptions& options) {
  auto kv = std::unique_ptr<Kv>(new Kv);
  if (region.size() < 2 * kPageBytes) {
    return fail(Errc::incompatible, Detail::kv, "region \"{}\" has {} bytes; a kv store has at least {}",
                region.shown_name(), region.size(), 2 * kPageBytes);
  }
  MEMLITH_TRY(kv->pages_.attach(region));
  kv->manual_ = options.manual || kv->read_only();
  const bool fresh = is_left_to_mark(region.address()) &&
                     load_as<StoreHeader>(region.address() + kHeaderOffset).magic == 0 && options.create &&
                     !kv->read_only();
  MEMLITH_TRY(fresh ? kv->pages_.format() : kv->pages_.check_header());
  kv->base_commit_ = kv->pages_.header().commits;
  if (kv->read_only()) return kv;
  kv->gatherer_.start(options.window, kv->manual_);
  if (fresh) {
    const auto handed = kv->gatherer_.hand_over(~std::uint64_t{0}, true);
    const Status made = handed.ok() ? region.store().sync(*handed) : handed.error();
    if (!made.ok()) {
      const KeptSentence sentence;
      (void)kv->stop();
      return made;
    }
  }
  if (options.is_volatile) kv->pages_.log_nothing();
  return kv;
}

Kv::~Kv() { (void)stop(); }

Status Kv::stop() {
  {
    const LockGuard lock(transactions_mutex_);
    for (Transaction* const each : transactions_) delete each;
    transactions_.clear();
  }
  if (read_only() || stopped_) return kOk;
  stopped_ = true;
  return gatherer_.stop(!manual_);
}

void Kv::rolled_back() {
  if (!read_only()) return;
  pages_.forget_checks();
  base_commit_ = pages_.header().commits;
}

Status Kv::check_idle() {
  const std::size_t active = transactions();
  if (active == 0) return kOk;
  return fail(Errc::busy, Detail::kv,
              "{} transactions read the kv store as it is; end them, then refresh the store or open a further region",
              active);
}

std::uint64_t Kv::newest() { return pages_.newest() - kCheckedStamp + base_commit_; }

Status Kv::wait(std::uint64_t ticket) {
  if (ticket > newest()) {
    return fail(Errc::invalid, Detail::argument, "there is no commit {} yet; the newest is {}", ticket, newest());
  }
  if (read_only() || ticket <= gatherer_.durable()) return kOk;
  return gatherer_.make_durable(ticket);
}

// ---- transactions ----------------------------------------------------------------------------------------------

Result<Transaction*> Kv::begin(bool only_reads) {
  if (!only_reads) {
    if (read_only()) {
      return fail(Errc::read_only, Detail::kv, "{}: the store was opened read-only; begin a read-only transaction",
                  pages_.region().store().path());
    }
    MEMLITH_TRY(pages_.region().store().failure());
  }
  auto made = std::make_unique<Transaction>(*this, only_reads);
  MEMLITH_TRY(made->begin());
  const LockGuard lock(transactions_mutex_);
  transactions_.insert(made.get());
  return made.release();
}

void Kv::free(Transaction* transaction) {
  const std::unique_ptr<Transaction> owned(transaction);
  const LockGuard lock(transactions_mutex_);
  transactions_.erase(transaction);
}

std::size_t Kv::handles() {
  const LockGuard lock(transactions_mutex_);
  return transactions_.size();
}

std::size_t Kv::transactions() {
  const LockGuard lock(transactions_mutex_);
  return static_cast<std::size_t>(std::count_if(transactions_.begin(), transactions_.end(),
                                                [](const Transaction* each) { return each->active(); }));
}

// ---- commit ----------------------------------------------------------------------------------------------------

Status Kv::check_all(const LockSet& locks, Estimate& estimate) {
  std::uint64_t writes = 0;
  bool puts = false;
  std::uint64_t cell_bytes = 0;
  std::uint64_t overflow_pages = 0;
  std::uint64_t depth = 0;
  for (const auto& [record, pending] : locks.writes) {
    if (pending.kind == Pending::Kind::none) continue;
    const Write write{record.key, pending.value, pending.kind == Pending::Kind::remove};
    TreeWriter tree(pages_, record.map);
    MEMLITH_TRY(tree.check(write));
    depth = std::max<std::uint64_t>(depth, tree.depth());
    const std::uint64_t pages = TreeWriter::overflow_pages_of(write);
    ++writes;
    puts = puts || !write.removes;
    overflow_pages += pages;
    cell_bytes += sizeof(CellHeader) + kSlotBytes + write.key.size() + (pages == 0 ? write.value.size() : 8);
  }
  const std::uint64_t now = pages_.count();
  // Removals need none, so that they succeed in a region that is full.
  estimate.pages = puts ? TreeWriter::pages_needed(writes, cell_bytes, overflow_pages, now, depth) : 0;
  // Pages that are laid out anew, and what else changes of a record.
  const std::uint64_t laid_out = std::min(2 * writes, now) + cell_bytes / kKiB + 4;
  estimate.log_bytes = (laid_out + overflow_pages) * (kPageBytes + 64) + 2 * cell_bytes + 128 * writes;
  return kOk;
}

// What cannot fail afterwards is made certain here.
Status Kv::make_ready(const Estimate& estimate) {
  const std::uint64_t most = pages_.region().store().log_limit_bytes() / 2;
  if (estimate.log_bytes > most) {
    return fail(Errc::full, Detail::kv,
                "the transaction may need {} bytes of log, and may have {}, half of log_max_bytes; split the "
                "transaction, or open the store with a larger log_max_bytes",
                estimate.log_bytes, most);
  }
  MEMLITH_TRY(pages_.make_room(estimate.pages));
  pages_.batch().reserve(estimate.log_bytes, estimate.log_bytes / 24 + 16);
  return kOk;
}

template <class Change>
Result<std::uint64_t> Kv::change_pages(Change&& change) {
  const Stamp stamp = pages_.newest() + 1;
  const std::uint64_t number = stamp - kCheckedStamp + base_commit_;
  const Status done = no_throw([&]() -> Status {
    pages_.begin(stamp);
    change();
    return kOk;
  });
  if (!done.ok()) {
    // Memory ran out in the middle. Whole commits that wait for the log go there without this one's bytes.
    broken_ = true;
    pages_.give_up();
    return done;
  }
  pages_.end(number);
  return number;
}

// Most writes change one leaf each, and nothing else. Where they belong is found beside other commits; under the lock
// it is enough that none of the leaves has changed since. False: there are too many writes, or some meet.
bool Kv::find_leaves(const LockSet& locks, Leaves& leaves) {
  for (const auto& [record, pending] : locks.writes) {
    if (pending.kind == Pending::Kind::none) continue;
    if (leaves.count == Leaves::kMax) return false;
    LeafPlace& place = leaves.all[leaves.count++];
    if (!TreeReader(pages_, record.map, kNewest).find(record.key, place).ok()) return false;
    if (leaves.count > 1 && leaves.all[leaves.count - 2].page == place.page) return false;
  }
  return true;
}

bool Kv::leaves_take(const LockSet& locks, const Leaves& leaves) {
  std::uint32_t i = 0;
  for (const auto& [record, pending] : locks.writes) {
    if (pending.kind == Pending::Kind::none) continue;
    const Write write{record.key, pending.value, pending.kind == Pending::Kind::remove};
    if (!TreeWriter(pages_, record.map).leaf_takes(leaves.all[i++], write)) return false;
  }
  return true;
}

void Kv::write_all(const LockSet& locks, const Leaves* leaves) {
  std::uint32_t i = 0;
  for (const auto& [record, pending] : locks.writes) {
    if (pending.kind == Pending::Kind::none) continue;
    TreeWriter tree(pages_, record.map);
    const Write write{record.key, pending.value, pending.kind == Pending::Kind::remove};
    leaves != nullptr ? tree.apply_at(leaves->all[i++], write) : tree.apply(write);
  }
}

Result<std::uint64_t> Kv::apply(const LockSet& locks, Ride* ride, Left& left) {
  MEMLITH_TRY(gatherer_.keep_up());
  Leaves leaves;
  const bool found = find_leaves(locks, leaves);
  for (;;) {
    {
      const LockGuard lock(pages_.writer());
      if (broken_)
        return fail(Errc::no_memory, Detail::kv, "memory ran out in the middle of a commit; reopen the store");
      MEMLITH_TRY(pages_.region().store().failure());
      Estimate estimate{0, leaves.count * (kPageBytes + 256)};
      const bool in_leaves = found && leaves_take(locks, leaves);
      if (!in_leaves) MEMLITH_TRY(check_all(locks, estimate));
      if (ride != nullptr) estimate.log_bytes += ride->bytes.size() + 64;
      const std::uint64_t before = pages_.batch().bytes();
      if (pages_.batch().empty() || before + estimate.log_bytes <= pages_.region().store().log_limit_bytes() / 2) {
        MEMLITH_TRY(make_ready(estimate));
        MEMLITH_TRY_ASSIGN(const std::uint64_t number, change_pages([&]() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
                             write_all(locks, in_leaves ? &leaves : nullptr);
                             if (ride != nullptr) pages_.batch().add(*ride);
                           }));
        if (ride != nullptr) ride->taken = true;
        left.waiting_bytes = pages_.batch().bytes();
        gatherer_.note_waiting(left.waiting_bytes);
        if (left.waiting_bytes > WriterPace::kFreeBytes) {
          left.rest_until =
              pace_.after(left.waiting_bytes - before, left.waiting_bytes, WriterPace::Time::clock::now());
        }
        return number;
      }
    }
    // Together with what waits it would be too much for one frame.
    MEMLITH_TRY(gatherer_.hand_over(~std::uint64_t{0}, false).status());
  }
}

// ---- maps ------------------------------------------------------------------------------------------------------

Result<PageNumber> Kv::open_map(std::string_view name, bool create, bool exclusive) {
  if (name.empty() || name.size() > kNameBytesMax || name.find('\0') != std::string_view::npos) {
    return fail(Errc::invalid, Detail::argument, "a map's name has 1 to {} bytes, none of them zero", kNameBytesMax);
  }
  const LockGuard lock(maps_mutex_);
  PageNumber map = 0;
  MEMLITH_TRY_ASSIGN(const bool found, TreeReader(pages_, kCatalogue, kNewest).get(name, [&](const Cell& cell) {
    map = child_in(cell);
  }));
  if (found && create && exclusive) {
    return fail(Errc::exists, Detail::kv, "there is a map \"{}\" already", name);
  }
  if (found) {
    MEMLITH_TRY(TreeReader(pages_, map, kNewest).check_map());
    return map;
  }
  if (!create) return fail(Errc::not_found, Detail::kv, "there is no map \"{}\"; create it, or check its name", name);
  if (read_only()) return fail(Errc::read_only, Detail::kv, "opened read-only, so map \"{}\" cannot be created", name);
  MEMLITH_TRY_ASSIGN(const std::uint64_t number, create_map(name, map));
  MEMLITH_TRY(gatherer_.make_durable(number));
  return map;
}

Result<std::uint64_t> Kv::create_map(std::string_view name, PageNumber& map) {
  const LockGuard lock(pages_.writer());
  if (broken_) return fail(Errc::no_memory, Detail::kv, "memory ran out in the middle of a commit; reopen the store");
  MEMLITH_TRY(pages_.region().store().failure());
  TreeWriter catalogue(pages_, kCatalogue);
  Write write{name, bytes_of_number(map), false};
  MEMLITH_TRY(catalogue.check(write));
  MEMLITH_TRY(make_ready({kLevelsMax + 8, 6 * kPageBytes}));
  return change_pages([&] {
    map = pages_.allocate();
    TreeWriter::make_empty(pages_, map);
    catalogue.apply(write);
    pages_.count_records(-1);  // maps are no records
  });
}

Status Kv::remove_map(std::string_view name) {
  MEMLITH_TRY_ASSIGN(const PageNumber map, open_map(name, false, false));
  if (read_only()) return fail(Errc::read_only, Detail::kv, "opened read-only, so map \"{}\" cannot be removed", name);
  const LockGuard lock(maps_mutex_);
  MEMLITH_TRY_ASSIGN(const std::uint64_t number, drop_map(name, map));
  return gatherer_.make_durable(number);
}

Result<std::uint64_t> Kv::drop_map(std::string_view name, PageNumber map) {
  // What waits goes to the log before, so that the frame of the removal has it all to itself.
  MEMLITH_TRY(gatherer_.hand_over(~std::uint64_t{0}, false).status());
  const LockGuard lock(pages_.writer());
  if (broken_) return fail(Errc::no_memory, Detail::kv, "memory ran out in the middle of a commit; reopen the store");
  MEMLITH_TRY(pages_.region().store().failure());
  if (locks_.in_use(map)) {
    return fail(Errc::conflict, Detail::kv, "a transaction uses map \"{}\"; remove the map when it has ended", name);
  }
  TreeWriter catalogue(pages_, kCatalogue);
  const Write write{name, {}, true};
  MEMLITH_TRY(catalogue.check(write));
  std::vector<PageNumber> all;
  MEMLITH_TRY(TreeWriter(pages_, map).collect(all));
  std::uint64_t records = 0;
  for (const PageNumber page : all) {
    const PageHeader header = header_of(pages_.bytes_of(page));
    if (header.kind == PageKind::leaf) records += header.count;
  }
  MEMLITH_TRY(make_ready({4, 64 * all.size() + 8 * kPageBytes}));
  return change_pages([&] {
    for (const PageNumber page : all) pages_.free(page);
    pages_.count_records(1 - static_cast<std::int64_t>(records));
    catalogue.apply(write);
  });
}

StoreHeader Kv::header() {
  const LockGuard lock(pages_.writer());
  return pages_.header();
}

Result<std::uint64_t> Kv::map_count() {
  Status status = kOk;
  std::uint64_t count = 0;
  while (map_at(count, status).has_value()) ++count;
  if (status.category != Errc::not_found) return status;
  return count;
}

std::optional<std::string> Kv::map_at(std::uint64_t index, Status& status) {
  TreeReader reader(pages_, kCatalogue, kNewest);
  auto leaf = std::make_unique<TreeReader::Leaf>();
  const LockGuard lock(maps_mutex_);
  std::string from;
  for (;;) {
    const std::string_view key = from;
    status = reader.load_leaf(&key, *leaf);
    if (!status.ok()) return std::nullopt;
    const std::uint64_t count = header_of(leaf->bytes).count;
    if (index < count) return std::string(cell_of(leaf->bytes, static_cast<std::uint32_t>(index)).key);
    index -= count;
    if (!leaf->has_upper) break;
    from = leaf->upper;
  }
  status = fail(Errc::not_found, Detail::kv, "there are not so many maps");
  return std::nullopt;
}

}  // namespace memlith::core::kv
