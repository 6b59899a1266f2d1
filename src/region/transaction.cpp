#include "region/transaction.hpp"

#include <algorithm>
#include <cstring>

namespace memlith::core {

namespace {

constexpr std::uint64_t kExtentBytesMax = 1 * kGiB;
constexpr std::size_t kImageBytesKept = 1 * kMiB;  // of a transaction that has ended

}  // namespace

Region* Transaction::joined(const void* address) const {
  for (const Joined& each : regions_) {
    const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - each.region->address());
    if (offset < each.region->reserve()) return each.region;
  }
  return nullptr;
}

Status Transaction::join(Region& region) {
  const auto is_it = [&region](const Joined& each) { return each.region == &region; };
  if (std::any_of(regions_.begin(), regions_.end(), is_it)) return kOk;
  MEMLITH_TRY(region.check_transactions());
  if (&region.store() != &store_) {
    return fail(Errc::invalid, Detail::argument, "region \"{}\" belongs to another store than the transaction",
                region.shown_name());
  }
  regions_.push_back({&region, nullptr});
  try {
    regions_.back().shard = region.transactions().add(*this);
    MEMLITH_ASSERT(regions_.back().shard != nullptr);
  } catch (...) {
    regions_.pop_back();
    throw;
  }
  return kOk;
}

void Transaction::add(Region& region, Range range) {
  MEMLITH_ASSERT(range.bytes > 0 && range.bytes <= kExtentBytesMax);
  const std::byte* const from = region.address() + range.offset;
  std::uint64_t image = images_.size();
  if (range.bytes <= kFewBytes) {
    copy_few(reinterpret_cast<std::byte*>(&image), from, range.bytes);
  } else {
    images_.insert(images_.end(), from, from + range.bytes);
  }
  touched_.push_back({&region, range, image});
}

Status Transaction::touch_before(Region& region, const void* address, std::uint64_t bytes) {
  MEMLITH_TRY_ASSIGN(const Range range, region.range_of(address, bytes));
  MEMLITH_TRY(join(region));
  if (!touched_.empty() && touched_.back().region == &region) {
    const Range& last = touched_.back().range;
    if (range.offset >= last.offset && range.offset + bytes <= last.offset + last.bytes) return kOk;
  }
  const std::size_t touched = touched_.size();
  try {
    for (std::uint64_t done = 0; done < bytes; done += kExtentBytesMax) {
      add(region, {range.offset + done, std::min(bytes - done, kExtentBytesMax)});
    }
  } catch (...) {
    touched_.resize(touched);
    throw;
  }
  return kOk;
}

// The ranges in order, without those that others cover.
void Transaction::collect_extents() {
  sorted_ = touched_;
  std::sort(sorted_.begin(), sorted_.end(), [](const Touched& a, const Touched& b) {
    return a.region != b.region ? a.region->object() < b.region->object() : a.range.offset < b.range.offset;
  });
  for (const Touched& each : sorted_) {
    const ObjectId object = each.region->object();
    if (!extents_.empty() && extents_.back().object == object) {
      Extent& last = extents_.back();
      const std::uint64_t end = std::max(last.offset + last.bytes, each.range.offset + each.range.bytes);
      if (each.range.offset <= last.offset + last.bytes && end - last.offset <= kExtentBytesMax) {
        last.bytes = end - last.offset;
        continue;
      }
    }
    extents_.push_back({object, each.range.offset, each.range.bytes});
    sources_.push_back(each.region->address() + each.range.offset);
  }
  MEMLITH_ASSERT(extents_.size() == sources_.size() && extents_.size() <= touched_.size());
}

// ORDER size-before-bytes: bytes beyond the size that the log knows must not be in it before the size is.
// [mutant transaction_without_size]
Status Transaction::commit_sizes(bool will_sync) {
  for (const Joined& each : regions_) {
    MEMLITH_TRY(each.region->commit_size(will_sync));
  }
  return kOk;
}

void Transaction::note_commit(Lsn end) {
  for (const Joined& each : regions_) {
    each.region->note_commit(end);
  }
  note_copied();
}

// Size of extents_ and sources_.
Result<Lsn> Transaction::commit(bool will_sync) {
  MEMLITH_ASSERT(extents_.size() == sources_.size());
  MEMLITH_TRY(store_.close_collectors());
  MEMLITH_TRY(commit_sizes(will_sync));
  MEMLITH_TRY_ASSIGN(const Lsn end, store_.commit_weak({extents_, sources_, {}}, will_sync));
  note_commit(end);
  return end;
}

// The pages of the extents, which are in the order of their regions' objects or belong to few regions.
void Transaction::note_copied() {
  for (const Extent& extent : extents_) {
    const auto joined = std::find_if(regions_.begin(), regions_.end(),
                                     [&extent](const Joined& each) { return each.region->object() == extent.object; });
    MEMLITH_ASSERT(joined != regions_.end());  // only regions that have joined have extents
    joined->region->note_copied({extent.offset, extent.bytes});
  }
}

Result<Lsn> Transaction::capture(bool will_sync) {
  extents_.clear();
  sources_.clear();
  collect_extents();
  if (!parts_.empty()) {
    auto end = commit_with_parts(will_sync);
    for (const Part& each : parts_) {
      if (end.ok()) each.participant->settle();
    }
    return end;
  }
  if (extents_.empty()) {
    MEMLITH_TRY(store_.failure());
    return Lsn{};
  }
  return commit(will_sync);
}

void Transaction::abort() {
  // ORDER newest-image-first: a range that was announced twice gets the bytes of its first image.
  // [mutant abort_oldest_image_last]
  for (auto each = touched_.rbegin(); each != touched_.rend(); ++each) {
    const bool few = each->range.bytes <= kFewBytes;
    MEMLITH_ASSERT(each->range.offset + each->range.bytes <= each->region->size());
    MEMLITH_ASSERT(few || each->image + each->range.bytes <= images_.size());
    const auto* const image = few ? reinterpret_cast<const std::byte*>(&each->image) : images_.data() + each->image;
    std::memcpy(each->region->address() + each->range.offset, image, each->range.bytes);
  }
  for (const Part& each : parts_) each.participant->abort();
  forget();
}

void Transaction::forget() {
  for (const Joined& each : regions_) OpenTransactions::remove(each.shard, *this);
  for (const Part& each : parts_) OpenTransactions::remove(each.shard, *this);
  parts_.clear();
  regions_.clear();
  touched_.clear();
  images_.clear();
  if (images_.capacity() > kImageBytesKept) std::vector<std::byte>().swap(images_);
}

}  // namespace memlith::core
