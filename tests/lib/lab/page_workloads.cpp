// Workloads of regions of which pages are hot, or are released while they are in use.
#include "steps.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

void add(std::vector<Step>& steps, std::vector<Step> more) {
  steps.insert(steps.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

std::vector<Step> hot_pages_of(Random& random, TrackerKind tracker) {
  const std::uint64_t shift = random.below(500);
  const Step rollback = step("roll a back", &Regions::rollback, std::vector<std::string>{"a"});
  std::vector<Step> steps{open(), map("a", 8192, tracker), map("b", 12288, tracker)};
  const auto heat = [&steps](std::uint64_t place) {
    for (std::uint64_t i = 0; i < 7; ++i) add(steps, {store("a", place + 8 * i, 4), persist({"a"})});
  };
  heat(100 + shift);
  add(steps, {store("a", 900, 8), persist({"a"}),                               //
              clear("a", 900, 8), persist({"a"}),                               // as it was when the page became hot
              store("a", 901, 2), store("b", 100, 12000), persist({"a", "b"}),  // does not fit
              clear("a", 901, 2), persist({"a"}), store("a", 902, 1), persist({"a"}), store("a", 905, 2),
              persist({"a", "b"}), persist({"a"}), checkpoint(),  // alone it does
              store("a", 40, 16 + shift), store("a", 5000, 10), rollback, persist({"a"})});
  heat(2000 + shift);
  for (int i = 0; i < 17; ++i) add(steps, {persist({"a"})});  // the page cools
  add(steps, {store("a", 2100, 3), persist({"a"}), abandon(), open(), map("a", 0, tracker), store("a", 2101, 5),
              persist({"a"})});
  return steps;
}

std::vector<Step> hot_pages(Random& random) { return hot_pages_of(random, TrackerKind::fault); }
std::vector<Step> hot_scanned_pages(Random& random) { return hot_pages_of(random, TrackerKind::scan); }

// A page without a twin is compared with its home, if that has what was captured last; here it has not, and the page
// becomes again as its home is.
std::vector<Step> page_homes(Random& random) {
  const std::uint64_t shift = random.below(500);
  std::vector<Step> steps{open(), map("a", 16384, TrackerKind::scan)};
  const auto lose_twin = [&steps](std::uint64_t page) {  // of a page that changes as a whole
    for (int i = 0; i < 3; ++i) add(steps, {store("a", page * 4096, 4096), persist({"a"})});
  };
  lose_twin(0);
  add(steps, {clear("a", 100 + shift, 80), persist({"a"}), checkpoint(), store("a", 8192 + shift, 20), persist({"a"}),
              store("a", 50 + shift, 30), persist({"a"})});
  lose_twin(1);
  add(steps, {checkpoint(), store("a", 4096 + shift, 9), persist({"a"}), clear("a", 4100 + shift, 60)});
  lose_twin(2);
  add(steps, {clear("a", 8192, 4096), persist({"a"}), abandon(), open(), map("a", 0, TrackerKind::scan),
              store("a", 4000, 200 + shift), persist({"a"}), clear("a", 4000, 200 + shift), persist({"a"}), close()});
  return steps;
}

// Stores that were not persisted stay in memory, whatever is released.
std::vector<Step> releases(Random& random) {
  const std::uint64_t shift = random.below(500);
  const Step release = step("release memory of a", &Regions::release, "a");
  return {open(),
          map("a", 12288),
          store("a", 100, 50 + shift),
          store("a", 8200, 20),
          persist({"a"}),
          release,
          store("a", 4000, 200 + shift),
          release,
          persist({"a"}),
          clear("a", 4000, 200 + shift),  // as the page was before
          release,
          persist({"a"}),
          store("a", 8000, 300),
          persist({"a"}),
          store("a", 8100, 8),
          release,
          abandon(),
          open(),
          map("a", 12288),
          store("a", 200, 30 + shift),
          persist({"a"}),
          release,
          store("a", 210, 5),
          persist({"a"}),
          checkpoint(),  // of what the release brought home, and of more
          store("a", 8300, 40),
          persist({"a"}),
          release,
          checkpoint(),  // of that alone
          store("a", 220, 5 + shift),
          persist({"a"}),
          store("a", 8400, 40),
          persist({"a"}),
          store("a", 230, 5),
          persist({"a"}),
          release,
          idle(),
          release,
          store("a", 240, 5),
          persist({"a"}),
          release,
          abandon(),
          open(),
          map("a", 12288),
          close()};
}

const Workload kPageWorkloads[] = {
    {"hot-pages",
     "pages that every persist changes, rolled back, too large for the log, changed back, at rest",
     stores::full_log,
     hot_pages,
     {.with_call_faults = false}},
    {"hot-scanned-pages",
     "the same, tracked by scanning",
     stores::full_log,
     hot_scanned_pages,
     {.with_call_faults = false}},
    {"page-homes",
     "pages without copies that become again as their homes are, or lack only bytes of them",
     stores::wide_slots,
     page_homes,
     {.with_call_faults = false}},
    {"releases",
     "memory of an explicit region that is released for a limit",
     stores::wide_slots,
     releases,
     {.with_call_faults = false}},
};

}  // namespace

std::span<const Workload> page_workloads() { return kPageWorkloads; }

}  // namespace memlith::lab
