// Records behind all that a map has, without a search for each. Floor: kv.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/no_throw.hpp"
#include "kv/change.hpp"
#include "kv/kv.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kStepBytes = 128 * kKiB;  // of keys and values in one commit
constexpr std::uint64_t kStepRecords = 4096;

// The records of one commit, copied.
struct Step {
  void clear() {
    bytes.clear();
    ends.clear();
  }
  void add(std::string_view key, std::string_view value) {
    bytes.append(key).append(value);
    ends.emplace_back(key.size(), value.size());
  }
  std::span<const Write> writes() {
    all.clear();
    std::string_view rest = bytes;
    for (const auto& [key, value] : ends) {
      all.push_back({rest.substr(0, key), rest.substr(key, value), false});
      rest.remove_prefix(key + value);
    }
    MEMLITH_ASSERT(rest.empty());
    return all;
  }
  std::string bytes;
  std::vector<std::pair<std::size_t, std::size_t>> ends;
  std::vector<Write> all;
};
}  // namespace

// ---- the tree --------------------------------------------------------------------------------------------------

Status TreeWriter::check_end(std::string_view& last) {
  Path path;
  MEMLITH_TRY(descend({}, path, To::end));
  depth_ = path.depth;
  const auto [leaf, count] = path.leaf();
  last = count > 0 ? cell_of(words_.bytes_of(leaf), count - 1).key : std::string_view();
  return kOk;
}

// A leaf is left when a cell does not fit, so all but the first are filled but for a cell of the longest kind. An inner
// page is left when it has three children at least. Each new leaf changes its parent, which may be laid out anew; a
// root that is full moves to another page.
TreeWriter::Needs TreeWriter::append_needs(std::span<const Write> writes) const {
  MEMLITH_ASSERT(depth_ > 0);  // check_end() came before
  std::uint64_t bytes = 0;
  std::uint64_t run_pages = 0;
  for (const Write& each : writes) {
    bytes += cell_bytes_of(each) + kSlotBytes;
    run_pages += overflow_pages_of(each);
  }
  const std::uint64_t leaves = bytes / (kRoomBytes - kCellBytesMax) + 2;
  const std::uint64_t pages = leaves + leaves / 2 + depth_ + 3;
  return {{pages, run_pages}, 2 * bytes + 256 * pages + (run_pages + leaves + 6) * (kPageBytes + 256)};
}

Status TreeWriter::append(std::span<const Write> writes) {
  for (auto write = writes.begin(); write != writes.end();) {
    Path path;
    MEMLITH_TRY(descend({}, path, To::end));
    const auto [leaf, first] = path.leaf();
    std::uint32_t count = first;
    // Records that fit at once are logged together: the cells lie side by side.
    std::byte* const page = writer_.change(leaf);  // also if nothing fits: put() changes it, then
    const std::uint64_t end = header_of(page).cells_begin;
    for (; write != writes.end() && overflow_pages_of(*write) == 0; ++write, ++count) {
      const Cell cell{write->key, write->value, false};
      if (!fits_at_once(page, cell.bytes())) break;
      insert_cell(page, count, cell);
    }
    if (count > first) {
      const std::uint64_t begin = header_of(page).cells_begin;
      writer_.note(leaf, begin, end - begin);
      note_slots(leaf, first);
      words_.tag_all(leaf);
      writer_.count_records(count - first);
    }
    if (write == writes.end()) return kOk;
    // A long value, or a page that is full: as ever.
    path.leaf().index = count;
    path.found = false;
    MEMLITH_TRY(put(path, *write++));
  }
  return kOk;
}

// ---- the kv store ----------------------------------------------------------------------------------------------

Status Kv::append(MapNumber number, const NextRecord& next, std::uint64_t& appended) {
  appended = 0;
  if (read_only()) return fail(Errc::read_only, Detail::kv, "{}: opened read-only", region().store().path());
  const MapEntry* const map = numbers_.find(number);
  if (map == nullptr) return no_map(number);
  Step step;
  const std::uint64_t step_bytes = std::min(kStepBytes, log_bytes_max() / 16);
  for (bool more = true; more;) {
    step.clear();
    while (more && step.bytes.size() < step_bytes && step.ends.size() < kStepRecords) {
      std::string_view key;
      std::string_view value;
      more = next(key, value);
      if (!more) break;
      MEMLITH_TRY(check_key(key));
      MEMLITH_TRY(check_value(value));
      step.add(key, value);
    }
    if (!step.ends.empty()) MEMLITH_TRY(append_step(number, *map, step.writes()));
    appended += step.ends.size();
    keep_to_memory();
  }
  return weak_commits_.make_durable(newest());
}

// One commit. It takes no locks: no transaction has the map at the moment of the commit, under the writer's lock.
Status Kv::append_step(MapNumber number, const MapEntry& map, std::span<const Write> writes) {
  MEMLITH_ASSERT(!writes.empty());
  MEMLITH_TRY(weak_commits_.keep_up());
  TreeWriter tree(pages_, map.root);
  for (;;) {
    std::optional<WeakCommits::Wish> wish;
    {
      const LockGuard lock(pages_.writer.mutex());
      MEMLITH_TRY(region().store().failure());
      if (map.removed.load() != kNewest) return no_map(number);
      if (locks_.in_use(map.root)) {
        return fail(Errc::conflict, Detail::kv, "a transaction uses the map; append to it when it has ended");
      }
      std::string_view last;
      MEMLITH_TRY(tree.check_end(last));
      for (const Write& each : writes) {
        if (each.key <= last) {
          return fail(Errc::invalid, Detail::argument,
                      "a key is not above the one before it, or the last of the map; append records in the order of "
                      "their keys, behind those that are there");
        }
        last = each.key;
      }
      const TreeWriter::Needs needs = tree.append_needs(writes);
      if (weak_commits_.has_room_for(needs.log_bytes)) {
        const Status ready =
            no_throw([&]() MEMLITH_REQUIRES(writing) { return make_ready({needs.room, needs.log_bytes}); });
        if (!ready.ok()) weak_commits_.commit_failed();
        MEMLITH_TRY(ready);
        const auto made = change_pages(false, [&]() MEMLITH_REQUIRES(writing) { return tree.append(writes); });
        wish = weak_commits_.committed(made.ok());
        MEMLITH_TRY(made.status());
      }
    }
    if (wish.has_value()) {
      weak_commits_.ask_for(*wish);
      return kOk;
    }
    // Together with what waits it would be too much for one frame.
    MEMLITH_TRY(weak_commits_.hand_over(~std::uint64_t{0}, false).status());
  }
}

}  // namespace memlith::core::kv
