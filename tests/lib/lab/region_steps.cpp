// Workloads of mapped regions.
#include <fmt/format.h>

#include "steps.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

using Ending = Regions::Ending;
using Names = std::vector<std::string>;

std::vector<Step> regions(Random& random) {
  const std::uint64_t shift = random.below(500);
  return {open(),
          map("a", 8192),
          map("b", 8192),
          store("a", 100, 50 + shift),
          store("b", 4000, 200),
          persist({"a", "b"}),
          store("a", 4090, 20 + shift),
          store("b", 0, 1),
          persist({"a"}),
          checkpoint(),
          persist({"b"}),
          unmap("a"),
          map("a", 8192),
          store("a", 120, 5),
          store("a", 6000, 500 + shift),
          persist({"a"}),
          store("a", 0, 4),
          unmap("a"),  // what was not persisted is gone
          map("a", 8192),
          store("a", 8000, 10),
          persist({"a", "b"}),
          abandon(),
          open(),
          map("a", 8192),
          map("b", 8192),
          store("a", 130, 5),
          store("b", 130, 5 + shift),
          persist({"a", "b"}),
          close()};
}

std::vector<Step> region_growth(Random& random) {
  const std::uint64_t shift = random.below(500);
  return {open(),
          map("a", 4096),
          store("a", 0, 10 + shift),
          persist({"a"}),
          grow("a", 12288),
          store("a", 4000, 5000 + shift),
          persist({"a"}),
          grow("a", 16384),  // with nothing stored
          persist({"a"}),
          grow("a", 20480),  // never persisted
          abandon(),
          open(),
          map("a", 0),
          store("a", 16383, 1),
          persist({"a"}),
          close()};
}

// Two regions that fit the log one by one, but not together.
// Stores that are not persisted are in no snapshot; persisted ones are, home or not.
std::vector<Step> snapshots(Random& random) {
  const std::uint64_t shift = random.below(500);
  const Step both = step("a snapshot of a and b", &Regions::snapshot, Names{"a", "b"});
  const Step one = step("a snapshot of a", &Regions::snapshot, Names{"a"});
  return {open(),
          map("a", 8192),
          map("b", 4096, TrackerKind::scan),
          both,
          store("a", 100, 50 + shift),
          store("b", 3000, 200),
          persist({"a", "b"}),
          store("a", 0, 900),
          both,
          persist({"a"}),
          one,
          checkpoint(),
          store("b", 100, 700 + shift),
          persist({"b"}),
          both,
          grow("a", 12288),
          store("a", 9000, 300),
          one,
          persist({"a"}),
          both,
          abandon(),
          open(),
          map("a", 12288),
          map("b", 4096, TrackerKind::scan),
          both,
          store("a", 4000, 300 + shift),
          persist({"a"}),
          both,
          close()};
}

std::vector<Step> regions_too_large(Random& random) {
  const std::uint64_t shift = random.below(500);
  return {open(),
          map("a", 12288),
          map("b", 12288),
          map("c", 4096),
          store("a", 100, 8000 + shift),
          store("b", 100, 8000),
          store("c", 0, 64),
          persist({"a", "b", "c"}),
          persist({"c"}),
          persist({"a"}),
          store("a", 0, 7),
          persist({"b"}),
          persist({"a", "b", "c"})};
}

// Pages that a capture compares with their copies: changed, changed back, not changed at all, rolled back, too many for
// the log.
std::vector<Step> page_copies(Random& random) {
  const std::uint64_t shift = random.below(500);
  constexpr TrackerKind kPages = TrackerKind::scan;
  const Step rollback = step("roll a back", &Regions::rollback, Names{"a"});
  return {open(),
          map("a", 8192, kPages),
          map("b", 4096, kPages),
          map("c", 8192, kPages),
          store("a", 100, 50 + shift),
          persist({"a"}),
          store("a", 600, 8),
          persist({"a"}),
          clear("a", 600, 8),  // as it was when the page was captured first
          persist({"a"}),
          checkpoint(),
          clear("a", 600, 8),  // as it is
          store("b", 8, 16),
          persist({"a", "b"}),
          store("a", 605, 3),
          store("a", 4090, 20 + shift),
          rollback,
          store("a", 606, 1),
          persist({"a"}),
          store("a", 700, 9),
          store("b", 0, 4096),
          store("c", 100, 8000),
          persist({"a", "b", "c"}),  // does not fit
          persist({"a"}),
          store("a", 0, 2000 + shift),
          persist({"a", "b"})};
}

Step store_by_another(std::string name, std::uint64_t offset, std::uint64_t bytes) {
  return step(fmt::format("another thread stores to {}[{}..{})", name, offset, offset + bytes),
              &Regions::store_by_another, name, offset, bytes);
}
Step persist_own(const std::string& name) {
  return step(fmt::format("persist {}, this thread's stores", name), &Regions::persist, Names{name}, Scope::thread,
              true);
}

// Persists without a wait, stores of another thread, and rollbacks.
std::vector<Step> scopes_of(Random& random, TrackerKind tracker) {
  const std::uint64_t shift = random.below(500);
  const auto soon = [](const Names& names) {
    return step(fmt::format("persist {} of this thread without waiting", fmt::join(names, " and ")), &Regions::persist,
                names, Scope::thread, false);
  };
  const auto rollback = [](const Names& names) {
    return step(fmt::format("roll {} back", fmt::join(names, " and ")), &Regions::rollback, names);
  };
  const Step all_threads =
      step("persist a and b, all threads' stores", &Regions::persist, Names{"a", "b"}, Scope::process, true);
  return {open(),
          map("a", 8192, tracker),
          map("b", 4096, tracker),
          store("a", 100, 300),
          store_by_another("a", 1000, 200 + shift),
          persist_own("a"),
          soon({"a", "b"}),
          store("b", 50, 700),
          soon({"b"}),
          store("a", 120, 5 + shift),
          soon({"a"}),
          wait_for_those(),
          store("a", 3000, 900),
          store_by_another("b", 2000, 64),
          rollback({"a"}),
          store("a", 200, 20),
          all_threads,
          store("a", 4000, 300 + shift),
          store("b", 0, 10),
          rollback({"a", "b"}),
          store("a", 5000, 100),
          soon({"a"}),
          store_by_another("a", 6000, 100 + shift),
          soon({"a"}),
          abandon(),
          open(),
          map("a", 0, tracker),
          store("a", 5000, 200),
          soon({"a"}),
          checkpoint(),
          store("a", 5100, 200),
          soon({"a"}),
          wait_for_those(),
          close()};
}

std::vector<Step> scopes(Random& random) { return scopes_of(random, TrackerKind::touched); }
std::vector<Step> recorded_scopes(Random& random) { return scopes_of(random, TrackerKind::instrumented); }

Step map_own(const std::string& name, std::uint64_t size) {
  return step(fmt::format("map {} of {} bytes for threads", name, size), map_for_threads, name, size);
}
Step another_persists(const Write& write, const Names& names) {
  return step(fmt::format("another thread stores to {}[{}..{}) and persists its stores", write.object, write.offset,
                          write.offset + write.bytes),
              &Regions::persist_by_another, write, names);
}

// Threads that store to neighbouring pages and persist their own stores, to one region and to all (persist_all): ok
// means that the caller's stores are durable, and no others.
std::vector<Step> page_scopes(Random& random) {
  const std::uint64_t shift = random.below(500);
  const Names all{"a", "b"};
  const auto own = [](const Names& names, bool wait) {
    return step(fmt::format("persist {}, this thread's stores{}", fmt::join(names, " and "), wait ? "" : ", soon"),
                &Regions::persist, names, Scope::thread, wait);
  };
  return {open(),
          map_own("a", 16384),
          map_own("b", 12288),
          store("a", 100, 300),
          store_by_another("a", 4096, 200 + shift),  // the neighbour, which no persist of this thread has
          store("b", 4000, 90 + shift),
          own(all, true),
          another_persists({"a", 8192, 700 + shift}, {"a"}),
          store("a", 50, 20 + shift),
          another_persists({"b", 8192, 64}, all),  // and leaves this thread's store out
          own(all, false),
          another_persists({"a", 12288, 9}, all),
          store("a", 200, 8),
          own({"a"}, false),
          wait_for_those(),
          store("b", 0, 700),
          another_persists({"a", 8200, 30 + shift}, {"a"}),
          own(all, true),
          checkpoint(),
          store("a", 300, 5),
          another_persists({"a", 8500, 40}, all),
          abandon(),
          open(),
          map_own("a", 0),
          map_own("b", 0),
          store("a", 400, 6 + shift),
          another_persists({"b", 8200, 20}, {"b"}),
          own(all, true),
          close()};
}

// The same with persists that are under way together.
std::vector<Step> page_scopes_beside(Random& random) {
  const std::uint64_t shift = random.below(500);
  const Names all{"a", "b"};
  const auto beside = [](const Write& write, const Names& names) {
    return step(fmt::format("persist this thread's stores; meanwhile, another thread stores to {}[{}..{}) and persists",
                            write.object, write.offset, write.offset + write.bytes),
                &Regions::persist_beside_another, write, names);
  };
  return {open(),
          map_own("a", 12288),
          map_own("b", 8192),
          store("a", 100, 300 + shift),
          beside({"a", 4096, 200}, {"a"}),
          store("a", 0, 20),
          store("b", 10, 40 + shift),
          beside({"a", 4100, 30 + shift}, all),
          store("b", 60, 8),
          beside({"b", 4096, 500}, all),
          close()};
}

// Persists that do not fit the log lose nothing that was recorded; any later persist takes it.
std::vector<Step> recorded_too_large(Random& random) {
  const std::uint64_t shift = random.below(500);
  constexpr TrackerKind kRecorded = TrackerKind::instrumented;
  return {open(),
          map("a", 12288, kRecorded),
          map("b", 12288, kRecorded),
          map("c", 4096, kRecorded),
          store("a", 100, 8000 + shift),
          store_by_another("b", 100, 8000),
          store("c", 0, 64),
          store_by_another("c", 1000, 300),
          persist({"a", "b", "c"}),  // does not fit
          store("c", 300, 10),
          persist_own("c"),
          persist({"c"}),
          persist({"a"}),
          store("a", 0, 7),
          persist({"b"}),
          persist({"a", "b", "c"})};
}

Step change(std::string text, const std::vector<Write>& writes, Ending ending,
            const std::vector<std::string>& persisted = {}) {
  return step(std::move(text), &Regions::transaction, writes, ending, persisted);
}

// Transactions that are committed, aborted, and open while their regions are persisted.
std::vector<Step> transactions(Random& random) {
  const std::uint64_t shift = random.below(500);
  const auto commit = [](const std::vector<Write>& writes, const std::vector<std::string>& persisted = {}) {
    return change("commit a transaction", writes, Ending::commit, persisted);
  };
  const auto soon = [](const std::vector<Write>& writes) {
    return change("commit a transaction without waiting", writes, Ending::commit_soon);
  };
  const auto abort = [](const std::vector<Write>& writes) {
    return change("abort a transaction", writes, Ending::abort);
  };
  return {open(),
          map("a", 8192),
          map("b", 4096),
          store("a", 100, 50 + shift),
          commit({{"a", 1000, 300}, {"b", 50, 20 + shift}}),
          persist({"a"}),
          abort({{"a", 3000, 500}, {"a", 1000, 40}}),
          soon({{"a", 3000, 500}}),
          soon({{"b", 100, 200}, {"a", 3100, 8}}),
          wait_for_those(),
          store("b", 2000, 64),
          commit({{"b", 300, 100 + shift}}, {"b"}),
          checkpoint(),
          commit({{"a", 5000, 600 + shift}, {"b", 0, 16}, {"a", 5100, 16}}),
          unmap("a"),
          map("a", 8192),  // its newest bytes are in the log only
          grow("a", 12288),
          commit({{"a", 9000, 900}}),
          checkpoint(),
          abort({{"a", 9000, 900}, {"b", 0, 64}}),
          soon({{"b", 3000, 30}}),
          soon({{"a", 0, 40 + shift}}),
          abandon(),
          open(),
          map("a", 0),
          map("b", 0),
          commit({{"a", 100, 8}, {"b", 100, 8}}),
          grow("b", 8192),
          commit({{"b", 5000, 700}}),
          close()};
}

// Transactions that do not fit the log are aborted, and lose nothing that others have stored.
std::vector<Step> transactions_too_large(Random& random) {
  const std::uint64_t shift = random.below(500);
  const auto commit = [](const std::vector<Write>& writes) {
    return change("commit a transaction", writes, Ending::commit);
  };
  const std::vector<Write> both = {{"a", 100, 8000 + shift}, {"b", 100, 8000}, {"c", 0, 4000}};
  return {open(),
          map("a", 12288),
          map("b", 12288),
          map("c", 4096),
          store("c", 10, 20),
          commit(both),
          commit({{"a", 100, 8000 + shift}}),
          commit(both),
          persist({"c"}),
          commit({{"a", 0, 7}, {"b", 9000, 900}}),
          commit({{"b", 0, 8000}})};
}

// Parts of what was stored are persisted, across a growth, a checkpoint and a log that does not hold all of it.
std::vector<Step> ranges(Random& random) {
  const std::uint64_t shift = random.below(500);
  const auto range = [](const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
    return step("persist a range of " + name, &Regions::persist_range, Write{name, offset, bytes});
  };
  return {open(),
          map("a", 12288),
          map("b", 8192),
          store("a", 0, 300),
          store("a", 2000, 700 + shift),
          store("b", 0, 100),
          range("a", 2000, 700 + shift),
          store("a", 2100, 50),
          range("a", 0, 300),
          persist({"a", "b"}),
          store("a", 5000, 3000),
          store("a", 9000, 3000),
          range("a", 6000, 200 + shift),  // in the middle of a range that was touched as a whole
          checkpoint(),
          range("a", 5000, 1500),
          step("roll a back", &Regions::rollback, Names{"a"}),
          store("a", 100, 8),
          grow("b", 12288),
          store("b", 9000, 900),
          store("b", 100, 900 + shift),
          range("b", 9000, 900),
          range("b", 4096, 16),  // nothing was stored there
          abandon(),
          open(),
          map("a", 0),
          map("b", 0),
          store("a", 1, 12000),
          store("b", 1, 12000),
          persist({"a", "b"}),  // it does not fit
          range("a", 0, 12288),
          range("b", 0, 12288),
          close()};
}

Step discard(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  return step("discard pages of " + name, &Regions::discard, Write{name, offset, bytes});
}

std::vector<Step> discards_of(Random& random, TrackerKind tracker) {
  const std::uint64_t shift = random.below(500);
  return {open(),
          map("a", 12288, tracker),
          map("b", 8192, tracker),
          store("a", 4000, 5000 + shift),
          store("b", 100, 600),
          persist({"a", "b"}),
          store("a", 5000, 64),
          store("a", 100, 30 + shift),
          discard("a", 4096, 8192),  // what was stored there and not persisted is dropped
          store("a", 6000, 300 + shift),
          persist({"a"}),
          checkpoint(),
          store("b", 100, 700),
          persist({"b"}),
          discard("b", 0, 4096),
          discard("a", 0, 4096),
          store("a", 4090, 20),
          persist({"a", "b"}),
          unmap("b"),
          map("b", 8192, tracker),
          store("b", 50, 8),
          persist({"b"}),
          abandon(),
          open(),
          map("a", 0, tracker),
          store("a", 9000, 900),
          persist({"a"}),
          discard("a", 8192, 4096),
          close()};
}

std::vector<Step> discards(Random& random) { return discards_of(random, TrackerKind::touched); }

// A page that is compared with its copy holds, behind its discard, the same bytes as before.
std::vector<Step> discarded_pages(Random& random) {
  std::vector<Step> steps = discards_of(random, TrackerKind::scan);
  const auto same = [](std::string text) { return step(std::move(text), &Regions::store_same, "a", 20, 50); };
  const std::vector<Step> again{open(),
                                map("a", 0, TrackerKind::scan),
                                same("store to a[20..70)"),
                                persist({"a"}),
                                discard("a", 0, 4096),
                                same("store the same to a[20..70)"),
                                persist({"a"}),
                                close()};
  steps.insert(steps.end(), again.begin(), again.end());
  return steps;
}

// Commits share frames of several blocks: those that no thread waits for, and one that is waited for behind them.
std::vector<Step> packed(Random& random) {
  const std::uint64_t shift = random.below(200);
  const auto soon = [](const std::vector<Write>& writes) {
    return change("commit a transaction without waiting", writes, Ending::commit_soon);
  };
  const auto captured = [](const std::string& name) {
    return step("persist " + name + ", without waiting", &Regions::persist, Names{name}, Scope::process, false);
  };
  return {open(),
          map("a", 8192),
          map("b", 4096),
          soon({{"a", 0, 400 + shift}, {"b", 0, 8}}),
          soon({{"a", 100, 300}, {"b", 4, 8}}),
          soon({{"a", 200, 300}, {"b", 8, 8}}),
          soon({{"a", 250, 60 + shift}}),
          wait_for_those(),
          soon({{"b", 0, 600}}),
          soon({{"b", 100, 16}}),
          change("commit a transaction", {{"b", 50, 100 + shift}}, Ending::commit),  // in their frame
          soon({{"b", 90, 20}}),
          store("a", 1000, 700),
          captured("a"),
          grow("a", 12288),
          soon({{"a", 9000, 500}}),
          soon({{"a", 9100, 500 + shift}}),
          persist({"a"}),  // nothing is stored: it waits for those
          soon({{"a", 50, 40}}),
          soon({{"b", 2000, 1500}}),
          checkpoint(),
          soon({{"b", 2100, 1500}}),
          unmap("b"),
          map("b", 4096),
          soon({{"a", 0, 3000}}),
          soon({{"a", 10, 2000 + shift}}),
          soon({{"a", 20, 3000}}),
          soon({{"b", 0, 9}}),
          soon({{"a", 30, 40}, {"b", 5, 9}}),
          abandon(),
          open(),
          map("a", 0),
          map("b", 0),
          soon({{"a", 0, 8}, {"b", 0, 8}}),
          soon({{"a", 0, 900}, {"b", 0, 300}}),
          soon({{"a", 400, 900}, {"b", 0, 200}}),
          close()};
}

std::vector<Step> region_joined(Random& random) {
  const std::uint64_t shift = random.below(500);
  const Step joined = step("persist a, joined by another thread", &Regions::persist_joined_by_another, "a");
  return {open(), map("a", 8192), store("a", 0, 300 + shift), joined, store("a", 200, 300), joined, close()};
}

std::vector<Step> file_region(Random& random, TrackerKind tracker) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          map("file", 0, tracker),
          store("file", 5000, 3),
          persist({"file"}),
          grow("file", 9001 + shift),
          store("file", 4999, 4000 + shift),
          persist({"file"}),
          close(),
          open(),
          map("file", 0, tracker),
          store("file", 1, 1),
          persist({"file"}),
          grow("file", 20000 + shift),  // never persisted
          abandon(),
          open(),
          close(),
          open(),
          map("file", 0, tracker),
          store("file", 9000, 1),
          persist({"file"}),
          grow("file", 12000),  // never persisted
          close(),
          open(),
          map("file", 0, tracker),
          store("file", 10, 600),
          unmap("file"),
          map("file", 0, tracker),
          store("file", 20, 1),
          persist({"file"}),
          unmap("file"),
          map("file", 0, tracker),
          store("file", 30, 1),
          persist({"file"})};
}

std::vector<Step> touched_file(Random& random) { return file_region(random, TrackerKind::touched); }
std::vector<Step> scanned_file(Random& random) { return file_region(random, TrackerKind::scan); }

std::vector<Step> page_regions(Random& random) {
  const std::uint64_t shift = random.below(500);
  constexpr TrackerKind kPages = TrackerKind::fault;
  return {open(),
          map("a", 12288, kPages),
          store("a", 100, 50 + shift),
          persist({"a"}),
          store("a", 4000, 200 + shift),
          store("a", 8200, 20),
          persist({"a"}),
          unmap("a"),
          map("a", 12288, kPages),  // its newest bytes may be in the log only
          store("a", 4100, 5),
          persist({"a"}),
          grow("a", 16384),
          store("a", 12300, 7),
          persist({"a"}),
          abandon(),
          open(),
          map("a", 0, kPages),
          store("a", 8000, 300 + shift),
          persist({"a"})};
}

// The second persist of a mapping finds the stores by faults, and those before it by a last scan.
std::vector<Step> changed_trackers(Random& random) {
  const std::uint64_t shift = random.below(500);
  constexpr TrackerKind kAuto = TrackerKind::automatic;
  const Step rollback = step("roll a back", &Regions::rollback, Names{"a"});
  return {open(),
          map("a", 20480, kAuto),
          store("a", 100, 50 + shift),
          store("a", 8300, 30),
          persist({"a"}),
          store("a", 200, 40 + shift),  // a page with a copy
          store("a", 4200, 60),         // and one without
          persist({"a"}),
          store("a", 300, 20),
          store("a", 16400, 10),
          rollback,
          store("a", 8300, 20),
          persist({"a"}),
          unmap("a"),
          map("a", 0, kAuto),
          store("a", 4100, 5),
          persist({"a"}),
          store("a", 4100, 300),
          store("a", 12300, 7 + shift),
          rollback,
          store("a", 12400, 8),
          persist({"a"}),
          step("release a", &Regions::release, "a"),
          grow("a", 24576),
          store("a", 20500, 7),
          store("a", 12400, 9),
          persist({"a"}),
          abandon(),
          open(),
          map("a", 0, kAuto),
          store("a", 8000, 300 + shift),
          persist({"a"})};
}

// Stores that were announced, beside others that were not; and pages that are opened with their neighbours, because the
// capture before found so many of their stretch.
std::vector<Step> announced_stores(Random& random) {
  const std::uint64_t shift = random.below(500);
  constexpr TrackerKind kPages = TrackerKind::fault;
  const auto announce = [](std::uint64_t offset, std::uint64_t bytes) {
    return step(fmt::format("announce {} bytes at {} of a", bytes, offset), &Regions::announce, "a", offset, bytes);
  };
  return {open(),
          map("a", 131072, kPages),
          announce(100, 9000),
          store("a", 100, 50 + shift),
          store("a", 20000, 40),
          persist({"a"}),
          announce(8200, 30),
          store("a", 300, 20),
          store("a", 8200, 20),
          store("a", 12300, 20),
          store("a", 16500, 20 + shift),
          persist({"a"}),
          store("a", 8300, 10),  // the stretch has a pattern now
          store("a", 40000, 30 + shift),
          store("a", 70000, 30),
          persist({"a"}),
          announce(0, 65536),
          persist({"a"}),
          store("a", 60000, 8),
          step("roll a back", &Regions::rollback, Names{"a"}),
          store("a", 61000, 8 + shift),
          persist({"a"}),
          abandon(),
          open(),
          map("a", 0, kPages),
          announce(60000, 20),
          store("a", 8000, 300 + shift),
          persist({"a"})};
}

const Workload kRegionWorkloads[] = {
    {"snapshots", "snapshots of regions between persists, checkpoints and growth", small_store, snapshots},
    {"regions", "stores to mapped regions, persisted alone and together", stores::wide_slots, regions},
    {"region-growth", "mapped regions that grow", stores::wide_slots, region_growth},
    {"regions-too-large", "persists that do not fit the log leave everything due", stores::full_log, regions_too_large},
    {"scopes", "persists without waiting, of one thread's stores only, and rollback", stores::wide_slots, scopes},
    {"page-scopes",
     "threads that persist their own stores to neighbouring pages",
     stores::wide_slots,
     page_scopes,
     {.with_call_faults = false}},
    {"page-scopes-beside",
     "such persists that are under way together",
     stores::wide_slots,
     page_scopes_beside,
     {.turns = Turns::fixed, .with_call_faults = false}},
    {"recorded-scopes", "the same with stores that instrumented code records", stores::wide_slots, recorded_scopes},
    {"recorded-too-large", "persists that do not fit the log lose no record, whichever thread made it",
     stores::full_log, recorded_too_large},
    {"transactions", "transactions that are committed or aborted beside persists", stores::wide_slots, transactions},
    {"transactions-too-large", "transactions that do not fit the log are undone", stores::full_log,
     transactions_too_large},
    {"ranges", "persists of ranges of regions", stores::full_log, ranges},
    {"discards", "pages of regions that become zeros, and are stored to again", stores::wide_slots, discards},
    {"discarded-pages",
     "such pages that are compared with their copies",
     stores::wide_slots,
     discarded_pages,
     {.with_call_faults = false}},
    {"packed", "commits that share frames", stores::wide_slots, packed},
    {"packed-narrow", "such commits in small batches", stores::full_log, packed},
    {"region-joined",
     "a persist with nothing of its own waits for what is under way",
     stores::wide_slots,
     region_joined,
     {.turns = Turns::fixed}},
    {"file-region", "an ordinary file as a region, tracked by touches", stores::file_wide_slots, touched_file,
     kOrdinaryFile},
    {"file-pages",
     "an ordinary file as a region, tracked by pages",
     stores::file_wide_slots,
     scanned_file,
     {.with_call_faults = false, .start = stores::file_image, .before = stores::file_content}},
    {"page-regions", "regions tracked by pages", stores::wide_slots, page_regions, {.with_call_faults = false}},
    {"page-tracker-changes",
     "regions whose tracker changes between two persists",
     stores::wide_slots,
     changed_trackers,
     {.with_call_faults = false}},
    {"page-announced",
     "pages that are opened before they are stored to",
     stores::wide_slots,
     announced_stores,
     {.with_call_faults = false}},
    {"page-copies",
     "pages compared with their copies, changed back, rolled back, too large for the log",
     stores::full_log,
     page_copies,
     {.with_call_faults = false}},
};

}  // namespace

std::span<const Workload> region_workloads() { return kRegionWorkloads; }

}  // namespace memlith::lab
