// Choosing pages, changing them, and persisting that.
#include "workload.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "cli/clock.hpp"
#include "cli/interrupt.hpp"
#include "memlith/track.h"
#include "raw_device.hpp"

namespace memlith::tool {

namespace {
// Small enough to stay in a core's cache: the stores are measured, not the reading of what is stored.
constexpr std::uint64_t kSourceBytes = 64 * kKiB;
// Filling goes through the log, so it goes in pieces that any log takes.
constexpr std::uint64_t kFillBytes = kMiB;
constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);
}  // namespace

Scope resolve_scope(Scope scope, std::uint32_t tracker) {
  if (scope != Scope::automatic) return scope;
  const bool is_told = tracker == MEMLITH_TRACKER_EXPLICIT || tracker == MEMLITH_TRACKER_INSTRUMENTED;
  return is_told ? Scope::touch : Scope::stores;
}

const char* name_of(Scope scope) {
  switch (scope) {
    case Scope::stores: return "stores";
    case Scope::touch: return "touch";
    case Scope::persist: return "persist";
    case Scope::automatic: break;
  }
  return "automatic";
}

// The first `count` steps of a Fisher-Yates shuffle.
std::span<const std::uint32_t> RandomPages::choose(Random& random, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) std::swap(order_[i], order_[i + random.below(order_.size() - i)]);
  return std::span(order_).first(count);
}

RandomPages::RandomPages(std::uint64_t pages) : order_(pages) { std::iota(order_.begin(), order_.end(), 0u); }

Workload::Workload(memlith_store* store, memlith_region* region, const RoundShape& shape, std::uint64_t seed)
    : store_(store),
      region_(region),
      base_(static_cast<std::byte*>(memlith_region_address(region))),
      shape_(shape),
      random_(seed),
      source_(kSourceBytes),
      pages_(memlith_region_size(region) / kPageBytes),
      changes_(shape.pages) {
  random_.fill(source_);
}

MaybeFailure Workload::fill() {
  const std::uint64_t region_bytes = pages_.size() * kPageBytes;
  for (std::uint64_t begin = 0; begin < region_bytes; begin += kFillBytes) {
    if (interrupted()) return interrupted_failure();
    const std::uint64_t end = std::min(begin + kFillBytes, region_bytes);
    for (std::uint64_t at = begin; at < end; at += kPageBytes) {
      std::memcpy(base_ + at, content(), kPageBytes);
    }
    std::int32_t code = MEMLITH_OK;
    if (shape_.tracker == MEMLITH_TRACKER_EXPLICIT) code = memlith_touch(region_, base_ + begin, end - begin);
    if (shape_.tracker == MEMLITH_TRACKER_INSTRUMENTED) memlith_track_store(base_ + begin, end - begin);
    if (code != MEMLITH_OK) return library_failure(code, "touching the region");
    code = memlith_persist(&region_, 1, MEMLITH_SCOPE_PROCESS);
    if (code != MEMLITH_OK) return library_failure(code, "filling the region");
  }
  return {};
}

// A page of it, each time from elsewhere.
const std::byte* Workload::content() {
  return source_.data() + random_.below((kSourceBytes - kPageBytes) / kWordBytes) * kWordBytes;
}

void Workload::set_pages(std::uint64_t pages) {
  shape_.pages = pages;
  changes_.resize(pages);
}

void Workload::choose() {
  if (shape_.same_pages && chosen_) {
    for (Change& change : changes_) change.source = content();
    return;
  }
  chosen_ = true;
  if (shape_.hot_pages > 0) return choose_beside_hot();
  const std::uint64_t slack_words = (kPageBytes - shape_.bytes_per_page) / kWordBytes;
  std::size_t next = 0;
  for (const std::uint64_t page : pages_.choose(random_, shape_.pages)) {
    const std::uint64_t in_page = random_.below(slack_words + 1) * kWordBytes;
    changes_[next++] = {base_ + page * kPageBytes + in_page, content()};
  }
}

// The other pages are random ones, at most as many as the region has behind the hot ones.
void Workload::choose_beside_hot() {
  const std::uint64_t slack_words = (kPageBytes - shape_.bytes_per_page) / kWordBytes;
  std::uint64_t next = 0;
  const auto add = [&](std::uint64_t page) {
    const std::uint64_t in_page = random_.below(slack_words + 1) * kWordBytes;
    changes_[next++] = {base_ + page * kPageBytes + in_page, content()};
  };
  const std::uint64_t hot = std::min(shape_.hot_pages, shape_.pages);
  for (std::uint64_t page = 0; page < hot; ++page) add(page);
  for (const std::uint64_t page : pages_.choose(random_, std::min(2 * shape_.pages, pages_.size()))) {
    if (page >= hot && next < shape_.pages) add(page);
  }
}

void Workload::store() const {
  for (const Change& change : changes_) std::memcpy(change.target, change.source, shape_.bytes_per_page);
}

std::int32_t Workload::touch() const {
  if (shape_.tracker == MEMLITH_TRACKER_INSTRUMENTED) {
    // The calls that memlith-cc puts behind each store.
    for (const Change& change : changes_) memlith_track_store(change.target, shape_.bytes_per_page);
    return MEMLITH_OK;
  }
  if (shape_.tracker != MEMLITH_TRACKER_EXPLICIT) return MEMLITH_OK;
  std::int32_t code = MEMLITH_OK;
  for (const Change& change : changes_) {
    const std::int32_t touched = memlith_touch(region_, change.target, shape_.bytes_per_page);
    if (touched != MEMLITH_OK) code = touched;
  }
  return code;
}

std::int32_t Workload::persist() {
  if (shape_.asynchronous) return memlith_persist_async(&region_, 1, MEMLITH_SCOPE_PROCESS, &ticket_);
  return memlith_persist(&region_, 1, MEMLITH_SCOPE_PROCESS);
}

MaybeFailure Workload::round(std::uint64_t& elapsed_ns) {
  choose();
  std::int32_t touched = MEMLITH_OK;
  if (shape_.scope != Scope::stores) store();
  if (shape_.scope == Scope::persist) touched = touch();

  const std::uint64_t start = now_ns();
  if (shape_.scope == Scope::stores) store();
  if (shape_.scope != Scope::persist) touched = touch();
  std::int32_t persisted = persist();
  elapsed_ns = now_ns() - start;
  if (persisted == MEMLITH_OK && shape_.asynchronous) persisted = memlith_wait(store_, ticket_);

  if (touched != MEMLITH_OK) return library_failure(touched, "touching the region");
  if (persisted != MEMLITH_OK) return library_failure(persisted, "persisting the region");
  return {};
}

MaybeFailure Workload::capture() {
  choose();
  store();
  if (const std::int32_t code = touch(); code != MEMLITH_OK) return library_failure(code, "touching the region");
  const std::int32_t code = memlith_persist_async(&region_, 1, MEMLITH_SCOPE_PROCESS, &ticket_);
  return code == MEMLITH_OK ? MaybeFailure{} : library_failure(code, "capturing the region");
}

MaybeFailure Workload::round_in_parts(bool asynchronous, RoundParts& parts) {
  choose();
  shape_.asynchronous = asynchronous;
  const std::uint64_t start = now_ns();
  store();
  const std::uint64_t stored = now_ns();
  const std::int32_t touched = touch();
  const std::uint64_t told = now_ns();
  std::int32_t persisted = persist();
  const std::uint64_t returned = now_ns();
  if (persisted == MEMLITH_OK && asynchronous) persisted = memlith_wait(store_, ticket_);
  const std::uint64_t durable = now_ns();
  parts = {stored - start, told - stored, returned - told, asynchronous ? durable - returned : 0};
  if (touched != MEMLITH_OK) return library_failure(touched, "touching the region");
  if (persisted != MEMLITH_OK) return library_failure(persisted, "persisting the region");
  return {};
}

}  // namespace memlith::tool
