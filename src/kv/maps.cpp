// The maps of a kv store: their names, how one is made, and how one is removed in steps. Floor: kv.
#include <algorithm>
#include <thread>

#include "base/no_throw.hpp"
#include "kv/change.hpp"
#include "kv/kv.hpp"
#include "store/refusal.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kNameBytesMax = 255;
constexpr std::uint64_t kFreedPageLogBytes = 64;    // at most
constexpr std::uint64_t kPrunedPageLogBytes = 160;  // likewise, with what changes in the list
constexpr std::uint64_t kCatalogueLogBytes = 8 * kPageBytes;
constexpr std::chrono::milliseconds kRestMax{2};  // between the steps of a removal
}  // namespace

Status OpenKv::no_map(MapNumber number) const {
  return fail(Errc::invalid, Detail::kv,
              "region \"{}\": there is no map number {}; memlith_kv_map_open tells the number of a map",
              pages_.words.name(), number);
}

Status OpenKv::check_name(std::string_view name) {
  if (!name.empty() && name.size() <= kNameBytesMax && name.find('\0') == std::string_view::npos) return kOk;
  return fail(Errc::invalid, Detail::argument, "a map's name has 1 to {} bytes, none of them zero", kNameBytesMax);
}

Result<MapNumber> Kv::number_of(PageNumber root, Stamp created) {
  MEMLITH_ASSERT(root > kCatalogue);
  const auto known = number_of_root_.find(root);
  if (known != number_of_root_.end()) return known->second;
  if (!numbers_.has_room()) {
    return fail(Errc::full, Detail::kv,
                "region \"{}\": as many maps were opened, or made anew, as the processes of a kv store can number; end "
                "all of them, and begin again",
                pages_.words.name());
  }
  const MapNumber number = numbers_.add(root, created);
  number_of_root_.emplace(root, number);
  return number;
}

const MapEntry* Kv::map_with_root(PageNumber root) {
  const LockGuard lock(maps_mutex_);
  const auto known = number_of_root_.find(root);
  return known != number_of_root_.end() ? numbers_.find(known->second) : nullptr;
}

Result<MapNumber> Kv::open_map(std::string_view name, bool create, bool exclusive) {
  MEMLITH_TRY(check_name(name));
  const LockGuard lock(maps_mutex_);
  PageNumber map = 0;
  MEMLITH_TRY_ASSIGN(const bool found,
                     TreeReader(pages_, kCatalogue, kNewest).get(name, [&](const Cell& cell, bool /*stays*/) {
                       map = child_in(cell);
                     }));
  if (found && create && exclusive) {
    return fail(Errc::exists, Detail::kv, "there is a map \"{}\" already", name);
  }
  if (found) {
    if (map <= kCatalogue) return pages_.words.corrupt(kCatalogue, "a map in it has no number");
    MEMLITH_TRY(TreeReader(pages_, map, kNewest).check_map());
    return number_of(map, 0);
  }
  if (!create) return fail(Errc::not_found, Detail::kv, "there is no map \"{}\"; create it, or check its name", name);
  if (read_only()) return fail(Errc::read_only, Detail::kv, "opened read-only, so map \"{}\" cannot be created", name);
  MEMLITH_TRY(weak_commits_.keep_up());
  MEMLITH_TRY_ASSIGN(const std::uint64_t commit, create_map(name, map));
  MEMLITH_TRY_ASSIGN(const MapNumber number, number_of(map, commit - base_commit_ + kCheckedStamp));
  MEMLITH_TRY(weak_commits_.make_durable(commit));
  return number;
}

Result<std::uint64_t> Kv::create_map(std::string_view name, PageNumber& map) {
  MEMLITH_ASSERT(!read_only() && !name.empty());
  const LockGuard lock(pages_.writer.mutex());
  MEMLITH_TRY(region().store().failure());
  TreeWriter catalogue(pages_, kCatalogue);
  Write write{name, bytes_of_number(map), false};
  TreeWriter::Found found;
  MEMLITH_TRY(catalogue.check(write, {}, found));
  MEMLITH_TRY(make_ready({{kLevelsMax + 8, 0}, 6 * kPageBytes}));
  return change_map([&]() MEMLITH_REQUIRES(writing) -> Status {
    MEMLITH_TRY_ASSIGN(map, pages_.writer.allocate());
    TreeWriter::make_empty(pages_, map);
    const Status written = catalogue.apply(write);
    pages_.writer.count_records(-1);  // maps are no records
    return written;
  });
}

// The commit that takes the name out of the catalogue is the removal. The pages, which cannot be reached any more, go
// to the list of what was removed, and are freed by further commits, so that the commits of others wait for a few pages
// only. The list is a part of the store: the next opening after a crash goes on with it.
Status Kv::remove_map(std::string_view name) {
  const LockGuard alone(removal_mutex_);
  Status lost = kOk;
  MEMLITH_TRY_ASSIGN(const MapNumber number, open_map(name, false, false));
  if (read_only()) return fail(Errc::read_only, Detail::kv, "opened read-only, so map \"{}\" cannot be removed", name);
  {
    const LockGuard lock(maps_mutex_);
    MEMLITH_ASSERT(numbers_.find(number) != nullptr);
    MapEntry& map = *numbers_.find(number);
    if (map.removed.load(std::memory_order_relaxed) != kNewest) {
      return fail(Errc::not_found, Detail::kv, "there is no map \"{}\"; another thread removed it", name);
    }
    map.going.store(true);  // pairs with confirm_map()
    const Status removed = take_map_out(map, name, lost);
    map.going.store(false);
    MEMLITH_TRY(removed);
    number_of_root_.erase(map.root);
  }
  const Status freed = free_removed();
  MEMLITH_TRY(weak_commits_.make_durable(newest()));
  return lost.ok() ? freed : lost;
}

Status Kv::take_map_out(MapEntry& map, std::string_view name, Status& lost) {
  const Write write{name, {}, true};
  TreeWriter catalogue(pages_, kCatalogue);
  TreeWriter tree(pages_, map.root);
  MEMLITH_TRY(weak_commits_.keep_up());
  for (;;) {
    {
      const LockGuard lock(pages_.writer.mutex());
      MEMLITH_TRY(region().store().failure());
      if (locks_.in_use(map.root)) {
        return fail(Errc::conflict, Detail::kv, "a transaction uses map \"{}\"; remove the map when it has ended",
                    name);
      }
      TreeWriter::Found found;
      MEMLITH_TRY(catalogue.check(write, {}, found));
      MEMLITH_TRY_ASSIGN(const std::uint64_t freed, tree.remove_all_needs());
      const Estimate estimate{{}, freed * kFreedPageLogBytes + kCatalogueLogBytes};
      if (weak_commits_.has_room_for(estimate.log_bytes)) {
        const Status ready = no_throw([&]() MEMLITH_REQUIRES(writing) { return make_ready(estimate); });
        if (!ready.ok()) weak_commits_.commit_failed();
        MEMLITH_TRY(ready);
        const auto number = change_map([&]() MEMLITH_REQUIRES(writing) -> Status {
          MEMLITH_TRY(catalogue.apply(write));
          pages_.writer.count_records(1);  // maps are no records
          lost = tree.remove_all();
          return kOk;
        });
        MEMLITH_TRY(number.status());
        map.removed.store(pages_.kept.newest());  // before another map may get the page
        return kOk;
      }
    }
    MEMLITH_TRY(weak_commits_.hand_over(~std::uint64_t{0}, false).status());
  }
}

void Kv::free_removed_later() noexcept {
  const LockGuard alone(removal_mutex_);
  const KeptSentence sentence;  // what is left now, the next removal or the next opening frees
  (void)no_throw([&]() MEMLITH_REQUIRES(removal_mutex_) { return free_removed(); });
}

Status Kv::free_removed() {
  Status status = kOk;
  if (board_ != nullptr) return status;  // free_some()
  for (;;) {
    if (after_removal_step_) after_removal_step_();
    const auto begin = SteadyClock::now();
    if (header().removing == 0) return status;
    MEMLITH_TRY(weak_commits_.keep_up());
    const Status freed = free_step();
    if (!freed.ok() && freed.category != Errc::corrupt) return freed;
    if (status.ok()) status = freed;
    keep_to_memory();
    // As long as others had to wait, so that they come first.
    std::this_thread::sleep_for(std::min<SteadyClock::duration>(SteadyClock::now() - begin, kRestMax));
  }
}

bool Kv::free_some() {
  const LockGuard alone(removal_mutex_);
  if (header().removing == 0) return false;
  const KeptSentence sentence;
  const Status freed = no_throw([&]() MEMLITH_REQUIRES(removal_mutex_) -> Status {
    MEMLITH_TRY(weak_commits_.keep_up());
    MEMLITH_TRY(free_step());
    keep_to_memory();
    return kOk;
  });
  return freed.ok() || freed.category == Errc::corrupt;
}

// One commit. Memory for it is reserved, so that no page is copied to be put back.
Status Kv::free_step() {
  RemovedList list(pages_);
  for (;;) {
    {
      const LockGuard lock(pages_.writer.mutex());
      MEMLITH_TRY(region().store().failure());
      // A small log takes smaller steps.
      const std::uint64_t pages =
          std::clamp(log_bytes_max() / 4 / kPrunedPageLogBytes, std::uint64_t{1}, removal_step_);
      const std::uint64_t most = pages + list.least();
      const Estimate estimate{{}, most * kPrunedPageLogBytes + 2 * kPageBytes};
      if (weak_commits_.has_room_for(estimate.log_bytes)) {
        const Status ready = no_throw([&]() MEMLITH_REQUIRES(writing) {
          pages_.writer.reserve_changes(2 * most);
          return make_ready(estimate);
        });
        if (!ready.ok()) weak_commits_.commit_failed();
        MEMLITH_TRY(ready);
        Status freed = kOk;
        const auto number = change_pages(true, [&]() MEMLITH_REQUIRES(writing) {
          freed = list.free_some(pages);
          return kOk;
        });
        weak_commits_.committed(false);  // also if it failed: its number was used up
        MEMLITH_TRY(number.status());
        return freed;
      }
    }
    MEMLITH_TRY(weak_commits_.hand_over(~std::uint64_t{0}, false).status());
  }
}

Result<std::uint64_t> OpenKv::map_count() {
  TreeReader reader(pages_, kCatalogue, kNewest);
  auto leaf = std::make_unique<TreeReader::Leaf>();
  const LockGuard lock(maps_mutex_);
  std::uint64_t count = 0;
  std::string from;
  for (;;) {
    const std::string_view key = from;
    MEMLITH_TRY(reader.load_leaf(&key, *leaf));
    count += header_of(leaf->bytes).count;
    if (!leaf->has_upper) return count;
    from = leaf->upper;
  }
}

std::optional<std::string> OpenKv::map_at(std::uint64_t index, Status& status) {
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
