#include "run_regions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/sync.hpp"
#include "region/snapshot.hpp"
#include "region/store_lists.hpp"
#include "region/transaction.hpp"

namespace memlith::lab {

using namespace core;

namespace {
constexpr std::uint64_t kAddressStride = 64 * kMiB;
}  // namespace

bool Regions::Memory::is_as_expected() const {
  return std::memcmp(region->address(), expected.data(), expected.size()) == 0;
}

Regions::Memory* Regions::at(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  const auto found = regions_.find(name);
  return found == regions_.end() || offset + bytes > found->second.region->size() ? nullptr : &found->second;
}

std::vector<Region*> Regions::mapped(const std::vector<std::string>& names) {
  std::vector<Region*> regions;
  for (const std::string& name : names) {
    if (const Memory* const memory = at(name)) regions.push_back(memory->region.get());
  }
  return regions;
}

namespace {
Regions& regions_of(Run& run) {
  auto* regions = run.find<Regions>();
  return regions != nullptr ? *regions : run.keep(std::make_unique<Regions>(run));
}
}  // namespace

void map_region(Run& run, const std::string& name, std::uint64_t size, TrackerKind tracker) {
  if (run.store != nullptr) regions_of(run).map(name, size, tracker);
}

void map_for_threads(Run& run, const std::string& name, std::uint64_t size) {
  if (run.store != nullptr) regions_of(run).map(name, size, TrackerKind::automatic, true);
}

void Regions::map(const std::string& name, std::uint64_t size, TrackerKind tracker, bool for_threads) {
  if (regions_.contains(name)) return;
  const auto object = run.info_of(name);
  RegionOptions options;
  options.tracker = tracker;
  if (tracker == TrackerKind::automatic)
    options.tracker_costs = {.scan_bytes_max = 0, .change_ns = 0, .change_ns_per_page = 0};
  options.size_bytes = size;
  options.reserve_bytes = kReserve;
  options.limited = Limited::always;
  options.process_scope = tracker == TrackerKind::fault;  // so that pages become hot
  options.thread_scope = for_threads;
  // One place a name, so that every run maps alike.
  if (!object.has_value() || object->address == 0) {
    std::uint64_t place = 0;
    for (const char c : name) place = place * 31 + static_cast<unsigned char>(c);
    options.address = kAddress + (1 + place % 1024) * kAddressStride;
  }
  auto region = run.open_region(name, options);
  if (region == nullptr) return;
  Memory& memory = regions_[name];
  memory.region = std::move(region);
  memory.for_threads = for_threads;
  const std::byte* const base = memory.region->address();
  memory.captured = memory.expected = {base, base + memory.region->size()};
  run.expect_persisted(name, memory.expected,
                       fmt::format("region {} is mapped with other bytes than were persisted last", name));
}

void Regions::store(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  store_bytes(name, offset, run.next_bytes({name, offset, bytes}));
}

void Regions::announce(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  Memory* const memory = at(name, offset, bytes);
  const Range range{offset, bytes};
  if (memory != nullptr) memory->region->announce({&range, 1});
}

void Regions::store_same(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  store_bytes(name, offset, Bytes(bytes, std::byte{0x5a}));
}

void Regions::clear(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  store_bytes(name, offset, Bytes(bytes));
}

void Regions::store_bytes(const std::string& name, std::uint64_t offset, const Bytes& content) {
  const std::uint64_t bytes = content.size();
  Memory* const memory = at(name, offset, bytes);
  if (memory == nullptr) return;
  Region& region = *memory->region;
  std::memcpy(region.address() + offset, content.data(), bytes);
  std::memcpy(memory->expected.data() + offset, content.data(), bytes);
  if (region.tracker()->kind() == TrackerKind::instrumented) {
    record(region, offset, bytes);
  } else if (!region.touch(region.address() + offset, bytes).ok()) {
    run.broken("touch failed");
  }
  memory->own.emplace_back(offset, bytes);
}

// As instrumented code does it: the first half in order, byte by byte, which makes one range; the rest from the end
// on, which fills the thread's list.
void Regions::record(const Region& region, std::uint64_t offset, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(region.address()) + offset;
  for (std::uint64_t i = 0; i < bytes / 2; ++i) record_store(begin + i, begin + i + 1);
  for (std::uint64_t i = bytes; i > bytes / 2; --i) record_store(begin + i - 1, begin + i);
}

void Regions::store_by_another(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  Memory* const memory = at(name);
  if (memory == nullptr) return;
  const std::size_t own = memory->own.size();
  std::thread([&] { store(name, offset, bytes); }).join();
  memory->own.resize(own);
}

void Regions::grow(const std::string& name, std::uint64_t size) {
  Memory* const memory = at(name);
  if (memory == nullptr || memory->region->size() >= size) return;
  const std::uint64_t before = run.fired();
  if (run.passed(memory->region->grow(size), "grow", before)) memory->expected.resize(size);
}

// A persist now makes this of the region. With thread scope, the stores of other threads stay out.
Regions::Bytes Regions::capture_of(const Memory& memory, Scope scope) {
  const TrackerKind kind = memory.region->tracker()->kind();
  const bool by_byte = memory.for_threads || kind == TrackerKind::touched || kind == TrackerKind::instrumented;
  if (scope == Scope::process || !by_byte) return memory.expected;
  Bytes content = memory.captured;
  content.resize(memory.expected.size());
  for (const auto& [offset, bytes] : memory.own) {
    std::memcpy(content.data() + offset, memory.expected.data() + offset, bytes);
  }
  return content;
}

Regions::Bytes Regions::changed(const Memory& memory, std::uint64_t offset, const std::byte* bytes,
                                std::uint64_t count) {
  Bytes content = memory.captured;
  content.resize(memory.expected.size());
  std::memcpy(content.data() + offset, bytes, count);
  return content;
}

void Regions::persist(const std::vector<std::string>& names, Scope scope, bool wait) {
  const std::vector<Region*> regions = mapped(names);
  if (regions.empty()) return;
  Contents contents;
  for (const std::string& name : names) {
    if (const Memory* const memory = at(name)) contents[name] = capture_of(*memory, scope);
  }
  std::string text = wait ? "persist" : "persist, without waiting,";
  for (const auto& [name, bytes] : contents) text += " " + name;
  const auto change = [contents](Content& content) {
    for (const auto& [name, bytes] : contents) content.objects[name] = bytes;
  };
  const bool ok = run.capture(text, change, "persist", wait, [&]() -> Result<Lsn> {
    if (!wait) return Region::capture(regions, scope, false);
    MEMLITH_TRY(Region::persist(regions, scope));
    return Lsn{};
  });
  if (!ok) return;
  for (const auto& [name, bytes] : contents) {
    captured(name, bytes);
    at(name)->own.clear();
  }
}

void Regions::persist_range(const Write& range) {
  Memory* const memory = at(range.object, range.offset, range.bytes);
  if (memory == nullptr) return;
  const Bytes content = changed(*memory, range.offset, memory->expected.data() + range.offset, range.bytes);
  const bool ok = run.capture(
      fmt::format("persist {}[{}..{})", range.object, range.offset, range.offset + range.bytes),
      [name = range.object, content](Content& all) { all.objects[name] = content; }, "persist of a range", true,
      [&]() -> Result<Lsn> {
        Region& region = *memory->region;
        MEMLITH_TRY(region.persist_range(region.address() + range.offset, range.bytes, Scope::process));
        return Lsn{};
      });
  if (ok) captured(range.object, content);
}

void Regions::discard(const Write& pages) {
  Memory* const memory = at(pages.object, pages.offset, pages.bytes);
  if (memory == nullptr) return;
  const Bytes zeros(pages.bytes);
  const Bytes content = changed(*memory, pages.offset, zeros.data(), pages.bytes);
  std::byte* const place = memory->region->address() + pages.offset;
  const bool ok = run.capture(
      fmt::format("discard {}[{}..{})", pages.object, pages.offset, pages.offset + pages.bytes),
      [name = pages.object, content](Content& all) { all.objects[name] = content; }, "a discard", true,
      [&]() -> Result<Lsn> {
        MEMLITH_TRY(memory->region->discard(place, pages.bytes));
        return Lsn{};
      });
  if (!ok) return;
  captured(pages.object, content);
  std::copy(zeros.begin(), zeros.end(), memory->expected.begin() + static_cast<std::ptrdiff_t>(pages.offset));
  if (!std::equal(zeros.begin(), zeros.end(), place)) run.broken("a discarded page is not zeros in memory");
}

void Regions::rollback(const std::vector<std::string>& names) {
  const std::vector<Region*> regions = mapped(names);
  if (regions.empty()) return;
  const std::uint64_t before = run.fired();
  const bool ok = run.passed(Region::rollback(regions, Scope::process), "rollback", before);
  for (const std::string& name : names) {
    Memory* const memory = at(name);
    if (memory == nullptr) continue;
    if (!ok) {  // some of it may be undone
      const std::byte* const base = memory->region->address();
      memory->expected.assign(base, base + memory->region->size());
      continue;
    }
    memory->captured.resize(memory->expected.size());
    memory->expected = memory->captured;
    memory->own.clear();
    if (!memory->is_as_expected() && !run.flipped()) {
      run.broken(fmt::format("after a rollback, region {} has other bytes than were captured last", name));
    }
  }
}

void Regions::release(const std::string& name) {
  Memory* const memory = at(name);
  if (memory == nullptr) return;
  const std::uint64_t before = run.fired();
  (void)run.passed(memory->region->release_for_limit(), "a release of memory", before);
  if (!memory->is_as_expected() && !run.flipped()) {
    run.broken(fmt::format("after a release of memory, region {} has other bytes than were stored", name));
  }
}

void Regions::snapshot(const std::vector<std::string>& names) {
  const std::vector<Region*> regions = mapped(names);
  if (regions.size() < names.size() || !run.soon.empty()) return;
  const std::uint64_t before = run.fired();
  const auto snapshot = Snapshot::make(regions);
  if (!run.passed(snapshot.status(), "a snapshot", before) || run.flipped()) return;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Bytes& captured = at(names[i])->captured;
    const std::uint64_t size = std::min<std::uint64_t>((*snapshot)->size(i), captured.size());
    if (size > 0 && std::memcmp((*snapshot)->address(i), captured.data(), size) != 0) {
      run.broken(fmt::format("a snapshot of region {} has other bytes than were persisted last", names[i]));
    }
  }
}

std::size_t Regions::persist_of_another(const Write& write) {
  const Memory& memory = *at(write.object);
  const std::byte* const from = memory.expected.data() + write.offset;
  return run.history.started(
      fmt::format("another thread persists {}[{}..{})", write.object, write.offset, write.offset + write.bytes),
      [write, bytes = Bytes(from, from + write.bytes)](Content& content) {
        std::copy(bytes.begin(), bytes.end(),
                  content.objects[write.object].begin() + static_cast<std::ptrdiff_t>(write.offset));
      },
      run.now());
}

void Regions::persisted_by_another(const Write& write) {
  const Memory& memory = *at(write.object);
  captured(write.object, changed(memory, write.offset, memory.expected.data() + write.offset, write.bytes));
}

void Regions::persist_by_another(const Write& write, const std::vector<std::string>& names) {
  const std::vector<Region*> regions = mapped(names);
  Memory* const memory = at(write.object, write.offset, write.bytes);
  // A growth goes with the first persist, whichever thread makes it.
  if (memory == nullptr || regions.empty() || memory->captured.size() < memory->expected.size()) return;
  const std::uint64_t before = run.fired();
  std::size_t commit = 0;
  Status status = kOk;
  const std::size_t own = memory->own.size();
  std::thread([&] {
    store(write.object, write.offset, write.bytes);
    commit = persist_of_another(write);
    status = Region::persist(regions, Scope::thread);
  }).join();
  memory->own.resize(own);
  const bool ok = status.category != Errc::full && run.passed(status, "persist of another thread", before);
  run.note_outcome(commit, ok);
  if (ok) persisted_by_another(write);
}

void Regions::persist_beside_another(const Write& write, const std::vector<std::string>& names) {
  const std::vector<Region*> regions = mapped(names);
  Memory* const memory = at(write.object, write.offset, write.bytes);
  if (memory == nullptr || regions.size() < names.size()) return;
  Contents contents;
  for (const std::string& name : names) {
    if (at(name)->captured.size() < at(name)->expected.size()) return;
    contents[name] = capture_of(*at(name), Scope::thread);
  }
  const auto change = [contents](Content& content) {
    for (const auto& [name, bytes] : contents) content.objects[name] = bytes;
  };
  const std::size_t commit = run.history.started("persist what this thread stored", change, run.now());
  std::size_t other_commit = kNever;
  Status other_status = kOk;
  std::size_t other_done_at = kNever;
  Thread other;
  run.volume.before_transfer = [&, begun = false]() mutable {
    if (std::exchange(begun, true)) return;
    other = Thread([&] {
      // The bytes of this thread's persist are captured: it has its place in the log, before this one.
      const std::size_t own = memory->own.size();
      store(write.object, write.offset, write.bytes);
      memory->own.resize(own);
      other_commit = persist_of_another(write);
      other_status = Region::persist(regions, Scope::thread);
      other_done_at = run.now();
    });
    run.scheduler->let_others_run();
  };
  const std::uint64_t before = run.fired();
  const bool ok = run.passed(Region::persist(regions, Scope::thread), "persist", before);
  run.volume.before_transfer = nullptr;
  if (other.joinable()) other.join();
  run.note_outcome(commit, ok);
  if (ok) {
    for (const auto& [name, bytes] : contents) {
      captured(name, bytes);
      at(name)->own.clear();
    }
  }
  if (other_commit == kNever) return;
  const bool other_ok = run.passed(other_status, "persist of another thread", before);
  if (other_ok) run.history.acknowledged(other_commit, std::min(other_done_at, run.now()));
  if (other_ok) persisted_by_another(write);
  if (!other_ok) run.note_outcome(other_commit, false);
}

void Regions::persist_joined_by_another(const std::string& name) {
  Memory* const memory = at(name);
  if (memory == nullptr) return;
  const std::size_t commit = run.history.started(
      "persist " + name, [name, bytes = memory->expected](Content& content) { content.objects[name] = bytes; },
      run.now());
  Region* const region = memory->region.get();
  Thread other;
  Status other_status = kOk;
  std::size_t other_done_at = kNever;
  run.volume.before_transfer = [&, begun = false]() mutable {
    if (std::exchange(begun, true)) return;
    other = Thread([&] {
      other_status = Region::persist({&region, 1});
      other_done_at = run.now();
    });
    run.scheduler->let_others_run();
  };
  const std::uint64_t before = run.fired();
  const bool ok = run.passed(Region::persist({&region, 1}), "persist", before);
  run.volume.before_transfer = nullptr;
  if (other.joinable()) other.join();
  run.note_outcome(commit, ok);
  // The other thread stored nothing, but its acknowledged persist includes what is being written.
  if (other_done_at != kNever && other_status.ok()) {
    run.history.acknowledged(commit, std::min(other_done_at, run.now()));
  }
  if (!ok) return;
  captured(name, memory->expected);
  memory->own.clear();
}

// ---- transactions ----------------------------------------------------------------------------------------------

// All writes lie in mapped regions, of which at most one has grown since it was captured.
bool Regions::can_write(const std::vector<Write>& writes) {
  if (run.store == nullptr) return false;
  std::map<std::string, bool> grown;
  for (const Write& write : writes) {
    const Memory* const memory = at(write.object, write.offset, write.bytes);
    if (memory == nullptr) return false;
    if (memory->captured.size() < memory->expected.size()) grown[write.object] = true;
  }
  return grown.size() <= 1;
}

void Regions::check_memory(const std::vector<Write>& writes, std::string_view when) {
  for (const Write& write : writes) {
    if (at(write.object)->is_as_expected()) continue;
    run.broken(fmt::format("{}, region {} has other bytes than it must have", when, write.object));
  }
}

void Regions::write(const Write& write, const Bytes& bytes, Contents& captured, Contents& expected) {
  const Memory& memory = *at(write.object);
  Bytes& expect = expected.try_emplace(write.object, memory.expected).first->second;
  Bytes& capture = captured.try_emplace(write.object, memory.captured).first->second;
  capture.resize(expect.size());
  for (Bytes* const target : {&capture, &expect}) {
    std::memcpy(target->data() + write.offset, bytes.data(), bytes.size());
  }
}

// `captured` is what the commit makes of the regions, `expected` what their memory is then.
bool Regions::commit_transaction(std::string_view text, const Contents& captured, const Contents& expected, bool wait,
                                 const std::function<Result<Lsn>()>& capture) {
  History& history = run.history;
  std::optional<std::size_t> growth;
  for (const auto& [name, bytes] : captured) {
    if (at(name)->captured.size() == bytes.size()) continue;
    growth = history.started(
        "commit the new size of " + name,
        [name = name, size = bytes.size()](Content& content) { content.objects[name].resize(size); }, run.now());
  }
  const std::size_t commit = history.started(
      std::string(text),
      [captured](Content& content) {
        for (const auto& [name, bytes] : captured) content.objects[name] = bytes;
      },
      run.now());
  const std::uint64_t before = run.fired();
  const Lsn head = run.store->log().head();
  const auto end = run.durable(capture(), wait);
  const bool ok = end.status().category != Errc::full && run.passed(end.status(), text, before);
  if (growth.has_value()) {
    const bool written = ok || run.store->log().head() != head;
    run.note_outcome(*growth, written && run.store->sync(run.store->log().head()).ok());
    if (!ok && written) {
      for (const auto& [name, bytes] : captured) at(name)->captured.resize(bytes.size());
    }
  }
  if (wait || !ok) run.note_outcome(commit, ok);
  if (!ok) return false;
  if (!wait) run.soon.emplace_back(commit, *end);
  for (const auto& [name, bytes] : captured) this->captured(name, bytes);
  for (const auto& [name, bytes] : expected) at(name)->expected = bytes;
  return true;
}

void Regions::transaction(const std::vector<Write>& writes, Ending ending, const std::vector<std::string>& persisted) {
  if (!can_write(writes)) return;
  Transaction transaction(*run.store);
  std::vector<std::pair<Write, Bytes>> done;
  for (const Write& write : writes) {
    Region& region = *at(write.object)->region;
    const std::uint64_t middle = write.bytes / 2;
    const std::uint64_t rest = write.bytes / 4;
    // The parts overlap, so that an abort has two images of some bytes.
    for (const Write& part : {Write{write.object, write.offset, write.bytes - rest},
                              Write{write.object, write.offset + middle, write.bytes - middle}}) {
      if (!transaction.touch_before(region, region.address() + part.offset, part.bytes).ok())
        run.broken("touch_before");
      done.emplace_back(part, run.next_bytes(part));
      std::memcpy(region.address() + part.offset, done.back().second.data(), part.bytes);
    }
  }
  for (const std::string& name : persisted) persist({name}, Scope::process, true);
  Contents captured;
  Contents expected;
  for (const auto& [part, bytes] : done) write(part, bytes, captured, expected);
  const bool wait = ending == Ending::commit;
  const bool committed = ending != Ending::abort && commit_transaction("commit a transaction", captured, expected, wait,
                                                                       [&] { return transaction.capture(wait); });
  committed ? transaction.forget() : transaction.abort();
  check_memory(writes, committed ? "after a transaction" : "after an abort");
}

}  // namespace memlith::lab
