// Workloads of mapped regions.
#include <fmt/format.h>

#include "steps.hpp"

namespace memlith::lab {

using namespace core;

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
// What is stored and not persisted is in no snapshot; what was persisted is, home or not.
std::vector<Step> snapshots(Random& random) {
  const std::uint64_t shift = random.below(500);
  const Step both{"a snapshot of a and b", [](Run& run) { run.snapshot({"a", "b"}); }};
  const Step one{"a snapshot of a", [](Run& run) { run.snapshot({"a"}); }};
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
  const Step rollback{"roll a back", [](Run& run) { run.rollback({"a"}); }};
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

namespace {

Step store_by_another(std::string name, std::uint64_t offset, std::uint64_t bytes) {
  return {fmt::format("another thread stores to {}[{}..{})", name, offset, offset + bytes),
          [=](Run& run) { run.store_by_another(name, offset, bytes); }};
}
Step persist_own(const std::string& name) {
  return {fmt::format("persist {}, this thread's stores", name), [=](Run& run) { run.persist({name}, Scope::thread); }};
}

// Persists without a wait, stores of another thread, and rollbacks.
std::vector<Step> scopes_of(Random& random, TrackerKind tracker) {
  const std::uint64_t shift = random.below(500);
  const auto soon = [](std::vector<std::string> names) {
    return Step{fmt::format("persist {} of this thread without waiting", fmt::join(names, " and ")),
                [=](Run& run) { run.persist_soon(names, Scope::thread); }};
  };
  const Step wait{"wait for those", [](Run& run) { run.wait(); }};
  const auto rollback = [](std::vector<std::string> names) {
    return Step{fmt::format("roll {} back", fmt::join(names, " and ")), [=](Run& run) { run.rollback(names); }};
  };
  const Step everybody{"persist a and b, everybody's stores",
                       [](Run& run) { run.persist({"a", "b"}, Scope::process); }};
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
          wait,
          store("a", 3000, 900),
          store_by_another("b", 2000, 64),
          rollback({"a"}),
          store("a", 200, 20),
          everybody,
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
          wait,
          close()};
}

}  // namespace

std::vector<Step> scopes(Random& random) { return scopes_of(random, TrackerKind::touched); }
std::vector<Step> recorded_scopes(Random& random) { return scopes_of(random, TrackerKind::instrumented); }

// Persists that do not fit the log lose nothing that was recorded, whoever persists next.
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

namespace {

Step change(std::string text, const std::vector<Write>& writes, Run::Ending ending,
            const std::vector<std::string>& persisted = {}) {
  return {std::move(text), [=](Run& run) { run.transaction(writes, ending, persisted); }};
}

}  // namespace

// Transactions that are committed, aborted, and open while their regions are persisted.
std::vector<Step> transactions(Random& random) {
  const std::uint64_t shift = random.below(500);
  const auto commit = [](const std::vector<Write>& writes, const std::vector<std::string>& persisted = {}) {
    return change("commit a transaction", writes, Run::Ending::commit, persisted);
  };
  const auto soon = [](const std::vector<Write>& writes) {
    return change("commit a transaction without waiting", writes, Run::Ending::commit_soon);
  };
  const auto abort = [](const std::vector<Write>& writes) {
    return change("abort a transaction", writes, Run::Ending::abort);
  };
  const Step wait{"wait for those", [](Run& run) { run.wait(); }};
  return {open(),
          map("a", 8192),
          map("b", 4096),
          store("a", 100, 50 + shift),
          commit({{"a", 1000, 300}, {"b", 50, 20 + shift}}),
          persist({"a"}),
          abort({{"a", 3000, 500}, {"a", 1000, 40}}),
          soon({{"a", 3000, 500}}),
          soon({{"b", 100, 200}, {"a", 3100, 8}}),
          wait,
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
    return change("commit a transaction", writes, Run::Ending::commit);
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
    return Step{"persist a range of " + name, [=](Run& run) { run.persist_range({name, offset, bytes}); }};
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
          {"roll a back", [](Run& run) { run.rollback({"a"}); }},
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

namespace {

std::vector<Step> discards_of(Random& random, TrackerKind tracker) {
  const std::uint64_t shift = random.below(500);
  const auto discard = [](const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
    return Step{"discard pages of " + name, [=](Run& run) { run.discard({name, offset, bytes}); }};
  };
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

}  // namespace

std::vector<Step> discards(Random& random) { return discards_of(random, TrackerKind::touched); }

// A page that is compared with its copy holds, behind its discard, the same bytes as before.
std::vector<Step> discarded_pages(Random& random) {
  std::vector<Step> steps = discards_of(random, TrackerKind::scan);
  const auto same = [](Run& run) { run.store_same("a", 20, 50); };
  const std::vector<Step> again{open(),
                                map("a", 0, TrackerKind::scan),
                                {"store to a[20..70)", same},
                                persist({"a"}),
                                {"discard pages of a", [](Run& run) { run.discard({"a", 0, 4096}); }},
                                {"store the same to a[20..70)", same},
                                persist({"a"}),
                                close()};
  steps.insert(steps.end(), again.begin(), again.end());
  return steps;
}

// Commits that no thread waits for share frames of several blocks, between frames of commits that are waited for.
std::vector<Step> packed(Random& random) {
  const std::uint64_t shift = random.below(200);
  const auto soon = [](const std::vector<Write>& writes) {
    return change("commit a transaction without waiting", writes, Run::Ending::commit_soon);
  };
  const auto captured = [](const std::string& name) {
    return Step{"persist " + name + ", without waiting",
                [name](Run& run) { run.persist_soon({name}, Scope::process); }};
  };
  const Step wait{"wait for those", [](Run& run) { run.wait(); }};
  return {open(),
          map("a", 8192),
          map("b", 4096),
          soon({{"a", 0, 400 + shift}, {"b", 0, 8}}),
          soon({{"a", 100, 300}, {"b", 4, 8}}),
          soon({{"a", 200, 300}, {"b", 8, 8}}),
          soon({{"a", 250, 60 + shift}}),
          wait,
          soon({{"b", 0, 600}}),
          soon({{"b", 100, 16}}),
          change("commit a transaction", {{"b", 50, 100 + shift}}, Run::Ending::commit),  // a frame of its own
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
  const auto joined = [](Run& run) { run.persist_joined_by_another("a"); };
  return {open(),
          map("a", 8192),
          store("a", 0, 300 + shift),
          {"persist a, joined by another thread", joined},
          store("a", 200, 300),
          {"persist a, joined by another thread", joined},
          close()};
}

namespace {
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

}  // namespace

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

}  // namespace memlith::lab
