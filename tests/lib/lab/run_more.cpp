// The words of a run that need more than one call: threads that meet in the middle of a transfer, and mapped regions.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/sync.hpp"
#include "region/snapshot.hpp"
#include "region/store_lists.hpp"
#include "run.hpp"

namespace memlith::lab {

using namespace core;

namespace {
constexpr std::uint64_t kAddressStride = 64 * kMiB;

// Runs `act` at the first call of the hook.
std::function<void()> once(std::function<void()> act) {
  return [done = false, act = std::move(act)]() mutable {
    if (!std::exchange(done, true)) act();
  };
}
}  // namespace

// ---- in the middle of a commit's I/O ---------------------------------------------------------------------------

void Run::commit_with_checkpoint_inside(const Write& write) {
  if (store_ == nullptr || possible({write}, 0).empty()) return;
  // With room in the log: otherwise the commit would run a checkpoint itself, and the inner commit would wait for it
  // forever.
  if (store_->log().used_bytes() > store_->log().capacity_bytes() / 2) checkpoint();
  Status inner = kOk;
  volume.after_write = once([&] { inner = store_->checkpoint(); });
  commit({write});
  volume.after_write = nullptr;
  if (!inner.ok() && fired() == 0) broken(fmt::format("a checkpoint during a commit failed: {}", last_error_text()));
  if (store_ != nullptr && store_->log().poisoned()) now_poisoned();
}

void Run::commit_with_forgotten_trim_inside(const Write& write) {
  if (store_ == nullptr || fired() > 0) return;
  volume.faults().plan(SimFaults::Kind::forget_flush,
                       2);  // those of the homes, the directory and an object, come first
  commit_with_checkpoint_inside(write);
}

void Run::two_batches_crosswise(const Write& first, const Write& second) {
  if (store_ == nullptr || possible({first, second}, 0).size() != 2) return;
  region_content_.erase(first.object);
  region_content_.erase(second.object);
  const std::uint64_t group = ++groups_;
  const std::uint64_t fill_first = fill_of(part_++);
  const std::uint64_t fill_second = fill_of(part_++);
  const std::size_t one =
      history.started(text_of_commit({first}, 0), change_of_commit({first}, fill_first, 0), now(), group);
  const std::size_t two =
      history.started(text_of_commit({second}, 0), change_of_commit({second}, fill_second, 0), now(), group);
  Status second_status = kOk;
  bool second_begun = false;
  Thread other;
  const std::uint64_t before = fired();
  const auto end = append({first}, fill_first, 0, one);
  Status status = end.status();
  if (end.ok()) {
    // While this thread is about to write the first batch, another writes and flushes the second.
    volume.before_transfer = once([&] {
      other = Thread([&] {
        second_begun = true;
        const auto second_end = append({second}, fill_second, 0, two);
        second_status = second_end.status();
        if (second_end.ok()) {
          second_status = store_->sync(*second_end);
          if (second_status.ok()) history.acknowledged(two, now());
        }
      });
      scheduler->settle();
    });
    status = store_->sync(*end);
    if (status.ok()) history.acknowledged(one, now());
  }
  if (other.joinable()) other.join();
  volume.before_transfer = nullptr;
  (void)passed(status, "commit", before);
  if (second_begun) (void)passed(second_status, "commit", before);
  if (!second_begun) history.cancelled(two);
  if (store_->log().poisoned()) now_poisoned();
}

void Run::threads(const std::vector<std::string>& objects, std::size_t commits_each) {
  if (store_ == nullptr) return;
  const std::uint64_t group = ++groups_;
  bool failed = false;
  std::vector<Thread> threads;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (!find(objects[i]).has_value()) continue;
    region_content_.erase(objects[i]);
    threads.emplace_back([&, i] {
      for (std::size_t n = 0; n < commits_each; ++n) {
        const Write write{objects[i], n * 100, 300};
        const std::uint64_t fill = fill_of(i * commits_each + n);
        const std::size_t commit =
            history.started(text_of_commit({write}, 0), change_of_commit({write}, fill, 0), now(), group);
        const auto end = append({write}, fill, 0, commit);
        if (!end.ok()) {
          failed = true;
          if (!store_->log().poisoned()) history.cancelled(commit);
          return;
        }
        if (!store_->sync(*end).ok()) {
          failed = true;
          return;
        }
        history.acknowledged(commit, now());
      }
    });
  }
  for (Thread& thread : threads) thread.join();
  if (failed && fired() == 0) broken("a commit of several threads failed although nothing had");
  if (store_->log().poisoned()) now_poisoned();
}

// ---- regions ---------------------------------------------------------------------------------------------------

void Run::map(const std::string& name, std::uint64_t size, TrackerKind tracker) {
  if (store_ == nullptr || regions_.contains(name)) return;
  const auto object = find(name);
  if (!object.has_value() && size == 0) return;
  const bool one_file = options_.kind == StoreKind::one_file;
  const bool sized = object.has_value() && !(one_file && object->size_bytes == 0 && size > 0);
  RegionOptions options;
  options.create = true;
  options.tracker = tracker;
  options.size_bytes = size;
  options.reserve_bytes = kReserve;
  options.limited = true;
  options.process_scope = tracker == TrackerKind::fault;  // so that pages become hot
  // One place a name, so that every run maps alike.
  if (!object.has_value() || object->address == 0) {
    std::uint64_t place = 0;
    for (const char c : name) place = place * 31 + static_cast<unsigned char>(c);
    options.address = kAddress + (1 + place % 1024) * kAddressStride;
  }
  std::size_t commit = 0;
  if (!sized) {
    commit = history.started(
        fmt::format("create region {} of {} bytes", name, size),
        [name, size](Content& content) { content.objects[name].resize(size); }, now());
  }
  const std::uint64_t before = fired();
  auto region = Region::open(*store_, name, options);
  const bool ok = passed(region.status(), "opening a region", before);
  if (!sized) settle(commit, ok);
  if (store_->log().poisoned()) now_poisoned();
  if (!ok) return;
  Memory memory;
  memory.region = std::move(*region);
  const std::byte* const base = memory.region->address();
  memory.expected.assign(base, base + memory.region->size());
  if (!sized) region_content_[name].resize(size);
  const bool flipped = volume.faults().fired(SimFaults::Kind::flip_bit) > 0;
  if (const auto known = region_content_.find(name);
      known != region_content_.end() && known->second != memory.expected && !flipped) {
    broken(fmt::format("region {} is mapped with other bytes than were persisted last", name));
  }
  region_content_[name] = memory.expected;
  memory.captured = memory.expected;
  regions_[name] = std::move(memory);
}

void Run::unmap(const std::string& name) { regions_.erase(name); }

void Run::store(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  store_bytes(name, offset, bytes_of(fill_of(part_++), {name, offset, bytes}));
}

void Run::store_same(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  store_bytes(name, offset, std::vector<std::byte>(bytes, std::byte{0x5a}));
}

void Run::clear(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  store_bytes(name, offset, std::vector<std::byte>(bytes));
}

void Run::store_bytes(const std::string& name, std::uint64_t offset, const std::vector<std::byte>& content) {
  const auto found = regions_.find(name);
  const std::uint64_t bytes = content.size();
  if (found == regions_.end() || offset + bytes > found->second.region->size()) return;
  Memory& memory = found->second;
  std::memcpy(memory.region->address() + offset, content.data(), bytes);
  std::memcpy(memory.expected.data() + offset, content.data(), bytes);
  if (memory.region->tracker()->kind() == TrackerKind::instrumented) {
    record(*memory.region, offset, bytes);
  } else if (!memory.region->touch(memory.region->address() + offset, bytes).ok()) {
    broken("touch failed");
  }
  memory.own.emplace_back(offset, bytes);
}

// As instrumented code does it: the first half in order, byte by byte, which makes one range; the rest from the end
// on, which fills the thread's list.
void Run::record(const Region& region, std::uint64_t offset, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(region.address()) + offset;
  for (std::uint64_t i = 0; i < bytes / 2; ++i) record_store(begin + i, begin + i + 1);
  for (std::uint64_t i = bytes; i > bytes / 2; --i) record_store(begin + i - 1, begin + i);
}

void Run::store_by_another(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  const auto found = regions_.find(name);
  if (found == regions_.end()) return;
  const std::size_t own = found->second.own.size();
  std::thread([&] { store(name, offset, bytes); }).join();
  found->second.own.resize(own);
}

// What a persist now makes of the region. With thread scope, the stores of other threads stay out.
std::vector<std::byte> Run::capture_of(Memory& memory, Scope scope) const {
  std::vector<std::byte> content = memory.captured;
  content.resize(memory.expected.size());
  const TrackerKind kind = memory.region->tracker()->kind();
  const bool by_byte = kind == TrackerKind::touched || kind == TrackerKind::instrumented;
  if (scope == Scope::process || !by_byte) return memory.expected;
  for (const auto& [offset, bytes] : memory.own) {
    std::memcpy(content.data() + offset, memory.expected.data() + offset, bytes);
  }
  return content;
}

void Run::grow(const std::string& name, std::uint64_t size) {
  const auto found = regions_.find(name);
  if (found == regions_.end() || found->second.region->size() >= size) return;
  const std::uint64_t before = fired();
  if (passed(found->second.region->grow(size), "grow", before)) found->second.expected.resize(size);
  if (store_->log().poisoned()) now_poisoned();
}

void Run::persist(const std::vector<std::string>& names, Scope scope) { persist_or_capture(names, scope, true); }

void Run::persist_soon(const std::vector<std::string>& names, Scope scope) { persist_or_capture(names, scope, false); }

void Run::wait() {
  if (soon_.empty() || store_ == nullptr) return;
  const std::uint64_t before = fired();
  const bool ok = passed(store_->sync(soon_.back().second), "waiting for a persist", before);
  for (const auto& [commit, end] : soon_) settle(commit, ok);
  soon_.clear();
}

void Run::rollback(const std::vector<std::string>& names) {
  std::vector<Region*> regions;
  for (const std::string& name : names) {
    if (const auto found = regions_.find(name); found != regions_.end()) regions.push_back(found->second.region.get());
  }
  if (regions.empty()) return;
  const std::uint64_t before = fired();
  const bool ok = passed(Region::rollback(regions, Scope::process), "rollback", before);
  if (store_->log().poisoned()) now_poisoned();
  for (const std::string& name : names) {
    const auto found = regions_.find(name);
    if (found == regions_.end()) continue;
    Memory& memory = found->second;
    if (!ok) {  // some of it may be undone
      const std::byte* const base = memory.region->address();
      memory.expected.assign(base, base + memory.region->size());
      continue;
    }
    memory.captured.resize(memory.expected.size());
    memory.expected = memory.captured;
    memory.own.clear();
    const bool same = std::memcmp(memory.region->address(), memory.expected.data(), memory.expected.size()) == 0;
    if (!same && volume.faults().fired(SimFaults::Kind::flip_bit) == 0) {
      broken(fmt::format("after a rollback, region {} has other bytes than were captured last", name));
    }
  }
}

void Run::release(const std::string& name) {
  const auto found = regions_.find(name);
  if (found == regions_.end()) return;
  const Memory& memory = found->second;
  const std::uint64_t before = fired();
  (void)passed(memory.region->release_for_limit(), "a release of memory", before);
  if (store_->log().poisoned()) now_poisoned();
  const bool same = std::memcmp(memory.region->address(), memory.expected.data(), memory.expected.size()) == 0;
  if (!same && volume.faults().fired(SimFaults::Kind::flip_bit) == 0) {
    broken(fmt::format("after a release of memory, region {} has other bytes than were stored", name));
  }
}

void Run::snapshot(const std::vector<std::string>& names) {
  std::vector<Region*> regions;
  std::vector<const Memory*> memories;
  for (const std::string& name : names) {
    const auto found = regions_.find(name);
    if (found == regions_.end()) return;
    regions.push_back(found->second.region.get());
    memories.push_back(&found->second);
  }
  if (regions.empty() || !soon_.empty()) return;
  const std::uint64_t before = fired();
  const auto snapshot = Snapshot::make(regions);
  const bool ok = passed(snapshot.status(), "a snapshot", before);
  if (store_->log().poisoned()) now_poisoned();
  if (!ok || volume.faults().fired(SimFaults::Kind::flip_bit) > 0) return;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& captured = memories[i]->captured;
    const std::uint64_t size = std::min<std::uint64_t>((*snapshot)->size(i), captured.size());
    if (size > 0 && std::memcmp((*snapshot)->address(i), captured.data(), size) != 0) {
      broken(fmt::format("a snapshot of region {} has other bytes than were persisted last", names[i]));
    }
  }
}

void Run::make_holes() { volume.make_sparse(options_.file_name); }

void Run::check_holes() {
  if (store_ != nullptr && !poisoned_ && volume.sparse(options_.file_name)) {
    broken("the store is open, and its file has holes");
  }
}

void Run::persist_or_capture(const std::vector<std::string>& names, Scope scope, bool wait) {
  std::vector<Region*> regions;
  std::map<std::string, std::vector<std::byte>> contents;
  for (const std::string& name : names) {
    const auto found = regions_.find(name);
    if (found == regions_.end()) continue;
    regions.push_back(found->second.region.get());
    contents[name] = capture_of(found->second, scope);
  }
  if (regions.empty()) return;
  std::string text = wait ? "persist" : "persist, without waiting,";
  for (const auto& [name, bytes] : contents) text += " " + name;
  const std::size_t commit = history.started(
      text,
      [contents](Content& content) {
        for (const auto& [name, bytes] : contents) content.objects[name] = bytes;
      },
      now());
  const std::uint64_t before = fired();
  const Lsn head = store_->log().head();
  Status status = kOk;
  if (wait) {
    status = Region::persist(regions, scope);
  } else {
    const auto end = Region::capture(regions, scope, false);
    status = end.status();
    if (end.ok()) soon_.emplace_back(commit, *end);
  }
  if (store_->log().head() == head) history.wrote_nothing(commit);
  // One that does not fit the log is no failure; everything stays due for the next.
  const bool ok = status.category == Errc::full ? false : passed(status, "persist", before);
  if (wait || !ok) settle(commit, ok);
  if (!ok) return;
  for (const auto& [name, bytes] : contents) {
    region_content_[name] = bytes;
    Memory& memory = regions_.at(name);
    memory.captured = bytes;
    memory.own.clear();
  }
}

void Run::persist_range(const Write& range) {
  const auto found = regions_.find(range.object);
  if (found == regions_.end() || range.offset + range.bytes > found->second.region->size()) return;
  Memory& memory = found->second;
  std::vector<std::byte> content = memory.captured;
  content.resize(memory.expected.size());
  std::memcpy(content.data() + range.offset, memory.expected.data() + range.offset, range.bytes);
  const std::size_t commit = history.started(
      fmt::format("persist {}[{}..{})", range.object, range.offset, range.offset + range.bytes),
      [name = range.object, content](Content& all) { all.objects[name] = content; }, now());
  const std::uint64_t before = fired();
  const Lsn head = store_->log().head();
  const Status status =
      memory.region->persist_range(memory.region->address() + range.offset, range.bytes, Scope::process);
  if (store_->log().head() == head) history.wrote_nothing(commit);
  const bool ok = status.category == Errc::full ? false : passed(status, "persist of a range", before);
  settle(commit, ok);
  if (ok) region_content_[range.object] = memory.captured = content;
}

void Run::discard(const Write& pages) {
  const auto found = regions_.find(pages.object);
  if (found == regions_.end() || pages.offset + pages.bytes > found->second.region->size()) return;
  Memory& memory = found->second;
  std::vector<std::byte> content = memory.captured;
  content.resize(memory.expected.size());
  std::fill_n(content.begin() + static_cast<std::ptrdiff_t>(pages.offset), pages.bytes, std::byte{0});
  const std::size_t commit = history.started(
      fmt::format("discard {}[{}..{})", pages.object, pages.offset, pages.offset + pages.bytes),
      [name = pages.object, content](Content& all) { all.objects[name] = content; }, now());
  const std::uint64_t before = fired();
  const Lsn head = store_->log().head();
  std::byte* const place = memory.region->address() + pages.offset;
  const Status status = memory.region->discard(place, pages.bytes);
  if (store_->log().head() == head) history.wrote_nothing(commit);
  const bool ok = status.category == Errc::full ? false : passed(status, "a discard", before);
  settle(commit, ok);
  if (!ok) return;
  region_content_[pages.object] = memory.captured = content;
  std::fill_n(memory.expected.begin() + static_cast<std::ptrdiff_t>(pages.offset), pages.bytes, std::byte{0});
  if (!std::equal(place, place + pages.bytes, memory.expected.begin() + static_cast<std::ptrdiff_t>(pages.offset))) {
    broken("a discarded page is not zeros in memory");
  }
}

void Run::persist_joined_by_another(const std::string& name) {
  const auto found = regions_.find(name);
  if (found == regions_.end()) return;
  Memory& memory = found->second;
  const std::size_t commit = history.started(
      "persist " + name, [name, bytes = memory.expected](Content& content) { content.objects[name] = bytes; }, now());
  Region* const region = memory.region.get();
  Thread other;
  Status other_status = kOk;
  std::size_t other_done_at = kNever;
  volume.before_transfer = once([&] {
    other = Thread([&] {
      other_status = Region::persist({&region, 1});
      other_done_at = now();
    });
    scheduler->settle();
  });
  const std::uint64_t before = fired();
  const bool ok = passed(Region::persist({&region, 1}), "persist", before);
  volume.before_transfer = nullptr;
  if (other.joinable()) other.join();
  settle(commit, ok);
  // The other thread stored nothing, but its acknowledged persist includes what is being written.
  if (other_done_at != kNever && other_status.ok()) history.acknowledged(commit, std::min(other_done_at, now()));
  if (!ok) return;
  region_content_[name] = memory.captured = memory.expected;
  memory.own.clear();
}

}  // namespace memlith::lab
