#include "kv/kv.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "base/memory_budget.hpp"
#include "base/no_throw.hpp"
#include "kv/change.hpp"
#include "region/participant.hpp"
#include "store/refusal.hpp"

namespace memlith::core::kv {

namespace {
// The most log of a commit that changes leaves alone and cannot be undone: a bound for each write is far too high for
// many.
constexpr std::uint64_t kInLeavesBytesMax = 256 * kKiB;

// Keys lead anywhere: what is read ahead would fill the memory that is short. Where memory has room for everything, it
// makes a cold store warm sooner.
void read_no_page_ahead(const Region& region) { (void)::madvise(region.address(), region.size(), MADV_RANDOM); }
}  // namespace

bool holds_kv(const Region& region) {
  return region.size() >= kHeaderOffset + sizeof(StoreHeader) &&
         load_as<StoreHeader>(region.address() + kHeaderOffset).magic == kMagic;
}

// ---- open ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Kv>> Kv::open(Region& region, const KvOptions& options) {
  if (region.size() < 2 * kPageBytes) {
    return fail(Errc::incompatible, Detail::kv, "region \"{}\" has {} bytes; a kv store has at least {}",
                region.shown_name(), region.size(), 2 * kPageBytes);
  }
  MEMLITH_TRY_ASSIGN(const bool fresh, region.is_for_making("a kv store", options.create, options.exclusive));
  auto kv = std::unique_ptr<Kv>(new Kv(region));
  if (options.board != nullptr) {
    kv->board_ = options.board;
    kv->pages_.words.attach(region, *options.board);
    kv->pages_.kept.share();
    kv->numbers_.share(options.board->maps(), Board::kMapsMax, options.board->head().maps);
  } else {
    MEMLITH_TRY(kv->pages_.words.attach(region));
  }
  if (options.compares) {
    MEMLITH_TRY_ASSIGN(auto sums, region.store().open_sums(region.object()));
    kv->pages_.words.compare_with(std::move(sums));
    if (!fresh) MEMLITH_TRY(kv->pages_.words.compare(kHeaderPage, 1));
  }
  kv->manual_ = options.manual || kv->read_only();
  {
    const LockGuard lock(kv->pages_.writer.mutex());
    if (fresh) kv->pages_.writer.format();
    MEMLITH_TRY(kv->pages_.writer.load_header());
    if (fresh) kv->pages_.words.made(kCatalogue);
    kv->base_commit_ = kv->pages_.writer.header().commits;
    if (options.board != nullptr) {
      options.board->head().base_commit = kv->base_commit_;
      options.board->head().log_bytes_max = kv->log_bytes_max();
    }
  }
  if (kv->header().pages * kPageBytes > memory_for_stores()) read_no_page_ahead(region);
  if (kv->read_only()) return kv;
  kv->stopped_ = false;
  kv->weak_commits_.start(options.window, kv->manual_);
  if (fresh) {
    {
      const LockGuard lock(kv->pages_.writer.mutex());
      kv->weak_commits_.committed(false);
    }
    const auto handed = kv->weak_commits_.hand_over(~std::uint64_t{0}, true);
    const Status made = handed.ok() ? region.store().sync(*handed) : handed.error();
    if (!made.ok()) {
      const KeptSentence sentence;
      kv->stopped_ = true;  // nothing was acknowledged
      (void)kv->weak_commits_.stop(false);
      return made;
    }
  }
  if (options.is_volatile) kv->pages_.writer.log_nothing();
  {
    const LockGuard alone(kv->removal_mutex_);
    const KeptSentence sentence;
    (void)no_throw([&]() MEMLITH_REQUIRES(kv->removal_mutex_) { return kv->free_removed(); });
  }
  // Damaged pages, or those without room, stay for the next removal, which reports them.
  MEMLITH_TRY(region.store().failure());
  return kv;
}

Kv::~Kv() {
  end_transactions();
  if (!read_only() && !stopped_) (void)weak_commits_.stop(!manual_);
}

void OpenKv::end_transactions() {
  const LockGuard lock(transactions_mutex_);
  for (Transaction* const each : transactions_) delete each;
  transactions_.clear();
}

Status Kv::stop() {
  end_transactions();
  const LockGuard alone(stop_mutex_);
  if (read_only() || stopped_) return kOk;
  if (!manual_) {
    const Status done = no_throw([this] { return persist(); });
    if (is_refusal(done)) return done;
  }
  stopped_ = true;
  return weak_commits_.stop(!manual_);
}

// ORDER home-before-release: a page is dropped when its newest change is home. So no frame that is not home has bytes
// of it, and it does not change while the writer's lock is held. Its bytes that no commit logged are no part of the
// tree. [test KvMemory.ReleasesBesideReadersAndWriters]
Status Kv::release_for_limit(Region& region) {
  const LockGuard alone(stop_mutex_);
  if (read_only() || is_volatile() || stopped_ || pages_.words.is_shared()) return kOk;
  read_no_page_ahead(region);
  const Stamp newest_home = pages_.kept.newest();
  MEMLITH_TRY(persist());
  MEMLITH_TRY(region.store().write_home(region.newest_commit()));
  const auto is_home = [&](PageNumber page) {
    return pages_.words.word(page) <= newest_home << 1 && pages_.words.place(page) == 0;
  };
  for (std::uint64_t next = 0; next < pages_.words.count();) {
    const LockGuard lock(pages_.writer.mutex());
    MEMLITH_TRY_ASSIGN(next, region.release_copies(next, pages_.words.count(), is_home));
  }
  return kOk;
}

void Kv::keep_to_memory() {
  if (open_region_ != nullptr) open_region_->session.keep_to_memory();
}

void Kv::view_moved() {
  const LockGuard lock(pages_.writer.mutex());
  pages_.words.forget_checks();
  {
    // A header that does not fit has no pages: whatever is read is reported to be damaged.
    const KeptSentence sentence;
    (void)pages_.writer.load_header();
  }
  base_commit_ = pages_.writer.header().commits;
}

Status Kv::check_idle() {
  const std::size_t active = transactions();
  if (active == 0) return kOk;
  return fail(Errc::busy, Detail::kv,
              "{} transactions read the kv store as it is; end them, then refresh the store or open a further region",
              active);
}

Lsn Kv::durable_ticket() {
  return read_only() || is_volatile() ? region().store().durable_ticket() : weak_commits_.durable_ticket();
}

Lsn Kv::newest_ticket() { return read_only() ? region().store().durable_ticket() : weak_commits_.newest_ticket(); }

// ---- transactions ----------------------------------------------------------------------------------------------

Status Kv::check_begin(bool only_reads) {
  if (only_reads) return check_reads();
  if (!read_only()) return region().store().failure();
  return fail(Errc::read_only, Detail::kv, "{}: the store was opened read-only; begin a read-only transaction",
              region().store().path());
}

Result<Transaction*> OpenKv::begin(bool only_reads) {
  MEMLITH_TRY(check_begin(only_reads));
  auto made = std::make_unique<Transaction>(*this, only_reads);
  MEMLITH_TRY(made->begin());
  const LockGuard lock(transactions_mutex_);
  transactions_.insert(made.get());
  return made.release();
}

void OpenKv::free(Transaction* transaction) {
  const std::unique_ptr<Transaction> owned(transaction);
  const LockGuard lock(transactions_mutex_);
  const std::size_t erased = transactions_.erase(transaction);
  MEMLITH_ASSERT(erased == 1);
}

std::size_t OpenKv::handles() {
  const LockGuard lock(transactions_mutex_);
  return transactions_.size();
}

std::size_t OpenKv::transactions() {
  const LockGuard lock(transactions_mutex_);
  return static_cast<std::size_t>(std::count_if(transactions_.begin(), transactions_.end(),
                                                [](const Transaction* each) { return each->active(); }));
}

// ---- commit ----------------------------------------------------------------------------------------------------

// Most writes change one leaf each, and nothing else. Where they belong is found beside other commits, by the reads of
// the transaction or here; under the lock it is enough that the leaf has not changed since.
std::uint64_t Kv::find_places(const LockSet& locks) {
  if (locks.removed.size() > 0) return 0;  // the leaves may go with the ranges
  std::uint64_t leaves = 0;
  const RecordKey* before = nullptr;
  const LeafPlace* place_before = nullptr;
  for (const auto& [record, pending] : locks.writes) {
    if (pending.kind == Pending::Kind::none) continue;
    LeafPlace& place = pending.place;
    if (!pages_.words.is_as_found(place)) {
      TreeReader reader(pages_, record.map, kNewest);
      const bool has_before = before != nullptr && before->map == record.map && place_before->page != 0;
      const bool behind = has_before && reader.find_behind(*place_before, record.key, place);
      if (!behind && !reader.find(record.key, place, has_before).ok()) place = {};
    }
    if (place_before == nullptr || place.page != place_before->page) ++leaves;
    before = &record;
    place_before = &place;
  }
  return leaves;
}

// Each write leaves the bytes of a value for the log, or at most the slots of its leaf, for a cell that goes, and then
// the whole leaf; and long values.
bool Kv::estimate_in_leaves(const LockSet& locks, Estimate& needs) {
  if (locks.removed.size() > 0) return false;
  LeafPlace last;
  std::uint64_t used = 0;
  for (const auto& [record, pending] : locks.writes) {
    if (pending.kind == Pending::Kind::none) continue;
    const TreeWriter tree(pages_, record.map);
    if (!pages_.words.is_as_found(pending.place)) return false;
    if (pending.place.page != last.page) {
      last = pending.place;
      used = used_bytes(pages_.words.bytes_of(last.page));
      ++needs.leaves;
    }
    const Write write{record.key, pending.value, pending.kind == Pending::Kind::remove};
    const std::uint64_t used_before = used;
    if (!tree.leaf_takes(pending.place, write, used)) return false;
    const std::uint64_t run_pages = TreeWriter::overflow_pages_of(write);
    const bool in_place = run_pages == 0 && !write.removes && pending.place.found && used == used_before;
    needs.room.run_pages += run_pages;
    needs.log_bytes +=
        in_place ? write.value.size() + sizeof(Extent) : 2 * kPageBytes + run_pages * LogNeed::kRunPageBytes;
    if (needs.log_bytes > kInLeavesBytesMax) return false;
  }
  return true;
}

Status Kv::estimate(const LockSet& locks, Estimate& needs) {
  needs.in_leaves = estimate_in_leaves(locks, needs);
  if (needs.in_leaves) return kOk;
  LogNeed need;
  SplitCount splits;
  std::uint64_t depth = 0;
  std::uint64_t ranges_log_bytes = 0;
  MEMLITH_TRY(each_removed(locks, [&](TreeWriter& tree, const KeyRange& range) MEMLITH_REQUIRES(writing) -> Status {
    MEMLITH_TRY_ASSIGN(const std::uint64_t needed, tree.range_needs(range));
    ranges_log_bytes += needed;
    return kOk;
  }));
  if (locks.removed.size() > 0) splits.expect_any_leaves();
  for (const auto& [record, pending] : locks.writes) {
    if (pending.kind == Pending::Kind::none) continue;
    const Write write{record.key, pending.value, pending.kind == Pending::Kind::remove};
    TreeWriter tree(pages_, record.map);
    TreeWriter::Found found;
    MEMLITH_TRY(tree.check(write, pending.place, found));
    if (locks.removed.below_bound(record).has_value()) found = {found.leaf, found.used, 0, false};
    depth = std::max<std::uint64_t>(depth, tree.depth());
    splits.add(write, found);
    const LogNeed own = LogNeed::of(record.key, {pending.kind, found.in_place, pending.value});
    need += own;
  }
  // Removals need none, so that they succeed in a region that is full; nor do records that are rewritten where they
  // are.
  needs.room = {TreeWriter::pages_needed(splits.most(), need.cell_bytes, pages_.words.count(), depth),
                need.overflow_pages};
  needs.log_bytes = need.log_bytes(pages_.words.count()) + ranges_log_bytes;
  return kOk;
}

Status OpenKv::too_large(std::uint64_t log_bytes) const {
  return fail(Errc::full, Detail::kv,
              "the transaction may need {} bytes of log, and may have {}, half of log_max_bytes; split the "
              "transaction, or open the store with a larger log_max_bytes",
              log_bytes, log_bytes_max());
}

// Everything that may fail is done here.
Status Kv::make_ready(const Estimate& estimate, bool joint) {
  if (estimate.log_bytes > log_bytes_max()) return too_large(estimate.log_bytes);
  MEMLITH_TRY(pages_.writer.make_room(estimate.room, joint));
  pages_.writer.reserve_batch(estimate.log_bytes, estimate.log_bytes / 24 + 16);
  if (estimate.in_leaves) pages_.writer.reserve_changes(estimate.leaves + estimate.room.run_pages);
  return kOk;
}

template <class Act>
Status Kv::each_removed(const LockSet& locks, Act&& act) {
  for (const KeyRange range : locks.removed.all()) {
    TreeWriter tree(pages_, range.map);
    MEMLITH_TRY(act(tree, range));
  }
  return kOk;
}

// A write that stays in its leaf leaves the places of the others there as they were, but for their indexes.
Status Kv::write_all(const LockSet& locks, bool in_leaves) {
  MEMLITH_TRY(each_removed(locks, [](TreeWriter& tree, const KeyRange& range)
                                      MEMLITH_REQUIRES(writing) { return tree.remove_range(range); }));
  const bool leaves_stay = locks.removed.size() == 0;
  LeafPlace last;  // in the leaf that the last write has changed, and no other page
  PageNumber last_map = 0;
  for (const auto& [record, pending] : locks.writes) {
    if (pending.kind == Pending::Kind::none) continue;
    if (!in_leaves) MEMLITH_TRY(check_memory(locks));
    TreeWriter tree(pages_, record.map);
    const Write write{record.key, pending.value, pending.kind == Pending::Kind::remove};
    LeafPlace place = pending.place;
    if (last.page != 0 && place.page == last.page && place.word == last.word) {
      tree.find_again(record.key, place);
    } else if (!in_leaves && !(leaves_stay && pages_.words.is_as_found(place))) {
      MEMLITH_TRY(tree.locate(record.key, last.page != 0 && record.map == last_map ? &last : nullptr, place));
      place.word = 0;  // nothing that was found before
    }
    std::uint64_t used = in_leaves ? 0 : used_bytes(pages_.words.bytes_of(place.page));
    const bool takes = in_leaves || tree.leaf_takes(place, write, used);
    last = takes ? place : LeafPlace{};
    last_map = record.map;
    MEMLITH_TRY(takes ? tree.apply_at(place, write) : tree.apply(write));
  }
  return kOk;
}

Result<std::uint64_t> Kv::apply(const LockSet& locks, Durability durability, Left& left) {
  MEMLITH_TRY(weak_commits_.keep_up());
  make_memory(find_places(locks));
  for (;;) {
    {
      const LockGuard lock(pages_.writer.mutex());
      MEMLITH_TRY(region().store().failure());
      Estimate needs;
      MEMLITH_TRY(estimate(locks, needs));
      const std::uint64_t before = pages_.writer.batch().bytes();
      if (weak_commits_.has_room_for(needs.log_bytes)) {
        const Status ready = no_throw([&]() MEMLITH_REQUIRES(writing) { return make_ready(needs); });
        if (!ready.ok()) weak_commits_.commit_failed();
        MEMLITH_TRY(ready);
        auto number = change_pages(needs.in_leaves,
                                   [&]() MEMLITH_REQUIRES(writing) { return write_all(locks, needs.in_leaves); });
        left.ticket = weak_commits_.newest_ticket();
        // Also if it failed: its number was used up.
        left.wish = weak_commits_.committed(durability == Durability::weak && number.ok());
        MEMLITH_TRY(number.status());
        const std::uint64_t after = pages_.writer.batch().bytes();
        if (after > WriterPace::kFreeBytes) {
          left.rest_until = pace_.after(after - before, after, WriterPace::Time::clock::now());
        }
        return number;
      }
    }
    // Together with what waits it would be too much for one frame.
    MEMLITH_TRY(weak_commits_.hand_over(~std::uint64_t{0}, false).status());
  }
}

// ---- a commit together with other structures -------------------------------------------------------------------

Result<std::uint64_t> Kv::prepare_joint(const LockSet& locks) {
  (void)find_places(locks);
  weak_commits_.hold_for_part();
  pages_.writer.mutex().assert_held();
  joint_applied_ = false;
  Estimate needs;
  const Status ready = no_throw([&]() MEMLITH_REQUIRES(writing) -> Status {
    MEMLITH_TRY(region().store().failure());
    MEMLITH_TRY(estimate(locks, needs));
    MEMLITH_TRY(make_ready(needs, true));
    return region().commit_size(false);
  });
  if (ready.ok()) return needs.log_bytes;
  cancel_joint();
  return ready;
}

Result<Batch::Front> Kv::apply_joint(const LockSet& locks, JointFrame& frame) {
  pages_.writer.mutex().assert_held();
  const auto number = change_pages(false, [&]() MEMLITH_REQUIRES(writing) {
    const Status written = write_all(locks, false);
    frame.reserve_more(pages_.writer.batch().reserve_front());
    return written;
  });
  if (!number.ok()) weak_commits_.committed(false);  // its number was used up
  MEMLITH_TRY(number.status());
  joint_applied_ = true;
  return weak_commits_.take_part();
}

void Kv::end_joint(const Batch::Front& front, Lsn end) {
  MEMLITH_ASSERT(joint_applied_);
  region().note_commit(end);
  weak_commits_.part_in_log(front, end);
}

void Kv::give_up_joint() { joint_applied_ ? weak_commits_.lose_part() : cancel_joint(); }

Status OpenKv::check_key(std::string_view key) {
  if (!key.empty() && key.size() <= kKeyBytesMax) return kOk;
  return fail(Errc::invalid, Detail::argument, "a key has 1 to {} bytes; this one has {}", kKeyBytesMax, key.size());
}

Status OpenKv::check_value(std::string_view value) {
  if (value.size() <= kValueBytesMax) return kOk;
  return fail(Errc::invalid, Detail::argument, "a value has up to {} bytes; this one has {}", kValueBytesMax,
              value.size());
}

Result<KvInfo> Kv::info() {
  const StoreHeader now = header();
  KvInfo info;
  MEMLITH_TRY_ASSIGN(info.maps, map_count());
  info.records = now.records;
  info.region_bytes = region().size();
  info.page_bytes = now.page_bytes;
  info.pages = now.pages;
  info.free_pages = now.free_pages;
  info.commits = newest();
  info.durable = durable();
  info.logged_bytes = weak_commits_.logged_bytes();
  info.conflicts = conflicts();
  info.snapshot_bytes = pages_.kept.bytes();
  info.transactions = transactions();
  return info;
}

StoreHeader Kv::header() {
  const LockGuard lock(pages_.writer.mutex());
  return pages_.writer.header();
}

}  // namespace memlith::core::kv
