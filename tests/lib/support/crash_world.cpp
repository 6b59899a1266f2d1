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
using lab::describe;
using lab::fingerprint;

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

// The images of a disk come and go by the hundred thousand: memory for them must not be the kernel's each time.
[[maybe_unused]] const int g_malloc_keeps = mallopt(M_MMAP_THRESHOLD, 1 << 30) + mallopt(M_TRIM_THRESHOLD, 1 << 30);

}  // namespace

void count_distinct_state() { ++g_distinct_total; }

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
    : options_(std::move(options)), volume_(std::move(start), true), history_(std::move(before)) {}

// All commits are of one group, so that their places in the log order them.
std::size_t CrashWorld::started(Change change) {
  const std::size_t commit = history_.started({}, std::move(change), volume_.operations(), 1);
  history_.placed(commit, Lsn{});
  return commit;
}

void CrashWorld::placed(std::size_t commit, Lsn lsn) { history_.placed(commit, lsn); }

void CrashWorld::acknowledged(std::size_t commit) { history_.acknowledged(commit, volume_.operations()); }

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

std::int64_t CrashWorld::match(lab::Fingerprint print, const Expected& allowed) {
  for (std::size_t p = allowed.last + 1; p-- > allowed.first;) {
    if (allowed.contents[p] == print) return static_cast<std::int64_t>(p);
  }
  return -1;
}

// Returns the commit that the image recovers to, -1 after reporting a failure.
std::int64_t CrashWorld::check_image(const SimImage& image, const Expected& allowed, const ExploreOptions& options,
                                     Random& random, const std::string& where) {
  ++result_.states;
  const std::uint64_t hash = image.hash();
  if (const auto known = seen_.find(hash); known != seen_.end()) {
    const auto p = known->second;
    // The same medium at another moment: it recovers to the same commit, which must suit this moment too. Commits that
    // leave the content as it was cannot be told apart, so the content decides.
    if (p < 0 || match(allowed.contents[static_cast<std::size_t>(p)], allowed) >= 0) return p;
  }
  ++result_.distinct;
  count_distinct_state();
  ++result_.recoveries;
  SimVolume volume(image, true);
  auto content = recover(volume, options_);
  std::int64_t p = -1;
  std::string found;
  if (content.ok()) {
    p = match(fingerprint(*content), allowed);
    found = describe(*content);
  } else {
    found = "error: " + std::string(last_error_text());
  }
  seen_[hash] = p;
  if (p < 0) {
    if (++failures_ <= kFailuresMax) {
      const auto content_of = [&](std::size_t count) { return describe(history_.content(0, count)); };
      ADD_FAILURE() << where << "\n  recovered: " << found << "\n  expected one of commits " << allowed.first << " to "
                    << allowed.last << ", from " << content_of(allowed.first) << "\n  to " << content_of(allowed.last)
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
  const auto prints = history_.expected(0).contents;
  const lab::Fingerprint wanted = prints[static_cast<std::size_t>(expected)];
  if (trace.records.empty()) return;
  for (CrashPoints points(trace, 1); failures_ <= kFailuresMax && points.next();) {
    for (PowerCuts cuts(points.medium(), {2, options.recovery_samples}, random); cuts.next();) {
      const SimImage image = cuts.image();
      ++result_.states;
      const std::uint64_t hash = image.hash();
      if (const auto known = seen_.find(hash);
          known != seen_.end() && known->second >= 0 && prints[static_cast<std::size_t>(known->second)] == wanted) {
        continue;
      }
      ++result_.distinct;
      count_distinct_state();
      ++result_.recoveries;
      SimVolume volume(image);
      const auto content = recover(volume, options_);
      const bool right = content.ok() && fingerprint(*content) == wanted;
      seen_[hash] = right ? expected : -1;
      if (!right && ++failures_ <= kFailuresMax) {
        ADD_FAILURE() << where << "\n  then a crash after operation " << points.at() << " of the recovery, subset "
                      << cuts.number()
                      << "\n  recovered: " << (content.ok() ? describe(*content) : std::string(last_error_text()))
                      << "\n  expected commit " << expected << ": "
                      << describe(history_.content(0, static_cast<std::size_t>(expected))) << "\n  the recovery:\n"
                      << trace.describe(~std::size_t{0});
      }
    }
  }
}

void CrashWorld::check_kill(std::size_t at, Expected allowed, const ExploreOptions& options, Random& random,
                            std::uint64_t seed) {
  SimVolume killed(volume_.trace(), at);
  const auto content = recover(killed, options_);
  ++result_.recoveries;
  const std::int64_t p = content.ok() ? match(fingerprint(*content), allowed) : -1;
  if (p < 0) {
    ++failures_;
    ADD_FAILURE() << "kill -9 after operation " << at << " (seed " << seed
                  << ")\n  recovered: " << (content.ok() ? describe(*content) : std::string(last_error_text()))
                  << "\n  expected one of commits " << allowed.first << " to " << allowed.last;
    return;
  }
  // The commits that the recovery found may have been in flight; later ones were not found.
  allowed.last = static_cast<std::size_t>(p);
  const SimTrace& trace = killed.trace();
  if (trace.records.size() == at) return;
  for (CrashPoints points(trace, at + 1); failures_ <= kFailuresMax && points.next();) {
    for (PowerCuts cuts(points.medium(), {2, options.recovery_samples}, random); cuts.next();) {
      check_image(cuts.image(), allowed, options, random,
                  fmt::format("kill -9 after operation {}, then a power cut after operation {} of {} (subset {}, seed "
                              "{})",
                              at, points.at(), trace.records.size(), cuts.number(), seed));
    }
  }
}

ExploreResult CrashWorld::explore(const ExploreOptions& options, std::uint64_t seed) {
  history_.finish();
  Random random(seed);
  const SimTrace& trace = volume_.trace();
  for (CrashPoints points(trace); failures_ <= kFailuresMax && points.next();) {
    const std::size_t at = points.at();
    if (kSanitized && at % 4 != seed % 4) continue;  // a sanitizer is ten times slower
    ++result_.crash_points;
    const Expected allowed = history_.expected(at);
    const std::size_t pending = points.medium().pending_count();
    if (pending > 0) check_kill(at, allowed, options, random, seed);
    for (PowerCuts cuts(points.medium(), {options.exhaustive_items_max, options.samples}, random); cuts.next();) {
      const std::string where =
          fmt::format("crash after operation {} of {} ({} unflushed items, subset {}{}, seed {})", at,
                      trace.records.size(), pending, cuts.number(), cuts.exhaustive() ? "" : " by seed", seed);
      check_image(cuts.image(), allowed, options, random, where);
    }
  }
  std::printf("  crash points %llu, states %llu, distinct %llu, recoveries %llu\n",
              static_cast<unsigned long long>(result_.crash_points), static_cast<unsigned long long>(result_.states),
              static_cast<unsigned long long>(result_.distinct), static_cast<unsigned long long>(result_.recoveries));
  EXPECT_GT(result_.distinct, 0u);
  return result_;
}

}  // namespace memlith::test
