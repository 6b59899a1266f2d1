#include "support/crash_world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/power_cuts.hpp"
#include "support/sanitizers.hpp"

namespace memlith::test {

using namespace core;

namespace {

constexpr std::uint64_t kFailuresMax = 3;  // reported in full; more of them say nothing new

std::uint64_t g_distinct_total = 0;

// Prints the evidence once, at the end of the program.
class Total : public ::testing::Environment {
 public:
  void TearDown() override {
    std::printf("distinct crash states: %llu\n", static_cast<unsigned long long>(g_distinct_total));
  }
};
const auto* const g_total = ::testing::AddGlobalTestEnvironment(new Total);

// Contents are compared by this: there are thousands, of some hundred KiB each.
std::uint64_t fingerprint(const Content& content) {
  std::uint64_t print = content.exists ? 1 : 0;
  for (const auto& [name, bytes] : content.objects) {
    print = checksum(std::as_bytes(std::span(name)), print);
    print = checksum(bytes, print + bytes.size());
  }
  return print;
}

// The images of a disk come and go by the hundred thousand: memory for them must not be the kernel's each time.
[[maybe_unused]] const int g_malloc_keeps = mallopt(M_MMAP_THRESHOLD, 1 << 30) + mallopt(M_TRIM_THRESHOLD, 1 << 30);

std::string describe(const Content& content) {
  if (!content.exists) return "no store";
  std::string text = "store with";
  for (const auto& [name, bytes] : content.objects) {
    text += fmt::format(" {}[{}]:{:016x}", name, bytes.size(), checksum(bytes, 0));
  }
  return text;
}

}  // namespace

std::uint64_t seed_for_this_run() {
  const char* const given = std::getenv("MEMLITH_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : random_identity();
  std::printf("seed %llu (replay with MEMLITH_SEED=%llu)\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(seed));
  return seed;
}

std::size_t scaled(std::size_t samples) { return kSanitized ? std::max<std::size_t>(2, samples / 8) : samples; }

StoreOptions small_store_options() {
  StoreOptions options;
  options.create = true;
  options.manual_checkpoint = true;
  options.slot_bytes = 4096;
  options.log_bytes = 4 * 4096;
  options.log_max_bytes = 16 * 4096;
  options.log.batch_bytes = 4096;
  options.log.stream_chunk_bytes = 4096;
  options.log.window_bytes = 4096;
  options.log.recovery_window_bytes = 4096;
  options.direct_replay_bytes_min = 0;
  options.home_flush_bytes = 2 * kPageBytes;
  return options;
}

CrashWorld::CrashWorld(StoreOptions options, SimImage start, Content before)
    : options_(std::move(options)), before_(std::move(before)), volume_(std::move(start), true) {}

std::size_t CrashWorld::started(Change change) {
  const std::size_t now = volume_.operations();
  const std::lock_guard lock(mutex_);
  Commit commit;
  commit.change = std::move(change);
  commit.started_at = now;
  commit.number = commits_.size();
  commits_.push_back(std::move(commit));
  return commits_.size() - 1;
}

void CrashWorld::placed(std::size_t commit, Lsn lsn) {
  const std::lock_guard lock(mutex_);
  commits_[commit].lsn = lsn;
}

void CrashWorld::acknowledged(std::size_t commit) {
  const std::size_t now = volume_.operations();
  const std::lock_guard lock(mutex_);
  commits_[commit].acknowledged_at = now;
}

void CrashWorld::compute_contents() {
  std::sort(commits_.begin(), commits_.end(),
            [](const Commit& a, const Commit& b) { return a.lsn != b.lsn ? a.lsn < b.lsn : a.number < b.number; });
  contents_.assign(1, before_);
  prints_.assign(1, fingerprint(before_));
  for (const Commit& commit : commits_) {
    contents_.push_back(contents_.back());
    commit.change(contents_.back());
    prints_.push_back(fingerprint(contents_.back()));
  }
}

Result<Content> CrashWorld::recover(SimVolume& volume, const StoreOptions& options) {
  StoreOptions reopen = options;
  reopen.create = false;
  Content content;
  auto store = Store::open(volume, reopen);
  if (!store.ok()) {
    if (store.error().category != Errc::not_found) return store.error();
    // No store yet; a one-file store's file must be what it was.
    if (options.kind == StoreKind::folder) return content;
    const SimImage image = volume.image();
    if (const auto file = image.files.find(options.file_name); file != image.files.end()) {
      content.objects["file"] = *file->second;
    }
    return content;
  }
  content.exists = true;
  for (const ObjectInfo& object : (*store)->objects()) {
    MEMLITH_TRY_ASSIGN(content.objects[object.name], (*store)->read_home(object.id));
  }
  return content;
}

std::int64_t CrashWorld::match(std::uint64_t print, std::size_t first, std::size_t last) const {
  for (std::size_t p = last + 1; p-- > first;) {
    if (prints_[p] == print) return static_cast<std::int64_t>(p);
  }
  return -1;
}

// Returns the commit that the image recovers to, -1 after reporting a failure.
std::int64_t CrashWorld::check_image(const SimImage& image, std::size_t first, std::size_t last,
                                     const ExploreOptions& options, Random& random, const std::string& where) {
  ++result_.states;
  const std::uint64_t hash = image.hash();
  if (const auto known = seen_.find(hash); known != seen_.end()) {
    const auto p = known->second;
    // The same medium at another moment: it recovers to the same commit, which must suit this moment too. Commits that
    // leave the content as it was cannot be told apart, so the content decides.
    if (p >= 0 && match(prints_[static_cast<std::size_t>(p)], first, last) >= 0) return p;
    if (p < 0) return p;
  }
  ++result_.distinct;
  ++g_distinct_total;
  ++result_.recoveries;
  SimVolume volume(image, true);
  auto content = recover(volume, options_);
  std::int64_t p = -1;
  std::string found;
  if (content.ok()) {
    p = match(fingerprint(*content), first, last);
    found = describe(*content);
  } else {
    found = "error: " + std::string(last_error_text());
  }
  seen_[hash] = p;
  if (p < 0) {
    if (++failures_ <= kFailuresMax) {
      ADD_FAILURE() << where << "\n  recovered: " << found << "\n  expected one of commits " << first << " to " << last
                    << ", from " << describe(contents_[first]) << "\n  to " << describe(contents_[last])
                    << "\n  what was done:\n"
                    << volume_.trace().describe(~std::size_t{0});
    }
    return p;
  }
  // Recovering twice gives the same bytes.
  SimVolume again(volume.image());
  auto second = recover(again, options_);
  ++result_.recoveries;
  if (!second.ok() || fingerprint(*second) != fingerprint(*content)) {
    ++failures_;
    ADD_FAILURE() << where << "\n  a second recovery changed the content to "
                  << (second.ok() ? describe(*second) : std::string(last_error_text()));
  }
  if (result_.distinct % options.recovery_every == 0) check_recovery_crashes(volume.trace(), p, options, random, where);
  return p;
}

// Crashes the recovery itself at each of its operations.
void CrashWorld::check_recovery_crashes(const SimTrace& trace, std::int64_t expected, const ExploreOptions& options,
                                        Random& random, const std::string& where) {
  SimMedium medium(trace);
  for (std::size_t at = 0; at < trace.records.size() && failures_ <= kFailuresMax; ++at) {
    medium.step();
    for (PowerCuts cuts(medium, {2, options.recovery_samples}, random); cuts.next();) {
      const SimImage image = cuts.image();
      ++result_.states;
      const std::uint64_t hash = image.hash();
      if (const auto known = seen_.find(hash);
          known != seen_.end() && known->second >= 0 &&
          prints_[static_cast<std::size_t>(known->second)] == prints_[static_cast<std::size_t>(expected)]) {
        continue;
      }
      ++result_.distinct;
      ++g_distinct_total;
      ++result_.recoveries;
      SimVolume volume(image);
      const auto content = recover(volume, options_);
      const bool right = content.ok() && fingerprint(*content) == prints_[static_cast<std::size_t>(expected)];
      seen_[hash] = right ? expected : -1;
      if (!right && ++failures_ <= kFailuresMax) {
        ADD_FAILURE() << where << "\n  then a crash after operation " << at << " of the recovery, subset "
                      << cuts.number()
                      << "\n  recovered: " << (content.ok() ? describe(*content) : std::string(last_error_text()))
                      << "\n  expected commit " << expected << ": "
                      << describe(contents_[static_cast<std::size_t>(expected)]) << "\n  the recovery:\n"
                      << trace.describe(~std::size_t{0});
      }
    }
  }
}

void CrashWorld::check_kill(std::size_t at, std::size_t first, std::size_t last, const ExploreOptions& options,
                            Random& random, std::uint64_t seed) {
  SimVolume killed(volume_.trace(), at);
  const auto content = recover(killed, options_);
  ++result_.recoveries;
  const std::int64_t p = content.ok() ? match(fingerprint(*content), first, last) : -1;
  if (p < 0) {
    ++failures_;
    ADD_FAILURE() << "kill -9 after operation " << at << " (seed " << seed
                  << ")\n  recovered: " << (content.ok() ? describe(*content) : std::string(last_error_text()))
                  << "\n  expected one of commits " << first << " to " << last;
    return;
  }
  const SimTrace& trace = killed.trace();
  SimMedium medium(trace);
  for (std::size_t next = 0; next < trace.records.size() && failures_ <= kFailuresMax; ++next) {
    medium.step();
    if (next < at) continue;
    for (PowerCuts cuts(medium, {2, options.recovery_samples}, random); cuts.next();) {
      // The commits that the recovery found may have been in flight; later ones were not found.
      check_image(cuts.image(), first, static_cast<std::size_t>(p), options, random,
                  fmt::format("kill -9 after operation {}, then a power cut after operation {} of {} (subset {}, seed "
                              "{})",
                              at, next, trace.records.size(), cuts.number(), seed));
    }
  }
}

ExploreResult CrashWorld::explore(const ExploreOptions& options, std::uint64_t seed) {
  compute_contents();
  Random random(seed);
  const SimTrace& trace = volume_.trace();
  SimMedium medium(trace);
  for (std::size_t at = 0; at <= trace.records.size() && failures_ <= kFailuresMax; ++at) {
    if (at > 0) medium.step();
    if (kSanitized && at % 4 != seed % 4) continue;  // a sanitizer is ten times slower
    ++result_.crash_points;
    std::size_t first = 0;
    for (std::size_t i = 0; i < commits_.size(); ++i) {
      if (commits_[i].acknowledged_at <= at) first = i + 1;
    }
    std::size_t last = first;
    while (last < commits_.size() && commits_[last].started_at <= at) ++last;

    const std::size_t pending = medium.pending_count();
    if (pending > 0) check_kill(at, first, last, options, random, seed);
    for (PowerCuts cuts(medium, {options.exhaustive_items_max, options.samples}, random); cuts.next();) {
      const std::string where =
          fmt::format("crash after operation {} of {} ({} unflushed items, subset {}{}, seed {})", at,
                      trace.records.size(), pending, cuts.number(), cuts.exhaustive() ? "" : " by seed", seed);
      check_image(cuts.image(), first, last, options, random, where);
    }
  }
  std::printf("  crash points %llu, states %llu, distinct %llu, recoveries %llu\n",
              static_cast<unsigned long long>(result_.crash_points), static_cast<unsigned long long>(result_.states),
              static_cast<unsigned long long>(result_.distinct), static_cast<unsigned long long>(result_.recoveries));
  EXPECT_GT(result_.distinct, 0u);
  return result_;
}

}  // namespace memlith::test
